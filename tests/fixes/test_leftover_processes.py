"""Which processes are ended, and which never: by user, unit, job and what Slurm says."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource
from nodevet.resource.running_process import EndProcess

ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
SESSION = {"cgroup": "/user.slice/user-1000.slice/session-3.scope", "unit": "session-3.scope"}
JOB = {"cgroup": "/system.slice/slurmstepd.scope/job_42/step_0", "unit": "slurmstepd.scope"}


def process(pid=4711, **fields):
    usual = {"command": "python", "uid": 1000, "started_s": 900.5, "gpu_minors": [0], **SESSION}
    return {"pid": pid, **usual, **fields}


def node(h100, *processes, slurm=None, slurmd=ABSENT, gpus=None, complete=True):
    """Each process computes on GPU 0, unless `gpus` has the pids of each GPU."""
    on = gpus or [[each["pid"] for each in processes], []]
    users = [[{"pid": pid, "memory_used_b": 1 << 30} for pid in pids] for pids in on]
    fields = [
        {"processes": each, "memory_used_b": len(each) << 30, "minor_number": index}
        for index, each in enumerate(users)
    ]
    asked = {"name": "self", "node": "n1", "state": slurm, "reason": "", "gpus": 2}
    return {
        "gpu": h100(*fields),
        "processes": {"processes": list(processes), "complete": complete},
        "services": {"units": [{"name": "slurmd.service", **slurmd}]},
        "slurm": {"nodes": [asked]},
    }


def test_only_leftover_processes_are_ended(plan, h100, uuid):
    allowed = process(5, command="site-agent")
    monitor = process(6, command="nv-hostengine", uid=0, unit="nvidia-dcgm.service")
    sections = node(h100, process(), allowed, monitor, process(9), gpus=[[4711, 5, 6], [9, 4711]])
    (change,) = plan("leftover_processes", {"allow": ["site-agent"]}, sections)
    assert change.actions == tuple(
        EndProcess(pid=pid, started_s=900.5, uid=1000, name="python") for pid in (9, 4711)
    )
    assert change.resources == tuple(
        Resource(kind="running_process", name=pid) for pid in ("9", "4711")
    )
    assert (change.subjects, change.gpus) == (("GPU 0", "GPU 1"), (uuid(0), uuid(1)))
    assert change.risk is Risk.IDLE and all(action.is_one_way for action in change.actions)


@pytest.mark.parametrize(
    "fields",
    [
        SESSION,
        {"cgroup": "/system.slice/ssh.service", "unit": "ssh.service"},
        {"cgroup": "/system.slice/slurmd.service", "unit": "slurmd.service"},
        {"cgroup": "/user.slice/user-7.slice/user@7.service/x.scope", "unit": "user@7.service"},
        {"cgroup": "/user.slice/user@7.service/slurm/job_9/step_0", "unit": "user@7.service"},
        {"cgroup": "/user.slice/user@7.service/kubepods.slice/x", "unit": "user@7.service"},
    ],
)
def test_a_process_of_a_session_is_ended(plan, h100, fields):
    (change,) = plan("leftover_processes", {}, node(h100, process(**fields)))
    assert [(action.pid, action.job) for action in change.actions] == [(4711, None)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"uid": 0}, "belongs to system user 0"),
        ({"uid": 999}, "belongs to system user 999"),
        ({"started_s": None}, "started_s: "),
        ({"cgroup": None, "unit": None}, "cgroup: "),
        ({"cgroup": "/system.slice/model.service", "unit": "model.service"}, "to model.service"),
        ({"cgroup": "/system.slice/sshx.service", "unit": "sshx.service"}, "to sshx.service"),
        ({"cgroup": "/system.slice/docker-1.scope", "unit": "docker-1.scope"}, "docker-1.scope"),
        ({"cgroup": "/kubepods/pod1/x", "unit": None}, "belongs to /kubepods/pod1/x: end that"),
        ({"cgroup": "/kubepods/x/session-1.scope", "unit": "session-1.scope"}, "session-1.scope"),
        ({"cgroup": "/", "unit": None}, "belongs to /: end that"),
        (
            {"cgroup": "/user.slice/user@7.service/libpod-1.scope", "unit": "user@7.service"},
            "belongs to user@7.service: end that",
        ),
        (JOB, "is in job 42, and Slurm does not say whether that runs"),
    ],
)
def test_processes_of_system_users_and_services_are_not_ended(plan, h100, fields, why):
    with pytest.raises(FixError, match=why):
        plan("leftover_processes", {}, node(h100, process(**fields)))


@pytest.mark.parametrize("state", ["IDLE", "IDLE+DRAIN", "IDLE+DRAIN+NOT_RESPONDING"])
def test_a_process_of_a_job_that_ended_is_ended(plan, h100, state):
    sections = node(h100, process(**JOB), slurm=state, slurmd=RUNS)
    (change,) = plan("leftover_processes", {}, sections)
    assert [action.job for action in change.actions] == [42]
    assert "of job 42" in change.actions[0].label


@pytest.mark.parametrize("fields", [SESSION, JOB])
@pytest.mark.parametrize(
    "state",
    ["ALLOCATED", "MIXED+DRAIN", "IDLE+COMPLETING", "DOWN", "DOWN*", "IDLE*", "UNKNOWN", "idle"],
)
def test_nothing_is_ended_while_a_job_may_run(plan, h100, state, fields):
    sections = node(h100, process(**fields), slurm=state, slurmd=RUNS)
    with pytest.raises(FixError, match="a job may run here"):
        plan("leftover_processes", {}, sections)


def test_nothing_is_ended_if_slurm_does_not_say_whether_a_job_runs(plan, h100):
    for slurmd in (RUNS, {**RUNS, "active_state": "inactive"}, {**RUNS, "load_state": "masked"}):
        with pytest.raises(FixError, match="Slurm does not say whether a job runs"):
            plan("leftover_processes", {}, node(h100, process(), slurmd=slurmd))
    with pytest.raises(FixError, match="services: "):
        plan("leftover_processes", {}, node(h100, process()) | {"services": {"status": "error"}})


def test_a_gpu_that_would_not_be_free_is_not_touched(plan, h100):
    """One GPU is left, and the other is in the plan; without another one there is none."""
    daemon = process(8, uid=0)
    (change,) = plan("leftover_processes", {}, node(h100, process(), daemon, gpus=[[4711], [8]]))
    assert change.subjects == ("GPU 0",)
    assert "not in the plan: GPU 1: python (pid 8) belongs to system user 0" in change.note
    with pytest.raises(FixError, match="/proc does not show it"):
        plan("leftover_processes", {}, node(h100, process(), gpus=[[4711, 99], []]))
    leaked = node(h100, process())
    leaked["gpu"]["gpus"][0]["memory_used_b"] = 8 << 30
    with pytest.raises(FixError, match="memory leaked"):
        plan("leftover_processes", {}, leaked)
