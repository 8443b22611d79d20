"""What many faults change in the same way: values of NVML, files of a folder, bits of a PCI
function's configuration. Pure."""

from collections.abc import Mapping
from typing import Literal

from nodevet_sim.description import Content
from nodevet_sim.faults.node import ONLY_INSIDE
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.software_files import DPKG, dpkg_rows


def gpu_values(healthy: Healthy, wanted: int | Literal["all"] | None, **values: object) -> Patch:
    """A GPU with these values, or all; `__` stands for a dot. Raises FaultError if NVML has no
    such value."""
    gpus = healthy.gpus("all") if wanted == "all" else (healthy.gpu(wanted),)
    keys = {key.replace("__", "."): str(value) for key, value in values.items()}
    state = {}
    for gpu in gpus:
        for key, value in keys.items():
            if healthy.text(gpu, key) is None:
                raise FaultError(f"GPU {gpu} has no {key}")
            state[f"gpu.{gpu}.{key}"] = value
    return Patch(state=state, gpu=None if wanted == "all" else gpus[0])


def link_values(healthy: Healthy, wanted: int | None, **values: object) -> Patch:
    """The first NVLink of a GPU with these values. Raises FaultError if NVML has no such value."""
    gpu = healthy.gpu(wanted)
    for key in values:
        healthy.number(gpu, f"nvlinks.*.{key}")
    state = {f"gpu.{gpu}.nvlinks.0.{key}": str(value) for key, value in values.items()}
    return Patch(state=state, gpu=gpu)


def file_values(healthy: Healthy, folder: str, values: Mapping[str, object]) -> Patch:
    """These files of a folder. Raises FaultError if the node lacks one."""
    files: dict[str, Content] = {f"{folder}/{name}": f"{text}\n" for name, text in values.items()}
    missing = sorted(files.keys() - healthy.files.keys())
    if missing:
        raise FaultError(f"the node has no {missing[0]}")
    return Patch(files)


def installed(package: str, version: str) -> Patch:
    """On a booted node, dpkg also lists this package."""
    text = "".join(f"{row}\\n" for row in ("", *dpkg_rows(package, version)))
    return inside(f"[ -f {DPKG} ] && printf '{text}' >>{DPKG}")


def inside(command: str) -> Patch:
    """A shell command of a node that is booted; it would harm a real machine."""
    return Patch(boot=(f"{ONLY_INSIDE} && {command}",))


def config_bits(healthy: Healthy, path: str, at: int, clear: int, add: int) -> bytes:
    """A configuration space with other bits in one word. Raises FaultError if it has no such."""
    config = healthy.files.get(path, b"")
    if not isinstance(config, bytes) or len(config) < at + 2:
        raise FaultError(f"{path} is too short")
    word = int.from_bytes(config[at : at + 2], "little") & ~clear | add
    return config[:at] + word.to_bytes(2, "little") + config[at + 2 :]
