"""Builds the pretended libnvidia-ml.so.1 from the C sources beside this file."""

import shutil
import subprocess
from collections.abc import Collection
from importlib.resources import as_file, files
from pathlib import Path

NAME = "libnvidia-ml.so.1"
FLAGS = ("-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden")


class LibraryError(Exception):
    """The library could not be built; the message says why and what to do."""


def build(into: Path, *, without: Collection[str] = ()) -> Path:
    """Compile the library into the directory `into`; see `environment` for its use.

    `without` names functions to leave out, as drivers before or after them do.
    Raises LibraryError.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LibraryError("gcc is not installed; install it (Debian, Ubuntu: apt install gcc)")
    into.mkdir(parents=True, exist_ok=True)
    target = into / NAME
    exports = into / "exports.map"
    hidden = "".join(f"{name}; " for name in sorted(without))
    exports.write_text(f"{{ global: nvml*; local: {hidden}*; }};\n")
    with as_file(files("nodevet.sim").joinpath("nvml")) as sources:
        command = [compiler, *FLAGS, f"-Wl,-soname,{NAME}", f"-Wl,--version-script={exports}"]
        command += ["-o", str(target), *map(str, sorted(sources.glob("*.c"))), "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    exports.unlink()
    if done.returncode != 0:
        raise LibraryError(f"gcc could not build {target}:\n{done.stderr.strip()}")
    return target


def environment(library: Path, state: Path) -> dict[str, str]:
    """The variables under which a process finds this library, answering from this state file."""
    return {"LD_LIBRARY_PATH": str(library.parent), "NODEVET_SIM_STATE": str(state)}
