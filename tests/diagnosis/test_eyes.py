"""What is read beside the states of threads: connections, delays, GPM, flight recorder dumps."""

from typing import Any

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.connections import LOST_STEP, SLOW_STEP
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from tests.diagnosis.samples import (
    BLOCKED,
    DOWNLOADS,
    LOCKED,
    LOOKS,
    TCP,
    evidence,
    gpu,
    process,
    sections,
)
from tests.diagnosis.test_less_evidence import check


def told(node: dict[str, Any]) -> GpuDiagnosis:
    answer = diagnose(evidence(node))
    assert not isinstance(answer, str)
    return answer[0]


def downloading(**tcp: Any) -> GpuDiagnosis:
    sleep = {**DOWNLOADS["sleeps"][0], "tcp": {**TCP, **tcp}}
    return told(sections(processes=[process(threads=[{**DOWNLOADS, "sleeps": [sleep]}])]))


LOSSES = {
    "300 of 20000 segments resent, round trip 40 ms": {"resent": 300},
    "3 of 20000 segments resent, 4000 of 40000 came out of order": {"out_of_order": 4000},
    "6 resends without an answer, no data for 13 s, 2.0 kB not acknowledged": {
        **{"resent": 0, "resends_now": 6, "silent_ms": 13000, "send_queue_b": 2000},
    },
}


@pytest.mark.parametrize("state", LOSSES)
def test_a_job_that_waits_for_a_lossy_network_gets_the_state_of_its_connection(state: str) -> None:
    found = downloading(**LOSSES[state])
    assert found.causes == (Cause.NETWORK,)
    assert f"its connection: {state}" in found.sentence
    assert found.next_step == LOST_STEP


def test_a_peer_without_packet_loss_is_reported_as_slow() -> None:
    found = downloading()
    assert "its connection: 3 of 20000 segments resent, round trip 40 ms" in found.sentence
    assert (found.confidence, found.next_step) == (Confidence.HIGH, SLOW_STEP)


def test_an_unread_connection_lowers_confidence_in_the_network() -> None:
    sleep = {**DOWNLOADS["sleeps"][0], "tcp": None, "errors": {"tcp": "EPERM"}}
    found = told(sections(processes=[process(threads=[{**DOWNLOADS, "sleeps": [sleep]}])]))
    assert (found.causes, found.confidence) == ((Cause.NETWORK,), Confidence.MEDIUM)
    assert "nodevet could not read whether its peer is slow or packets are lost" in found.sentence


def blocked(ticks: list[int] | None, counted: bool | None, **sleep: Any) -> GpuDiagnosis:
    sleeps = [{"call": "pread64", "looks": LOOKS, "path": "/d/a", **sleep}] if sleep else []
    slept = {**BLOCKED[0], "io_delay_ticks": ticks, "sleeps": sleeps}
    node = sections(processes=[process(threads=[slept])])
    node["process_activity"]["delays_counted"] = counted
    return told(node)


@pytest.mark.parametrize(
    ("ticks", "counted", "doubt"),
    [
        ([0, 0], True, "the kernel counted almost no delay of its threads by block I/O"),
        ([0, 0], False, "Linux does not count its delays by I/O"),
        ([0, 0], None, "not in the evidence"),
        (None, True, "the kernel's count of I/O delays was not read"),
        ([7, 907], None, ""),  # it was counted, whatever holds for later tasks
        ([7, 907], False, ""),
    ],
)
def test_storage_has_high_confidence_only_if_the_kernel_counted_the_delay(
    ticks: list[int] | None, counted: bool | None, doubt: str
) -> None:
    found = blocked(ticks, counted)
    assert found.causes == (Cause.STORAGE,)
    assert found.confidence is (Confidence.MEDIUM if doubt else Confidence.HIGH), found.sentence
    assert doubt in found.sentence
    assert ("counted 90 % of the time as its delay" in found.sentence) is not bool(doubt)


def test_the_kernel_counts_no_delay_of_a_network_file_system() -> None:
    found = blocked([0, 0], True, point="/d", filesystem="nfs4")
    assert (found.causes, found.confidence) == ((Cause.STORAGE,), Confidence.HIGH), found.sentence


