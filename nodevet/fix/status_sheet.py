"""The status of a run of fixes as a sheet. Pure."""

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
    """The status of the run, how its hosts ended or what they do now, and what to do next."""
    result = status.result
    controller = f" ({plain(status.controller)})" if status.controller else ""
    headline = f"{plain(status.folder)}: {plain(result.kind)} of plan {plain(result.plan)}"
    start = f"started {_ago(status.begun, now)} by {plain(status.by)}"
    return Sheet(
        title=f"{headline}, {status.standing.value}{controller}",
        kind="status",
        facts=(
            f"{start}, last record {_ago(status.last, now)}",
            *([f"stopped: {plain(result.stopped)}"] if result.stopped else []),
            *([f"still drained by this run: {nodeset(status.drained)}"] if status.drained else []),
        ),
        blocks=(
            *ended_tables(_hosts(status, now)),
            ListBlock(items=tuple(map(ListItem, _advice(status)))),
        ),
    )


def _ago(at: str, now: datetime | None) -> str:
    seconds = seconds_since(at, now)
    is_past = seconds is not None and seconds >= 0
    return f"{elapsed(float(round(seconds or 0)))} ago" if is_past else plain(at)


def _hosts(status: RunStatus, now: datetime | None) -> list[EndedHosts]:
    """Hosts in progress, hosts to come, and how the others ended. If the controller is gone: how it
    left every host, then what each was doing."""
    live = status.standing is RunStanding.GOES_ON
    label = "in progress" if live else "was at"
    rows = [
        EndedHosts(label, nodeset(hosts), doing, "strong")
        for doing, hosts in _activities(status, now)
    ]
    shown_hosts = {host.host for host in status.in_hand} if live else set[str]()
    if live and (waiting := [host.host for host in status.waiting]):
        rows.append(EndedHosts("not started yet", nodeset(waiting), "", "quiet"))
        shown_hosts |= set(waiting)
    remaining = tuple(host for host in status.result.hosts if host.host not in shown_hosts)
    ended_rows = [
        row._replace(tone="quiet") if row.why == LEFT_OUT else row
        for row in ended_hosts(replace(status.result, hosts=remaining))
    ]
    return [*rows, *ended_rows] if live else [*ended_rows, *rows]


def _activities(status: RunStatus, now: datetime | None) -> list[tuple[str, list[str]]]:
    """(activity, hosts), the longest silence first."""
    groups: dict[str, list[InHand]] = {}
    for host in sorted(status.in_hand, key=lambda host: host.at):
        at = f"{host.number}/{host.steps} {plain(host.fix)}: " if host.number else ""
        groups.setdefault(at + host.doing, []).append(host)
    return [
        (f"{doing}, {_ago(hosts[0].at, now)}", [host.host for host in hosts])
        for doing, hosts in groups.items()
    ]


def _advice(status: RunStatus) -> Iterator[str]:
    """What to do next."""
    folder = shlex.quote(status.folder)
    undone = status.result.kind == "apply" and status.result.is_revertible
    if status.standing is RunStanding.GOES_ON:
        yield "next: nothing: still running; Ctrl-C there stops it after the current hosts"
    elif status.standing is RunStanding.ENDED:
        for step in next_steps(status.result, folder, status.inventories):
            yield f"next: {step.text}"
        if undone:
            yield f"undo: nodevet rollback {folder}"
    else:
        unknown = status.standing is RunStanding.UNKNOWN
        lead = "if its controller is gone" if unknown else "next"
        yield f"{lead}: {_resume_text(status, folder)}"
        if undone:
            yield f"or undo: nodevet rollback {folder}"


def _resume_text(status: RunStatus, folder: str) -> str:
    """The command that resumes an interrupted run, and what it does."""
    result = status.result
    if result.kind == "rollback":
        return f"nodevet rollback {folder}"
    command = f"nodevet apply --resume {folder}{baselines_of(result)}"
    hosts = count(len(status.in_hand), "interrupted host")
    effect = f"reads {hosts}" if status.in_hand else ""
    if CONFIRMED in result.options:
        if not result.leaves_changes:
            return f"{FIX_AGAIN} (nothing was changed; with the same options)"
        effect = effect or "reads what was changed"
        return f"{command} ({effect}, starts no other step), then {FIX_AGAIN}"
    if status.expired:
        expiry = "the plan has expired, so no more steps start"
        return f"{command} ({'; '.join(filter(None, (effect, expiry)))})"
    return command + (f" ({effect} first)" if effect else "")
