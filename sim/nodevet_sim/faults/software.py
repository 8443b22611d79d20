"""Faults of the software around the driver. A function's docstring is the fault's documentation."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim import imex_files, torch_files
from nodevet_sim.faults.change import inside, installed
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.software_files import CDI, DIAG, RUNTIME, TOOLKIT, diagnostic, specification
from nodevet_sim.state import count_of

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MLX5 = "sys/module/mlx5_core"


def cdi_stale(healthy: Healthy, want: NoParams) -> Patch:
    """The CDI specification was made for an earlier driver: it names a libcuda.so that is gone."""
    healthy.gpu(None)
    old_library = "/usr/lib/x86_64-linux-gnu/libcuda.so.525.60.13"
    return Patch(root_files={CDI: specification(healthy.state, mounts=(old_library,))})


class Hidden(FaultParams):
    devices: Annotated[str, Field(pattern=r"^[0-9,]{1,64}$")] = "0"


def gpus_hidden(healthy: Healthy, want: Hidden) -> Patch:
    """A profile script shows every login only some of the GPUs.

    `devices`, of CUDA_VISIBLE_DEVICES, 0.
    """
    text = f"# for a test\nexport CUDA_VISIBLE_DEVICES={want.devices}\n"
    return Patch(root_files={"/etc/profile.d/site-cuda.sh": text})


def nccl_p2p_off(healthy: Healthy, want: NoParams) -> Patch:
    """/etc/nccl.conf has NCCL_P2P_DISABLE: NCCL copies nothing between GPUs, in any job."""
    return Patch(root_files={"/etc/nccl.conf": "NCCL_P2P_DISABLE=1\n"})


def library_preloaded(healthy: Healthy, want: NoParams) -> Patch:
    """A profile script makes every login load another library: LD_PRELOAD."""
    text = "export LD_PRELOAD=/opt/site/libtrace.so\n"
    return Patch(root_files={"/etc/profile.d/site-preload.sh": text})


def stubs_in_path(healthy: Healthy, want: NoParams) -> Patch:
    """A profile script puts the stubs of CUDA before the driver's libraries: LD_LIBRARY_PATH."""
    text = "export LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs\n"
    return Patch(root_files={"/etc/profile.d/site-stubs.sh": text})


def cdi_other_gpus(healthy: Healthy, want: NoParams) -> Patch:
    """The CDI specification names one GPU more than the node has, as after one was removed."""
    healthy.gpu(None)
    return Patch(root_files={CDI: specification(healthy.state, more=1)})


def diag_failed(healthy: Healthy, want: OneGpu) -> Patch:
    """The last diagnostic of DCGM failed: a GPU's memory.

    `gpu`, by its index: 3.
    """
    gpu = healthy.gpu(want.gpu)
    why = f"GPU {gpu}: detected 1 uncorrectable memory error"
    return Patch(root_files={DIAG: diagnostic(healthy.state, {("memory", gpu): why})}, gpu=gpu)


DCGMI = "/usr/sbin/dcgmi"  # where nodevet looks first
ANSWERS = """\
#!/bin/sh
case "$1" in
health) echo '{health}' ;;
discovery) echo '{count} GPUs found.' ;;
*) exit 1 ;;
esac
"""


class WatchStatus(OneGpu):
    watch: Annotated[str, Field(pattern=r"^[A-Za-z -]{1,30}$")] = "PCIe system"
    status: Annotated[str, Field(pattern=r"^(Warning|Failure)$")] = "Warning"


def dcgm_warning(healthy: Healthy, want: WatchStatus) -> Patch:
    """A health watch of DCGM warns of a GPU. Only dcgmi is simulated, not DCGM.

    `gpu`, by its index: 3; `watch`, PCIe system; `status`, Warning or Failure: Warning.
    """
    gpu = healthy.gpu(want.gpu)
    why = f"GPU {gpu} detected more than 8 PCIe replays per minute"
    watch = {"value": want.status, "overflow": why}
    errors = {"Errors": {"children": {want.watch: watch}}, "Overall Health": {"value": want.status}}
    document = {
        "body": {
            "GPU": {"children": {str(gpu): {"children": errors}}},
            "Overall Health": {"value": want.status},
        },
        "header": ["Health Monitor Report"],
    }
    return Patch(root_files={DCGMI: _dcgmi(document, count_of(healthy.state))}, gpu=gpu)


