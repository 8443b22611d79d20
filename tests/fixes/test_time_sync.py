"""The one time client of the node is enabled and restarted; nobody chooses between two."""

import pytest

from nodevet.fixes.time_sync import CLIENTS, PTP
from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.unit import SetUnit

ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
STOPPED = {"load_state": "loaded", "active_state": "inactive", "file_state": "disabled"}
RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
MASKED = {"load_state": "masked", "active_state": "inactive", "file_state": "masked"}
NAMES = [name for names in CLIENTS.values() for name in names] + [PTP]
UNSYNC = {"clock_status": 0x40, "clock_state": 5, "clock_maxerror_us": 16_000_000}


def node(kernel=UNSYNC, **states):
    given = {f"{name.replace('_', '-')}.service": state for name, state in states.items()}
    units = [{"name": name, **given.get(name, ABSENT)} for name in NAMES]
    return {"kernel": kernel, "services": {"units": units}, "host": {"uptime_s": 9000.0}}


@pytest.mark.parametrize(
    ("states", "name"),
    [
        ({"chrony": STOPPED}, "chrony.service"),
        ({"chrony": RUNS, "chronyd": RUNS}, "chrony.service"),  # Debian: the second is an alias
        ({"chronyd": STOPPED}, "chronyd.service"),
        ({"systemd_timesyncd": RUNS}, "systemd-timesyncd.service"),
        ({"systemd_timesyncd": MASKED, "chrony": STOPPED}, "chrony.service"),
        ({"ntpsec": RUNS, "ntp": RUNS, "ntpd": RUNS}, "ntpsec.service"),
        ({"ntpd": STOPPED}, "ntpd.service"),
        ({"openntpd": STOPPED, "phc2sys": STOPPED}, "openntpd.service"),
    ],
)
def test_the_client_is_enabled_and_restarted(plan, states, name):
    (change,) = plan("time_sync", {}, node(**states))
    unit = states[name.removesuffix(".service").replace("-", "_")]
    enabled = True if unit is STOPPED else None
    restart, *more = change.actions
    assert restart == SetUnit(name=name, enabled=enabled, running=True, restart=True)
    assert change.resources == (Resource(kind="unit", name=name),)
    assert change.risk is Risk.LIVE
    commands = [each.words for each in more if isinstance(each, RunCommand)]
    chrony = [("chronyc", "waitsync", "30", "0", "0", "2"), ("chronyc", "makestep")]
    assert commands == (chrony if name.startswith("chrony") else [])


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ({}, "no time client is installed"),
        ({"chrony": RUNS, "systemd_timesyncd": STOPPED}, "chrony and systemd-timesyncd are inst"),
        ({"chrony": MASKED}, "chrony.service: it is masked on purpose"),
        ({"chrony": MASKED, "ntp": MASKED}, "chrony.service: it is masked on purpose"),
        ({"chrony": STOPPED, "phc2sys": RUNS}, "phc2sys.service sets the clock"),
        ({"chrony": {**STOPPED, "file_state": None}}, "chrony.service: file_state: "),
        ({"ntp": {**STOPPED, "load_state": None}}, "ntp.service: load_state: "),
        ({"chrony": {**RUNS, "active_state": "activating"}}, "is activating; plan again"),
        ({"chrony": {**RUNS, "file_state": "generated"}}, "is generated: `systemctl` cannot"),
    ],
)
def test_a_node_without_exactly_one_usable_time_client_is_refused(plan, states, why):
    with pytest.raises(FixError, match=why):
        plan("time_sync", {}, node(**states))


def test_a_synchronised_clock_with_a_large_error_is_refused(plan):
    kernel = {"clock_status": 1, "clock_state": 0, "clock_maxerror_us": 2_000_000}
    assert plan("time_sync", {}, node(kernel, chrony=RUNS)) == []
    with pytest.raises(FixError, match="the clock is synchronised"):
        plan("time_sync", {"maximum_error_ms": 100}, node(kernel, chrony=RUNS))
