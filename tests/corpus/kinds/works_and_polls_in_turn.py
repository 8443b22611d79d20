"""Computes for two seconds, then its collective polls for two: its mean power is that of work."""

import os
import threading
import time
from pathlib import Path

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

WORK = {"power_draw_mw": 620000, "utilization_memory_percent": 60}
POLL = {"power_draw_mw": 150000, "utilization_memory_percent": 1}

KIND = Kind(
    label="busy or spinning",
    second="not enough evidence",
    action="look at the other ranks",
    kept_out=False,  # nodevet said GPU-bound
    backgrounds=("quiet",),
    gpu={"event_reasons": 0, "clock_sm_mhz": 1980, **WORK},
)


def alternate():
    path = Path(os.environ["NODEVET_SIM_STATE"])
    works = polls = path.read_text()
    for name, value in WORK.items():
        line = f"gpu.{os.environ['LOAD_GPU']}.{name} = "
        polls = polls.replace(f"{line}{value}", f"{line}{POLL[name]}")
    while True:
        for text in (polls, works):
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)
            time.sleep(2)


def run(_):
    threading.Thread(target=alternate, daemon=True).start()
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