WORKS = {"sm_percent": 96.0, "tensor_percent": 61.0, "dram_percent": 44.0}
POLLS = {"sm_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.3}


def measured(gpm: dict[str, Any] | None, busy: int = 97, power: int = 600000, **rest: Any) -> Any:
    listed = None if gpm is None else [gpm]
    looks = {"power_mw": [power] * LOOKS, "gpm": listed, "gpm_supported": True}
    return sections([gpu(busy, **looks, **rest)])


def test_gpm_shows_that_a_busy_gpu_works() -> None:
    found = told(measured(WORKS))
    assert (found.causes, found.confidence) == ((Cause.GPU,), Confidence.HIGH)
    assert "96 % of its SMs are busy, its tensor cores are busy 61 % of the time" in found.sentence


@pytest.mark.parametrize(
    ("gpm", "doubt"),
    [
        (POLLS, "only 12 % of its SMs were busy, 0 % of its tensor cores"),
        (None, "nodevet could not read how many of its SMs work"),
    ],
)
def test_gpm_that_looks_like_a_collective_contradicts_gpu_bound(gpm: Any, doubt: str) -> None:
    found = told(measured(gpm))
    assert (found.causes, found.confidence) == ((Cause.GPU,), Confidence.MEDIUM)
    assert doubt in found.sentence


def test_only_unread_gpm_and_not_unsupported_gpm_lowers_confidence() -> None:
    for rest in (
        {"gpm_supported": False},
        {"gpm_supported": None, "errors": {"gpm_supported": "NVML_ERROR_FUNCTION_NOT_FOUND"}},
    ):
        assert told(sections([gpu(97, power_mw=[600000] * LOOKS, **rest)])).confidence == "high"
    unknown = {"gpm_supported": None, "errors": {"gpm_supported": "NVML_ERROR_NO_PERMISSION"}}
    found = told(sections([gpu(97, power_mw=[600000] * LOOKS, **unknown)]))
    assert found.confidence == "medium" and "could not read how many of its SMs" in found.sentence


def test_gpm_figures_of_a_gpu_in_mig_mode_are_those_of_its_busiest_instance() -> None:
    """NVML has no utilization of a GPU in MIG mode, so no cause is found."""
    none = dict.fromkeys(("samples", "utilization_percent", "memory_utilization_percent"))
    why = {"errors": dict.fromkeys(none, "NVML_ERROR_NOT_SUPPORTED")}
    parts = [{"instance": 7, **POLLS}, {"instance": 9, **WORKS}]
    found = told(sections([gpu(0, gpm=parts, gpm_supported=True, **none, **why)]))
    assert (found.cause, found.confidence) == (Cause.UNCLEAR, Confidence.LOW)
    figures = {figure.name: figure for figure in found.figures}
    assert (figures["sm_active"].value, figures["sm_active"].note) == (96.0, "GPU instance 9")


def test_gpm_tells_a_gpu_that_polls_from_one_that_computes_at_low_power() -> None:
    quiet = {"busy": 100, "power": 190000, "memory_utilization_percent": [1] * LOOKS}
    polls, works = told(measured(POLLS, **quiet)), told(measured(WORKS, **quiet))
    assert polls.causes == works.causes == (Cause.SPINNING,)
    assert polls.sentence.endswith("0.3 % of its memory bandwidth")
    assert (
        "memory are busier than in such a collective, but a collective that waits" in works.sentence
    )


def dumped(rank: int, scheduled: int, pid: int) -> dict[str, Any]:
    waits = scheduled > 117
    group = {"group": "0", "members": "0-2", "completed": 117, "scheduled": scheduled}
    group |= {"sequence": scheduled, "state": "started" if waits else "completed", "age_s": 612.0}
    group |= {"collective": "nccl:all_reduce", "sizes": "1024x8"}
    flight = {"path": f"/tmp/nccl_trace_rank_{rank}", "age_s": 12.0, "groups": [group]}
    job = {"job_id": "Slurm 12", "rank": rank, "flight": flight, "gpus": [rank]}
    return process(pid, [{**LOCKED, "tid": pid}], **job)


def test_the_rank_that_is_behind_is_named_by_the_dumps_of_the_flight_recorder() -> None:
    ranks = [dumped(0, 118, 10), dumped(1, 117, 11), dumped(2, 118, 12)]
    found = told(sections([gpu(0)], ranks))
    assert found.causes == (Cause.STUCK,)
    assert found.also == (
        "flight recorder of rank 0, 12 s ago: nccl:all_reduce 118 of 1024x8 in group 0 is started; "
        "the last completed is 117",
        "rank 1 has not entered nccl:all_reduce 118 of 1024x8 in group 0, in which ranks 0,2 wait "
        "(for 10 min when it wrote its dump)",
    )


def test_ranks_that_call_different_collectives_are_named_by_the_dumps() -> None:
    other = dumped(1, 118, 11)
    other["flight"]["groups"][0]["collective"] = "nccl:all_gather"
    found = told(sections([gpu(0)], [dumped(0, 118, 10), other]))
    assert found.also[-1] == (
        "collective 118 of group 0 is all_reduce of 1024x8 on rank 0, and all_gather on rank 1"
    )


NODES = {
    "gpm works": measured(WORKS),
    "gpm polls": measured(POLLS),
    "dumps": sections([gpu(0)], [dumped(0, 118, 10), dumped(1, 117, 11)]),
}


@pytest.mark.parametrize("name", NODES)
def test_less_evidence_never_raises_confidence(name: str) -> None:
    assert not check({key: {"status": "ok", "data": value} for key, value in NODES[name].items()})
