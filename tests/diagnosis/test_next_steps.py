"""Next steps and suspects that could harm nothing: no healthy GPU, and no process of others."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.files import tool_text
from nodevet.diagnose.model import (
    Cause,
    Confidence,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    Job,
    MissingGpu,
    Suspect,
)
from nodevet.diagnose.phrases import fix, headline, next_text, suspects
from nodevet.diagnose.suspects import rank_suspects
from nodevet.diagnose.use import without_new_jobs
from nodevet.model import Finding, Status, Subject, Verdict
from tests.diagnosis.samples import (
    LOCKED,
    LOOKS,
    cgroup,
    evidence,
    gpu,
    process,
    sections,
    thread,
)
from tests.diagnosis.test_late_ranks import job, node, watched

LOST_GPU = {"index": 0, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
UNRESET = {"index": 0, "errors": {"handle": "NVML_ERROR_RESET_REQUIRED"}}
SPINS = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[1] * LOOKS)


def told(found: dict[str, Any]) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str), answer
    return answer[0]


def of_job(index: int, cause: Cause, group: str = "Slurm 12") -> GpuDiagnosis:
    return GpuDiagnosis(
        index=index,
        cause=cause,
        causes=(cause,),
        confidence=Confidence.HIGH,
        sentence="",
        next_step="",
        jobs=(Job(pid=10 + index, command="python"),),
        group=group,
        group_is_job=True,
    )


def differs(check: str, actual: object = 0, gpu_index: int | None = None) -> Suspect:
    subject = Subject(kind="gpu", id=str(gpu_index))
    finding = Finding(
        verdict=Verdict.FAIL, check=check, actual=actual, expected="x", subject=subject
    )
    return Suspect(finding=finding, gpu=gpu_index)


def shown(found: list[GpuDiagnosis], *of: Suspect) -> HostDiagnosis:
    return HostDiagnosis(host="n1", status=Status.VETTED, gpus=tuple(found), suspects=of, others=2)


def test_nvlink_is_a_suspect_only_for_a_job_whose_gpus_wait_for_one_another() -> None:
    spinning = [of_job(0, Cause.SPINNING), of_job(1, Cause.SPINNING)]
    host = shown(spinning, differs("nvlink", gpu_index=0))
    (line,), _ = suspects(host)
    assert line.likely and fix(host, line).startswith("nvidia-smi nvlink -s  # ")
    for cause in (Cause.STORAGE, Cause.STARVED, Cause.THROTTLED, Cause.GPU, Cause.COLLECTIVE):
        others = [of_job(0, cause), of_job(1, cause)]
        (line,), _ = suspects(shown(others, differs("nvlink", gpu_index=0)))
        assert not line.likely, cause


def test_nvlink_slows_no_job_of_one_gpu() -> None:
    apart = [of_job(0, Cause.SPINNING), of_job(1, Cause.SPINNING, "Slurm 13")]
    host = shown(apart, differs("nvlink"), differs("nfs"))
    (line,), rest = suspects(host)
    assert line.check == "nfs" and rest == "and 3 differences that slow no GPU: nodevet check n1"


def test_a_setting_of_another_gpu_is_no_suspect() -> None:
    gpus = [of_job(0, Cause.THROTTLED), of_job(1, Cause.IDLE)]
    lines = rank_suspects([differs("power_limit", n, n) for n in (0, 1)], gpus)
    assert [(line.subjects, line.likely) for line in lines] == [("GPU 0", True), ("GPU 1", False)]


@pytest.mark.parametrize(
    ("actual", "why"),
    [
        (["hw_slowdown", "hw_thermal_slowdown"], "the hardware holds the clocks down"),
        (["sync_boost"], "the slowest GPU of its group sets the clocks of all"),
        (["sw_thermal_slowdown"], "heat makes the driver hold the clocks down"),
    ],
)
def test_low_clocks_are_explained_by_what_holds_them(actual: list[str], why: str) -> None:
    (line,) = rank_suspects([differs("throttle_reasons", actual)], [of_job(0, Cause.THROTTLED)])
    assert line.reason == why


def test_a_lost_gpu_is_named_by_its_address_and_its_node_is_drained_first() -> None:
    lost, unreset = told(sections([LOST_GPU])), told(sections([UNRESET]))
    assert (lost.claim, unreset.claim) == ("is lost to the driver", "needs a reset")
    for found in (lost, unreset):
        step = next_text([found])
        assert step.startswith("drain the node first") and "changes nothing" in step
        assert "-i 0" not in step.split()
    assert "nvidia-smi" not in lost.next_step
    placed = next_text([replace(unreset, bus_id="0000:41:00.0")])
    assert "nvidia-smi -r -i 0000:41:00.0; " in placed
    unplaced = next_text([replace(unreset, bus_id=None, uuid=None)])
    assert "nvidia-smi -r -i BUS_ID; " in unplaced


def test_an_idle_gpu_of_a_node_to_drain_asks_for_no_work() -> None:
    idle = told(sections([gpu(0, processes=[], memory_used_b=[0] * LOOKS)], []))
    assert "give it work" in idle.next_step
    missing = [MissingGpu(facts=("x",), next_step="")]
    lost = replace(idle, index=1, cause=Cause.LOST)
    for found in (
        without_new_jobs([idle], missing, "n1"),
        without_new_jobs([idle, lost], [], "n1"),
    ):
        assert "give it work" not in found[0].next_step and "drained" in found[0].next_step
    assert without_new_jobs([idle], [], "n1") == (idle,)
    told_lost = told(sections([LOST_GPU]))
    assert "nodename=n1 " in without_new_jobs([told_lost], [], "n1")[0].next_step
    assert "nodename=HOST " in without_new_jobs([told_lost], [], "a; b")[0].next_step


@pytest.mark.parametrize(
    ("uid", "text"),
    [
        (1001, "ask the owner of these processes about them, and leave them running: backup 4711"),
        (1000, "ask the job's user whether these processes are part of the job: backup 4711"),
    ],
)
def test_the_processes_that_take_the_cpus_are_named_in_the_next_step(uid: int, text: str) -> None:
    starved = thread(10, 20, waited_ns=[0, 7_500_000_000])
    made = sections(processes=[process(threads=[starved], uid=1000)], groups=[cgroup()])
    other = {"pid": 4711, "command": "backup", "cpus": 7.5, "uid": uid}
    made["process_activity"]["others"] = [other]
    found = told(made)
    assert found.causes == (Cause.STARVED,)
    assert text in found.next_step and "stop" not in found.next_step


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("/data, nfs4", "nfsiostat 1"),
        ("/data, fuse.gcsfuse", "the program behind its fuse.gcsfuse mount"),
        ("/data, fuse.x; kill 1", "the program behind its FUSE mount"),
        ("/data, ext4, vda", "iostat -xz 1 shows vda"),
        ("", "iostat -xz 1 shows disks, nfsiostat 1 NFS"),
    ],
)
def test_the_tool_depends_on_the_file_system(place: str, text: str) -> None:
    note = f"read of /data/a on {place}" if place else ""
    disk = Figure(
        "disk_busy", 50.0, "%", "disk of its file" * bool(place), note="vda, 1 ms a request"
    )
    found = tool_text({"waits_writing": Figure("w", 0.0, "%", "", note=note), "disk_busy": disk})
    assert text in found and ";" not in found


def test_known_values_stand_in_commands() -> None:
    capped = {"event_reasons": [0x4] * LOOKS, "clock_sm_mhz": [1400] * LOOKS}
    made = sections([gpu(97, power_limit_mw=350000, power_mw=[345000] * LOOKS, **capped)])
    made["gpu"]["gpus"][0]["power_limit_default_mw"] = 700000
    found = told(made)
    assert found.causes == (Cause.THROTTLED,)
    assert " -pl 700; " in found.next_step and "WATTS" not in found.next_step


def test_the_helper_for_which_a_job_waits_is_dumped() -> None:
    pipe = {"call": "read", "looks": LOOKS}
    first = thread(10, waits={"pipe_read": LOOKS}, sleeps=[pipe])
    held = {**LOCKED, "tid": 11}
    made = sections([gpu(0)], [process(threads=[first]), process(11, [held], parent=10, gpus=[])])
    found = told(made)
    assert found.cause is Cause.UNCLEAR, found.sentence
    assert "--nonblocking --pid 11 shows what its helper python 11 does" in found.next_step
    assert found.next_step.endswith("stop nothing before its owner says so")


def test_a_busy_gpu_that_may_poll_has_a_step_that_shows_it() -> None:
    found = told(sections([gpu(100, power_mw=[190000] * LOOKS)]))
    assert found.cause is Cause.GPU and "like a GPU whose kernels only poll" in found.sentence
    assert found.next_step.startswith("py-spy dump --nonblocking --pid PID shows whether it only")


def test_a_cause_of_every_rank_is_the_headline_and_its_step_is_next() -> None:
    found = watched(node("a", "reads reads reads"))
    assert headline(found) == "Job 12: all 3 ranks are storage-bound"
    assert job(found).late == ()
    assert "as on the others: see whether the storage is slow" in job(found).next_step


def test_a_gpu_that_waits_for_a_rank_is_not_doubted_for_looking_like_it() -> None:
    found = watched(node("a", "spins spins throttled"))
    assert job(found).late == (2,)
    for waiting in found.hosts[0].gpus[:2]:
        assert waiting.cause is Cause.COLLECTIVE
        assert not any(
            "looks like this" in doubt for proof in waiting.proofs for doubt in proof.doubts
        )
        assert "looks like this" not in waiting.sentence


def test_a_stranger_on_a_gpu_may_be_the_missing_rank() -> None:
    made = node("a", "spins spins spins", 0, 3)
    del made["sections"]["process_activity"]["processes"][2]["job_id"]
    found = job(watched(made))
    assert found.notes == ("a GPU 2: python 12 is not known to be of this job",)
    assert found.next_step.startswith("python 12 may be rank 2 without its label: ")
    assert "stop nothing before its owner says so" in found.next_step
