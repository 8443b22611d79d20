"""Limits of units and logins: raised and never lowered, and what is refused."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource.unit import RELOAD, SetUnit

SLURMD = "slurmd.service"
DROP_IN = f"/etc/systemd/system/{SLURMD}.d/90-nodevet-limits.conf"
LOGINS = "/etc/security/limits.d/90-nodevet-limits.conf"
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
STOPPED = {"load_state": "loaded", "active_state": "inactive", "file_state": "static"}
LOW = {"memlock_b": 8 << 20, "nofile": 1024, "nproc": -1, "stack_b": 8 << 20}
MINIMA = {"minimum_memlock_b": "unlimited", "minimum_nofile": 65536, "minimum_nproc": 4096}


def node(name=SLURMD, unit=RUNS, **fields):
    load = "" if name == "login" else unit.get("load_state")
    return {
        "limits": {"limits": [{"name": name, "source": "x", "load_state": load, **LOW, **fields}]},
        "services": {"units": [] if name == "login" else [{"name": name, **unit}]},
    }


@pytest.mark.parametrize(
    ("unit", "last", "risk"),
    [
        (RUNS, SetUnit(name=SLURMD, running=True, restart=True), Risk.DRAIN),
        (STOPPED, RELOAD, Risk.LIVE),
    ],
)
def test_a_drop_in_sets_every_limit_and_a_service_that_runs_is_restarted(plan, unit, last, risk):
    (change,) = plan("limits", {"of": [SLURMD], **MINIMA}, node(unit=unit))
    file, action = change.actions
    assert (file.path, action, change.risk) == (DROP_IN, last, risk)
    assert file.content.splitlines()[1:] == [
        "[Service]",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=65536:infinity",
        "LimitNPROC=infinity",
    ]
    assert [each.name for each in change.resources] == [DROP_IN, SLURMD][: 1 + (unit is RUNS)]


def test_a_value_above_the_expected_one_is_not_lowered(plan):
    sections = node(nofile=1 << 20)
    (change,) = plan("limits", {"of": [SLURMD], **MINIMA}, sections)
    assert "LimitNOFILE=1048576:infinity\n" in change.actions[0].content
    assert plan("limits", {"of": [SLURMD], "minimum_nofile": 1 << 20}, sections) == []


def test_login_limits_are_written_in_the_units_of_limits_conf(plan):
    params = {"of": ["login"], **MINIMA, "minimum_stack_b": (16 << 20) + 1}
    (change,) = plan("limits", params, node("login"))
    (file,) = change.actions
    assert file.path == LOGINS and change.risk is Risk.LIVE
    assert file.content.splitlines()[1:] == [
        "* - memlock unlimited",
        "* - nofile 65536",
        "* - nproc unlimited",
        "* - stack 16385",
    ]


@pytest.mark.parametrize(
    ("params", "sections", "why"),
    [
        ({"of": ["login"], "minimum_nofile": "unlimited"}, node("login"), "expect a number"),
        ({"of": ["ssh.service"], **MINIMA}, node("ssh.service"), "does not restart it"),
        ({"of": ["dbus.service"], **MINIMA}, node("dbus.service"), "does not restart it"),
        ({"of": ["x.socket"], **MINIMA}, node("x.socket"), "limits of services only"),
        (
            {"of": [SLURMD], **MINIMA},
            node(unit={**STOPPED, "load_state": "masked"}),
            "it is masked on purpose",
        ),
        (
            {"of": [SLURMD], **MINIMA},
            node(unit={**RUNS, "active_state": "deactivating"}),
            "it is deactivating",
        ),
        ({"of": [SLURMD], **MINIMA}, node(nproc=None), "nproc: "),
        ({"of": [SLURMD], **MINIMA}, node() | {"services": {"units": []}}, "not asked"),
    ],
)
def test_limits_that_nodevet_may_not_change_are_refused(plan, params, sections, why):
    with pytest.raises(FixError, match=why):
        plan("limits", params, sections)
