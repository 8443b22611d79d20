"""Units as systemctl shows them; programs that stand for it answer in every wrong way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import program, systemd
from nodevet.remote.probe.collectors import services
from nodevet.remote.probe.files import Absent, SectionError

Check = Callable[[str, dict[str, Any]], Any]

# systemd 252: `systemctl show --property=... -- ssh.service no.service`
SHOWN = """\
Id=ssh.service
Names=ssh.service sshd.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled

Id=no.service
Names=no.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
"""


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the collector run this shell script, on a machine where systemd runs."""

    def install(script: str) -> None:
        place = tmp_path / "systemctl"
        place.write_text(f"#!/bin/sh\n{script}")
        place.chmod(0o755)
        monkeypatch.setattr(program, "FOLDERS", (str(tmp_path / "gone"), str(tmp_path)))
        monkeypatch.setattr(services, "RUNNING", str(tmp_path))

    return install


def collect(*names: str) -> Any:
    return services.collect("/", {"asks": {"services": list(names)}})


def printing(text: str) -> str:
    return f"cat <<'EOF'\n{text}EOF\n"


def test_units_by_the_names_that_were_asked_for(
    systemctl: Callable[[str], None], check: Check
) -> None:
    systemctl('[ "$LC_ALL$*" = "Cshow --no-pager --property=Id,Names,LoadState,ActiveState,'
              'SubState,UnitFileState -- no.service sshd.service" ] || exit 9\n'
              + printing("\n\n".join(reversed(SHOWN.strip().split("\n\n"))) + "\n"))  # fmt: skip
    found = check("services", collect("sshd.service", "no.service", "-h.service", "sshd"))
    told = {
        each.name: (each.load_state, each.active_state, each.file_state) for each in found.units
    }
    assert told == {
        "no.service": ("not-found", "inactive", ""),
        "sshd.service": ("loaded", "active", "enabled"),
        "-h.service": (None, None, None),
        "sshd": (None, None, None),
    }
    bad = [each for each in found.units if each.errors]
    assert {each.errors["active_state"] for each in bad} == {"not a valid systemd unit name"}


def test_an_answer_about_another_unit(systemctl: Callable[[str], None], check: Check) -> None:
    systemctl(printing(SHOWN))  # the order is another one than that of the names
    found = check("services", collect("no.service", "sshd.service"))
    assert [each.active_state for each in found.units] == [None, None]
    assert found.units[0].why("file_state") == "systemctl answered for 'ssh.service'"


def test_a_property_that_is_not_shown(systemctl: Callable[[str], None], check: Check) -> None:
    systemctl(printing("Id=a.service\nActiveState=active\n"))
    (unit,) = check("services", collect("a.service")).units
    assert (unit.active_state, unit.why("file_state")) == (
        "active",
        "systemctl did not show UnitFileState",
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (printing(SHOWN), "systemctl shows 2 of 1 units"),
        ("", "not a row of systemctl show: ''"),
        (printing("Id=a.service\nrubbish\n"), "not a row of systemctl show"),
        ("echo Failed to connect to bus >&2; exit 1", "ended with 1: 'Failed to connect to bus'"),
        ("kill -9 $$", "ended with -9"),
        ("exec yes Id=a.service | head -c 5000000", "printed more than 4 MiB"),
    ],
)
def test_no_answer(script: str, why: str, systemctl: Callable[[str], None]) -> None:
    systemctl(script)
    with pytest.raises(SectionError, match=why):
        collect("a.service")


def test_a_systemctl_that_hangs_times_out(
    systemctl: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl("exec sleep 60")
    monkeypatch.setattr(systemd, "SECONDS", 0.2)
    with pytest.raises(SectionError, match=r"timed out after 0\.2 s"):
        collect("a.service")


def test_systemctl_is_not_run_without_a_requested_unit(
    systemctl: Callable[[str], None], check: Check
) -> None:
    systemctl("exit 1")
    assert check("services", collect()).units == ()


def test_without_systemctl_units_are_unknown(
    systemctl: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl("")
    monkeypatch.setattr(program, "FOLDERS", ())
    with pytest.raises(SectionError, match="systemctl is not on this node"):
        collect("a.service")


def test_systemd_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="a running machine only"):
        services.collect(str(tmp_path), {"asks": {"services": ["a.service"]}})
    if not Path(services.RUNNING).is_dir():
        with pytest.raises(Absent, match="systemd does not run here"):
            collect("a.service")