def dcgm_count(healthy: Healthy, want: NoParams) -> Patch:
    """DCGM sees one GPU less than NVML. Only dcgmi is simulated, not DCGM."""
    healthy.gpu(None)
    document = {
        "body": {"Overall Health": {"value": "Healthy"}},
        "header": ["Health Monitor Report"],
    }
    return Patch(root_files={DCGMI: _dcgmi(document, count_of(healthy.state) - 1)})


def _dcgmi(health: Mapping[str, object], gpus: int) -> str:
    return ANSWERS.format(health=json.dumps(health), count=gpus)


def dkms_not_built(healthy: Healthy, want: NoParams) -> Patch:
    """DKMS has the driver's source, but no build of it: the kernel's headers were missing."""
    version = healthy.state.get("driver_version", "550.90.07")
    conf = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n'
    return Patch(root_files={f"/var/lib/dkms/nvidia/{version}/source/dkms.conf": conf})


def secure_boot_on(healthy: Healthy, want: NoParams) -> Patch:
    """The firmware has secure boot turned on."""
    return Patch({SECURE_BOOT: b"\x06\x00\x00\x00\x01"})


class Release(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9][0-9.-]{1,30}$")] = "5.8-1.0.1"


def ofed_old(healthy: Healthy, want: Release) -> Patch:
    """The NICs use the driver of an old OFED.

    `version`, 5.8-1.0.1.
    """
    if not any(path.startswith(f"{MLX5}/") for path in healthy.files):
        raise FaultError("the node has no mlx5_core")
    return Patch({f"{MLX5}/version": f"{want.version}\n"})


def library_empty(healthy: Healthy, want: NoParams) -> Patch:
    """The driver's libcuda.so is empty, as a container tool leaves it after a mount."""
    healthy.gpu(None)
    files = "/usr/lib/*/libcuda.so.[0-9][0-9][0-9].* /usr/lib*/libcuda.so.[0-9][0-9][0-9].*"
    empty = f'for file in {files}; do [ ! -f "$file" ] || : >"$file"; done'
    return inside(empty)


def library_missing(healthy: Healthy, want: NoParams) -> Patch:
    """A library of the driver, libnvidia-ptxjitcompiler.so, is missing."""
    healthy.gpu(None)
    return inside("rm -f /usr/lib/*/libnvidia-ptxjitcompiler.so* /usr/lib*/libnvidia-ptxjit*.so*")


def toolkit_missing(healthy: Healthy, want: NoParams) -> Patch:
    """NVIDIA's container toolkit is not installed."""
    healthy.gpu(None)
    return inside(f"rm -f {TOOLKIT} {RUNTIME}")


class Unwanted(FaultParams):
    package: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{0,60}$")] = "snapd"
    version: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+~-]{0,40}$")] = "2.63"


def package_unwanted(healthy: Healthy, want: Unwanted) -> Patch:
    """A package is installed that should not be. It needs dpkg.

    `package`, snapd; `version`, 2.63.
    """
    return installed(want.package, want.version)


class Unfinished(FaultParams):
    package: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{0,60}$")] = "bash"


def package_unfinished(healthy: Healthy, want: Unfinished) -> Patch:
    """dpkg could not configure a package.

    `package`, bash.
    """
    block = f"/^Package: {want.package}$/,/^$/"
    status = "s/^Status: install ok installed$/Status: install ok half-configured/"
    edit = f"sed -i '{block}{status}' /var/lib/dpkg/status"
    return inside(f"[ -f /var/lib/dpkg/status ] && {edit}")


SCONTROL = "/usr/sbin/scontrol"  # where it is looked for first, whatever Slurm this machine has


def slurm_drained(healthy: Healthy, want: NoParams) -> Patch:
    """Slurm has drained the node and says why. Only scontrol is simulated, not Slurm."""
    row = "NodeName=$4 State=IDLE+DRAIN Reason=Xid 79 on GPU 3 [root@2026-11-20T02:11:00]"
    return Patch(root_files={SCONTROL: f'#!/bin/sh\necho "{row}"\n'})


