"""Failed units as systemctl lists them; limits of units, of limits.conf and of the session."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import program
from nodevet.remote.probe.collectors import failed_units, limits
from nodevet.remote.probe.files import Absent, SectionError

Check = Callable[..., Any]
Script = Callable[[str], None]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Have the collectors run this shell script, on a machine where systemd runs."""

    def install(script: str) -> None:
        place = tmp_path / "bin/systemctl"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}")
        place.chmod(0o755)
        monkeypatch.setattr(program, "FOLDERS", (str(place.parent),))
        for module in (failed_units, limits):
            monkeypatch.setattr(module, "RUNNING", str(tmp_path))

    return install


def shows(state: str, count: object, listed: str = "") -> str:
    return (
        f'case "$1" in show) printf "SystemState={state}\\nNFailedUnits={count}\\n" ;;\n'
        f"*) cat <<'EOF'\n{listed}EOF\nesac\n"
    )


def test_a_system_without_failures_is_asked_once(systemctl: Script, check: Check) -> None:
    systemctl(shows("running", 0).replace("*)", "*) exit 9;"))
    found = check("failed_units", failed_units.collect("/", {}))
    assert (found.state, found.count, found.units) == ("running", 0, ())


def test_failed_units_by_name(systemctl: Script, check: Check) -> None:
    rows = (
        "dev-disk-by\\x2dlabel-x.swap loaded failed failed /dev/disk/by-label/x\n"
        "nvidia-fabricmanager.service loaded failed failed NVIDIA fabric manager service\n"
    )
    systemctl(shows("degraded", 2, rows))
    found = check("failed_units", failed_units.collect("/", {}))
    assert [unit.name for unit in found.units] == [
        "dev-disk-by\\x2dlabel-x.swap",
        "nvidia-fabricmanager.service",
    ]
    assert (found.state, found.count) == ("degraded", 2)


def test_invalid_answers_of_systemctl_are_errors(systemctl: Script, check: Check) -> None:
    systemctl(shows("", "many", "\x1b[31m evil\n"))
    found = check("failed_units", failed_units.collect("/", {}))
    assert found.why("state") == "systemctl did not show SystemState"
    assert found.why("count") == "not a number: 'many'"
    assert found.why("units").startswith("not a unit: ")
    systemctl("echo nonsense")
    with pytest.raises(SectionError, match="not a row"):
        failed_units.collect("/", {})
    systemctl("exit 1")
    with pytest.raises(SectionError, match="ended with 1"):
        failed_units.collect("/", {})


def test_without_systemd_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Absent, match="running machine only"):
        failed_units.collect(str(tmp_path), {})
    monkeypatch.setattr(failed_units, "RUNNING", str(tmp_path / "gone"))
    with pytest.raises(Absent, match="does not run here"):
        failed_units.collect("/", {})


@pytest.mark.parametrize(
    ("state", "uptime", "again"),
    [
        ("starting", 30.0, True),
        ("initializing", 30.0, True),
        ("starting", 3000.0, False),
        ("running", 30.0, False),
        (None, 30.0, False),
        ("starting", None, False),
    ],
)
def test_a_node_that_still_starts_is_looked_at_again(
    state: str | None, uptime: float | None, again: bool
) -> None:
    results = {"failed_units": {"data": {"state": state}}, "host": {"data": {"uptime_s": uptime}}}
    assert failed_units.unsettled(results) is again
    assert failed_units.unsettled({}) is False


SHOWN = """\
Id=slurmd.service
Names=slurmd.service
LoadState=loaded
LimitNOFILESoft=131072
LimitNPROCSoft=18446744073709551615
LimitMEMLOCKSoft=infinity
LimitSTACKSoft=x
"""


def test_limits_of_a_unit(systemctl: Script, check: Check) -> None:
    systemctl(f"cat <<'EOF'\n{SHOWN}EOF\n")
    asked = {"asks": {"limits": ["slurmd.service", "--now"]}}
    found = check("limits", limits.collect("/", asked))
    bad, unit = sorted(found.limits, key=lambda each: each.name)
    assert (unit.name, unit.source, unit.load_state) == ("slurmd.service", "unit", "loaded")
    assert (unit.memlock_b, unit.nofile, unit.nproc, unit.stack_b) == (-1, 131072, -1, None)
    assert unit.why("stack_b") == "not a number: 'x'"
    assert bad.why("nofile") == "not a valid systemd unit name"
    systemctl("exit 1")
    found = check("limits", limits.collect("/", asked))
    assert all("ended with 1" in each.why("nofile") for each in found.limits)


def test_the_last_row_of_limits_conf_for_all_users_counts(tmp_path: Path, check: Check) -> None:
    folder = tmp_path / "etc/security/limits.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc/security/limits.conf").write_text(
        "# * soft memlock 1\n*  soft  memlock  64   # KiB\n*\thard\tnofile\t9\n@gpu - nproc 5\n"
        "root - nofile 7\n* - stack lots\n* soft\n"
    )
    (folder / "90-rdma.conf").write_text("* - memlock unlimited\n")
    (folder / "20-nproc.conf").write_text("*          soft    nproc     4096\n")
    (folder / "README").write_text("* - memlock 1\n")
    root = str(tmp_path.resolve())
    (login,) = check("limits", limits.collect(root, {"asks": {"limits": ["login"]}})).limits
    assert (login.memlock_b, login.nproc, login.source) == (-1, 4096, "limits.conf")
    assert login.why("stack_b") == "not a number: 'lots'"
    assert login.why("nofile") == "limits.conf says nothing"
    (folder / "90-rdma.conf").write_text("* soft memlock 64\n")
    (login,) = check("limits", limits.collect(root, {"asks": {"limits": ["login"]}})).limits
    assert login.memlock_b == 65536


def test_limits_that_limits_conf_lacks_come_from_the_session(
    monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(limits, "configured_limits", lambda root: {"memlock": "unlimited"})
    (login,) = check("limits", limits.collect("/", {"asks": {"limits": ["login"]}})).limits
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert (login.memlock_b, login.nofile) == (-1, soft)
    assert login.source == "limits.conf; this session for nofile nproc stack"


def test_a_tree_has_no_systemd_to_ask(tmp_path: Path, check: Check) -> None:
    asked = {"asks": {"limits": ["slurmd.service", "login"]}}
    unit, login = check("limits", limits.collect(str(tmp_path.resolve()), asked)).limits
    assert unit.why("load_state") == "systemd is queried on a running machine only"
    assert login.why("memlock_b") == "limits.conf says nothing"
