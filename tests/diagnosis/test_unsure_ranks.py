"""Ranks of a job that may be late, or may only wait: confidence is low, and no exit 0."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodevet.diagnose.model import Cause, Confidence, Diagnosis, JobTarget, ListedRank, RankState
from tests.diagnosis.samples import BLOCKED, LOOKS, SERVES, process, thread
from tests.diagnosis.test_late_ranks import KINDS, SPIN, job, late, node, watched

ALMOST_BLOCKED = {**thread(10, 5), "states": "DDD" + "S" * 8, "waits": {"folio_wait_bit_common": 3}}
READS = thread(10, 15, state="D", waits={"folio_wait_bit_common": LOOKS})
POLLS = thread(10, 99, 3, state="R", switches=[0, 2])  # on its CPU
HOT = [thread(30 + number, 90) for number in range(5)]
MORE: Mapping[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "dozes": (45, {}, {}),
    "almost reads": (40, {}, {"threads": [ALMOST_BLOCKED]}),
    "reads and transforms": (20, {}, {"threads": [*BLOCKED, *HOT]}),
    "reads somewhere": (20, {}, {"threads": [READS], "pages": None}),
    "reads and is slow": (
        *(20, {"event_reasons": [0x40] * LOOKS}),
        {"threads": BLOCKED},
    ),
    "polls": (20, {}, {"threads": [POLLS]}),
    "computed and ended": (97, {}, {"ended_s": 9.0}),
}


@pytest.fixture(autouse=True)
def more_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in MORE.items():
        monkeypatch.setitem(KINDS, name, kind)


def seen(kinds: str, **more: Any) -> Diagnosis:
    return watched(node("a", kinds, size=len(kinds.split()), **more))


LIKE = "a rank that waits may look like this one"
UNSURE = {
    "one of two is less busy": ("computes dozes", [0], LIKE),
    "one is less busy": ("computes computes computes dozes", [3], LIKE),
    "two are less busy": ("computes computes dozes dozes", [0, 1], LIKE),
    "one sleeps and the others wait for a peer": ("dozes downloads downloads", [0], LIKE),
    "one is stuck and the others wait for a peer": ("downloads sleeps downloads", [1], LIKE),
    "its cause is not certain": ("spins reads-somewhere spins", [1], "is not certain"),
    "one polls on its CPU": ("polls dozes", [0], LIKE),
    "most poll on their CPUs": ("polls polls polls computes", [], "as with MPI, look the same"),
    "half read": ("reads reads almost-reads almost-reads", [0, 1], LIKE),
    "each does something else": ("dozes dozes dozes computes spins", [], "do different things"),
    "most ended": ("computes ended ended ended", [1, 2, 3], "it may end, or begin again"),
    "all ended": ("computed-and-ended computed-and-ended", [], "it may end, or begin again"),
}


@pytest.mark.parametrize("name", UNSURE)
def test_late_ranks_have_low_confidence_if_other_ranks_may_be_late_too(name: str) -> None:
    kinds, ranks, text = UNSURE[name]
    found = seen(kinds)
    assert late(found) == ranks, job(found).sentence
    assert job(found).confidence is Confidence.LOW, job(found).sentence
    assert text in " ".join(job(found).doubts)
    assert found.exit_code != 0


SURE = {
    "the others wait for a peer": ("computes downloads downloads downloads", [0]),
    "the others poll": ("spins spins dozes spins", [2]),
    "one reads while the others sleep": ("reads dozes dozes dozes", [0]),
    "two read while the others poll": ("reads reads spins spins", [0, 1]),
    "most read, and one transforms too": ("reads reads reads reads-and-transforms", []),
    "most are slow": ("throttled throttled throttled computes spins", []),
    "most read, and one is slow too": ("reads reads reads reads-and-is-slow", [3]),
}


@pytest.mark.parametrize("name", SURE)
def test_late_ranks_have_medium_confidence_if_the_other_ranks_clearly_wait(name: str) -> None:
    kinds, ranks = SURE[name]
    found = seen(kinds)
    assert len(job(found).ranks) == len(kinds.split())
    assert (late(found), job(found).confidence) == (ranks, Confidence.MEDIUM), job(found).sentence


def test_a_list_of_ranks_that_all_ended_exits_3() -> None:
    listed = (ListedRank("a", 0, gpu=0), ListedRank("a", 1, gpu=1))
    target = JobTarget(name="ranks", hosts=("a",), listed=listed)
    found = watched(node("a", "computed-and-ended computed-and-ended", size=2), target=target)
    assert {gpu.cause for gpu in found.hosts[0].gpus} == {Cause.GPU}
    assert found.exit_code == 3


def test_a_process_that_comes_to_a_gpu_of_the_job_may_be_its_new_rank() -> None:
    one = node("a", "spins ended spins", size=3)
    assert job(watched(one)).confidence is Confidence.HIGH
    one["sections"]["gpu_activity"]["gpus"][1]["processes"] = [{"pid": 77}]
    found = job(watched(one))
    assert "a GPU 1: process 77 came while nodevet watched" in found.doubts
    assert found.confidence is Confidence.LOW


def on_two_gpus(kinds: str) -> dict[str, Any]:
    """Two ranks on each GPU: the second one of each does nothing."""
    one = node("a", kinds, size=4)
    processes = one["sections"]["process_activity"]["processes"]
    for place, gpu in enumerate(one["sections"]["gpu_activity"]["gpus"]):
        pid = 20 + place
        of_job = {"job_id": "Slurm 12", "uid": 1000, "rank": 2 + place, "ranks": 4}
        processes.append(process(pid, [thread(pid)], gpus=[place], **of_job))
        gpu["processes"].append({"pid": pid, "sm_percent": 0.0, "memory_used_b": 1 << 30})
    return one


def test_any_of_the_ranks_that_share_a_gpu_may_be_late() -> None:
    found = watched(on_two_gpus("spins reads"))
    assert late(found) == [1, 3] and job(found).confidence is Confidence.LOW
    assert "several ranks share a GPU" in " ".join(job(found).doubts)
    polling = watched(on_two_gpus("spins spins"))
    assert (late(polling), job(polling).confidence) == ([], Confidence.LOW)
    busy = watched(on_two_gpus("computes computes"))
    assert (job(busy).confidence, busy.exit_code) == (Confidence.MEDIUM, 0)
    stopped = watched(on_two_gpus("spins stopped"))
    assert (late(stopped), job(stopped).confidence) == ([1], Confidence.HIGH)


def test_a_rank_with_several_gpus_computes_if_one_of_them_does() -> None:
    hosts = [node("a", "spins computes", 0, 2), node("b", "spins spins", 1, 2)]
    for each in hosts:
        sections = each["sections"]
        first = sections["process_activity"]["processes"][0]
        sections["process_activity"]["processes"] = [{**first, "gpus": [0, 1]}]
        for gpu in sections["gpu_activity"]["gpus"]:
            gpu["processes"] = [{"pid": 10, "sm_percent": 90.0, "memory_used_b": 60 << 30}]
    found = watched(*hosts)
    assert (late(found), job(found).confidence) == ([0], Confidence.MEDIUM), job(found).sentence
    assert job(found).late_ranks[0].state is RankState.COMPUTES


def test_a_rank_without_a_gpu_whose_thread_is_hot_computes() -> None:
    one = node("a", "downloads downloads", 1, 3)
    server = process(50, [thread(50, 20, state="R")], job_id="Slurm 12", rank=0, ranks=3, uid=1000)
    one["sections"]["process_activity"]["processes"].append({**server, "command": "server"})
    found = watched(one)
    assert late(found) == [0], job(found).sentence
    assert "server 50 uses no GPU, and a thread of it never sleeps" in job(found).sentence


def test_the_mps_server_on_the_gpus_of_a_job_does_not_lower_confidence() -> None:
    one = node("a", "spins throttled spins", size=3)
    server = process(90, [{**SERVES, "tid": 90}], command="nvidia-cuda-mps", gpus=[0, 1, 2])
    one["sections"]["process_activity"]["processes"].append(server)
    for gpu in one["sections"]["gpu_activity"]["gpus"]:
        gpu["processes"].append({"pid": 90, "memory_used_b": 30 << 20})
    found = watched(one)
    assert (late(found), job(found).confidence) == ([1], Confidence.HIGH), job(found).doubts


def slow(clock: int, **more: Any) -> tuple[int, dict[str, Any], dict[str, Any]]:
    return 97, {"clock_sm_mhz": [clock] * LOOKS, **more}, {}


def test_the_rank_with_the_lowest_clock_is_late_if_all_ranks_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "is slower", slow(1720))
    found = seen("computes computes is-slower computes")
    assert (late(found), job(found).confidence, found.exit_code) == ([2], Confidence.MEDIUM, 1)
    assert "SM clock 87 % of its maximum, theirs at least 96 %" in job(found).sentence
    assert found.hosts[0].gpus[2].cause is Cause.THROTTLED
    assert [odd.gpu for odd in found.stragglers] == [2]


@pytest.mark.parametrize("other", [slow(1800), slow(1720, name="L40S"), slow(1720, **SPIN)])
def test_small_clock_differences_other_models_and_polling_gpus_make_no_rank_late(
    other: tuple[int, dict[str, Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "is slower", other)
    found = seen("computes computes is-slower computes")
    assert late(found) == [] and found.stragglers == ()


def test_a_job_whose_busy_gpus_use_few_of_their_sms_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"sm_percent": 8.0, "tensor_percent": 0.0, "dram_percent": 0.4}
    polls = (100, {"power_mw": [400000] * LOOKS, "gpm": [few], "gpm_supported": True}, {})
    monkeypatch.setitem(KINDS, "polls at work", polls)
    found = seen("polls-at-work polls-at-work")
    assert {rank.state for rank in job(found).ranks} == {RankState.WAITS}
    assert {gpu.cause for gpu in found.hosts[0].gpus} == {Cause.GPU} and found.exit_code == 3
    alone = Diagnosis(id="", nodevet="", started="", seconds=10, hosts=found.hosts)
    assert alone.exit_code == 3
    assert late(seen("polls-at-work computes")) == [1]


def test_a_listed_rank_of_several_processes_is_stopped_if_one_is_and_ended_if_all_are() -> None:
    listed = (ListedRank("a", 0, gpu=0), ListedRank("a", 1, gpu=1))
    target = JobTarget(name="ranks", hosts=("a",), listed=listed)
    one = node("a", "spins spins", size=2)
    more = process(20, [thread(20, state="T")], gpus=[1])
    server = process(5, [{**SERVES, "tid": 5}], command="nvidia-cuda-mps", gpus=[0, 1])
    processes = one["sections"]["process_activity"]["processes"]
    processes[:0] = [server]
    processes.append(more)
    found = watched(one, target=target)
    assert (late(found), job(found).late_ranks[0].state) == ([1], RankState.STOPPED)
    processes[-1] = {**process(20, gpus=[1]), "ended_s": 3.0}
    assert [rank.pid for rank in job(watched(one, target=target)).ranks] == [10, 11]
    processes[-2] = {**processes[-2], "ended_s": 4.0}
    assert job(watched(one, target=target)).ranks[1].state is RankState.ENDED
