"""How a run of fixes stands, as a sheet. Pure."""

import shlex
from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import plain
from nodevet.fix.next_steps import FIX_AGAIN, baselines_of, next_steps
from nodevet.fix.result_sheet import EndedHosts, ended_hosts, ended_tables
from nodevet.fix.standing import InHand, RunStanding, RunStatus, seconds_since
from nodevet.fixing.result import CONFIRMED, LEFT_OUT
from nodevet.sheet.model import ListBlock, ListItem, Sheet
from nodevet.sheet.text import count, nodeset


def status_sheet(status: RunStatus, now: datetime | None = None) -> Sheet:
    """Where the run stands, how its hosts ended or what they are at, and what to do next."""
    result = status.result
    where = f" ({plain(status.controller)})" if status.controller else ""
    what = f"{plain(status.folder)}: {plain(result.kind)} of plan {plain(result.plan)}"
    begun = f"begun {_ago(status.begun, now)} by {plain(status.by)}"
    return Sheet(
        title=f"{what}, {status.standing.value}{where}",
        kind="status",
        facts=(
            f"{begun}, last record {_ago(status.last, now)}",
            *([f"stopped: {plain(result.stopped)}"] if result.stopped else []),
        ),
        blocks=(
            *ended_tables(_hosts(status, now)),
            ListBlock(items=tuple(map(ListItem, _after(status)))),
        ),
    )


def _ago(at: str, now: datetime | None) -> str:
    seconds = seconds_since(at, now)
    known = seconds is not None and seconds >= 0
    return f"{elapsed(float(round(seconds or 0)))} ago" if known else plain(at)


def _hosts(status: RunStatus, now: datetime | None) -> list[EndedHosts]:
    """Hosts in hand, those to come, and how the others ended; of a run whose controller is gone
    how every host is left, and then what it was at."""
    live = status.standing is RunStanding.GOES_ON
    label = "in hand" if live else "was at"
    at = [EndedHosts(label, nodeset(hosts), doing, "strong") for doing, hosts in _at(status, now)]
    apart = {host.host for host in status.in_hand} if live else set[str]()
    if live and (waiting := [host.host for host in status.waiting]):
        at.append(EndedHosts("not begun yet", nodeset(waiting), "", "quiet"))
        apart |= set(waiting)
    others = tuple(host for host in status.result.hosts if host.host not in apart)
    left = [
        ended._replace(tone="quiet") if ended.why == LEFT_OUT else ended
        for ended in ended_hosts(replace(status.result, hosts=others))
    ]
    return [*at, *left] if live else [*left, *at]


def _at(status: RunStatus, now: datetime | None) -> list[tuple[str, list[str]]]:
    """(what is done, hosts), those with the longest silence first."""
    found: dict[str, list[InHand]] = {}
    for host in sorted(status.in_hand, key=lambda host: host.at):
        at = f"{host.number}/{host.steps} {plain(host.fix)}: " if host.number else ""
        found.setdefault(at + host.doing, []).append(host)
    return [
        (f"{doing}, {_ago(hosts[0].at, now)}", [host.host for host in hosts])
        for doing, hosts in found.items()
    ]


def _after(status: RunStatus) -> Iterator[str]:
    """What to do next."""
    folder = shlex.quote(status.folder)
    undone = status.result.kind == "apply" and status.result.leaves_changes
    if status.standing is RunStanding.GOES_ON:
        yield "next: nothing: it goes on by itself; Ctrl-C there begins no further host"
    elif status.standing is RunStanding.ENDED:
        for step in next_steps(status.result, folder, status.inventories):
            yield f"next: {step.text}"
        if undone:
            yield f"undo: nodevet rollback {folder}"
    else:
        unknown = status.standing is RunStanding.UNKNOWN
        lead = "if its controller is gone" if unknown else "next"
        yield f"{lead}: {_going_on(status, folder)}"
        if undone:
            yield f"or undo: nodevet rollback {folder}"


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
