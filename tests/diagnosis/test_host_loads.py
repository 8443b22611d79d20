"""Real jobs whose host side holds the GPU up, or only looks as if it did; see loads/hosts.py."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gpu_load import JSON, LoadedMachine, loaded_machine

pytestmark = pytest.mark.timeout(300)
SLEEPERS = {  # what is said, and what may not be: a wrong confident cause
    "serves": "waiting for requests (high)",
    "accepts": "waiting for requests (high)",
    "serves_in_a_thread": "waiting for requests (medium)",
    "downloads": "network-bound (high)",
    "hears_nothing": "network-bound (medium)",
    "waits_for_workers": "not enough evidence (low)",
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
def test_g3_what_a_job_sleeps_for_decides(sleepers: JSON, name: str) -> None:
    gpu = sleepers["gpus"][list(SLEEPERS).index(name)]
    assert f"{gpu['cause']} ({gpu['confidence']})" == SLEEPERS[name], gpu["sentence"]
    if SLEEPERS[name].startswith("network"):
        assert "in recvfrom from 127.0.0.1:" in gpu["sentence"]


@pytest.mark.parametrize("name", ["spins", "yields"])
def test_g3_a_thread_that_polls_for_a_gpu_that_does_nothing(
    machine: LoadedMachine, name: str
) -> None:
    with machine.load(name):
        gpu = machine.diagnose()["gpus"][0]
    assert (gpu["cause"], gpu["confidence"]) == ("stuck", "medium"), gpu["sentence"]
