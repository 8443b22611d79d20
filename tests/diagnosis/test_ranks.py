"""The ranks of one job are compared with one another, and with nothing else."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.incident import coder, redact_value
from nodevet.diagnose.model import HostDiagnosis
from nodevet.diagnose.stragglers import stragglers
from nodevet.model import Status
from nodevet.remote.probe.job_names import job_id, job_variables, master
from tests.diagnosis.samples import BLOCKED, HOT, LOOKS, evidence, gpu, process, sections, thread

SPIN = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[1] * LOOKS)
BUSY = gpu(97)
SLOWED = gpu(97, event_reasons=[0x40] * LOOKS, clock_sm_mhz=[900] * LOOKS)
ASLEEP = [thread(10, waits={"futex_do_wait": LOOKS})]


def host(label: str, gpu: dict[str, Any], **job: Any) -> HostDiagnosis:
    found = diagnose(evidence(sections([gpu], [process(**job)])))
    assert not isinstance(found, str)
    return HostDiagnosis(host=label, status=Status.VETTED, gpus=found)


def named(*hosts: HostDiagnosis) -> list[str]:
    return [straggler.host for straggler in stragglers(hosts)]


JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Slurm": ({"job_id": "Slurm 12"}, {"job_id": "Slurm 12"}),
    "master": ({"master": "10.0.0.1:29500"}, {"master": "10.0.0.1:29500", "cgroup": "/other"}),
    "pods of one master": (
        {"master": "job-0.svc:29500"},
        {"master": "job-0.svc:29500"},
    ),
}


@pytest.mark.parametrize("kind", JOBS)
def test_with_two_ranks_the_straggler_is_the_rank_that_does_not_spin(kind: str) -> None:
    one, other = JOBS[kind]
    waiting, late = host("a", SPIN, **one), host("b", gpu(20), threads=BLOCKED, **other)
    (straggler,) = stragglers([waiting, late])
    assert straggler.host == "b"
    assert straggler.sentence.startswith("storage-bound, the other is busy or spinning")


@pytest.mark.parametrize(
    ("late", "threads"),
    [
        (gpu(20), HOT),
        (gpu(20), BLOCKED),
        (gpu(40, pcie_rx_kb_s=[55000000] * LOOKS), None),
        (SLOWED, None),
        (gpu(40), None),
        (gpu(0), ASLEEP),
        (BUSY, None),
        ({"index": 0, "name": "H100", "errors": {"samples": "NVML_ERROR_GPU_IS_LOST"}}, None),
    ],
)
def test_a_rank_with_any_other_cause_among_spinning_ranks_is_the_straggler(
    late: dict[str, Any], threads: list[dict[str, Any]] | None
) -> None:
    ranks = [host(f"n{n}", SPIN, job_id="Slurm 7") for n in range(3)]
    assert named(*ranks, host("late", late, threads=threads, job_id="Slurm 7")) == ["late"]


def test_jobs_that_have_nothing_to_do_with_one_another_are_not_compared() -> None:
    training = [host(f"n{n}", BUSY, job_id="Slurm 7") for n in range(3)]
    other = host("x", gpu(20), threads=BLOCKED, job_id="Slurm 8")
    serving = host("y", gpu(20), threads=BLOCKED, arguments="python serve.py", command="python")
    assert named(*training, other, serving) == []


def test_the_same_command_is_one_job_if_nothing_says_more() -> None:
    def rank(name: str, gpu: dict[str, Any], number: int, **rest: Any) -> HostDiagnosis:
        return host(name, gpu, arguments=f"python train.py --rank {number}", **rest)

    ranks = [rank(f"n{n}", BUSY, n) for n in range(3)]
    assert named(*ranks, rank("late", gpu(20), 3, threads=BLOCKED)) == ["late"]
    assert named(*ranks, host("x", gpu(20), threads=BLOCKED, arguments="python serve.py")) == []
    two = (rank("a", BUSY, 0), rank("b", gpu(20), 1, threads=BLOCKED))
    assert named(*two) == [], "two servers have the same command, too"


def test_a_rank_that_waits_for_the_others_is_not_a_straggler() -> None:
    late = [host(f"n{n}", gpu(20), threads=BLOCKED, job_id="Slurm 7") for n in range(3)]
    assert named(*late, host("early", SPIN, job_id="Slurm 7")) == []
    assert named(*late, host("early", BUSY, job_id="Slurm 7")) == []


def test_two_ranks_that_wait_for_different_things_leave_the_late_one_unknown() -> None:
    one = host("a", gpu(20), threads=BLOCKED, job_id="Slurm 7")
    other = host("b", gpu(20), threads=HOT, job_id="Slurm 7")
    assert named(one, other) == []


def test_the_busy_gpu_with_the_lower_clock_of_two_is_the_straggler() -> None:
    slower = gpu(97, clock_sm_mhz=[1640] * LOOKS)
    assert named(host("a", BUSY, job_id="Slurm 7"), host("b", slower, job_id="Slurm 7")) == ["b"]


def test_a_loopback_master_identifies_a_job_only_within_its_host() -> None:
    mine = {"master": "127.0.0.1:29500"}
    assert named(host("a", SPIN, **mine), host("b", gpu(20), threads=BLOCKED, **mine)) == []


def pod(number: int, **more: Any) -> dict[str, Any]:
    return {"job_id": f"pod {number}", "pod": f"ml/train-{number}", **more}


SPREAD: dict[str, list[dict[str, Any]]] = {
    "pods of one master": [pod(number, master="train-0:29500") for number in range(4)],
    "components of one Slurm job": [
        {"job_id": "Slurm 12", "step": str(step), "master": "n1:29500"} for step in range(4)
    ],
    "ranks of mpirun": [
        {"rank": rank, "ranks": 4, "arguments": "train", "uid": 7} for rank in range(4)
    ],
}
APART: dict[str, list[dict[str, Any]]] = {
    "pods of one master in two namespaces": [
        pod(number, master="train-0:29500", pod=f"team-{number}/train-0") for number in range(4)
    ],
    "pods with masters of their own": [
        pod(number, master="localhost:29500") for number in range(4)
    ],
    "steps of a Slurm job": [{"job_id": "Slurm 12", "step": str(step)} for step in range(4)],
    "tasks of one GPU each": [{"job_id": "Slurm 12", "rank": 0, "ranks": 1} for _ in range(4)],
    "runs of one task that started them": [{"job_id": "Slurm 12", "rank": 0} for _ in range(4)],
    "two runs of mpirun": [
        {"rank": number % 2, "ranks": 2, "arguments": "train"} for number in range(4)
    ],
    "runs of mpirun of different sizes": [
        {"rank": number, "ranks": 4 + number, "arguments": "train"} for number in range(4)
    ],
    "users with the same command": [
        {"uid": 1000 + number, "arguments": "python train.py"} for number in range(4)
    ],
    "processes of which nothing is known": [{"command": None} for _ in range(4)],
}


@pytest.mark.parametrize("name", [*SPREAD, *APART])
def test_gpus_are_compared_only_if_they_belong_to_one_job(name: str) -> None:
    *others, late = {**SPREAD, **APART}[name]
    ranks = [host(f"n{number}", SPIN, **job) for number, job in enumerate(others)]
    assert named(*ranks, host("late", gpu(20), threads=BLOCKED, **late)) == ["late"] * (
        name in SPREAD
    )


def test_containers_with_a_loopback_master_on_one_host_are_separate_jobs() -> None:
    def container(number: int, gpu: dict[str, Any], **rest: Any) -> HostDiagnosis:
        return host("n1", gpu, cgroup=f"/docker/{number}", master="127.0.0.1:29500", **rest)

    late = {"gpu": gpu(20), "threads": BLOCKED}
    assert named(container(1, SPIN), container(1, **late)) == ["n1"]
    assert named(container(1, SPIN), container(2, **late)) == []


def test_a_straggler_matched_by_command_alone_is_reported_as_that() -> None:
    ranks = [host(f"n{number}", SPIN) for number in range(3)]
    (by_command,) = stragglers([*ranks, host("late", gpu(20), threads=BLOCKED)])
    assert by_command.sentence.endswith(
        "nothing but the command says that they are ranks of one job"
    )
    mine = {"job_id": "Slurm 12"}
    (of_job,) = stragglers([host("a", SPIN, **mine), host("b", gpu(20), threads=BLOCKED, **mine)])
    assert "command" not in of_job.sentence


def test_a_waiting_rank_among_computing_or_reading_ranks_is_not_a_straggler() -> None:
    mine = {"job_id": "Slurm 12"}
    computing = [host(f"n{number}", BUSY, **mine) for number in range(3)]
    assert named(*computing, host("polls", SPIN, **mine)) == []
    reading = [host(f"n{number}", gpu(20), threads=BLOCKED, **mine) for number in range(3)]
    assert named(*reading, host("dozes", gpu(40), **mine)) == []
    assert named(*reading, host("both", gpu(20), threads=[*BLOCKED, *BURNING], **mine)) == []


BURNING = [thread(30 + number, 90) for number in range(5)]


def test_a_redacted_bundle_keeps_a_master_on_the_loopback() -> None:
    """Else the masters of all hosts would have one code."""
    code = coder(b"0")
    assert redact_value({"master": "127.0.0.1:29500"}, code) == {"master": "127.0.0.1:29500"}
    assert "10.0.0.1" not in str(redact_value({"master": "10.0.0.1:29500"}, code))


POD = "6f1d0b52-9d3c-4f0e-8a51-0c9a2b7d1e11"
CGROUPS = {
    "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0": "Slurm 12",
    "/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_special": "Slurm 12",
    "/slurm/uid_1000/job_12/step_0": "Slurm 12",
    f"/kubepods/burstable/pod{POD}/abc": f"pod {POD}",
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
    f"{POD.replace('-', '_')}.slice/cri-containerd-abc.scope": f"pod {POD}",
    f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-abc.scope": f"pod {POD}",
    "/user.slice/user-1000.slice/job_12": None,
    "/": None,
}


@pytest.mark.parametrize("path", CGROUPS)
def test_the_job_of_a_process_is_read_from_its_cgroup(path: str) -> None:
    assert job_id(path, {}) == CGROUPS[path]


def test_the_job_of_a_process_is_read_from_what_it_was_started_with(tmp_path: Path) -> None:
    """A real process, and no other variable of it."""
    settings = {"SLURM_JOB_ID": "12", "MASTER_ADDR": "n1", "MASTER_PORT": "29500", "TOKEN": "x"}
    with subprocess.Popen(["sleep", "60"], env=settings) as sleep:
        try:
            while not (variables := job_variables("/", f"/proc/{sleep.pid}/")):
                pass  # it is still becoming `sleep`
        finally:
            sleep.kill()
    assert variables == {name: settings[name] for name in settings if name != "TOKEN"}
    assert (job_id("/", variables), master(variables)) == ("Slurm 12", "n1:29500")
    assert master({}) is None


def test_the_arguments_of_a_command_are_compared_and_not_shown() -> None:
    """They may hold a password."""
    (gpu,) = host("a", BUSY, arguments="python train.py --key hunter2").gpus
    assert gpu.group.startswith("python ") and "hunter" not in gpu.group
