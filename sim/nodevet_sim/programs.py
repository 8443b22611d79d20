"""Builds the programs of a simulated node from the C sources under programs/."""

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

FLAGS = ("-O1", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra")

SOURCES = {
    "nvidia-smi": ("nvidia-smi/*.c", "client.c"),
    "nvidia-persistenced": ("nvidia-persistenced.c", "daemon.c", "client.c"),
    "nv-fabricmanager": ("nv-fabricmanager.c", "daemon.c", "client.c"),
    "nodevet-sim-load": ("nodevet-sim-load.c", "client.c"),
    "nodevet-sim-stuck": ("nodevet-sim-stuck.c",),
    "nodevet-sim-swap": ("nodevet-sim-swap.c",),
}
"""The programs and the sources of each, as patterns under programs/. They include nvml/nvml.h."""

UNITS = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")
"""The systemd units of programs/units/. They start what is in /usr/bin."""


class ProgramError(Exception):
    """A program could not be built; the message says why and what to do."""


def build(into: Path) -> tuple[Path, ...]:
    """Compile each program into the directory `into`, under its own name.

    They find libnvidia-ml.so.1 when they run; see `nodevet_sim.library`. Raises ProgramError.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise ProgramError("gcc is not installed; install it (Debian, Ubuntu: apt install gcc)")
    into.mkdir(parents=True, exist_ok=True)
    with as_file(files("nodevet_sim")) as room:
        return tuple(_compile(compiler, room / "programs", name, into) for name in SOURCES)


def _compile(compiler: str, sources: Path, name: str, into: Path) -> Path:
    target = into / name
    paths = [str(path) for pattern in SOURCES[name] for path in sorted(sources.glob(pattern))]
    command = [compiler, *FLAGS, "-o", str(target), *paths, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"gcc could not build {target}:\n{done.stderr.strip()}")
    return target


def unit(name: str) -> str:
    """The text of one of UNITS."""
    return files("nodevet_sim").joinpath(f"programs/units/{name}").read_text(encoding="utf-8")
