"""A process's work on the simulated GPUs: what it starts there keeps them busy for so long.

The simulated NVML reads <state>.processes/<pid>; see sim/nodevet_sim/nvml/processes.c.
"""

import os
import time
from pathlib import Path

SLOT_S = 0.05
SLOTS = 420  # 21 s: the driver keeps samples of 20


class SimulatedGpu:
    """The GPUs of this process. Work is queued, one piece after the other, as CUDA does."""

    def __init__(self, memory_mb=60000, rx_kb_s=0):
        gpus = os.environ.get("LOAD_GPU", "0")
        pid = str(
            Path("/proc/self").readlink()
        )  # outside a namespace of pids, if /proc is from there
        self.path = Path(f"{os.environ['NODEVET_SIM_STATE']}.processes", pid)
        self.head = f"gpus = {gpus}\nmemory_mb = {memory_mb}\n"
        self.rx_kb_s = rx_kb_s
        self.free = self.told = 0.0  # when its queue is empty; when that was told last
        self.busy = {}  # number of a slot: seconds in it
        self.tell()

    def run(self, seconds):
        """Queue work of so many seconds."""
        now = time.time()
        start = max(now, self.free)
        self.free = start + seconds
        while start < self.free:
            slot = int(start / SLOT_S)
            end = min(self.free, (slot + 1) * SLOT_S)
            self.busy[slot] = self.busy.get(slot, 0.0) + end - start
            if end <= start:  # by rounding
                break
            start = end
        if now - self.told > SLOT_S:
            self.tell()

    def copy(self, seconds, kb_s):
        """Copy to it for so long, while it does nothing else."""
        self.rx_kb_s = kb_s
        self.tell()
        time.sleep(seconds)
        self.rx_kb_s = 0
        self.tell()

    def wait(self, ahead=0.0):
        """Until no more than so many seconds of work are left in the queue."""
        time.sleep(max(0.0, self.free - ahead - time.time()))

    def tell(self):
        self.told = time.time()
        last = int(max(self.told, self.free) / SLOT_S)
        for slot in [each for each in self.busy if each <= last - SLOTS]:
            del self.busy[slot]
        shares = [
            min(100, round(100 * self.busy.get(last - back, 0.0) / SLOT_S)) for back in range(SLOTS)
        ]
        end_us = int((last + 1) * SLOT_S * 1e6)
        new = self.path.with_suffix(".new")
        recent = " ".join(map(str, shares))
        new.write_text(f"{self.head}pcie_rx_kb_s = {self.rx_kb_s}\nrecent = {end_us} {recent}\n")
        new.replace(self.path)