def slurm_gpus_other(healthy: Healthy, want: NoParams) -> Patch:
    """Slurm counts one GPU less than the node has. Only scontrol is simulated, not Slurm."""
    healthy.gpu(None)
    gpus = count_of(healthy.state) - 1
    row = f"NodeName=$4 State=IDLE CfgTRES=cpu=224,mem=2000G,billing=224,gres/gpu={gpus}"
    return Patch(root_files={SCONTROL: f'#!/bin/sh\necho "{row}"\n'})


def imex_down(healthy: Healthy, want: NoParams) -> Patch:
    """IMEX does not run on a node of a multi-node NVLink domain.

    The node needs such a domain: `nvlink_domain: 18`.
    """
    _peers(healthy)
    return Patch(services={imex_files.UNIT: False})


def imex_channel_missing(healthy: Healthy, want: NoParams) -> Patch:
    """A node of a multi-node NVLink domain has no IMEX channel.

    The node needs such a domain: `nvlink_domain: 18`.
    """
    _peers(healthy)
    return Patch(devices={imex_files.CHANNEL: None})


def imex_peer_missing(healthy: Healthy, want: NoParams) -> Patch:
    """IMEX's list of peers lacks a node of the domain.

    The node needs such a domain: `nvlink_domain: 18`.
    """
    return Patch(root_files={imex_files.NODES: "".join(f"{row}\n" for row in _peers(healthy)[1:])})


def imex_peers_wrong(healthy: Healthy, want: NoParams) -> Patch:
    """IMEX's list of peers has one node of the domain twice, and lacks another.

    The node needs such a domain: `nvlink_domain: 18`.
    """
    first, *others = _peers(healthy)
    rows = (first, first, *others[1:])
    return Patch(root_files={imex_files.NODES: "".join(f"{row}\n" for row in rows)})


def _peers(healthy: Healthy) -> list[str]:
    """Raises FaultError if the node has no IMEX."""
    peers_text = healthy.root_files.get(imex_files.NODES)
    if peers_text is None:
        raise FaultError("the node is in no multi-node NVLink domain; give it nvlink_domain: 18")
    return str(peers_text).split()


def torch_cpu(healthy: Healthy, want: NoParams) -> Patch:
    """The torch of /opt/pytorch/bin/python is a wheel for CPUs."""
    healthy.gpu(None)
    files = torch_files.torch(f"{torch_files.VERSION}+cpu", None)
    return Patch(root_files={torch_files.TORCH: files})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "cdi-other-gpus": (NoParams, cdi_other_gpus),
    "cdi-stale": (NoParams, cdi_stale),
    "dcgm-count": (NoParams, dcgm_count),
    "dcgm-warning": (WatchStatus, dcgm_warning),
    "diag-failed": (OneGpu, diag_failed),
    "dkms-not-built": (NoParams, dkms_not_built),
    "gpus-hidden": (Hidden, gpus_hidden),
    "imex-channel-missing": (NoParams, imex_channel_missing),
    "imex-down": (NoParams, imex_down),
    "imex-peer-missing": (NoParams, imex_peer_missing),
    "imex-peers-wrong": (NoParams, imex_peers_wrong),
    "library-empty": (NoParams, library_empty),
    "library-missing": (NoParams, library_missing),
    "library-preloaded": (NoParams, library_preloaded),
    "nccl-p2p-off": (NoParams, nccl_p2p_off),
    "ofed-old": (Release, ofed_old),
    "package-unfinished": (Unfinished, package_unfinished),
    "package-unwanted": (Unwanted, package_unwanted),
    "secure-boot-on": (NoParams, secure_boot_on),
    "slurm-drained": (NoParams, slurm_drained),
    "slurm-gpus-other": (NoParams, slurm_gpus_other),
    "stubs-in-path": (NoParams, stubs_in_path),
    "toolkit-missing": (NoParams, toolkit_missing),
    "torch-cpu": (NoParams, torch_cpu),
}
