"""Runs of fixes that are remembered, and what they changed, as rows and sheets. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.fixing.result import Outcome
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, name
from nodevet.store.records.model import RecordedAction, RecordedFixRun

GPU = re.compile(r"GPU-[0-9a-f-]{36}:")
BAD = (Outcome.ROLLBACK_FAILED.value, Outcome.UNKNOWN.value)
LONGEST = 80  # columns of a state
LONGEST_NAME = 200  # of a resource


def fix_runs_sheet(
    found: Sequence[RecordedFixRun], store: str, clock: Clock, *, more: bool
) -> Sheet:
    """The newest is the first."""
    rows = tuple(
        (
            Cell(clock.at(run.started)),
            Cell(plain(run.kind)),
            Cell(brief(run.plan, 24)),
            Cell(brief(run.author, 24)),
            Cell(brief(", ".join(run.approvals), 48) or "none"),
            Cell(brief(run.by, 48)),
            Cell(_outcomes(run), _run_tone(run)),
            Cell("no end" if run.exit_code is None else elapsed(run.seconds), right=True),
            Cell(brief(run.folder, 200)),
        )
        for run in found
    )
    heads = ("when", "", "plan", "of", "approved", "run by", "hosts", "took", "kept in")
    return Sheet(
        title=f"{count(len(found), 'run')} of fixes in {plain(store)}",
        kind="runs",
        blocks=(TableBlock(heads=heads, rows=rows),),
        end="there are earlier ones: -n 100 shows more" if more else "",
    )


def _outcomes(run: RecordedFixRun) -> str:
    """`2 changed, 1 refused`; worst first."""
    ranks = {outcome.value: outcome.rank for outcome in Outcome}
    counts = sorted(run.outcomes.items(), key=lambda each: ranks.get(each[0], -1))
    return ", ".join(f"{number:,} {words(outcome)}" for outcome, number in counts) or "none"


def _run_tone(run: RecordedFixRun) -> str:
    return "fail" if run.exit_code in (None, 3) else "warning" if run.exit_code else "ok"


def words(outcome: str) -> str:
    return plain(outcome).replace("_", " ")


def tone(outcome: str) -> str:
    """Of how a host or a step ended."""
    if outcome in BAD:
        return "fail"
    good = any(outcome == each.value and each.good for each in Outcome)
    return "ok" if good else "warning"


def what_changed(actions: Sequence[RecordedAction]) -> str:
    """What one or several alike changed: `gpu power_limit_mw: 500 W → 700 W (8 GPUs)`."""
    first = actions[0]
    if len(actions) == 1:
        return f"{brief(first.resource, LONGEST_NAME)}: {change(first)}"
    told = brief(GPU.sub("", first.resource), LONGEST_NAME)
    return f"{told}: {change(first)} ({count(len(actions), 'GPU')})"


def change(action: RecordedAction) -> str:
    """`500 W → 700 W`."""
    if action.before == action.after:
        return f"{brief(action.before, LONGEST)}, as before"
    return f"{brief(action.before, LONGEST)} → {brief(action.after, LONGEST) or 'not known'}"


def alike(actions: Iterable[RecordedAction]) -> list[list[RecordedAction]]:
    """Those that changed the same in the same way on the GPUs of one host stand together."""
    groups: dict[object, list[RecordedAction]] = {}
    for each in actions:
        groups.setdefault(likeness(each), []).append(each)
    return list(groups.values())


def likeness(action: RecordedAction) -> object:
    resource, gpus = GPU.subn("", action.resource)
    own = "" if gpus else action.resource
    return (
        action.run,
        action.host,
        action.fix,
        resource,
        own,
        action.before,
        action.after,
        action.outcome,
    )


def repairs(title: str, actions: Sequence[RecordedAction], clock: Clock) -> TableBlock | None:
    """What runs of fixes changed; none if they changed nothing."""
    heads = ("when", "host", "", "plan", "fix", "what", "outcome")
    rows = tuple(_repairs(actions, clock))
    return TableBlock(title=title, heads=heads, rows=rows) if rows else None


def _repairs(actions: Sequence[RecordedAction], clock: Clock) -> Iterator[tuple[Cell, ...]]:
    for group in alike(actions):
        first = group[0]
        yield (
            Cell(clock.at(first.at)),
            Cell(name(first.host)),
            Cell("rollback" if first.kind == "rollback" else "fix"),
            Cell(brief(first.plan, 24)),
            Cell(brief(first.fix)),
            Cell(what_changed(group)),
            Cell(words(first.outcome), tone(first.outcome)),
        )
