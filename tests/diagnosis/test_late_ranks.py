"""Which rank of a job the others wait for, on made-up hosts where every rank is known."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
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
from nodevet.diagnose.use import Looked, incident
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
    "throttled": (97, SLOW, {}),
    "lost": (0, LOST, {}),
    "sleeps": (0, {}, {"threads": [LOCKED]}),
    "downloads": (20, {}, {"threads": [DOWNLOADS]}),
    "stopped": (0, {}, {"threads": [thread(10, state="T")]}),
    "traced": (0, {}, {"threads": [thread(10, state="t")]}),
    "ended": (0, {}, {"ended_s": 3.0}),
}
SLURM = JobTarget(name="12", hosts=(), ids=("Slurm 12",), uid=1000)


def node(name: str, kinds: str, first: int = 0, size: int | None = None, **more: Any) -> JSON:
    """A host whose ranks do this, each on a GPU of its own. `more`: of every process."""
    gpus, processes = [], []
    for place, kind in enumerate(kinds.split()):
        busy, of_gpu, of_process = KINDS[kind]
        pid = 10 + place
        on_gpu = [{"pid": pid, "sm_percent": float(busy), "memory_used_b": 60 << 30}]
        gpus.append({**gpu(busy, index=place, processes=on_gpu), **of_gpu})
        threads = [{**row, "tid": pid} for row in of_process.get("threads", [thread(pid)])]
        told = {"job_id": "Slurm 12", "uid": 1000, "rank": first + place, "ranks": size}
        rest = {**told, "gpus": [place], **of_process, **more, "threads": threads}
        processes.append(process(pid, **rest))
    return {"name": name, "sections": sections(gpus, processes)}


def watched(*nodes: JSON, target: JobTarget = SLURM, later: float = 0.0) -> Diagnosis:
    """`later`: when the last host began."""
    if not target.hosts:
        target = replace(target, name="12", hosts=tuple(each["name"] for each in nodes))
    looked, hosts = Looked(target), []
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
        looked.record(seen, host)
    started = datetime(2026, 11, 29).astimezone()
    return incident(hosts, seconds=10.0, started=started, looked=looked)


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
    "it computes": ("spins computes spins", [1], MEDIUM, "computes while the others do not"),
    "it sleeps": ("spins spins sleeps", [2], MEDIUM, "rank 2 on a: stuck"),
    "it downloads": ("spins downloads spins", [1], MEDIUM, "network-bound"),
    "the others sleep": ("sleeps sleeps throttled sleeps", [2], HIGH, "rank 2 on a: throttled"),
    "the others compute": ("computes computes throttled", [2], MEDIUM, "rank 2 on a is slower"),
    "two of one kind": ("spins throttled throttled spins", [1, 2], HIGH, "ranks 1-2 on a"),
    "two candidates": ("spins spins reads throttled", [2, 3], MEDIUM, "each for another reason"),
    "all wait on the GPU": ("spins spins spins", [], MEDIUM, "all 3 ranks wait, and none"),
    "all sleep": ("sleeps sleeps", [], MEDIUM, "all 2 ranks wait, and none"),
    "all compute": ("computes computes", [], MEDIUM, "most of them compute"),
    "most compute": ("computes computes spins", [], MEDIUM, "most of them compute"),
    "most read": ("reads reads reads spins", [], MEDIUM, "by themselves (storage-bound 3)"),
    "all are throttled": ("throttled throttled", [], MEDIUM, "by themselves (throttled 2)"),
    "all are stopped": ("stopped stopped", [], MEDIUM, "no rank runs: stopped 2"),
    "all ended": ("ended ended", [], MEDIUM, "no rank runs: ended 2"),
    "it is alone": ("reads", [], MEDIUM, "nothing to compare it with"),
    "one ended, one is throttled": ("ended throttled spins spins", [0, 1], MEDIUM, "each for"),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_waited_for_and_how_certain_that_is(name: str) -> None:
    kinds, ranks, confidence, text = CASES[name]
    found = watched(node("a", kinds, size=len(kinds.split())))
    assert late(found) == ranks, job(found).sentence
    assert text in " ".join([job(found).sentence, *job(found).doubts])
    assert job(found).confidence is confidence, job(found).doubts
    waits = {rank.gpus[0] for rank in job(found).ranks if rank.state is RankState.WAITS}
    if ranks:
        told = {each.index for each in found.hosts[0].gpus if each.cause is Cause.COLLECTIVE}
        assert told >= waits and not told & set(ranks)
        assert found.exit_code == 1
        assert job(found).next_step.startswith(("rank ", "ranks "))


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
    assert "b was not seen: it is not among the hosts" in job(found).doubts[0]
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
    assert "no process of it was seen" in job(found).sentence
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
def test_a_job_that_was_not_seen_whole_is_not_called_busy(size: int, target: JobTarget) -> None:
    found = watched(node("a", "computes computes", size=size), target=target)
    assert job(found).confidence is LOW and late(found) == [] and found.exit_code == 3
    assert diagnosis_sheet(found).title == "Job 12: no rank that was seen is late"
    assert watched(node("a", "computes computes", size=2)).exit_code == 0


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


def test_helpers_of_a_rank_on_the_gpu_are_no_ranks_of_their_own() -> None:
    one = node("a", "spins throttled", 0, 2)
    helper = process(50, parent=10, gpus=[0], job_id="Slurm 12", rank=0, ranks=2, uid=1000)
    one["sections"]["process_activity"]["processes"].append(helper)
    assert [rank.pid for rank in job(watched(one)).ranks] == [10, 11]


def test_a_number_that_two_processes_claim_is_nobodys() -> None:
    found = watched(node("a", "spins throttled", 0, 3), node("b", "spins", 0, 3))
    assert [rank.number for rank in job(found).ranks] == [1, None, None]
    assert late(found) == [1] and job(found).confidence is LOW
    assert "several processes say that they are rank 0: none is believed" in job(found).doubts


def test_sizes_that_contradict_one_another_are_not_believed() -> None:
    found = job(watched(node("a", "spins throttled", 0, 2), node("b", "spins", 2, 3)))
    assert found.size is None and "2-3 ranks: none is believed" in " ".join(found.doubts)
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
    assert apart.confidence is LOW and "did not begin at one moment" in apart.doubts[0]
    for more in ({"changed": "the job ended"}, {"missing": ("pod x: Failed",)}):
        target = JobTarget(name="12", hosts=("a", "b"), ids=("Slurm 12",), **more)
        assert job(watched(*nodes, target=target)).confidence is LOW


def test_ranks_of_a_list_are_those_at_these_places() -> None:
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
def test_a_rank_is_what_its_launcher_says_if_that_can_be_right(
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
