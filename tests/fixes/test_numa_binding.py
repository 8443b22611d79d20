"""The binding of services: which are bound where, by default, with --now and with --restart."""

import subprocess
import sys

import msgspec
import pytest

from nodevet.checking.params import params_of
from nodevet.fixes import numa_binding
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.resource import Resource, RunCommand, State, restore
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

DROP_IN = "/etc/systemd/system/train.service.d/90-nodevet-numa-binding.conf"
TEXT = """\
# Written by nodevet.
[Service]
NUMAPolicy=bind
CPUAffinity=
CPUAffinity=0-31,64-95
NUMAMask=
NUMAMask=0
AllowedMemoryNodes=
AllowedMemoryNodes=0
"""
RELOAD = RunCommand(words=("systemctl", "daemon-reload"))
SLICE = "/system.slice/"


def process(pid, cpus="0-127", mems="0", unit="train.service", cgroup=None, **rest):
    return {
        "pid": pid,
        "command": "python3",
        "cpus_allowed": cpus,
        "mems_allowed": mems,
        "unit": unit,
        "cgroup": cgroup or f"{SLICE}{unit}",
    } | rest


def node(*processes, gpus=None):
    """Two GPUs, of the nodes 0 and 1. `gpus`: the pids on each; not told: all on the first."""
    gpus = gpus or ([each["pid"] for each in processes], [])
    return {
        "gpu": {
            "gpus": [
                {
                    "index": index,
                    "bus_id": f"0000:{index}9:00.0",
                    "processes": [{"pid": pid} for pid in pids],
                }
                for index, pids in enumerate(gpus)
            ]
        },
        "pci": {
            "functions": [
                {"address": f"0000:{index}9:00.0", "numa_node": index} for index in range(2)
            ]
        },
        "numa": {
            "online": "0-1",
            "nodes": [
                {"id": 0, "cpulist": "0-31,64-95", "memory_total_kb": 1 << 28},
                {"id": 1, "cpulist": "32-63,96-127", "memory_total_kb": 1 << 28},
            ],
        },
        "processes": {"processes": list(processes), "complete": True},
    }


@pytest.fixture
def asked(evidence, wrong):
    """The changes with an option: params, sections, option -> changes."""

    def changes(sections, *options, params=True):
        found = evidence(sections)
        findings = wrong("numa_binding", params, found)
        model = numa_binding.Params
        wish = params_of(model, params)
        return list(numa_binding.FIX.changes(found, findings, wish, options))

    return changes


def test_a_service_is_bound_when_it_starts_again(plan):
    (change,) = plan("numa_binding", True, node(process(100)))
    assert change == PlannedChange(
        expected={"cpus": "0-31,64-95"},
        actual={"cpus": "0-127"},
        subjects=("process 100",),
        actions=(WriteFile(path=DROP_IN, content=TEXT), RELOAD),
        resources=(Resource(kind="file", name=DROP_IN),),
        risk=Risk.LIVE,
        effective="restart",
        services=("train.service",),
        note="train.service to node 0; its running processes stay as they are: --restart, --now",
    )


def test_a_restart_needs_a_drained_node(asked):
    (change,) = asked(node(process(100)), "restart")
    assert change.actions == (
        WriteFile(path=DROP_IN, content=TEXT),
        SetUnit(name="train.service", restart=True),
    )
    assert change.resources == (
        Resource(kind="file", name=DROP_IN),
        Resource(kind="unit", name="train.service"),
    )
    assert (change.risk, change.effective) == (Risk.DRAIN, "now")
    assert change.note == "train.service to node 0; restarts it"


def test_processes_that_run_are_bound_with_their_threads(asked):
    (change,) = asked(node(process(100), process(101, cpus="0-3"), process(102)), "now")
    pins = [
        RunCommand(words=("taskset", "-a", "-p", "-c", "0-31,64-95", pid)) for pid in ("100", "102")
    ]
    assert change.actions == (WriteFile(path=DROP_IN, content=TEXT), RELOAD, *pins)
    assert [resource.label for resource in change.resources] == [
        f"file {DROP_IN}",
        "process 100",
        "process 102",
    ]
    assert (change.risk, change.effective) == (Risk.LIVE, "now")
    assert "but does not move their memory" in change.note


