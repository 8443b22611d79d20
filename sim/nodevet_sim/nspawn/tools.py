"""Compiles what the nodes of a fleet need, once for all of them."""

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from nodevet_sim import kernel, library, programs
from nodevet_sim.description import SimulatedNode
from nodevet_sim.nspawn.disk import LIBRARY

CLOCK = "clock.so"
"""Makes a wall clock wrong, for LD_PRELOAD."""
ADJTIMEX = "adjtimex.so"
"""Reports the state of the clock, for LD_PRELOAD."""
RINGS = "rings.so"
"""Answers ethtool's ioctl about ring sizes, for LD_PRELOAD."""
EMPTY = "empty.so"
STUCK = "nodevet-sim-stuck"
UNUSED = ("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1")
"""The driver's libraries that nothing here calls; they are looked at."""


@dataclass(frozen=True)
class BuiltTools:
    """Built files: path inside a node -> built file, except `kernelfs`, which runs outside."""

    kernelfs: Path
    common: Mapping[str, Path]  # what every node has
    driver: Mapping[str, Path]  # what the NVIDIA driver and its tools install

    def node_files(self, node: SimulatedNode) -> Mapping[str, Path]:
        """The other files of this node."""
        return self.driver if node.state is not None else {}


def build(cache: Path) -> BuiltTools:
    """Compile everything, or take it from the cache, where each version of the sources has
    a folder. Raises library.LibraryError, programs.ProgramError, kernel.KernelError."""
    folder = cache / version()
    if not folder.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache) as scratch:
            new = Path(scratch) / "new"
            _compile(new)
            with suppress(OSError):  # another fleet was first
                new.rename(folder)
    driver = {}
    for place in _library_folders():
        driver[f"{place}/{library.NAME}"] = folder / library.NAME
        driver |= {f"{place}/{name}": folder / EMPTY for name in UNUSED}
    common = {f"{LIBRARY}/{name}": folder / name for name in (CLOCK, ADJTIMEX, RINGS, STUCK)}
    for name in ("swapon", "swapoff"):
        common[f"/usr/sbin/{name}"] = folder / "nodevet-sim-swap"
    for name in programs.SOURCES:
        place = LIBRARY if name.startswith("nodevet-sim-") else "/usr/bin"
        driver[f"{place}/{name}"] = folder / name
    return BuiltTools(kernelfs=folder / kernel.NAME, common=common, driver=driver)


def _compile(into: Path) -> None:
    into.mkdir()
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(make, into) for make in (programs.build, library.build, kernel.build)]
        _build_library(into / CLOCK, "nspawn/clock.c")
        _build_library(into / ADJTIMEX, "nspawn/adjtimex.c")
        _build_library(into / RINGS, "nspawn/rings.c")
        _build_library(into / EMPTY, "nspawn/empty.c")
        for job in jobs:
            job.result()


def version() -> str:
    """A hash over the C sources and the Python that says how they are compiled."""
    digest = hashlib.sha256()
    with as_file(files("nodevet_sim")) as room:
        for path in sorted(path for path in room.rglob("*") if path.suffix in (".c", ".h", ".py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build_library(target: Path, source: str) -> None:
    """A library from one source."""
    with as_file(files("nodevet_sim").joinpath(source)) as file:
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(target), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise library.LibraryError(f"gcc could not build {target}:\n{done.stderr.strip()}")


def _library_folders() -> tuple[str, ...]:
    """The folders that a node's dynamic linker searches without a configuration."""
    compiler = shutil.which("gcc") or "gcc"
    done = subprocess.run(
        [compiler, "-print-multiarch"], capture_output=True, text=True, check=False
    )
    multiarch = done.stdout.strip()
    return (f"/usr/lib/{multiarch}",) if multiarch else ("/usr/lib64", "/usr/lib")
