"""Jobs that use a GPU, each of which waits for one thing: `python load.py NAME [FILE]`.

A step computes, or fetches its input, and then queues work on the GPU.
"""

import ctypes
import mmap
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import hosts
from gpu import SimulatedGpu

PAGE = 4096


def burn(seconds):
    """Compute for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))


def read_anywhere(path):
    """A function that reads a page of a file, or of a device."""
    file = os.open(path, os.O_RDONLY)
    size = os.lseek(file, 0, os.SEEK_END) // PAGE
    return lambda: os.pread(file, PAGE, random.randrange(size) * PAGE)


def workers(number, write):
    """Processes that transform; each sample is a byte in the pipe."""
    for _ in range(number):
        if os.fork() == 0:
            while True:
                burn(0.05)
                os.write(write, b"1")


def steady(_):
    """A GPU that never waits."""
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)


def one_hot_thread(_):
    """Small kernels, each of which takes the thread longer to launch than the GPU to run."""
    gpu = SimulatedGpu()
    while True:
        burn(0.0008)
        gpu.run(0.0005)


def hot_threads(_):
    """Six workers that transform, and each step of the GPU needs a sample of one of them."""
    read, write = os.pipe()
    workers(6, write)
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.005)


def reads(path):
    """Reads a sample, then computes on it."""
    gpu, read = SimulatedGpu(), read_anywhere(path)
    while read():
        gpu.run(0.002)


def threads_read(path):
    """Four threads read, and the main one computes on what they read."""
    ready = threading.Semaphore(0)

    def reader():
        read = read_anywhere(path)
        while read():
            ready.release()

    for _ in range(4):
        threading.Thread(target=reader, daemon=True).start()
    gpu = SimulatedGpu()
    while ready.acquire():
        gpu.run(0.002)


def reads_and_transforms(path):
    """Six workers that transform, and one that only reads."""
    pipe, write = os.pipe()
    workers(6, write)
    if os.fork() == 0:
        read = read_anywhere(path)
        while read():
            os.write(write, b"1")
    gpu = SimulatedGpu()
    while os.read(pipe, 1):
        gpu.run(0.002)


def maps(path):
    """Reads at random through a mapping of a file."""
    gpu = SimulatedGpu()
    with Path(path).open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    data.madvise(mmap.MADV_RANDOM)
    while True:
        for _ in range(8):
            data[random.randrange(len(data))]
        gpu.run(0.001)


def pages(path):
    """Four processes touch a mapped file that is larger than the memory they may use."""
    is_helper = any(os.fork() == 0 for _ in range(3))
    gpu = None if is_helper else SimulatedGpu()
    with Path(path).open("rb") as file:
        data = mmap.mmap(file.fileno(), 1 << 29, prot=mmap.PROT_READ)
    while True:
        data[random.randrange(len(data))]
        if gpu:
            gpu.run(0.0005)


def swaps(_):
    """Touches more memory of its own than it may use."""
    data = mmap.mmap(-1, 200 << 20)
    for at in range(0, len(data), PAGE):
        data[at] = 1
    gpu = SimulatedGpu()
    while True:
        for _ in range(16):
            data[random.randrange(len(data))]
        gpu.run(0.0002)


def locked(_):
    """Asleep on a lock that nobody gives back."""
    SimulatedGpu(memory_mb=70000)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def holds(_):
    """A notebook that somebody left open."""
    SimulatedGpu(memory_mb=500)
    while True:
        time.sleep(1)


def copies(_):
    """Copies that fill the link of its GPU."""
    gpu = SimulatedGpu(rx_kb_s=54000000)
    while True:
        gpu.run(0.03)
        time.sleep(0.1)


def paces(_):
    """A server that is seldom asked: nothing that can be watched holds it up."""
    gpu = SimulatedGpu()
    while True:
        burn(0.005)
        gpu.run(0.03)
        time.sleep(0.1)


def unpacks(_):
    """Its input comes out of one gzip, the slowest of its pipeline."""
    pipe = subprocess.Popen(["sh", "-c", "yes sample | gzip -9"], stdout=subprocess.PIPE)
    gpu = SimulatedGpu()
    while pipe.stdout.read(4096):
        gpu.run(0.002)


def compiles(_):
    """Builds its kernels as it goes."""
    gpu = SimulatedGpu()
    source = "\n".join(
        f"int f{n}(int a) {{ for (int i = 0; i < a; i++) a ^= i * {n}; return a; }}"
        for n in range(20000)
    )
    command = ["gcc", "-O2", "-x", "c", "-c", "-o", "/dev/null", "-"]
    while True:
        subprocess.run(command, input=source.encode(), check=False)
        gpu.run(0.01)


def _transform(queue):
    while True:
        burn(0.02)
        queue.put(b"0" * 10000)


def queues(_):
    """Python's own workers, and a queue between them and the process of the GPU."""
    queue = multiprocessing.Queue(8)
    for _ in range(3):
        multiprocessing.Process(target=_transform, args=(queue,), daemon=True).start()
    gpu = SimulatedGpu()
    while queue.get():
        gpu.run(0.002)


def ping_pong(_):
    """Asks a helper over a pipe at each step, thousands of times a second."""
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    if os.fork() == 0:
        while True:
            os.write(back_write, os.read(to_read, 1))
    gpu = SimulatedGpu()
    while True:
        os.write(to_write, b"1")
        os.read(back_read, 1)
        gpu.run(0.000003)


LOADS = hosts.LOADS | {
    each.__name__: each
    for each in (
        *(steady, one_hot_thread, hot_threads, reads, threads_read, reads_and_transforms, maps),
        *(pages, swaps),
        *(locked, holds, copies, paces, unpacks, compiles, queues, ping_pong),
    )
}

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with whoever started it
    LOADS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
