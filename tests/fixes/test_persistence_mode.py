"""Persistence mode on and off, and which unit is its owner at boot."""

import pytest

from nodevet.fixes.persistence_mode import BOOT, DROP_IN
from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

OFF = {"persistence_mode": False}
DAEMON, OWN = "nvidia-persistenced.service", "nodevet-persistence-mode.service"
ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
ENABLED = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
STOPPED = {"load_state": "loaded", "active_state": "inactive", "file_state": "disabled"}
MASKED = {"load_state": "masked", "active_state": "inactive", "file_state": "masked"}
STATIC = {"load_state": "loaded", "active_state": "active", "file_state": "static"}
RELOAD = RunCommand(words=("systemctl", "daemon-reload"))


def units(daemon, own=ABSENT):
    return {"units": [{"name": DAEMON, **daemon}, {"name": OWN, **own}]}


def split(change):
    """Files by path, units, and commands, of a change."""
    files = {each.path: each.content for each in change.actions if isinstance(each, WriteFile)}
    of_units = [each for each in change.actions if isinstance(each, SetUnit)]
    return files, of_units, [each for each in change.actions if isinstance(each, RunCommand)]


@pytest.mark.parametrize(("params", "word", "noted"), [(True, "1", False), (False, "0", True)])
def test_without_the_daemon_nodevet_installs_its_own_unit(plan, h100, uuid, params, word, noted):
    gpus = h100({}, {"persistence_mode": not params}, OFF)
    (change,) = plan("persistence_mode", params, {"gpu": gpus, "services": units(ABSENT)})
    wrong = [1, 2] if params else [0, 1]
    assert (change.expected, change.actual) == (params, not params)
    assert change.subjects == tuple(f"GPU {index}" for index in wrong)
    unit, enabled, *runs = change.actions
    assert unit.content.count(f" -pm {word} ||") == 3
    assert "After=nvidia-persistenced.service nvidia-fabricmanager.service\n" in unit.content
    assert enabled == SetUnit(name=OWN, enabled=True)
    assert runs == [
        RunCommand(words=("nvidia-smi", "-i", uuid(index), "-pm", word)) for index in wrong
    ]
    assert change.resources[2:] == tuple(
        Resource(kind="gpu", name=f"{uuid(index)}:persistence_mode") for index in wrong
    )
    assert change.risk is Risk.LIVE
    assert ("loses its power limit" in change.note) is noted


@pytest.mark.parametrize("daemon", [ENABLED, STOPPED, MASKED, STATIC])
@pytest.mark.parametrize("params", [True, False])
def test_either_the_daemon_or_nodevets_unit_owns_persistence_mode(plan, h100, params, daemon):
    """The daemon where it can be and is to hold the GPUs; what the other one had goes."""
    sections = {"gpu": h100({"persistence_mode": not params}), "services": units(daemon, ENABLED)}
    (change,) = plan("persistence_mode", params, sections)
    files, of_units, runs = split(change)
    assert set(files) == {DROP_IN, BOOT.path}
    if params and daemon in (ENABLED, STOPPED):
        assert files[BOOT.path] is None and files[DROP_IN].count(" -pm 1 ||") == 1
        assert of_units[0] == SetUnit(name=OWN, enabled=False, running=False)
        assert change.actions.index(of_units[0]) < change.actions.index(
            WriteFile(path=BOOT.path, content=None)
        )
    else:
        assert files[DROP_IN] is None and files[BOOT.path]
        assert of_units == [SetUnit(name=OWN, enabled=True)]
    touched = {(each.kind, each.name) for each in change.resources}
    assert {("file", BOOT.path), ("file", DROP_IN), ("unit", OWN)} <= touched
    assert runs[-1].words[-2:] == ("-pm", "1" if params else "0")


def test_a_daemon_that_runs_is_not_touched(plan, h100, uuid):
    sections = {"gpu": h100(OFF, {}), "services": units(ENABLED)}
    (change,) = plan("persistence_mode", True, sections)
    assert change.actions[1:] == (
        RELOAD,
        RunCommand(words=("nvidia-smi", "-i", uuid(0), "-pm", "1")),
    )
    assert change.resources == (
        Resource(kind="file", name=DROP_IN),
        Resource(kind="gpu", name=f"{uuid(0)}:persistence_mode"),
    )


@pytest.mark.parametrize(
    ("state", "unit"),
    [
        (STOPPED, SetUnit(name=DAEMON, enabled=True, running=True)),
        ({**ENABLED, "file_state": "disabled"}, SetUnit(name=DAEMON, enabled=True)),
        ({**ENABLED, "active_state": "failed"}, SetUnit(name=DAEMON, running=True)),
    ],
)
def test_a_daemon_is_enabled_and_started(plan, h100, uuid, state, unit):
    """Where it is started, every GPU has a way back: it changes all of them."""
    sections = {"gpu": h100(OFF, {}), "services": units(state)}
    (change,) = plan("persistence_mode", True, sections)
    assert split(change)[1] == [unit]
    assert Resource(kind="unit", name=DAEMON) in change.resources
    held = {each.name for each in change.resources if each.kind == "gpu"}
    every = {f"{uuid(index)}:persistence_mode" for index in (0, 1)}
    assert held == (every if unit.running else {f"{uuid(0)}:persistence_mode"})


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ({}, "units: "),
        ({"status": "absent", "why": "systemd does not run here"}, "systemd does not run here"),
        ({"units": []}, "was not asked"),
        (units({**ENABLED, "load_state": None, "errors": {"load_state": "no"}}), "load_state: no"),
        (units({**ENABLED, "file_state": None, "errors": {"file_state": "no"}}), "file_state: no"),
        (units({**ENABLED, "load_state": "bad-setting"}), "could not load it: bad-setting"),
        (units({**ENABLED, "active_state": "activating"}), "is activating"),
        (units(ENABLED, {**ABSENT, "load_state": None, "errors": {"load_state": "no"}}), OWN),
    ],
)
def test_nothing_is_planned_if_the_owner_is_unknown(plan, h100, services, words):
    with pytest.raises(FixError, match=words):
        plan("persistence_mode", True, {"gpu": h100(OFF), "services": services})


def test_a_node_with_a_lost_gpu_is_refused(plan, h100):
    gone = {"persistence_mode": None, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    with pytest.raises(FixError, match="GPU 1: NVML: NVML_ERROR_GPU_IS_LOST"):
        plan("persistence_mode", True, {"gpu": h100(OFF, gone), "services": units(ENABLED)})