def test_memory_is_bound_with_a_restart_only(asked):
    """systemd would move what runs at once, and could not take that back."""
    sections = node(process(100, mems="0-1"))
    for options in ((), ("now",)):
        with pytest.raises(FixError, match="only a restart undoes that: plan with --restart"):
            asked(sections, *options)
    (change,) = asked(sections, "restart")
    assert change.expected == {"cpus": "0-31,64-95", "memory": "0"}
    assert change.actions[0].content == TEXT


def test_memory_that_the_check_ignores_gets_only_a_numa_policy(asked):
    (change,) = asked(node(process(100, mems="0-1")), params={"bound": True, "memory": False})
    assert change.actions[0].content == TEXT.split("AllowedMemoryNodes", 1)[0]


def test_every_service_has_a_change_of_its_own(plan):
    other = process(101, mems="1", unit="serve@1.service")
    sections = node(process(100), other, gpus=([100], [101]))
    one, other = plan("numa_binding", True, sections)
    assert (one.services, other.services) == (("train.service",), ("serve@1.service",))
    assert "CPUAffinity=32-63,96-127\n" in other.actions[0].content
    assert not set(one.resources) & set(other.resources)


def test_a_process_on_gpus_of_both_nodes_may_use_both(plan):
    sections = node(process(100, mems="0-2"), process(101), gpus=([100, 101], [100]))
    sections["numa"]["nodes"].append({"id": 2, "cpulist": "128-191", "memory_total_kb": 1})
    sections["numa"]["online"] = "0-2"
    with pytest.raises(FixError, match=r"belong to several nodes .*100 on 0,1, 101 on 0"):
        plan("numa_binding", True, sections)
    alone = node(process(100, cpus="0-191"), gpus=([100], [100]))
    alone["numa"]["nodes"].append({"id": 2, "cpulist": "128-191", "memory_total_kb": 1})
    alone["numa"]["online"] = "0-2"
    (change,) = plan("numa_binding", True, alone)
    assert "CPUAffinity=0-31,64-95,32-63,96-127\n" in change.actions[0].content
    assert "AllowedMemoryNodes=0,1\n" in change.actions[0].content


def test_a_service_of_several_nodes_is_not_bound_to_one(plan):
    """Also where the worker on the other node has bound itself."""
    sections = node(process(100), process(101, cpus="32-63", mems="1"), gpus=([100], [101]))
    with pytest.raises(FixError, match="run an instance for each node"):
        plan("numa_binding", True, sections)


@pytest.mark.parametrize(
    ("unit", "cgroup", "why"),
    [
        ("session-3.scope", "/user.slice/user-1000.slice/session-3.scope", "a session"),
        ("user@1000.service", "/user.slice/user-1000.slice/user@1000.service/x", "a session"),
        ("ssh.service", "", "a session"),
        ("slurmd.service", "", "bind in Slurm"),
        ("slurmstepd.scope", "/system.slice/slurmstepd.scope/job_7/step_0", "bind in Slurm"),
        (None, "/slurm/uid_0/job_7", "bind in Slurm"),
        (
            "cri-containerd-1f.scope",
            "/kubepods.slice/cri-containerd-1f.scope",
            "Kubernetes",
        ),
        (None, "/kubepods/burstable/pod1/1f", "Kubernetes"),
        ("docker-1f.scope", "/system.slice/docker-1f.scope", "bind the container"),
        ("train.service", "/docker/1f/system.slice/train.service", "bind the container"),
        ("train.service", "/site/1f/system.slice/train.service", "no system service"),
        ("train.scope", "", "no system service"),
        (None, "/", "no system service"),
        ("run-u12.service", "", "does not survive a reboot"),
        ("-x y.service", "", "is not the name of a service"),
        ("a\n[Unit].service", "", "is not the name of a service"),
    ],
)
def test_processes_outside_system_services_are_refused(plan, unit, cgroup, why):
    other = process(100, unit=unit, cgroup=cgroup)
    with pytest.raises(FixError, match=why):
        plan("numa_binding", True, node(other))
    (change,) = plan("numa_binding", True, node(other, process(101)))
    assert change.subjects == ("process 101",) and "not in the plan: process 100" in change.note


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cpulist": None, "errors": {"cpulist": "EIO"}}, "cpulist"),
        ({"cpulist": ""}, "no CPUs"),
        ({"memory_total_kb": None, "errors": {"memory_total_kb": "EIO"}}, "EIO"),
        ({"memory_total_kb": 0}, "no memory"),
    ],
)
def test_a_service_is_not_bound_to_a_numa_node_where_it_could_not_start(
    plan, wrong, evidence, fields, why
):
    findings = wrong("numa_binding", True, evidence(node(process(100))))
    sections = node(process(100))
    sections["numa"]["nodes"][0] |= fields
    with pytest.raises(FixError, match=why):
        plan("numa_binding", True, sections, findings)


