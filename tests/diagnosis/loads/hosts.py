"""Jobs whose host side is what holds the GPU up, or looks as if it did: sleeping, spinning,
computing in the main thread."""

import ctypes
import os
import selectors
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from gpu import SimulatedGpu

HELD = 70000  # MB of the GPU's memory


def burn(seconds):
    """Compute for so much CPU time, in user mode."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))


def alone():
    """Others of this machine take no CPU from this thread, if the kernel and the user allow it."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(os.environ.get("LOAD_NICE", "-8"))


def elsewhere(run):
    """Run in a process that is none of the job's descendants; it ends with the job's group."""
    if os.fork() == 0:
        if os.fork() == 0:
            run()
        os._exit(0)
    os.wait()


def listening():
    """A socket that listens on a free port of this machine."""
    return socket.create_server(("127.0.0.1", 0))


def drip(server, piece, pause):
    """Send so many bytes, again and again."""
    peer = server.accept()[0]
    while True:
        peer.sendall(b"0" * piece)
        time.sleep(pause)


def serves(_):
    """An inference server that nobody asks: it sleeps in epoll."""
    SimulatedGpu(memory_mb=HELD)
    chosen = selectors.EpollSelector()
    chosen.register(listening(), selectors.EVENT_READ)
    while True:
        chosen.select()


def accepts(_):
    """A server that sleeps in accept."""
    SimulatedGpu(memory_mb=HELD)
    server = listening()
    while True:
        server.accept()


def serves_in_a_thread(_):
    """A server whose main thread waits for the one that asks for requests."""
    threading.Thread(target=serves, args=("",), daemon=True).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def downloads(_):
    """Fetches its data over TCP from a slow server."""
    server = listening()
    elsewhere(lambda: drip(server, 20000, 0.05))
    port = server.getsockname()[1]
    server.close()
    SimulatedGpu(memory_mb=HELD)
    peer = socket.create_connection(("127.0.0.1", port))
    while peer.recv(1 << 16):
        pass


def hears_nothing(_):
    """Waits for an answer that does not come."""
    server = listening()
    elsewhere(lambda: drip(server, 0, 1000))
    port = server.getsockname()[1]
    server.close()
    SimulatedGpu(memory_mb=HELD)
    socket.create_connection(("127.0.0.1", port)).recv(1)


def waits_for_workers(_):
    """Sleeps on the pipe of a worker that does nothing."""
    read, _write = os.pipe()
    SimulatedGpu(memory_mb=HELD)
    os.read(read, 1)


def pauses(_):
    """Between two phases: it sleeps for a while."""
    SimulatedGpu(memory_mb=HELD)
    while True:
        time.sleep(0.7)


def spins(_):
    """Polls for an event of a GPU that does not come: as cudaStreamSynchronize does."""
    SimulatedGpu(memory_mb=HELD)
    while True:
        pass


def yields(_):
    """Polls, and lets others run in between."""
    SimulatedGpu(memory_mb=HELD)
    while True:
        os.sched_yield()


def preprocesses(_):
    """`num_workers=0`: transforms in the process and thread that train."""
    alone()
    gpu = SimulatedGpu()
    while True:
        burn(0.1)
        gpu.run(0.05)


def launches(_):
    """Small kernels, each with its call of the driver."""
    alone()
    gpu = SimulatedGpu()
    file = os.open("/proc/self/stat", os.O_RDONLY)  # a call that takes time in the kernel
    while True:
        for _call in range(8):
            os.pread(file, 4096, 0)
        burn(0.00005)
        gpu.run(0.00002)


def shares_the_gil(_):
    """Four threads that transform in Python: one runs at a time."""
    alone()
    gpu, telling = SimulatedGpu(), threading.Lock()

    def transform():
        while True:
            burn(0.02)
            with telling:
                gpu.run(0.005)

    for _thread in range(4):
        threading.Thread(target=transform, daemon=True).start()
    threading.Event().wait()


def copies_pageable(_):
    """memcpy to the driver's own pinned buffer, and from there over the link: 6 GB/s."""
    alone()
    gpu = SimulatedGpu(rx_kb_s=6_000_000)
    source = ctypes.create_string_buffer(64 << 20)
    target = ctypes.create_string_buffer(64 << 20)
    while True:
        began = time.monotonic()
        ctypes.memmove(target, source, 64 << 20)
        gpu.run((time.monotonic() - began) / 3)  # however quick the machine's memory is


VFORK = "int main(void) { if (vfork() == 0) { for (;;) pause(); } return 0; }"


def vforks(_):
    """Waits in D for a child that does not start its program."""
    gpu = SimulatedGpu()
    program = f"{gpu.path}.vfork"
    command = ["gcc", "-w", "-include", "unistd.h", "-x", "c", "-o", program, "-"]
    subprocess.run(command, input=VFORK.encode(), check=True)
    os.execv(program, ["vforks"])


def computes_between(_):
    """A third of a core, and the GPU waits for it."""
    alone()
    gpu = SimulatedGpu()
    while True:
        burn(0.04)
        gpu.run(0.03)
        time.sleep(0.08)


LOADS = {
    each.__name__: each
    for each in (
        *(serves, accepts, serves_in_a_thread, downloads, hears_nothing, waits_for_workers),
        *(pauses, spins, yields, preprocesses, launches, shares_the_gil, copies_pageable),
        *(vforks, computes_between),
    )
}
