"""Who uses a GPU that does nothing: a job that hangs is not called idle, nor a server."""

from typing import Any

import pytest

from nodevet.diagnose.model import Cause, GpuDiagnosis
from tests.diagnosis.samples import (
    BLOCKED,
    JSON,
    LOCKED,
    LOOKS,
    SERVES,
    exit_code,
    first_gpu,
    gpu,
    process,
    sections,
    thread,
)

SERVER = process(90, [{**SERVES, "tid": 90}], gpus=[0])
MPS = {**SERVER, "command": "nvidia-cuda-mps"}
NAMED = [{"pid": pid, "sm_percent": 0.0, "memory_used_b": 30 << 30} for pid in (10, 90)]


def told(gpus: JSON, *processes: JSON) -> GpuDiagnosis:
    return first_gpu(sections([gpus], list(processes)))


@pytest.mark.parametrize(
    ("busy", "threads", "cause"),
    [(0, [LOCKED], Cause.STUCK), (0, [SERVES], Cause.REQUESTS), (20, BLOCKED, Cause.STORAGE)],
)
def test_in_a_container_processes_that_hold_the_device_open_use_the_gpu(
    busy: int, threads: list[JSON], cause: Cause
) -> None:
    found = told(gpu(busy, processes=[]), process(threads=threads))
    assert found.cause is cause, found.sentence
    assert [job.pid for job in found.jobs] == [10]


def test_a_process_that_ended_uses_no_gpu() -> None:
    free = gpu(0, processes=[], memory_used_b=[0] * LOOKS)
    assert told(free, process(ended_s=3.0)).cause is Cause.IDLE


def test_a_gpu_whose_memory_an_unknown_process_holds_is_not_idle() -> None:
    """In another namespace of PIDs, or a process that cannot end."""
    found = told(gpu(0, processes=[], memory_used_b=[79 << 30] * LOOKS))
    assert (found.cause, exit_code(found)) == (Cause.UNCLEAR, 3)
    assert "99 % of the GPU's memory is in use, and NVML names no process" in found.sentence


def test_a_gpu_without_memory_of_its_own_can_be_idle() -> None:
    """As of GB10: NVML has no memory information."""
    unread = gpu(0, processes=[], memory_used_b=None, memory_total_b=None)
    assert told(unread).cause is Cause.UNCLEAR
    fields = ("memory_used_b", "memory_total_b")
    assert told({**unread, "errors": dict.fromkeys(fields, "NVML_ERROR_NOT_SUPPORTED")}).cause is (
        Cause.IDLE
    )


def test_the_clients_of_the_mps_server_decide_the_cause() -> None:
    both = gpu(0, processes=NAMED)
    assert told(both, process(threads=[LOCKED]), MPS).cause is Cause.STUCK
    assert told(both, process(threads=[SERVES]), MPS).cause is Cause.REQUESTS
    reads = told(gpu(20, processes=NAMED), process(threads=BLOCKED), MPS)
    assert (reads.cause, [job.pid for job in reads.jobs]) == (Cause.STORAGE, [10])
    alone = gpu(0, processes=NAMED[1:], memory_used_b=[0] * LOOKS)
    assert told(alone, MPS).cause is Cause.IDLE


def test_a_process_that_never_wakes_beside_a_server_may_be_stuck() -> None:
    both = gpu(0, processes=NAMED)
    found = told(both, process(threads=[LOCKED]), SERVER)
    assert (found.cause, exit_code(found)) == (Cause.UNCLEAR, 3), found.sentence
    other = process(threads=[SERVES])
    assert exit_code(told(both, other, SERVER)) == 0


ACCEPTED = {  # a connection that the other side opened
    **{"call": "recvfrom", "looks": LOOKS, "listens": True, "connections": 1},
    "peer": "10.0.0.2:41234",
}
RECEIVES = thread(10, switches=[7, 7], waits={"wait_woken": LOOKS}, sleeps=[ACCEPTED])


@pytest.mark.parametrize("job", [{"rank": 1, "ranks": 4}, {"master": "n1:29500"}])
def test_a_rank_that_receives_waits_for_another_rank_and_not_for_requests(
    job: dict[str, Any],
) -> None:
    found = told(gpu(0), process(threads=[RECEIVES], **job))
    assert (found.cause, exit_code(found)) == (Cause.NETWORK, 1), found.sentence
    for alone in ({}, {"rank": 0, "ranks": 1, "master": "n1:29500"}):
        assert told(gpu(0), process(threads=[RECEIVES], **alone)).cause is Cause.REQUESTS
