"""Stands in for NCCL's RAS: a process with a rank that has mapped a file named as NCCL's library,
and a TCP server that speaks the protocol of RAS.

No NCCL ran here. The lines and the fields of the JSON are those of NCCL's source and guide; a real
job of several hosts may differ.

As a program: python ras_server.py FOLDER ADDRESS MODE LIBRARY... It prints its port, adds a line to
FOLDER/asked for each connection, and answers the N-th one with FOLDER/answer-N.json.
"""

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

JOB = str(os.getpid())  # of Slurm: no other tests have it
KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def report(groups: Iterable[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A whole answer of NCCL."""
    listed = list(groups)
    return {
        "nccl_version": "2.29.2",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-30 12:00:00",
        "communicators_count": len(listed),
        "communicators": listed,
        "ras": {"collection_time_sec": 0.004, "timeouts_count": 0},
        **more,
    }


def group(
    counts: Mapping[int, int], missing: Iterable[int] = (), name: str = "0xa1", **more: Any
) -> dict[str, Any]:
    """A communicator whose ranks launched so many AllReduces; the pid of rank N is 10 + N."""
    gone = list(missing)
    ok = {"init_state": 0, "async_error": 0, "finalize_called": False}
    ok |= {"destroy_flag": False, "abort_flag": False}
    ranks = [
        {**place(rank), "status": ok, "collective_counts": {**dict.fromkeys(KINDS, 0), **launched}}
        for rank, count in counts.items()
        for launched in [{"AllReduce": count}]
    ]
    silent = {"unresponsive": True, "considered_dead": False}
    return {
        "hash": name,
        "secondary_hash": "0xb2:0xc3",
        "size": len(ranks) + len(gone),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(gone),
        "ranks": ranks,
        "missing_ranks": [{**place(rank), "status": silent} for rank in gone],
        **more,
    }


def place(rank: int) -> dict[str, Any]:
    return {"rank": rank, "host": "10.0.0.1", "pid": 10 + rank, "cuda_dev": rank, "nvml_dev": rank}


class Server:
    """A server that runs, and what it saw."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder = folder
        self.process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    @property
    def received_lines(self) -> list[str]:
        """The lines of each connection, after which it was closed or answered."""
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def serving(
    folder: Path,
    *libraries: Path,
    job: str = JOB,
    rank: int = 0,
    mode: str = "good",
    address: str = "127.0.0.1:0",
    prefix: Iterable[str] = (),
) -> Iterator[Server]:
    """A rank of a job that listens for RAS clients; `libraries` are created if they are missing."""
    for library in libraries:
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"\x7fELF" + bytes(4096))
    folder.mkdir(parents=True, exist_ok=True)
    of_job = {"RANK": str(rank), "WORLD_SIZE": "4", "SLURM_JOB_ID": job}
    words = [*prefix, sys.executable, __file__, str(folder), address, mode, *map(str, libraries)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, **of_job}
    ) as process:
        try:
            yield Server(folder, process)
        finally:
            process.kill()


def answer(folder: Path, number: int, **change: Any) -> None:
    """Have the N-th connection get this answer."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(change.pop("report", None) or report([group(change)]), indent=2)
    (folder / f"answer-{number}.json").write_text(text)


def main(folder: str, address: str, mode: str, *libraries: str) -> None:
    maps = []
    for library in libraries:
        with Path(library).open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if host:
        server.bind((host, int(port)))
        server.listen()
        if mode != "forks":
            say(server.getsockname()[1])
    else:
        say(0)  # it does not listen
        time.sleep(600)
    if mode == "forks":
        fork_beside(os.getpid())
        say(server.getsockname()[1])
    for number in range(100):
        client, _ = server.accept()
        if mode == "once":
            server.close()
        with client, suppress(OSError):  # the client is gone
            serve(client, Path(folder), number, mode)
        if mode == "once":
            time.sleep(600)


def fork_beside(parent: int) -> None:
    """A child that ends after its parent."""
    if not os.fork():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)


def say(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def serve(client: socket.socket, folder: Path, number: int, mode: str) -> None:
    """One connection: RAS answers each line in its turn."""
    with (folder / "asked").open("a") as log:
        lines = client.makefile("r")
        words: list[str] = []
        log.write("connected\n")
        log.flush()
        if mode == "garbage":
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        if mode == "endless line":
            while True:
                client.sendall(b"x" * 65536)
        if mode == "silent":
            time.sleep(600)
        for line in lines:
            words.append(line.strip())
            if words[-1].startswith("CLIENT PROTOCOL"):
                client.sendall(b"SERVER PROTOCOL 2\n")
            elif words[-1].startswith("TIMEOUT"):
                client.sendall(b"OK\n")
            elif words[-1] == "SET FORMAT json":
                client.sendall(b"ERROR: unknown\n" if mode == "no json" else b"OK\n")
            elif words[-1] == "VERBOSE STATUS":
                log.write("; ".join(words) + "\n")
                log.flush()
                send_report(client, folder, number, mode)
                return


def send_report(client: socket.socket, folder: Path, number: int, mode: str) -> None:
    text = (folder / f"answer-{number}.json").read_bytes() if mode in ("good", "once") else b""
    if mode == "endless":
        while True:
            client.sendall(b'{"a": "' + b"x" * 65536)
    if mode == "drips":
        while True:
            client.sendall(b"{")
            time.sleep(0.05)
    if mode == "deep":
        text = b"[" * 500_000
    if mode == "not json":
        text = b"NCCL version 2.29.2 compiled with CUDA 13.0\n"
    if mode == "long number":
        text = b'{"communicators": ' + b"9" * 3_000_000 + b"}"
    client.sendall(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
