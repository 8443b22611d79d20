"""What only looks like a cause is never said confidently, and a GPU that waits is never fine."""

from typing import Any

import pytest

from nodevet.diagnose.model import (
    Cause,
    Confidence,
    GpuDiagnosis,
)
from tests.diagnosis.samples import (
    BLOCKED,
    DOWNLOADS,
    HOT,
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

GIB = 1 << 30
HELD = gpu(0)


def asleep(call: str, tid: int = 10, moved: int = 0, place: str = "x", **rest: Any) -> JSON:
    """A thread that slept in this call at all looks."""
    sleep = {"call": call, "looks": LOOKS, **rest}
    return thread(tid, switches=[0, moved], waits={place: LOOKS}, sleeps=[sleep])


def holding(gib: float, *threads: JSON, **rest: Any) -> GpuDiagnosis:
    """A GPU that does nothing, with so much memory in use, by one process."""
    used = gpu(0, memory_used_b=[int(gib * GIB)] * LOOKS)
    return first_gpu(sections([used], [process(threads=list(threads), **rest)]))


NAPS = asleep("clock_nanosleep", moved=100)
WAITS = {
    "a lock": (0.6, asleep("futex")),
    "a lock, with a small model": (9, asleep("futex")),
    "a lock on a file": (0.6, asleep("flock")),
    "a pipe": (8, asleep("read", place="anon_pipe_read")),
    "a child": (5, asleep("wait4")),
    "several things": (0.6, asleep("poll")),
    "to be continued": (6, thread(10, state="T", switches=[0, 0])),
    "something that it asks for again and again, with a small model": (5, NAPS),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_job_with_little_gpu_memory_that_waits_is_not_idle(name: str) -> None:
    found = holding(*WAITS[name])
    assert found.cause in (Cause.UNCLEAR, Cause.STUCK), found.sentence
    assert exit_code(found)


@pytest.mark.parametrize(
    "first", [NAPS, SERVES, asleep("read", path="/dev/pts/3", place="wait_woken")]
)
def test_a_tool_that_holds_a_context_and_rests_is_idle(first: JSON) -> None:
    found = holding(0.6, first)
    assert (found.cause, exit_code(found)) == (Cause.IDLE, 0), found.sentence


def test_a_wait_for_a_user_at_a_terminal_is_not_a_wait_for_the_network() -> None:
    found = holding(60, asleep("read", path="/dev/pts/3", place="wait_woken"))
    assert found.cause is Cause.UNCLEAR
    assert "waits for its user, at a terminal" in found.sentence


def test_a_server_is_fine_only_if_no_other_process_of_its_gpu_waits() -> None:
    hung = process(11, [{**LOCKED, "tid": 11}], gpus=[0])
    both = gpu(0, processes=[{"pid": pid, "memory_used_b": 30 * GIB} for pid in (10, 11)])
    found = first_gpu(sections([both], [process(threads=[SERVES]), hung]))
    assert (found.cause, exit_code(found)) == (Cause.UNCLEAR, 3), found.sentence


@pytest.mark.parametrize("gib", [30, 0.9])
def test_a_rank_that_accepts_may_wait_for_the_other_ranks(gib: float) -> None:
    found = holding(gib, SERVES, rank=0, ranks=4)
    assert (found.cause, exit_code(found)) == (Cause.UNCLEAR, 3), found.sentence


HALTED = {
    "in a frozen cgroup": {**SERVES, "states": "D" * LOOKS, "waits": {"__refrigerator": LOOKS}},
    "stopped by a signal": {**SERVES, "states": "T" * LOOKS},
    "stopped by a debugger": thread(10, states="t" * LOOKS, switches=[3, 3]),
}


@pytest.mark.parametrize("name", HALTED)
def test_a_server_that_is_halted_does_not_wait_for_requests(name: str) -> None:
    found = holding(60, HALTED[name])
    assert (found.causes, exit_code(found)) == ((Cause.STUCK,), 1), found.sentence
    assert f"(python 10 {name})" in found.sentence
    assert found.next_step.startswith("ask who stopped it")


GO_ON = {
    "an engine that polls": asleep("poll", 11, listens=False, connections=0),
    "an actor": asleep("epoll_wait", 11, listens=False, connections=1, peer="10.0.0.5:80"),
    "a worker that tries again later": asleep("clock_nanosleep", 11),
}


@pytest.mark.parametrize("name", GO_ON)
def test_a_job_that_another_thread_may_wake_is_stuck_with_low_confidence(name: str) -> None:
    found = holding(60, asleep("futex"), GO_ON[name])
    assert (found.causes, found.confidence) == ((Cause.STUCK,), Confidence.LOW), found.sentence
    assert "may let it go on" in found.sentence
    assert "stop nothing before its owner says so" in found.next_step


def test_a_wait_for_a_shared_lock_does_not_prove_a_stuck_job() -> None:
    found = holding(60, asleep("shared futex"))
    assert found.cause is Cause.UNCLEAR
    assert "waits for a lock that processes share" in found.sentence


POWERS = {"works and polls": (4, Cause.SPINNING, 3), "polls at one look": (2, Cause.GPU, 0)}


@pytest.mark.parametrize("name", POWERS)
def test_a_gpu_that_polls_for_part_of_the_time_is_not_reported_as_working(name: str) -> None:
    polls, cause, code = POWERS[name]
    power = [150_000] * polls + [620_000] * (LOOKS - polls)
    memory = [1] * polls + [60] * (LOOKS - polls)
    found = first_gpu(sections([gpu(100, power_mw=power, memory_utilization_percent=memory)]))
    assert (found.cause, exit_code(found)) == (cause, code), found.sentence


def test_a_helper_with_an_idle_connection_does_not_wait_for_the_network() -> None:
    silent = asleep("recvfrom", 20, connections=1, listens=False, peer="10.0.0.5:22")
    loader = asleep("poll", 21, moved=2, connections=1, listens=False, peer="10.0.0.5:29500")
    helpers = [process(pid, [each], parent=10) for pid, each in ((20, silent), (21, loader))]
    assert first_gpu(sections(processes=[process(), *helpers])).cause is Cause.UNCLEAR
    receives = {**DOWNLOADS, "tid": 20}
    found = first_gpu(sections(processes=[process(), process(20, [receives], parent=10)]))
    assert found.causes == (Cause.NETWORK,), found.sentence


PACED = asleep("clock_nanosleep", moved=150)
BESIDE = {
    Cause.STORAGE: {**BLOCKED[0], "tid": 11},
    Cause.NETWORK: {**DOWNLOADS, "tid": 11},
}


@pytest.mark.parametrize("cause", BESIDE)
@pytest.mark.parametrize("first", [PACED, SERVES, thread(10, 96, 2)])
def test_a_thread_that_the_first_thread_does_not_wait_for_is_a_low_confidence_cause(
    cause: Cause, first: JSON
) -> None:
    found = first_gpu(sections(processes=[process(threads=[first, BESIDE[cause]])]))
    assert cause in found.causes and found.confidence is Confidence.LOW, found.sentence


@pytest.mark.parametrize("first", [PACED, SERVES, DOWNLOADS])
def test_a_hot_helper_that_the_first_thread_does_not_wait_for_lowers_confidence(
    first: JSON,
) -> None:
    hot = process(20, [thread(20, 95)], parent=10)
    found = first_gpu(sections(processes=[process(threads=[first]), hot]))
    assert Cause.PREPROCESSING in found.causes, found.sentence
    assert found.confidence is Confidence.LOW


def test_a_first_thread_that_sleeps_while_its_gpu_works_does_not_pace_it() -> None:
    busy = gpu(70)
    found = first_gpu(sections([busy], [process(threads=[PACED, BESIDE[Cause.STORAGE]])]))
    assert "a time of its own" in found.sentence
    half = {**PACED, "states": "RRRS" * 2 + "SSS"}
    found = first_gpu(sections([busy], [process(threads=[half, BESIDE[Cause.STORAGE]])]))
    assert found.confidence is Confidence.HIGH, found.sentence


def test_a_gpu_that_is_quiet_for_long_does_not_wait_for_a_thread_that_launches() -> None:
    """A server that polls for requests is as hot, and gets them in bursts."""
    bursts = gpu(20, samples=[[second / 6, 80 if second % 4 == 0 else 0] for second in range(60)])
    assert first_gpu(sections([bursts], [process(threads=HOT)])).cause is Cause.UNCLEAR
    polls = first_gpu(sections([bursts], [process(threads=[thread(10, 98)])]))
    assert (polls.cause, polls.confidence) == (Cause.PREPROCESSING, Confidence.LOW), polls.sentence
    assert first_gpu(sections([gpu(20)], [process(threads=HOT)])).causes == (Cause.SUBMISSION,)


@pytest.mark.parametrize(("system", "cause"), [(40, Cause.SUBMISSION), (93, Cause.UNCLEAR)])
def test_a_thread_that_runs_in_the_kernel_alone_is_not_submission_bound(
    system: int, cause: Cause
) -> None:
    """Page faults, and copies into the page cache, are in the kernel alone."""
    found = first_gpu(sections(processes=[process(threads=[thread(10, 98, system)])]))
    assert found.cause is cause, found.sentence


READ = {"of a file": (40, 2.0, 1000), "over a pipe": (95, 0.8, 12800)}


@pytest.mark.parametrize("name", READ)
def test_a_hot_thread_that_reads_a_lot_has_low_confidence(name: str) -> None:
    system, gb_s, switches = READ[name]
    hot = thread(10, 96, system, switches=[0, 10 * switches])
    found = first_gpu(sections(processes=[process(threads=[hot], read_b=[0, int(gb_s * 1e10)])]))
    assert found.confidence is Confidence.LOW, found.sentence


@pytest.mark.parametrize(("gb_s", "sure"), [(2.2, Confidence.LOW), (6.0, Confidence.MEDIUM)])
def test_a_thread_copies_pageable_memory_only_if_the_link_carries_as_much(
    gb_s: float, sure: Confidence
) -> None:
    """Decoding in the thread that copies looks the same."""
    copies = gpu(16, pcie_rx_kb_s=[int(gb_s * 1e6)] * LOOKS)
    found = first_gpu(sections([copies], [process(threads=[thread(10, 98)])]))
    assert (found.causes, found.confidence) == ((Cause.TRANSFER,), sure), found.sentence


def test_the_mps_server_does_not_count_as_a_job() -> None:
    mps = process(11, [asleep("poll", 11, listens=True)], gpus=[0], command="nvidia-cuda-mps")
    assert first_gpu(sections([HELD], [process(threads=[SERVES]), mps])).cause is Cause.REQUESTS
    alone = gpu(0, memory_used_b=[30 << 20] * LOOKS, processes=[{"pid": 11}])
    assert first_gpu(sections([alone], [mps])).cause is Cause.IDLE


def test_a_serving_thread_in_one_of_two_engines_lowers_confidence_in_stuck() -> None:
    other = process(11, [{**LOCKED, "tid": 11}], gpus=[0])
    threads = [LOCKED, {**SERVES, "tid": 12}]
    found = first_gpu(sections([HELD], [process(threads=threads), other]))
    assert found.confidence is Confidence.LOW and exit_code(found), found.sentence


@pytest.mark.parametrize(("tid", "sure"), [(10, Confidence.MEDIUM), (11, Confidence.LOW)])
def test_cpus_taken_from_a_thread_that_the_first_does_not_wait_for_lower_confidence(
    tid: int, sure: Confidence
) -> None:
    starved = {"user": [0, 100], "waited_ns": [0, 4 * 10**9]}
    first = {**PACED, **(starved if tid == 10 else {})}
    beside = thread(11, **(starved if tid == 11 else {}))
    found = first_gpu(sections(processes=[process(threads=[first, beside])]))
    assert (found.causes, found.confidence) == ((Cause.STARVED,), sure), found.sentence
