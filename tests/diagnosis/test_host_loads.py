"""Real jobs whose host side holds the GPU up, or only looks as if it did; see loads/hosts.py."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from gpu_load import JSON, LoadedMachine, cgroup, loaded_machine

pytestmark = pytest.mark.timeout(300)
SLEEPERS = {  # what is said, and what may not be: a wrong confident cause
    "serves": "waiting for requests (high)",
    "accepts": "waiting for requests (high)",
    "serves_in_a_thread": "waiting for requests (medium)",
    "downloads": "network-bound (medium)",  # as the job is young
    "hears_nothing": "network-bound (medium)",
    "waits_for_workers": "not enough evidence (low)",
    "vforks": "not enough evidence (low)",
    "pauses": "not enough evidence (low)",
    "locked": "stuck (medium)",
}


@pytest.fixture(scope="module")
def machine(nvml: Path) -> Iterator[LoadedMachine]:
    with loaded_machine(nvml, len(SLEEPERS)) as found:
        yield found


@pytest.fixture(scope="module")
def sleepers(machine: LoadedMachine) -> JSON:
    """All of them at the same time, a GPU each."""
    with ExitStack() as stack:
        for index, name in enumerate(SLEEPERS):
            stack.enter_context(machine.load(name, gpu=index))
        return machine.diagnose()


@pytest.mark.parametrize("name", SLEEPERS)
def test_g3_the_reason_why_a_job_sleeps_decides_the_cause(sleepers: JSON, name: str) -> None:
    gpu = sleepers["gpus"][list(SLEEPERS).index(name)]
    assert f"{gpu['cause']} ({gpu['confidence']})" == SLEEPERS[name], gpu["sentence"]
    if not SLEEPERS[name].startswith(("waiting", "not")):
        assert "the job began only" in gpu["sentence"]
    if SLEEPERS[name].startswith("network"):
        assert "in recvfrom from 127.0.0.1:" in gpu["sentence"]
        assert "its connection works: nothing was resent, " in gpu["sentence"]


@pytest.mark.parametrize("name", ["spins", "yields"])
def test_g3_a_thread_that_polls_for_a_gpu_that_does_nothing(
    machine: LoadedMachine, name: str
) -> None:
    with machine.load(name):
        gpu = machine.diagnose()["gpus"][0]
    assert set(gpu["causes"]) - {"CPUs taken by others"} == {"stuck"}, gpu["sentence"]
    assert gpu["confidence"] == "low" and "the job began only" in gpu["sentence"]


SPIN = "print(flush=True)\nwhile True: pass"


@contextmanager
def neighbours(number: int) -> Iterator[str]:
    """So many processes that use all the CPU time they get, in a cgroup of their own; its name."""
    weight = {"cpu.shares": "8192"}, {"cpu.weight": "800"}  # beside what else runs here
    with cgroup("cpu", *weight) as group, ExitStack() as stack:
        for _ in range(number):
            command = [sys.executable, "-c", SPIN]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            for place in group.places:
                (place / "cgroup.procs").write_text(str(process.pid))
        yield group.places[0].name


def test_g5_the_processes_that_hold_the_cpus_of_a_job_are_named(
    machine: LoadedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOAD_NICE", "0")
    with neighbours(2) as group, machine.load("preprocesses"):
        gpu = machine.diagnose()["gpus"][0]
    assert gpu["causes"] == ["CPUs taken by others"], gpu["sentence"]
    assert re.search(rf"of (root \(uid 0\)|user 0) in {group}", gpu["sentence"])


HOT = {
    "preprocesses": ("preprocessing-bound", "num_workers"),
    "shares_the_gil": ("preprocessing-bound", "processes instead of threads"),
    "copies_pageable": ("transfer-bound", "pin_memory"),
    "launches": ("submission-bound", "CUDA graphs"),
}


@pytest.mark.parametrize("name", HOT)
def test_g6_the_work_of_a_hot_thread_decides_cause_and_next_step(
    machine: LoadedMachine, name: str
) -> None:
    with machine.load(name):
        gpu = machine.diagnose()["gpus"][0]
    cause, step = HOT[name]
    # other programs of this machine may take its CPUs
    assert {cause} >= {*gpu["causes"]} - {"CPUs taken by others"}, gpu["sentence"]
    assert step in gpu["next_step"] or cause not in gpu["causes"]
