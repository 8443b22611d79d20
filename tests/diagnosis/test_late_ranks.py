"""Which rank of a job the others wait for, on made-up hosts where every rank is known."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.job_sheet import alike
from nodevet.diagnose.late_ranks import job_diagnosis, with_waits
from nodevet.diagnose.model import (
    Cause,
    Confidence,
    Diagnosis,
    HostDiagnosis,
    JobDiagnosis,
    JobTarget,
    ListedRank,
    RankState,
)
from nodevet.diagnose.sheet import diagnosis_sheet
from nodevet.diagnose.timelines import timelines
from nodevet.diagnose.use import Observations, incident
from nodevet.model import Status
from nodevet.remote.probe.job_names import job_id, rank_of, step_id
from nodevet.sheet import FORMATS, render
from tests.diagnosis.samples import (
    BLOCKED,
    DOWNLOADS,
    HOT,
    LOCKED,
    LOOKS,
    evidence,
    gpu,
    process,
    sections,
    thread,
)

JSON = dict[str, Any]
SLOW = {"event_reasons": [0x40] * LOOKS, "clock_sm_mhz": [900] * LOOKS}
LOST = {"errors": {"samples": "NVML_ERROR_GPU_IS_LOST"}, "samples": None}
SPIN = {"power_mw": [190000] * LOOKS, "memory_utilization_percent": [1] * LOOKS}
KINDS: Mapping[str, tuple[int, JSON, JSON]] = {  # SM busy, the GPU, its process
    "spins": (100, SPIN, {}),
    "computes": (97, {}, {}),
    "reads": (20, {}, {"threads": BLOCKED}),
    "launches": (20, {}, {"threads": HOT}),
    "starved": (20, {}, {"threads": [thread(10, 10, waited_ns=[0, 6 * 10**9])]}),
    "computes starved": (20, {}, {"threads": [thread(10, 34, waited_ns=[0, 6 * 10**9])]}),
    "throttled": (97, SLOW, {}),
    "lost": (0, LOST, {}),
    "sleeps": (0, {}, {"threads": [LOCKED]}),
    "downloads": (20, {}, {"threads": [DOWNLOADS]}),
    "stopped": (0, {}, {"threads": [thread(10, state="T")]}),
    "traced": (0, {}, {"threads": [thread(10, state="t")]}),
    "ended": (0, {}, {"ended_s": 3.0}),
    "zombie": (14, {}, {"threads": [{**thread(10), "states": "SSSSSSZZZZZ"}]}),
}
SLURM = JobTarget(name="12", hosts=(), ids=("Slurm 12",), uid=1000)


def kinds_of(text: str) -> list[str]:
    """The kinds of a text such as `spins computes-starved`."""
    return [word.replace("-", " ") for word in text.split()]


def node(name: str, kinds: str, first: int = 0, size: int | None = None, **more: Any) -> JSON:
    """A host whose ranks do this, each on a GPU of its own. `more`: of every process."""
    gpus, processes = [], []
    for place, kind in enumerate(kinds_of(kinds)):
        busy, of_gpu, of_process = KINDS[kind]
        pid = 10 + place
        on_gpu = [{"pid": pid, "sm_percent": float(busy), "memory_used_b": 60 << 30}]
        gpus.append({**gpu(busy, index=place, processes=on_gpu), **of_gpu})
        rows = of_process.get("threads", [thread(pid)])
        threads = [{**row, "tid": pid + 1000 * number} for number, row in enumerate(rows)]
        told = {"job_id": "Slurm 12", "uid": 1000, "rank": first + place, "ranks": size}
        rest = {**told, "gpus": [place], **of_process, **more, "threads": threads}
        processes.append(process(pid, **rest))
    return {"name": name, "sections": sections(gpus, processes)}


def watched(*nodes: JSON, target: JobTarget = SLURM, later: float = 0.0) -> Diagnosis:
    """`later`: when the last host began."""
    if not target.hosts:
        target = replace(target, name="12", hosts=tuple(each["name"] for each in nodes))
    observations, hosts = Observations(target), []
    for each in nodes:
        seen = evidence(each["sections"])
        found = diagnose(seen)
        assert not isinstance(found, str)
        began = 1.7e9 + (later if each is nodes[-1] else 0.0)
        lines = timelines(seen)
        host = HostDiagnosis(
            host=each["name"],
            status=Status.VETTED,
            gpus=found,
            began_s=began,
            seconds=10.0,
            timelines=lines,
        )
        hosts.append(host)
        observations.record(seen, host)
    started = datetime(2026, 11, 29).astimezone()
    return incident(hosts, seconds=10.0, started=started, observations=observations)


def job(found: Diagnosis) -> JobDiagnosis:
    assert found.job is not None
    return found.job


def late(found: Diagnosis) -> list[int | None]:
    return [rank.number for rank in job(found).late_ranks]


HIGH, MEDIUM, LOW = Confidence
CASES: Mapping[str, tuple[str, list[int], Confidence, str]] = {
    "it is throttled": ("spins spins throttled spins", [2], HIGH, "rank 2 on a: throttled"),
    "it reads": ("spins spins reads spins", [2], MEDIUM, "rank 2 on a: storage-bound"),
    "it launches": ("spins launches", [1], MEDIUM, "rank 0 on a waits for rank 1 on a"),
    "its GPU is lost": ("spins spins lost", [2], HIGH, "rank 2 on a: lost"),
    "it is stopped": ("spins spins stopped", [2], HIGH, "stopped by a signal (11 of 11 looks)"),
    "it is traced": ("spins traced spins", [1], HIGH, "stopped by a debugger"),
    "it ended": ("spins ended sleeps", [1], HIGH, "ended 3 s after nodevet began"),
    "it is a zombie": ("spins zombie spins", [1], HIGH, "its parent has not reaped it"),
    "it computes": ("spins computes spins", [1], MEDIUM, "computes while the others do not"),
    "it sleeps": ("spins spins sleeps", [2], MEDIUM, "rank 2 on a: stuck"),
    "it downloads": ("spins downloads spins", [1], MEDIUM, "network-bound"),
    "the others sleep": ("sleeps sleeps throttled sleeps", [2], HIGH, "rank 2 on a: throttled"),
    "the others compute": ("computes computes throttled", [2], MEDIUM, "rank 2 on a is slower"),
    "two of one kind": ("spins throttled throttled spins", [1, 2], HIGH, "ranks 1-2 on a"),
    "two candidates": ("spins spins reads throttled", [2, 3], MEDIUM, "for different reasons"),
    "all wait on the GPU": (
        "spins spins spins",
        [],
        MEDIUM,
        "all 3 ranks wait, and nodevet saw no late one",
    ),
    "all sleep": ("sleeps sleeps", [], MEDIUM, "all 2 ranks wait, and nodevet saw no late one"),
    "all compute": ("computes computes", [], MEDIUM, "most of them compute"),
    "most compute": ("computes computes spins", [], MEDIUM, "most of them compute"),
    "most read": ("reads reads reads spins", [], MEDIUM, "a cause of their own (storage-bound 3)"),
    "all are throttled": ("throttled throttled", [], MEDIUM, "all 2 ranks are throttled"),
    "all are stopped": ("stopped stopped", [], MEDIUM, "no rank runs: stopped 2"),
    "all ended": ("ended ended", [], LOW, "no rank runs: ended 2"),
    "it is alone": ("reads", [], MEDIUM, "nothing to compare it with"),
    "one ended, one is throttled": ("ended throttled spins spins", [0, 1], MEDIUM, "for different"),
}


@pytest.mark.parametrize("name", CASES)
def test_late_ranks_are_named_with_the_expected_confidence(name: str) -> None:
    kinds, ranks, confidence, text = CASES[name]
    found = watched(node("a", kinds, size=len(kinds_of(kinds))))
    assert late(found) == ranks, job(found).sentence
    assert text in " ".join([job(found).sentence, *job(found).doubts])
    assert job(found).confidence is confidence, job(found).doubts
    waits = {rank.gpus[0] for rank in job(found).ranks if rank.state is RankState.WAITS}
    if ranks:
        told = {each.index for each in found.hosts[0].gpus if each.cause is Cause.COLLECTIVE}
        assert told >= waits and not told & set(ranks)
        assert found.exit_code == 1
        assert job(found).next_step.startswith(("rank ", "ranks "))


def dumped(one: JSON, *numbers: int | None, age: float = 20.0, **more: Any) -> JSON:
    """The host, on which each rank has written a dump: it waits in this collective, or has
    completed the one before if the number is negative; None: it has none."""
    processes = one["sections"]["process_activity"]["processes"]
    for each, number in zip(processes, numbers, strict=True):
        if number is None:
            each["errors"] = {"flight": "it has written no dump"}
            continue
        state = "started" if number > 0 else "completed"
        group = {"group": "0", "members": "0-2", "state": state, "sequence": abs(number)}
        group |= {"collective": "nccl:all_reduce", "sizes": "8", "age_s": age + 90.0, **more}
        group["completed"] = group["sequence"] - (number > 0)
        each["flight"] = {"version": "2.4", "age_s": age, "groups": [group]}
    return one


DUMPED: Mapping[str, tuple[str, tuple[int | None, ...], float, list[int], Confidence, str]] = {
    "all wait, one is behind": ("spins spins spins", (118, -117, 118), 20.0, [1], MEDIUM, ""),
    "all sleep, one is behind": ("sleeps sleeps sleeps", (118, -117, 118), 20.0, [1], MEDIUM, ""),
    "old dumps": (
        *("spins spins spins", (118, -117, 118), 7200.0, [1], LOW),
        "a dump is 2 h old",
    ),
    "a dump is missing": (
        *("spins spins spins", (118, -117, None), 20.0, [1], LOW),
        "no dump shows how far rank 2 got",
    ),
    "all are in one": (
        *("spins spins spins", (118, 118, 118), 20.0, [], MEDIUM),
        "every rank of its group waits in nccl:all_reduce 118 of 8 in group 0",
    ),
    "they agree": (
        *("spins reads spins", (118, -117, 118), 20.0, [1], MEDIUM),
        "the dumps of the flight recorder agree: rank 1 has not entered",
    ),
    "they agree with a fact": ("spins stopped spins", (118, -117, 118), 20.0, [1], HIGH, "agree"),
    "they contradict a fact": (
        *("spins spins throttled", (118, -117, 118), 20.0, [2], MEDIUM),
        "the dumps of the flight recorder contradict this: rank 1 has not entered",
    ),
    "they contradict what is none": (
        *("spins spins reads", (118, -117, 118), 20.0, [2], LOW),
        "the dumps of the flight recorder contradict this: rank 1 has not entered",
    ),
    "by them the late one waits": (
        *("spins spins reads", (118, 118, 118), 20.0, [2], LOW),
        "contradict this: they say that rank 2 waited in a collective like others",
    ),
    "they are too old to contradict": (
        *("spins spins throttled", (118, -117, 118), 7200.0, [2], HIGH),
        "nodevet ignores dumps of the flight recorder that are 2 h old",
    ),
    "the ranks work": (
        *("computes computes computes", (118, -117, 118), 20.0, [], MEDIUM),
        "contradict this: rank 1 has not entered",
    ),
    "the ranks work again": (
        *("computes computes computes", (118, -117, 118), 7200.0, [], MEDIUM),
        "nodevet ignores dumps of the flight recorder that are 2 h old",
    ),
    "nobody has one": ("spins spins spins", (None, None, None), 0.0, [], MEDIUM, "all 3 ranks"),
}


@pytest.mark.parametrize("name", DUMPED)
def test_flight_recorder_dumps_are_combined_with_the_watched_ranks(name: str) -> None:
    kinds, numbers, age, ranks, confidence, text = DUMPED[name]
    found = watched(dumped(node("a", kinds, size=3), *numbers, age=age))
    said = " ".join([job(found).sentence, *job(found).doubts, *job(found).notes])
    assert late(found) == ranks, said
    assert text in said
    assert job(found).confidence is confidence, said


def test_the_rank_that_is_behind_is_named_with_its_next_step() -> None:
    found = watched(dumped(node("a", "spins spins spins", size=3), 118, -117, 118))
    assert job(found).sentence == (
        "ranks 0,2 on a wait for rank 1 on a: by the dumps of the flight recorder it has not "
        "entered nccl:all_reduce 118 of 8 in group 0, in which ranks 0,2 wait (for 1 min 30 s when "
        "it wrote its dump)"
    )
    assert job(found).next_step.startswith("rank 1 on a: py-spy dump --nonblocking --pid 11 shows")
    assert found.exit_code == 1
    assert [gpu.cause for gpu in found.hosts[0].gpus] == [
        *(Cause.COLLECTIVE, Cause.SPINNING, Cause.COLLECTIVE),
    ]


def test_ranks_that_call_different_collectives_are_reported_as_a_mismatch() -> None:
    one = dumped(node("a", "spins spins spins", size=3), 118, 118, 118)
    flight = one["sections"]["process_activity"]["processes"][1]["flight"]
    flight["groups"][0]["collective"] = "nccl:broadcast"
    found = watched(one)
    assert (late(found), job(found).confidence, found.exit_code) == ([], MEDIUM, 1)
    text = "collective 118 of group 0 is all_reduce of 8 on ranks 0,2, and broadcast of 8 on rank 1"
    assert job(found).mismatch == text and text in job(found).sentence
    assert diagnosis_sheet(found).title == "Job 12: its ranks call different collectives"
    slow = dumped(node("a", "spins spins throttled", size=3), 118, 118, 118)
    slow["sections"]["process_activity"]["processes"][1]["flight"] = flight
    beside = job(watched(slow))
    assert (beside.confidence, beside.mismatch) == (MEDIUM, "") and text in beside.doubts[0]


def test_dumps_of_a_rank_number_that_two_processes_claim_put_no_rank_behind() -> None:
    one = dumped(node("a", "spins spins", 0, 3), 118, -117)
    two = dumped(node("b", "spins", 1, 3), 118)
    found = job(watched(one, two))
    assert found.confidence is LOW and "several processes have a dump of it" in " ".join(
        found.notes
    )
    assert all(rank.state is not RankState.BEHIND for rank in found.ranks)


def test_cpus_that_others_take_from_all_ranks_do_not_explain_one_late_rank() -> None:
    found = watched(node("a", "spins computes-starved spins", size=3))
    assert late(found) == [1] and job(found).confidence is MEDIUM, job(found).doubts
    (rank,) = job(found).late_ranks
    assert rank.causes == (Cause.PREPROCESSING, Cause.STARVED), rank.text
    gpu_of_it = found.hosts[0].gpus[1]
    assert (gpu_of_it.cause, gpu_of_it.causes) == (Cause.MIXED, rank.causes)
    assert "preprocessing-bound: SM busy 20 %" in job(found).sentence
    assert "(2) CPUs taken by others: see in top who takes the CPUs" in job(found).next_step
    unknown = job(watched(node("a", "spins starved spins", size=3)))
    assert unknown.late == (1,) and unknown.confidence is LOW
    assert unknown.doubts == (
        "others take CPUs from the waiting ranks too, so it is not clear why only rank 1 is late",
    )


def test_cpus_that_others_take_from_one_rank_alone_explain_why_it_is_late() -> None:
    for kind in ("starved", "computes-starved"):
        one = node("a", f"spins {kind} spins", size=3)
        one["sections"]["process_activity"]["processes"][1]["cpus_allowed"] = "3"
        found = job(watched(one))
        assert (found.late, found.confidence) == ((1,), MEDIUM)
        assert found.late_ranks[0].cause is Cause.STARVED
    apart = watched(node("a", "spins spins", size=3), node("b", "starved", 2, 3))
    assert job(apart).late_ranks[0].cause is Cause.STARVED and job(apart).confidence is MEDIUM


def test_the_host_of_all_late_ranks_is_named() -> None:
    slow = node("b", "throttled throttled", 2, 4)
    found = job(watched(node("a", "spins spins", 0, 4), slow))
    assert "every rank on b is late, so look at that host first" in found.sentence
    assert found.sentence.startswith("ranks 0-1 on a wait for ranks 2-3 on b")


def test_a_host_that_was_not_watched_may_have_the_late_rank() -> None:
    hosts = ("a", "b", "c")
    target = JobTarget(name="12", hosts=hosts, ids=("Slurm 12",))
    found = watched(node("a", "spins spins", 0, 4), target=target)
    assert [rank.host for rank in job(found).late_ranks] == ["b", "c"]
    assert job(found).confidence is LOW and found.exit_code == 3
    assert "b was not seen: neither -i nor the targets name it" in job(found).doubts[0]
    assert [host.host for host in found.hosts if not host.gpus] == ["b", "c"]
    other = watched(node("a", "spins throttled", 0, 4), target=target)
    assert late(other) == [1] and job(other).confidence is LOW
    dead = node("b", "spins", 2, 4)
    del dead["sections"]["process_activity"]
    unread = watched(node("a", "spins spins", 0, 4), dead, target=target)
    assert job(unread).confidence is LOW and unread.exit_code == 3


def test_a_rank_that_no_host_shows_is_missing() -> None:
    found = watched(node("a", "spins spins", 0, 3))
    assert late(found) == [2] and job(found).confidence is LOW
    assert "nodevet saw no process of it" in job(found).sentence
    assert job(found).doubts == ("not seen: rank 2 of 3",)
    far_more = job(watched(node("a", "spins spins", 0, 900)))
    assert far_more.late == () and "not seen: ranks 2-899 of 900" in far_more.doubts


@pytest.mark.parametrize(
    ("size", "target"),
    [
        (4, SLURM),
        (2, replace(SLURM, missing=("pod b: Failed",))),
        (2, replace(SLURM, changed="the job ended while it was watched: COMPLETED")),
    ],
)
def test_a_job_with_unseen_ranks_is_not_reported_as_busy(size: int, target: JobTarget) -> None:
    found = watched(node("a", "computes computes", size=size), target=target)
    assert job(found).confidence is LOW and late(found) == [] and found.exit_code == 3
    assert diagnosis_sheet(found).title == "Job 12: no rank that was seen is late"
    assert watched(node("a", "computes computes", size=2)).exit_code == 0


def test_a_job_of_unknown_size_or_with_too_few_processes_has_unseen_ranks() -> None:
    unread = watched(node("a", "computes computes"))
    assert (
        unread.exit_code == 3
        and "nodevet could not read how many ranks it has" in job(unread).doubts
    )
    assert diagnosis_sheet(unread).title == "Job 12: no rank that was seen is late"
    assert watched(node("a", "spins throttled spins")).exit_code == 1
    numberless = watched(node("a", "computes computes", size=3, rank=None))
    assert numberless.exit_code == 3 and "not seen: 1 of 3 ranks" in job(numberless).doubts
    assert watched(node("a", "computes computes", size=2, rank=None)).exit_code == 0


def test_a_job_of_ten_thousand_ranks_is_judged_and_shown_in_seconds() -> None:
    one = watched(node("a", "spins throttled", size=2))
    ranks = job(one).ranks
    many = [
        replace(ranks[number % 2], number=number, host=f"n{number // 8}", gpus=(number % 8,))
        for number in range(10_000)
    ]
    gpus = one.hosts[0].gpus
    hosts = [
        replace(one.hosts[0], host=f"n{n}", gpus=tuple(replace(gpus[0], index=g) for g in range(8)))
        for n in range(1250)
    ]
    began = time.process_time()
    shown = {f"n{n}": HostRanks(tuple(many[8 * n : 8 * n + 8])) for n in range(1250)}
    found = job_diagnosis(SLURM, hosts, shown, {}, 0.0)
    assert len(found.late) == 5000 and len(with_waits(hosts, found)) == 1250
    assert len(alike(found)) == 1251
    assert time.process_time() - began < 10.0, "quadratic: 50,000,000 comparisons"


def test_a_process_of_the_job_that_uses_no_gpu_is_the_missing_rank() -> None:
    one = node("a", "spins spins", 0, 3)
    shell = process(90, job_id="Slurm 12", rank=2, ranks=3, command="bash", uid=1000)
    late_one = process(91, job_id="Slurm 12", rank=2, ranks=3, command="python", uid=1000)
    agent = process(92, job_id="Slurm 12", rank=2, ranks=1, command="torchrun", uid=1000)
    one["sections"]["process_activity"]["processes"] += [shell, late_one, agent]
    found = job(watched(one))
    assert "python 91 runs, and uses no GPU" in found.sentence
    assert found.confidence is MEDIUM
    stopped = {**late_one, "threads": [thread(91, state="T")]}
    one["sections"]["process_activity"]["processes"][-2] = stopped
    assert "python 91 is stopped by a signal" in job(watched(one)).sentence


def test_helpers_of_a_rank_on_the_gpu_do_not_count_as_ranks() -> None:
    one = node("a", "spins throttled", 0, 2)
    helper = process(50, parent=10, gpus=[0], job_id="Slurm 12", rank=0, ranks=2, uid=1000)
    one["sections"]["process_activity"]["processes"].append(helper)
    assert [rank.pid for rank in job(watched(one)).ranks] == [10, 11]


def test_a_rank_number_that_two_processes_claim_is_assigned_to_neither() -> None:
    found = watched(node("a", "spins throttled", 0, 3), node("b", "spins", 0, 3))
    assert [rank.number for rank in job(found).ranks] == [1, None, None]
    assert late(found) == [1] and job(found).confidence is LOW
    assert (
        "several processes claim to be rank 0, so nodevet believes none of them"
        in job(found).doubts
    )


def test_sizes_that_contradict_one_another_are_not_believed() -> None:
    found = job(watched(node("a", "spins throttled", 0, 2), node("b", "spins", 2, 3)))
    assert found.size is None and "disagree about its number of ranks: 2-3" in " ".join(
        found.doubts
    )
    assert found.confidence is LOW


def test_others_on_the_host_are_neighbours_and_not_judged() -> None:
    alone = node("a", "spins throttled reads", 0, 2)
    processes = alone["sections"]["process_activity"]["processes"]
    processes[2]["job_id"] = "Slurm 13"
    found = watched(alone)
    assert late(found) == [1] and job(found).confidence is HIGH
    assert job(found).notes == ("a GPU 2: python 12 of Slurm 13 is not of this job",)
    assert [gpu.index for gpu in found.hosts[0].gpus] == [0, 1]
    processes[2].update(job_id="Slurm 12", uid=1001)  # it only says so
    assert [rank.pid for rank in job(watched(alone)).ranks] == [10, 11]
    processes[2].update(gpus=[0, 2])
    assert job(watched(alone)).confidence is LOW, "it shares a GPU with a rank"


def test_only_the_step_that_was_asked_for_is_judged() -> None:
    one = node("a", "spins throttled", 0, 2)
    one["sections"]["process_activity"]["processes"][0]["step"] = "0"
    one["sections"]["process_activity"]["processes"][1]["step"] = "1"
    target = JobTarget(name="12.0", hosts=("a",), ids=("Slurm 12",), step="0")
    assert [rank.number for rank in job(watched(one, target=target)).ranks] == [0, 1]
    assert job(watched(one, target=target)).ranks[1].state is RankState.UNSEEN


def test_hosts_that_did_not_begin_together_and_a_job_that_changed_lower_confidence() -> None:
    nodes = (node("a", "spins", 0, 2), node("b", "throttled", 1, 2))
    assert job(watched(*nodes)).confidence is HIGH
    apart = job(watched(*nodes, later=5.0))
    assert apart.confidence is LOW and "did not begin at the same time" in apart.doubts[0]
    for more in ({"changed": "the job ended"}, {"missing": ("pod x: Failed",)}):
        target = JobTarget(name="12", hosts=("a", "b"), ids=("Slurm 12",), **more)
        assert job(watched(*nodes, target=target)).confidence is LOW


def test_ranks_of_a_list_are_matched_by_host_and_gpu_or_pid() -> None:
    listed = (ListedRank("a", 5, gpu=1), ListedRank("a", 4, pid=10), ListedRank("b", 6))
    target = JobTarget(name="ranks", hosts=("a", "b"), listed=listed)
    nodes = (node("a", "spins throttled reads", job_id=None), node("b", "spins", 7, job_id=None))
    found = watched(*nodes, target=target)
    assert [(rank.number, rank.host, rank.pid) for rank in job(found).ranks] == [
        *((4, "a", 10), (5, "a", 11), (6, "b", 10)),
    ]
    assert late(found) == [5] and job(found).confidence is HIGH
    gone = JobTarget(name="r", hosts=("a",), listed=(*listed[:2], ListedRank("a", 6, pid=99)))
    missing = job(watched(nodes[0], target=gone))
    assert missing.doubts[0] == "not seen: rank 6 of 3" and missing.confidence is LOW
    assert missing.ranks[-1].text.endswith("it ended, never began, or uses no GPU")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (3, None)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"RANK": "8", "WORLD_SIZE": "8"}, (None, 8)),
        ({"RANK": "-1", "WORLD_SIZE": "9" * 300}, (None, None)),
        ({"RANK": "1\x1b[2J", "SLURM_PROCID": "1"}, (None, None)),
        ({"RANK": "\u0663"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_a_rank_number_is_read_from_the_launchers_variables_if_valid(
    variables: dict[str, str], told: tuple[int | None, int | None]
) -> None:
    assert rank_of(variables) == told


def test_a_step_is_read_from_the_cgroup_before_the_environment() -> None:
    variables = {"SLURM_JOB_ID": "13", "SLURM_STEP_ID": "9"}
    path = "/system.slice/slurmstepd.scope/job_12/step_batch/user/task_special"
    assert (job_id(path, variables), step_id(path, variables)) == ("Slurm 12", "batch")
    assert (job_id("/", variables), step_id("/", variables)) == ("Slurm 13", "9")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_folds_the_ranks_that_are_alike(form: str) -> None:
    nodes = [node(f"n{n}", "spins spins spins spins", 4 * n, 32) for n in range(8)]
    nodes[3] = node("n3", "spins throttled spins spins", 12, 32)
    found = watched(*nodes)
    text = render(form, found, lambda: diagnosis_sheet(found))
    assert "rank 13 on n3" in text
    if form in ("table", "markdown"):
        assert "0-12,14-31" in text and text.count("waits for rank 13 on n3") < 20
