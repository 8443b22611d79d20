"""How a run of fixes stands, as people read it. Pure."""

import shlex
from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import plain
from nodevet.fix import result_text as fixes
from nodevet.fix.next_steps import FIX_AGAIN, baselines_of
from nodevet.fix.use.status import InHand, RunStanding, RunStatus, seconds_since
from nodevet.fixing.result import CONFIRMED, LEFT_OUT
from nodevet.report.parts import fix_table
from nodevet.report.parts.fix_table import BOLD, DIM, GREEN, MAGENTA, YELLOW, Styled
from nodevet.sheet.text import GAP, count, nodeset, pad

TINTS = {
    RunStanding.GOES_ON: GREEN,
    RunStanding.ENDED: BOLD,
    RunStanding.INTERRUPTED: MAGENTA,
    RunStanding.UNKNOWN: YELLOW,
}


def text(
    status: RunStatus,
    *,
    colour: bool = False,
    width: int | None = None,
    now: datetime | None = None,
) -> str:
    """All of it; `width` in columns."""
    lines = [*_head(status, now), Styled(), *_hosts(status, now), Styled(), *_after(status)]
    return fix_table.drawn(lines, colour=colour, width=width)


def _head(status: RunStatus, now: datetime | None) -> Iterator[Styled]:
    result = status.result
    where = f" ({plain(status.controller)})" if status.controller else ""
    what = f"{plain(status.folder)}: {plain(result.kind)} of plan {plain(result.plan)}, "
    yield Styled(what, status.standing.value + where, tint=TINTS[status.standing])
    begun = f"begun {_ago(status.begun, now)} by {plain(status.by)}"
    last = f"last record {_ago(status.last, now)}"
    yield Styled(text=f"{begun}, {last}")
    if result.stopped:
        yield Styled("stopped: ", plain(result.stopped))


def _ago(at: str, now: datetime | None) -> str:
    seconds = seconds_since(at, now)
    return f"{_about(seconds)} ago" if seconds is not None and seconds >= 0 else plain(at)


def _about(seconds: float) -> str:
    return elapsed(float(round(seconds)))


def _hosts(status: RunStatus, now: datetime | None) -> list[Styled]:
    """Hosts in hand, those to come, and how the others ended; of a run whose controller is gone
    how every host is left, and then what it was at."""
    live = status.standing is RunStanding.GOES_ON
    label = "IN HAND" if live else "WAS AT"
    at = [(label, nodeset(hosts), doing, BOLD) for doing, hosts in _in_hand(status, now)]
    apart = {host.host for host in status.in_hand} if live else set[str]()
    if live and (waiting := [host.host for host in status.waiting]):
        at.append(("NOT BEGUN YET", nodeset(waiting), "", DIM))
        apart |= set(waiting)
    others = tuple(host for host in status.result.hosts if host.host not in apart)
    left = [
        (
            outcome.words.upper(),
            hosts,
            why,
            DIM if why == LEFT_OUT else fix_table.TINTS.get(outcome, GREEN),
        )
        for outcome, hosts, why in fixes.folded(replace(status.result, hosts=others))
    ]
    rows = [*at, *left] if live else [*left, *at]
    width = max((len(label) for label, *_ in rows), default=0)
    return [
        Styled(pad(label, width) + GAP, GAP.join(filter(None, (hosts, why))), tint)
        for label, hosts, why, tint in rows
    ]


def _in_hand(status: RunStatus, now: datetime | None) -> list[tuple[str, list[str]]]:
    """(what is done, hosts), those with the longest silence first."""
    found: dict[str, list[InHand]] = {}
    for host in sorted(status.in_hand, key=lambda host: host.at):
        at = f"{host.number}/{host.steps} {plain(host.fix)}: " if host.number else ""
        found.setdefault(at + host.doing, []).append(host)
    return [
        (f"{doing}, {_ago(hosts[0].at, now)}", [host.host for host in hosts])
        for doing, hosts in found.items()
    ]


def _after(status: RunStatus) -> list[Styled]:
    """What to do next."""
    folder = shlex.quote(status.folder)
    back = f"nodevet rollback {folder}"
    if status.standing is RunStanding.GOES_ON:
        told = "nothing: it goes on by itself; Ctrl-C there begins no further host"
        return [Styled("next: ", told, BOLD)]
    if status.standing is RunStanding.ENDED:
        found = fix_table.after(status.result, folder, status.inventories)
        undone = status.result.kind == "apply" and status.result.leaves_changes
        return found + ([Styled("undo: ", back, BOLD)] if undone else [])
    unknown = status.standing is RunStanding.UNKNOWN
    lead = "if its controller is gone: " if unknown else "next: "
    lines = [Styled(lead, _going_on(status, folder), BOLD)]
    if status.result.kind == "apply" and status.result.leaves_changes:
        lines.append(Styled("or undo: ", back, BOLD))
    return lines


def _going_on(status: RunStatus, folder: str) -> str:
    """How an interrupted run is gone on with, and what that does."""
    result = status.result
    if result.kind == "rollback":
        return f"nodevet rollback {folder}"
    again = f"nodevet apply --resume {folder}{baselines_of(result)}"
    hosts = count(len(status.in_hand), "host")
    first = f"reads {hosts} that it left in the middle" if status.in_hand else ""
    if CONFIRMED in result.options:
        if not result.leaves_changes:
            return f"{FIX_AGAIN} (nothing was changed; with the same options)"
        return (
            f"{again} ({first or 'reads what was changed'}, begins no other step), then {FIX_AGAIN}"
        )
    if status.expired:
        nothing = "the plan has expired, so no further step is begun"
        return f"{again} ({'; '.join(filter(None, (first, nothing)))})"
    return again + (f" ({first} first)" if first else "")
