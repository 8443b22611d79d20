"""No systemd unit has failed.

**Why it matters.** A unit that failed at boot or later is usually one that jobs rely on: a mount, a
driver's start, monitoring, the fabric manager. systemd keeps the list, but no one looks at it.

**Read from** systemd: `systemctl --failed`.

**Verdicts.** Every failed unit is a finding of its own, except the units that `ignore` names; `*`
stands for any characters. Any user can make `user@UID.service` fail: `ignore: [user@*.service]`. If
the node is still starting, nodevet looks again for 45 s; if no unit has failed by then, the result
is unknown. Without systemd everything is unknown.

**To fix it** `journalctl -b -u UNIT` says why the unit failed; fix the cause and start it again.
`systemctl reset-failed UNIT` clears a failure that no longer matters, until the unit fails again.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import reads_of, unread_section
from nodevet.checking.one_value import first_unread
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.failed_units import FailedUnits
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    fail,
    ok,
    unknown,
)

SETTLED = ("running", "degraded")
RESCUE = "the node is in rescue or emergency mode: `systemctl --failed` and `journalctl -b` say why"


class Params(CheckParams):
    """`failed_units: {}` or `failed_units: {ignore: [systemd-networkd-wait-online.service]}`"""

    ignore: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Names or patterns of units that are not judged: `snap-*.mount`."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[FailedUnits]
    if section.data is None:
        yield unread_section(section, "failed_units")
    elif section.data.units is None:
        yield unread(NODE, section.data, "units")
    else:
        failed = [unit.name for unit in section.data.units]
        counted = [
            name
            for name in failed
            if not any(fnmatchcase(name, pattern) for pattern in params.ignore)
        ]
        yield from (failure(name) for name in counted)
        if not counted:
            yield judge_state(section.data, len(failed))


def failure(name: str) -> Finding:
    return fail(
        Subject(kind="unit", id=name),
        expected="not failed",
        actual="failed",
        advice=(
            "`journalctl -b -u UNIT` says why it failed; fix the cause, then `systemctl restart` it"
        ),
    )


def judge_state(units: FailedUnits, listed: int) -> Finding:
    """The finding if no unit failed, or only ignored units."""
    if finding := first_unread(NODE, units, "state", "count"):
        return finding
    if units.state == "maintenance":
        return fail(expected="running", actual="maintenance", advice=RESCUE)
    if units.state not in SETTLED:
        return unknown(why=f"systemd is {(units.state or 'silent')[:60]}: units may still fail")
    if units.count != listed:
        return unknown(why=f"{listed} of {units.count} failed units were read")
    ignored = f"{listed} ignored" if listed else "none"
    return ok(expected="none", actual=ignored)


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(*reads_of("failed_units", "count", "state"), "failed_units.units[].name"),
    judge=judge,
    unasked="unimportant units fail, too: say failed_units with the units to ignore",
    severity=Severity.WARNING,
    asks=lambda params: {"failed_units": ("failed",)},
)
