"""Real processes on the simulated GPUs of this machine, and what `nodevet diagnose @local` says."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet_sim.library import environment
from nodevet_sim.state import profile_text

LOADS = Path(__file__).parents[1] / "diagnosis" / "loads"
GPU = """\
gpu.{0}.uuid = GPU-{0:08d}
gpu.{0}.bus_id = {1}
gpu.{0}.minor_number = {0}
"""
JSON = dict[str, Any]


@dataclass(frozen=True)
class LoadedMachine:
    """This machine with simulated GPUs."""

    state: Path
    variables: Mapping[str, str]
    python: Path  # starts with these variables: the probe keeps none of its caller's
    under: tuple[str, ...] = ()  # a command under which nodevet always runs

    @contextmanager
    def load(
        self, name: str, *words: object, gpu: int = 0, group: "Cgroup | None" = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A load of tests/diagnosis/loads/load.py while it runs on a GPU, in a cgroup if wished;
        it is ended with all that it started."""
        command: list[str] = [sys.executable, str(LOADS / "load.py"), name, *map(str, words)]
        if group:
            move = " ".join(f"echo $$ >{place}/cgroup.procs;" for place in group.places)
            command = ["sh", "-c", f'{move} exec "$@"', "sh", *command]
        job = subprocess.Popen(
            command,
            env={**os.environ, **self.variables, "LOAD_GPU": str(gpu)},
            start_new_session=True,
        )
        file = Path(f"{self.state}.processes", str(job.pid))
        try:
            self._wait(job, file)
            yield job
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            file.unlink(missing_ok=True)

    def _wait(self, job: subprocess.Popen[bytes], file: Path) -> None:
        """Until it is on its GPU, and has had a while to start its helpers."""
        end = time.monotonic() + 60
        while not file.exists():
            assert job.poll() is None, f"the load ended with {job.returncode}"
            assert time.monotonic() < end, "the load does not start"
            time.sleep(0.02)
        time.sleep(max(0.5, 0.25 * slowness()))
        assert job.poll() is None, f"the load ended with {job.returncode}"

    def diagnose(self, *options: str, before: Sequence[str] = ()) -> JSON:
        """The host of `diagnosis`."""
        host: JSON = self.diagnosis(*options, before=before)["hosts"][0]
        return host

    def diagnosis(self, *options: str, before: Sequence[str] = ()) -> JSON:
        """The JSON form; `before`: a command under which nodevet runs."""
        words = ("diagnose", "@local", "-b", "generic", "--format", "json", "--duration", "5s")
        done = subprocess.run(
            [*self.under, *before, self.python, "-m", "nodevet", *words, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 1, 3) and "Traceback" not in done.stderr, done
        whole: JSON = json.loads(done.stdout)
        return whole


def bus_id(gpu: int) -> str:
    return f"0000:{0x10 + gpu:02x}:00.0"


@contextmanager
def loaded_machine(library: Path, gpus: int = 1, described: str = "") -> Iterator[LoadedMachine]:
    """The state lies in memory: a load that waits for a disk can still tell what it does.

    `described`: more lines of the GPUs' description.
    """
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder, tempfile.TemporaryDirectory() as venv:
        state = Path(folder, "nvml.state")
        each = "".join(GPU.format(index, bus_id(index)) for index in range(gpus))
        head = profile_text("h100-sxm")
        state.write_text(f"{head}\ncount = {gpus}\n{each}gpu.*.nvlinks = 0\n{described}")
        Path(f"{state}.processes").mkdir()
        variables = environment(library, state)
        yield LoadedMachine(state, variables, _python(Path(venv), variables))


def _python(venv: Path, variables: Mapping[str, str]) -> Path:
    """This interpreter with its packages, which starts with these variables, as its children do."""
    here = Path(sys.prefix)
    for name in ("lib", "pyvenv.cfg"):
        (venv / name).symlink_to(here / name)
    exports = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())
    python = venv / "bin" / "python3"
    python.parent.mkdir()
    real = shlex.quote(str(Path(sys.executable).resolve()))
    python.write_text(f'#!/bin/bash\n{exports}exec -a "$0" {real} "$@"\n')
    python.chmod(0o755)
    return python


@dataclass(frozen=True)
class Cgroup:
    """A cgroup of this machine; in version 1, one in each hierarchy."""

    places: tuple[Path, ...]


@contextmanager
def cgroup(
    controller: str, first: Mapping[str, str], second: Mapping[str, str]
) -> Iterator[Cgroup]:
    """A cgroup with these files, of version 1 or of version 2. Skips where none can be had."""
    root, version = _hierarchy(controller)
    place = root / f"nodevet-load-{os.getpid()}"
    try:
        place.mkdir()
        for name, text in (first if version == 1 else second).items():
            (place / name).write_text(text)
    except OSError as error:
        with suppress(OSError):
            place.rmdir()
        pytest.skip(f"this machine has no cgroup to give: {error}")
    try:
        yield Cgroup((place,))
    finally:
        end = time.monotonic() + 120
        while place.exists():
            try:
                place.rmdir()
            except OSError:  # EBUSY: a process is still on its way out
                assert time.monotonic() < end, f"{place} stays busy"
                time.sleep(0.05)


def _hierarchy(controller: str) -> tuple[Path, int]:
    """Where the groups of a controller are, and their version."""
    for row in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, kind, options = row.split(" ")[:4]
        if kind == "cgroup" and controller in options.split(","):
            return Path(folder), 1
        if kind == "cgroup2" and os.access(folder, os.W_OK):
            root = Path(folder)
            if controller in (root / "cgroup.controllers").read_text().split():
                with suppress(OSError):
                    (root / "cgroup.subtree_control").write_text(f"+{controller}")
                    return root, 2
    pytest.skip(f"this machine has no cgroup to give: no controller {controller}")


def slow_program(target: Path) -> Path:
    """tests/diagnosis/loads/slowfs.c, built. Skips where it cannot run."""
    if not (os.access("/dev/fuse", os.W_OK) and Path("/usr/include/fuse3/fuse.h").exists()):
        pytest.skip("this machine has no FUSE")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
    )
    source = str(LOADS / "slowfs.c")
    subprocess.run(["gcc", "-O1", "-o", str(target), source, *flags.stdout.split()], check=True)
    return target


@contextmanager
def slow_file(program: Path, folder: Path, latency_us: int) -> Iterator[Path]:
    """A file of 1 GiB, each read of which takes so long."""
    folder.mkdir(exist_ok=True)
    server = subprocess.Popen(
        [program, str(latency_us), "-f", folder], stderr=subprocess.DEVNULL, start_new_session=True
    )
    file = folder / "data"
    try:
        end = time.monotonic() + 120
        while not file.exists():
            if server.poll() is not None:
                pytest.skip("this machine has no FUSE that may be mounted")
            assert time.monotonic() < end, "the file system does not come up"
            time.sleep(0.02)
        yield file
    finally:
        server.terminate()  # it unmounts
        server.wait(timeout=120)
