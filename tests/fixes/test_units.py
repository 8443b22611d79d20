"""Fixes that start or restart a unit, and the module of GPUDirect: what they do, and refuse."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

FABRIC, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
DCGM, OLD_DCGM = "nvidia-dcgm.service", "dcgm.service"
STOPPED = {"load_state": "loaded", "active_state": "inactive", "file_state": "disabled"}
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
DOMAIN = "00000001-0000-0000-0000-000000000001"
HOST = {"virtualization": "none", "uptime_s": 9000.0}
NODES = ["10.0.0.1", "10.0.0.2"]


def units(states):
    return {"units": [{"name": name, **state} for name, state in states.items()]}


def fabric(state="NOT_STARTED", **more):
    return {"fabric": {"state": state, "status": "SUCCESS", **more}}


def packages(version=None):
    found = [{"name": "nvidia-fabricmanager-550", "state": "installed", "version": version}]
    names = ("nvidia-fabricmanager*", "nvidia-fabric-manager*")
    rows = [{"name": name, "found": found if version else []} for name in names]
    return {"packages": rows}


def node(check, h100, unit=STOPPED, gpus=None, **sections):
    """A node on which the check fails, because its unit is in this state."""
    name = {"fabric": FABRIC, "imex": IMEX, "dcgm": DCGM}[check]
    gpus = (
        gpus
        or {
            "fabric": [fabric(), fabric("IN_PROGRESS")],
            "imex": [fabric("COMPLETED", cluster_uuid=DOMAIN)],
            "dcgm": [{}, {}],
        }[check]
    )
    gpu = {**h100(*gpus), "count": len(gpus), "driver_version": "550.1.2"}
    known = {
        "host": HOST,
        "installed": packages(),
        "imex": {"channels": 1, "nodes": NODES},
        "dcgm": {"overall": "Healthy", "incidents": [], "gpus": 1},
    }
    services = units({OLD_DCGM: ABSENT, name: unit})
    return {"gpu": gpu, "services": services, **known, **sections}


@pytest.mark.parametrize(
    ("check", "name", "unit", "subjects", "label"),
    [
        ("fabric", FABRIC, STOPPED, ("GPU 0", "GPU 1"), "enable and restart"),
        ("fabric", FABRIC, RUNS, ("GPU 0", "GPU 1"), "restart"),
        ("imex", IMEX, STOPPED, (f"unit {IMEX}",), "enable and restart"),
        ("imex", IMEX, {**RUNS, "active_state": "failed"}, (f"unit {IMEX}",), "restart"),
        ("dcgm", DCGM, RUNS, ("dcgm GPUs",), "restart"),
        ("dcgm", DCGM, {**RUNS, "file_state": "disabled"}, ("dcgm GPUs",), "enable and restart"),
    ],
)
def test_the_unit_is_enabled_and_restarted(plan, h100, check, name, unit, subjects, label):
    (change,) = plan(check, {}, node(check, h100, unit))
    enabled = True if unit["file_state"] == "disabled" else None
    assert change.actions == (SetUnit(name=name, enabled=enabled, running=True, restart=True),)
    assert change.actions[0].label == f"{label} {name}"
    assert change.resources == (Resource(kind="unit", name=name),)
    assert (change.subjects, change.risk) == (subjects, Risk.DRAIN)


@pytest.mark.parametrize("check", ["fabric", "imex", "dcgm"])
@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ({**STOPPED, "load_state": "masked"}, "it is masked on purpose"),
        (ABSENT, "it does not exist"),
        ({**STOPPED, "load_state": "bad-setting"}, "systemd could not load it"),
        ({**STOPPED, "active_state": "activating"}, "plan again when it has finished"),
        ({**STOPPED, "file_state": "static"}, "is static: `systemctl` cannot enable it"),
        ({**STOPPED, "file_state": "enabled-runtime"}, "is enabled-runtime"),
        ({"load_state": "loaded", "active_state": "inactive"}, "file_state: "),
    ],
)
def test_a_unit_that_systemd_cannot_start_is_refused(plan, h100, check, unit, why):
    if check == "dcgm":
        unit = {**unit, "active_state": unit["active_state"].replace("inactive", "active")}
    with pytest.raises(FixError, match=why):
        plan(check, {}, node(check, h100, unit))


@pytest.mark.parametrize(
    ("check", "params", "sections", "why"),
    [
        ("fabric", {}, {"gpus": [fabric(), fabric("COMPLETED")]}, "GPU 1 is registered, and would"),
        ("fabric", {}, {"gpus": [fabric("COMPLETED", health_mask=16)]}, "a restart of the fabric"),
        ("fabric", {}, {"installed": packages("535.9.9")}, "install the driver's version first"),
        ("imex", {"nodes": 3}, {}, "the list of peers is wrong"),
        (
            "imex",
            {},
            {"imex": {"channels": 1, "nodes": ["10.0.0.1"] * 2}},
            "list of peers is wrong",
        ),
        ("imex", {}, {"imex": {"channels": 1, "nodes": []}}, "list of peers is wrong"),
        ("imex", {}, {"imex": {"channels": 1}}, "the list of peers was not read"),
        (
            "imex",
            {},
            {"gpus": [fabric("COMPLETED", cluster_uuid=uuid) for uuid in (DOMAIN, DOMAIN[::-1])]},
            "not all in one NVLink domain",
        ),
        (
            "imex",
            {},
            {"unit": RUNS, "imex": {"channels": 0, "nodes": NODES}},
            "a restart of nvidia",
        ),
        ("dcgm", {}, {"gpus": [{}]}, ""),
        ("dcgm", {}, {"unit": STOPPED}, "another host engine answered"),
        (
            "dcgm",
            {},
            {"unit": RUNS, "dcgm": {"overall": "Healthy", "incidents": [], "gpus": 3}},
            "a GPU was lost",
        ),
        (
            "dcgm",
            {},
            {"unit": RUNS, "dcgm": {"overall": "Failure", "incidents": [], "gpus": 2}},
            "a restart of DCGM does not repair this",
        ),
    ],
)
def test_a_fault_that_a_restart_cannot_repair_is_refused(plan, h100, check, params, sections, why):
    evidence = node(check, h100, **sections)
    if not why:
        assert plan(check, params, evidence) == []
        return
    with pytest.raises(FixError, match=why):
        plan(check, params, evidence)


def rdma(loaded=("nvidia",), flavour="proprietary", cmdline=""):
    return {
        "infiniband": {"devices": [{"name": "mlx5_0", "bus_id": "0000:01:00.0"}]},
        "modules": {"loaded": list(loaded), "builtin": [], "nvidia_flavour": flavour},
        "host": {"kernel": "6.1.0", "cmdline": cmdline},
    }


def test_peermem_is_loaded_now_and_at_boot(plan):
    (change,) = plan("gpudirect", {}, rdma())
    file, load = change.actions
    assert isinstance(file, WriteFile) and file.content.endswith("\nnvidia_peermem\n")
    assert load == RunCommand(words=("modprobe", "--", "nvidia_peermem"))
    assert change.risk is Risk.LIVE
    assert plan("gpudirect", {}, rdma(flavour="open")) == []
    assert plan("gpudirect", {}, rdma(("nvidia", "nvidia_peermem"))) == []


@pytest.mark.parametrize(
    ("params", "evidence", "why"),
    [
        ({"one_of": ["dma_buf"]}, rdma(), "expects dma-buf"),
        ({}, rdma(loaded=()), "repair the driver first"),
        (
            {},
            rdma(cmdline="modprobe.blacklist=nouveau,nvidia-peermem"),
            "blacklists nvidia_peermem",
        ),
    ],
)
def test_peermem_that_cannot_or_may_not_be_loaded_is_refused(plan, params, evidence, why):
    with pytest.raises(FixError, match=why):
        plan("gpudirect", params, evidence)


def test_systemd_reads_its_files_once_between_enablement_and_start() -> None:
    unit = SetUnit(name="a.service", enabled=True, running=True, masked=False)
    words = str(unit.command(seconds=9)).partition("||")[0]
    verbs = ["unmask", "enable", "daemon-reload", "start"]
    assert [word for word in words.split() if word in verbs] == verbs
    assert words.count("--no-reload") == 2