VALUES = (  # section, list in it, which, field
    *(("gpu", "gpus", which, field) for which in (0, 1) for field in ("bus_id", "processes")),
    *(("pci", "functions", which, "numa_node") for which in (0, 1)),
    *(
        ("numa", "nodes", which, field)
        for which in (0, 1)
        for field in ("cpulist", "memory_total_kb")
    ),
    *(
        ("processes", "processes", which, field)
        for which in (0, 1)
        for field in ("cgroup", "unit", "cpus_allowed", "mems_allowed", "command")
    ),
)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_no_plan_relies_on_unread_values(plan, wrong, evidence, value):
    """Whatever is taken away: the same actions, or none at all."""
    section, listed, which, field = value

    def sections():
        return node(process(100), process(101, cpus="0-7"))

    findings = wrong("numa_binding", True, evidence(sections()))
    whole = [change.actions for change in plan("numa_binding", True, sections())]
    assert findings and whole
    less = sections()
    record = less[section][listed][which]
    record[field] = None
    record["errors"] = {field: "not read"}
    try:
        found = [change.actions for change in plan("numa_binding", True, less, findings)]
    except FixError:
        found = whole
    assert found == whole


def test_no_plan_without_evidence_of_the_processes_on_gpus(plan, wrong, evidence):
    findings = wrong("numa_binding", True, evidence(node(process(100))))
    for section in ("gpu", "pci", "numa", "processes"):
        sections = node(process(100))
        del sections[section]
        with pytest.raises(FixError):
            plan("numa_binding", True, sections, findings)
    for sections in (node(), node(process(101)), node(process(100), gpus=([100, 7], []))):
        with pytest.raises(FixError):
            plan("numa_binding", True, sections, findings)
    assert plan("numa_binding", True, node(process(100, cpus="0-7"))) == []
    assert plan("numa_binding", True, {}, []) == []


def test_a_plan_survives_a_json_round_trip(asked):
    for options in ((), ("now",), ("restart",)):
        (change,) = asked(node(process(100)), *options)
        assert msgspec.json.decode(msgspec.json.encode(change), type=PlannedChange) == change


def test_every_mode_can_be_restored(asked):
    was = {"cpus": "0-127", "mems": "0", "started_s": 5.0, "threads": {"104": {"cpus": "3"}}}
    states = {
        "process": (True, was),
        "unit": (True, {"enabled": "enabled", "active": "active", "masked": False}),
        "file": (False, None),
    }
    ways = {}
    for option in ("", "now", "restart"):
        (change,) = asked(node(process(100)), option)
        seen = [
            State(
                resource=resource, exists=states[resource.kind][0], value=states[resource.kind][1]
            )
            for resource in change.resources
        ]
        ways[option] = restore(*seen, actions=change.actions)
    gone = WriteFile(path=DROP_IN, content=None)
    assert ways[""] == (gone, RELOAD)
    assert ways["restart"] == (
        gone,
        SetUnit(name="train.service", enabled=True, running=True, restart=True, masked=False),
    )
    assert set(ways["now"]) == {
        gone,
        RunCommand(words=("taskset", "-a", "-p", "-c", "0-127", "100")),
        RunCommand(words=("taskset", "-p", "-c", "3", "104")),
        RELOAD,
    }


def test_a_plan_needs_no_pyinfra():
    code = "import sys; from nodevet.fixes import numa_binding; sys.exit('pyinfra' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd="/").returncode == 0
