"""What watching costs a node: by its own count, and by the kernel's of the processes that watch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from gpu_load import LoadedMachine, loaded_machine

pytestmark = pytest.mark.timeout(300)
GPUS, THREADS, SECONDS = 8, 500, 20.0
JOB = f"""
import threading, time
for _ in range({THREADS // GPUS}):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(flush=True)
while True:
    time.sleep(0.01)
"""
WATCH = f"""
import json, os, sys, time
from nodevet.remote.probe.collectors import gpu, gpu_activity, host_activity, process_activity
found = {{"gpu": {{"status": "ok", "data": gpu.collect("/", {{"deadline": 60.0}})}}}}
wish = {{"seconds": {SECONDS}, "interval": 1.0}}
told, counted = {{}}, {{}}
children = {{}}
for section in (gpu_activity, host_activity, process_activity):
    name = section.__name__.rpartition(".")[2]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        end = time.monotonic() + 60
        request = {{"asks": {{name: [wish]}}, "found": found, "whole_machine": True, "end": end}}
        data = section.collect("/", request)
        size = sum(len(each["threads"] or ()) for each in data.get("processes", ()))
        os.write(write, json.dumps([data["look"], size]).encode())
        os._exit(0)
    children[name] = pid, read
for name, (pid, read) in children.items():
    told[name] = json.loads(os.read(read, 1 << 16))
    used = os.wait4(pid, 0)[2]
    counted[name] = used.ru_utime + used.ru_stime
print(json.dumps([told, counted]))
"""


@contextmanager
def job(machine: LoadedMachine, gpu: int) -> Iterator[None]:
    """A process of many threads on a GPU."""
    with subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline()
            file = Path(f"{machine.state}.processes", str(process.pid))
            file.write_text(f"gpus = {gpu}\nmemory_mb = 60000\nutilization_percent = 50\n")
            yield
        finally:
            process.kill()


def test_watching_takes_less_than_one_percent_of_a_core(nvml: Path) -> None:
    """Eight GPUs, and 500 threads on them. It is a share of CPU time, which others do not add to;
    the kernel's count has the child's beginning and end too, which are no more than the looks."""
    with loaded_machine(nvml, GPUS) as machine, ExitStack() as stack:
        for gpu in range(GPUS):
            stack.enter_context(job(machine, gpu))
        done = subprocess.run(
            [sys.executable, "-c", WATCH],
            env={**os.environ, **machine.variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    told, counted = json.loads(done.stdout)
    assert told["process_activity"][1] >= THREADS - GPUS
    own = sum(look["cost_s"] for look, _ in told.values())
    assert 0 < own < 0.01 * SECONDS, told
    assert own <= sum(counted.values()) + 0.03 < 0.02 * SECONDS, (told, counted)
