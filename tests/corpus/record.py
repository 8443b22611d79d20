"""`make incidents`: record every kind of tests/corpus/kinds, with each background.

Real processes over the simulated NVML; what nodevet watched is kept as redacted bundles in
tests/corpus/bundles. Bundles that are there stay; `--again` records them again.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "rigs"))

import pytest
from gpu_load import Cgroup, LoadedMachine, cgroup, loaded_machine, slow_file, slow_program
from two_sockets import two_sockets

from nodevet.diagnose.incident import read
from nodevet_sim.library import build
from tests.corpus.kind import (
    BACKGROUNDS,
    BUNDLES,
    LENGTH,
    LENGTHS,
    MACHINE,
    QUOTA,
    bundle,
    kind,
    names,
)

HOG = "while True: pass"
HOGS = 2 * (os.cpu_count() or 1)  # of the loaded background
GPUS = 2
FAILURES = (AssertionError, OSError, subprocess.TimeoutExpired)
MEMORY_LIMIT = str(100 << 20)
QUOTAS = (
    {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": f"{QUOTA * 1e5:.0f}"},
    {"cpu.max": f"{QUOTA * 1e5:.0f} 100000"},
)


@contextmanager
def started(command: list[str], variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended with all that it started."""
    job = subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True)
    try:
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def command_of(name: str, file: str, group: Cgroup | None, *, contained: bool) -> list[str]:
    """The command of a load, in its cgroup and its container."""
    command = [sys.executable, "-m", "tests.corpus.kind", name, file]
    if contained:
        unshare = "unshare --pid --fork --kill-child --uts --ipc --net"
        command = [*unshare.split(), "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *command]
    if group:
        move = " ".join(f"echo $$ >{shlex.quote(str(each))}/cgroup.procs;" for each in group.places)
        command = ["sh", "-c", f'{move} exec "$@"', "sh", *command]
    return command


def wait_for_load(machine: LoadedMachine, job: subprocess.Popen[bytes], before: int) -> None:
    """Until it is on its GPU, and has had a moment to start its helpers."""
    folder, end = Path(f"{machine.state}.processes"), time.monotonic() + 60
    while len([path for path in folder.iterdir() if path.name.isdigit()]) <= before:
        if job.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"the load does not start: {job.args}")
        time.sleep(0.02)
    time.sleep(0.5)


def busy_percent() -> float:
    """How busy the CPUs are before a load starts: what else runs may change its cause."""

    def counts() -> list[int]:
        row = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
        return [int(word) for word in row.split()[1:9]]

    first = counts()
    time.sleep(0.5)
    grown = [after - before for before, after in zip(first, counts(), strict=True)]
    return round(100.0 * (1 - (grown[3] + grown[4]) / max(1, sum(grown))), 1)


def note_busy(path: Path, percent: float) -> None:
    noted = json.loads(MACHINE.read_text(encoding="utf-8")) if MACHINE.exists() else {}
    noted[path.name] = percent
    MACHINE.write_text(json.dumps(noted, indent=0, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def running(
    name: str, background: str, library: Path, hogs: int = 0
) -> Iterator[tuple[LoadedMachine, float]]:
    """The load on a machine, while it runs beside `hogs` processes that compute, and how busy the
    CPUs were before it. Raises Skipped where this machine cannot run it."""
    known = kind(name)
    lines = "".join(f"gpu.0.{field} = {value}\n" for field, value in known.gpu.items())
    with ExitStack() as stack:
        machine = stack.enter_context(loaded_machine(library, GPUS, lines))
        if known.gpu_node is not None:
            machine = stack.enter_context(two_sockets(machine, GPUS, known.gpu_node))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        file, group = "", None
        if known.needs:
            program = slow_program(folder / "slowfs")
            latency = 20_000 if known.needs == "slow file" else 1_000
            file = str(stack.enter_context(slow_file(program, folder / "slow", latency)))
        if known.needs == "memory limit":
            old, new = {"memory.limit_in_bytes": MEMORY_LIMIT}, {"memory.max": MEMORY_LIMIT}
            group = stack.enter_context(cgroup("memory", old, new))
        if background == "quota":
            group = stack.enter_context(cgroup("cpu", *QUOTAS))
        before = 0
        if background == "other job":
            stack.enter_context(machine.load("steady", gpu=1))
            before = 1
        for _ in range(hogs):
            stack.enter_context(started([sys.executable, "-c", HOG], {}))
        busy = busy_percent()
        command = command_of(name, file, group, contained=background == "container")
        job = stack.enter_context(started(command, {**machine.variables, "LOAD_GPU": "0"}))
        if known.has_process:
            wait_for_load(machine, job, before)
        yield machine, busy


def record(name: str, background: str, seconds: int, library: Path) -> None:
    """One bundle. Raises Skipped where this machine cannot run it."""
    hogs = HOGS if background == "loaded" else 0
    with (
        tempfile.TemporaryDirectory() as folder,  # a recording that is interrupted is none
        running(name, background, library, hogs) as (machine, busy),
    ):
        target = bundle(name, background, seconds)
        whole = Path(folder, target.name)
        machine.diagnose("--duration", f"{seconds}s", "--capture", str(whole), "--redact")
        evidence = [visit.evidence for visit, _ in read(whole)]
        assert len(evidence) == 1 and evidence[0] is not None, "the bundle has no evidence"
        shutil.copy(whole, target)
        target.chmod(0o644)
        note_busy(target, busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="all without any")
    parser.add_argument("--again", action="store_true", help="record what is there again")
    parser.add_argument("--background", choices=BACKGROUNDS)
    parser.add_argument("--seconds", type=int, help="only recordings of this length")
    chosen = parser.parse_args()
    BUNDLES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for name in chosen.kinds or names():
            known = kind(name)
            for background in known.backgrounds:
                if chosen.background not in (None, background):
                    continue
                for seconds in LENGTHS.get(background, (LENGTH,)):
                    if chosen.seconds not in (None, seconds):
                        continue
                    if bundle(name, background, seconds).exists() and not chosen.again:
                        continue
                    try:
                        record(name, background, seconds, library)
                        end = ""
                    except (pytest.skip.Exception, *FAILURES) as why:
                        end = f": not recorded: {str(why)[:300]}"
                    sys.stdout.write(f"{name}, {background}, {seconds} s{end}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
