"""A kind of job: ranks that wait for one another, one file in tests/corpus/jobs.

The file has `JOB` and `prepare(rank, file, gpu)`, which returns what a rank does before each
collective. The ranks are real processes, and their ring is one of real sockets. Nothing else
changes if a file is added: `make incidents` records it, `make calibrate` judges it.
"""

import ctypes
import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.corpus.kind import is_drawn

HERE = Path(__file__).parent
BUNDLES = HERE / "job_bundles"
BACKGROUNDS = ("quiet", "loaded")
RANKS = 4
COMPUTES_S = 0.03  # of a GPU in each step
CHUNK = 1 << 14  # bytes to the next rank, in each round of a collective
TICK_S = 0.02
READ = frozenset({"pages", "saves_checkpoints", "transforms_in_one_rank"})
"""Kinds whose misses changed a rule, and which are no longer kept out."""
POLLING: Mapping[str, object] = {  # of GPUs whose kernels poll for most of the time
    "event_reasons": 0,
    "power_draw_mw": 190_000,
    "clock_sm_mhz": 1980,
    "utilization_memory_percent": 1,
}
WORKING: Mapping[str, object] = {
    **POLLING,
    "power_draw_mw": 620_000,
    "utilization_memory_percent": 40,
}


@dataclass(frozen=True)
class JobKind:
    """The ranks that the others wait for, why, and what an engineer should do."""

    late: frozenset[int]
    cause: str  # of the late rank: a cause, or a state such as `stopped`; empty if none is late
    action: str
    second: str = ""  # another cause that does no harm
    none_is_fine: bool = False  # to name no rank does no harm
    polls: bool = True  # a rank that waits keeps its GPU busy, as with NCCL; else as with gloo
    gpus: Mapping[int, Mapping[str, object]] = field(default_factory=dict)  # rank: of its GPU
    needs: Mapping[int, str] = field(default_factory=dict)  # rank: quota, memory limit, taken CPU
    slow_file: bool = False
    writes_dumps: bool = False  # of PyTorch's flight recorder
    network: str = ""  # `flaps`
    starts: int = RANKS  # of which so many still run when nodevet begins
    settles_s: float = 0.5  # from when all ranks are on their GPUs until nodevet begins
    backgrounds: tuple[str, ...] = BACKGROUNDS


def names() -> list[str]:
    return sorted(path.stem for path in (HERE / "jobs").glob("*.py"))


def module(name: str) -> ModuleType:
    """The file of a kind; it may import tests/diagnosis/loads."""
    loads = str(HERE.parent / "diagnosis" / "loads")
    if loads not in sys.path:
        sys.path.append(loads)
    return importlib.import_module(f"tests.corpus.jobs.{name}")


def job(name: str) -> JobKind:
    found: JobKind = module(name).JOB
    assert type(found).__name__ == "JobKind", f"{name}: JOB is missing"
    return found


def is_kept_out(name: str) -> bool:
    return is_drawn(name) and name not in READ


class Ring:
    """The ranks in a ring: each sends to the next one, and receives from the one before."""

    def __init__(self, rank: int, port: int) -> None:
        self.server = socket.create_server((f"127.0.0.{rank + 1}", port))
        after = (f"127.0.0.{(rank + 1) % RANKS + 1}", port)
        self.next = self._connect(after)
        self.before = self.server.accept()[0]
        self.before.settimeout(TICK_S)

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        end = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def all_reduce(self, wait: Callable[[], object]) -> None:
        """`wait` is called whenever nothing came for a moment. Never returns if a rank is gone."""
        for _ in range(2 * (RANKS - 1)):
            with suppress(BrokenPipeError, ConnectionResetError):  # receiving shows it, too
                self.next.sendall(bytes(CHUNK))
            missing = CHUNK
            while missing:
                got = self._receive(missing)
                missing -= got
                if not got:
                    wait()

    def _receive(self, most: int) -> int:
        """How many bytes came; 0 after a moment without any, and always of a rank that is gone."""
        with suppress(TimeoutError, ConnectionResetError):
            if got := len(self.before.recv(most)):
                return got
            time.sleep(TICK_S)
        return 0


def run(name: str, file: str) -> None:
    """One rank, for ever."""
    known = job(name)
    from gpu import SimulatedGpu  # of tests/diagnosis/loads

    rank = int(os.environ["RANK"])
    gpu = SimulatedGpu()
    ring = Ring(rank, int(os.environ["MASTER_PORT"]))
    step = module(name).prepare(rank, file, gpu)
    if not known.polls:
        ring.before.settimeout(None)
        loop(gpu, step, lambda: ring.all_reduce(lambda: None))
        return
    asked, done = threading.Semaphore(0), threading.Semaphore(0)
    keep_busy = busy_keeper(gpu)

    def proxy() -> None:
        while asked.acquire():
            ring.all_reduce(keep_busy)
            done.release()

    def collect() -> None:  # the main thread sleeps meanwhile, as with blocking synchronization
        asked.release()
        done.acquire()

    threading.Thread(target=proxy, daemon=True).start()
    loop(gpu, step, collect)


def loop(gpu: Any, step: Callable[[], object], collect: Callable[[], object]) -> None:
    while True:
        step()
        gpu.run(COMPUTES_S)
        gpu.wait()
        collect()


def busy_keeper(gpu: Any) -> Callable[[], None]:
    """A kernel that polls: the GPU is busy for as long as the rank waits."""

    def keep_busy() -> None:
        if gpu.free - time.time() < 4 * TICK_S:
            gpu.run(4 * TICK_S)

    return keep_busy


if __name__ == "__main__":  # python -m tests.corpus.job NAME [FILE]: one rank
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with whoever started it
    run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
