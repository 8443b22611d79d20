"""Record the kinds of tests/corpus/jobs: `python -m tests.corpus.record_job [KIND...]`.

Four ranks as real processes, each on a GPU of the simulated NVML; what nodevet watched of the job
is kept as redacted bundles in tests/corpus/job_bundles. Bundles that are there stay; `--again`
records them again.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "rigs"))

import pytest
from gpu_load import Cgroup, LoadedMachine, cgroup, loaded_machine, slow_file, slow_program
from network_apart import NetworkApart

from nodevet.diagnose.incident import read_bundle
from nodevet_sim.library import build
from tests.corpus.job import BACKGROUNDS, BUNDLES, RANKS, JobKind, job, names
from tests.corpus.record import FAILURES, HOG, HOGS, MEMORY_LIMIT, started

SECONDS = 6
TAKEN = "1"  # the CPU that others take
QUOTA = (
    {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
    {"cpu.max": "20000 100000"},
)
MEMORY = ({"memory.limit_in_bytes": MEMORY_LIMIT}, {"memory.max": MEMORY_LIMIT})
UP_S, DOWN_S = 0.05, 0.45  # of a network that flaps


@contextmanager
def flapping(network: NetworkApart) -> Iterator[None]:
    ended = threading.Event()

    def flap() -> None:
        while not ended.wait(UP_S):
            network.down()
            ended.wait(DOWN_S)
            network.up()

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, ...]]:
    """A command under which nodevet finds the job 12 of Slurm on this machine."""
    squeue = folder / "squeue"
    squeue.write_text(f"#!/bin/sh\necho '12|12|RUNNING|{os.getuid()}|{socket.gethostname()}'\n")
    squeue.chmod(0o755)
    yield ("env", f"PATH={folder}:{os.environ['PATH']}")


def command_of(name: str, rank: int, file: str, group: Cgroup | None, bound: bool) -> list[str]:
    command = [sys.executable, "-m", "tests.corpus.job", name, file]
    if bound:
        command = ["taskset", "-c", TAKEN, *command]
    if group:
        move = " ".join(f"echo $$ >{shlex.quote(str(each))}/cgroup.procs;" for each in group.places)
        command = ["sh", "-c", f'{move} exec "$@"', "sh", *command]
    return command


@contextmanager
def running(name: str, hogs: int, library: Path) -> Iterator[LoadedMachine]:
    """The ranks of a job, while they run beside `hogs` processes that compute. Raises Skipped where
    this machine cannot run them."""
    known = job(name)
    lines = "".join(
        f"gpu.{rank}.{field} = {value}\n"
        for rank, fields in known.gpus.items()
        for field, value in fields.items()
    )
    with ExitStack() as stack:
        machine = stack.enter_context(loaded_machine(library, RANKS, lines))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        file, network = "", None
        if known.slow_file:
            program = slow_program(folder / "slowfs")
            latency = 1_000 if "memory limit" in known.needs.values() else 20_000
            file = str(stack.enter_context(slow_file(program, folder / "slow", latency)))
        if known.network:
            network = NetworkApart()
            stack.callback(network.end)
        for _ in range(hogs):
            stack.enter_context(started([sys.executable, "-c", HOG], {}))
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        for rank in range(RANKS):
            need = known.needs.get(rank, "")
            if need == "taken CPU":
                for _ in range(2):
                    hog = ["taskset", "-c", TAKEN, sys.executable, "-c", HOG]
                    stack.enter_context(started(hog, {}))
            group = None
            if need == "quota":
                group = stack.enter_context(cgroup("cpu", *QUOTA))
            if need == "memory limit":
                group = stack.enter_context(cgroup("memory", *MEMORY))
            words = command_of(name, rank, file, group, need == "taken CPU")
            words = [*(network.enter if network else ()), *words]
            variables = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "SLURM_JOB_ID": "12"}
            variables |= {"MASTER_PORT": str(port), "LOAD_GPU": str(rank), **machine.variables}
            if known.writes_dumps:
                variables["TORCH_FR_DUMP_TEMP_FILE"] = str(folder / "dump_")
            stack.enter_context(started(words, variables))
        wait_for_ranks(machine, known)
        if network:
            stack.enter_context(flapping(network))
        time.sleep(known.settles_s)
        yield machine


def wait_for_ranks(machine: LoadedMachine, known: JobKind) -> None:
    """Until every rank was on its GPU, and those that end at once have ended."""
    folder, end = Path(f"{machine.state}.processes"), time.monotonic() + 60
    while True:
        pids = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        alive = [pid for pid in pids if is_alive(pid)]
        if len(pids) == RANKS and len(alive) == known.starts:
            return
        assert time.monotonic() < end, f"{len(pids)} ranks started, {len(alive)} run"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2][1] != "Z"
    except FileNotFoundError:
        return False


def record(name: str, background: str, library: Path) -> None:
    """One bundle. Raises Skipped where this machine cannot run it."""
    target = BUNDLES / f"{name}.{background}.json.gz"
    with (
        running(name, HOGS if background == "loaded" else 0, library) as machine,
        tempfile.TemporaryDirectory() as folder,
        scheduler(Path(folder)) as before,
    ):
        target.unlink(missing_ok=True)
        words = ("--job", "12", "--duration", f"{SECONDS}s", "--capture", str(target), "--redact")
        try:
            machine.diagnose(*words, before=before)
            visits, kept = read_bundle(target)
            assert kept is not None and visits[0][0].evidence is not None, "nothing was watched"
        except BaseException:  # interrupted, too
            target.unlink(missing_ok=True)
            raise
        target.chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="all without any")
    parser.add_argument("--again", action="store_true", help="record what is there again")
    parser.add_argument("--background", choices=BACKGROUNDS)
    chosen = parser.parse_args()
    BUNDLES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for name in chosen.kinds or names():
            for background in job(name).backgrounds:
                is_there = (BUNDLES / f"{name}.{background}.json.gz").exists()
                if chosen.background not in (None, background) or (is_there and not chosen.again):
                    continue
                try:
                    record(name, background, library)
                    end = ""
                except (pytest.skip.Exception, subprocess.SubprocessError, *FAILURES) as why:
                    end = f": not recorded: {str(why)[:300]}"
                sys.stdout.write(f"{name}, {background}{end}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
