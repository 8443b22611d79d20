"""Section containers: what gives containers their GPUs."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

CDI_DEVICES = at_most(1024)  # of one specification: GPUs by index and UUID, their MIG devices
ENGINES = at_most(16)  # that run containers; seven are looked for


class CdiSpecification(Record, frozen=True, kw_only=True):
    """A specification of NVIDIA's for the Container Device Interface: /etc/cdi, /var/run/cdi."""

    path: Text
    kind: Text | None = None  # nvidia.com/gpu
    devices: Annotated[tuple[Text, ...], CDI_DEVICES] | None = None  # 0, GPU-..., all
    paths: int | None = None  # device nodes, files and hooks of the node that it names
    missing: int | None = None  # of these, that are not there
    # what is missing; the probe tells 256 of it
    examples: Annotated[tuple[Text, ...], CDI_DEVICES] | None = None
    driver_version: Text | None = None  # at the end of the libcuda.so that it names; "" without


class Engine(Record, frozen=True, kw_only=True):
    """A container engine that is installed, and which of its ways to GPUs are configured."""

    name: Text  # docker, containerd, crio, podman, enroot, k3s, rke2
    runtime: bool | None = None  # one of NVIDIA's is among its runtimes
    default_runtime: bool | None = None  # and is its default
    program: Text | None = None  # that this runtime is; "" if none is named
    program_exists: bool | None = None
    cdi: bool | None = None  # it takes CDI specifications
    hook: bool | None = None  # a hook of NVIDIA's does it: docker --gpus, Podman, Enroot


class Containers(SectionRecord, frozen=True, kw_only=True):
    """Files of engines and of NVIDIA's toolkit; no engine is asked."""

    unique = ("specifications[].path", "engines[].name")

    toolkit: Text | None = None  # a program of NVIDIA's toolkit, /usr/bin/nvidia-ctk; "" without
    # auto, legacy, cdi, jit-cdi: /etc/nvidia-container-runtime/config.toml; "" without that file
    mode: Text | None = None
    engines: Annotated[tuple[Engine, ...], ENGINES] | None = None
    specifications: Annotated[tuple[CdiSpecification, ...], CDI_DEVICES] | None = None
