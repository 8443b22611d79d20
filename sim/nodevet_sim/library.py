"""Builds the simulated libnvidia-ml.so.1 from the C sources next to this file; also writes its
state file.

What a state file says is in sim/nodevet_sim/nvml/state.h.
"""

import fcntl
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path

NAME = "libnvidia-ml.so.1"
FLAGS = ("-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden")
DEFAULT_STATE = "/run/nodevet-sim/nvml.state"
SINCE_BOOT = "# set since boot"
"""The line between the description and what setters wrote. See nvml/state.h."""

GPU_KEY = re.compile(r"gpu\.(\d+|\*)\.(.+)")
SETTING = re.compile(r"gpu\.(\d+)\.(.+)")
KEPT = ("ecc", "remapping.", "retired_pages.", "repair.", "recovery_action")
"""What a setter or a reset did to these stays: the board remembers it, or it is over."""

CURED = {
    "remapping.pending": ("1",),
    "retired_pages.pending": ("1",),
    "repair.channel_pending": ("1",),
    "repair.tpc_pending": ("1",),
    "recovery_action": ("GPU_RESET", "NODE_REBOOT", "DRAIN_AND_RESET", "SYSTEM_REBOOT"),
    "lost": ("1",),
}
"""The values that a boot ends, unless `cleared_by` says what else does."""
TRAINED = {"pcie_width": "pcie_width_max", "pcie_generation": "pcie_generation_max"}
"""The values that a boot restores if `cleared_by` says so, and the keys that have them."""
RESET_REQUIRED = "NVML_ERROR_RESET_REQUIRED"


class LibraryError(Exception):
    """The library could not be built; the message says why and what to do."""


def build(into: Path, *, without: Collection[str] = (), default: str = DEFAULT_STATE) -> Path:
    """Compile the library into the directory `into`; see `environment` for its use.

    `without` names functions to leave out, as drivers before or after them do. `default` is the
    state file if the environment names none; if it is missing too, nvmlInit returns
    NVML_ERROR_DRIVER_NOT_LOADED. Raises LibraryError.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LibraryError("gcc is not installed; install it (Debian, Ubuntu: apt install gcc)")
    into.mkdir(parents=True, exist_ok=True)
    target = into / NAME
    exports = into / "exports.map"
    hidden = "".join(f"{name}; " for name in sorted(without))
    exports.write_text(f"{{ global: nvml*; nodevet_sim_*; local: {hidden}*; }};\n")
    with as_file(files("nodevet_sim").joinpath("nvml")) as sources:
        command = [compiler, *FLAGS, f"-Wl,-soname,{NAME}", f"-Wl,--version-script={exports}"]
        command.append(f'-DNODEVET_SIM_DEFAULT_STATE="{default}"')
        command += ["-o", str(target), *map(str, sorted(sources.glob("*.c"))), "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    exports.unlink()
    if done.returncode != 0:
        raise LibraryError(f"gcc could not build {target}:\n{done.stderr.strip()}")
    return target


def environment(library: Path, state: Path) -> dict[str, str]:
    """The variables under which a process finds this library, answering from this state file."""
    return {"LD_LIBRARY_PATH": str(library.parent), "NODEVET_SIM_STATE": str(state)}


def update(state: Path, edit: Callable[[str], str]) -> None:
    """Change a state file under running clients: no setter's write is lost, and no reader
    sees half of it. Raises OSError."""
    with Path(f"{state}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = Path(f"{state}.new")
        new.write_text(edit(state.read_text(encoding="utf-8")), encoding="utf-8")
        new.chmod(0o644)
        new.replace(state)


def split(text: str) -> tuple[list[str], list[str] | None]:
    """The lines of the description, and those set since boot; None before the first boot."""
    lines = text.removesuffix("\n").split("\n")
    if SINCE_BOOT not in lines:
        return lines, None
    mark = lines.index(SINCE_BOOT)
    return lines[:mark], lines[mark + 1 :]


def pairs(lines: list[str]) -> dict[str, str]:
    """Key and value of each line except comments; of equal keys the last one."""
    halves = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in halves if equals}


def rebooted(text: str, *, powered: bool = False) -> str:
    """The state after a boot of the node; `powered`: after power off and on.

    A description that was never booted only gets the mark. Otherwise settings return to the
    described values; but ECC mode, and on Ampere MIG mode, become what was pending, cleared
    counters and repairs stay, and a boot clears the rest: volatile ECC counts, rows and pages that
    wait for a reset, the action asked for. (NVIDIA's Driver Persistence guide, "Data Persistence";
    MIG User Guide.)
    """
    described, settings = split(text)
    if settings is not None:
        before = pairs(described)
        kept = {key: value for key, value in pairs(settings).items() if is_kept(key, before)}
        kept.update(cured({**before, **kept}, powered=powered))
        described = [
            *drop_keys(described, kept.keys()),
            *(f"{key} = {value}" for key, value in kept.items()),
        ]
    return "\n".join([*described, SINCE_BOOT]) + "\n"


def is_kept(key: str, values: Mapping[str, str]) -> bool:
    """Whether what was set outlasts a boot: the MIG mode since Hopper does not."""
    setting = SETTING.fullmatch(key)
    if setting is None:
        return False
    ampere = value_of(values, int(setting[1]), "gpu_architecture") == "AMPERE"
    return setting[2].startswith((*KEPT, "mig_") if ampere else KEPT)


def value_of(values: Mapping[str, str], gpu: int, name: str) -> str:
    """The value of a GPU's key, "" if there is none."""
    return values.get(f"gpu.{gpu}.{name}", values.get(f"gpu.*.{name}", ""))


def drop_keys(lines: list[str], keys: Collection[str]) -> Iterator[str]:
    return (line for line in lines if line.partition("=")[0].strip() not in keys)


def cured(values: Mapping[str, str], *, powered: bool = False) -> Iterator[tuple[str, str]]:
    """The values of keys that a boot changes."""
    names = sorted({setting[2] for key in values if (setting := GPU_KEY.fullmatch(key))})
    for gpu in range(int(values.get("count", "0"))):
        own = {name: value_of(values, gpu, name) for name in names}
        for name, now in own.items():
            then = after_boot(name, own, powered=powered)
            if then != now:
                yield f"gpu.{gpu}.{name}", then


def after_boot(name: str, own: Mapping[str, str], *, powered: bool = False) -> str:
    """A GPU's value after a boot, given all its values."""
    now = own[name]
    if name.startswith("ecc.volatile_") and now.isdigit():
        return "0"
    stays = own.get("cleared_by") in (("nothing",) if powered else ("power", "nothing"))
    if not stays and (now == RESET_REQUIRED or now in CURED.get(name, ())):
        return "NONE" if name == "recovery_action" else "0"
    if name in TRAINED and "cleared_by" in own and not stays:
        return own.get(TRAINED[name], now)
    ampere = own.get("gpu_architecture") == "AMPERE"
    if name == "ecc_current" or (name == "mig_current" and ampere):
        pending = own.get(name.replace("current", "pending"), "")
        return pending if pending in ("0", "1") else now
    return now
