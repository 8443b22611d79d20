"""Recorded runs of fixes, and what they changed, as rows and sheets. Pure."""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.fixing.result import Outcome
from nodevet.past.sheets.parts import fold_names
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, name
from nodevet.store.records.model import RecordedAction, RecordedFixRun

GPU = re.compile(r"GPU-[0-9a-f-]{36}:")
BAD = (Outcome.ROLLBACK_FAILED.value, Outcome.UNKNOWN.value)
LONGEST = 80  # columns of a state
LONGEST_NAME = 200  # of a resource


def fix_runs_sheet(
    runs: Sequence[RecordedFixRun], store: str, clock: Clock, *, more: bool
) -> Sheet:
    """The list of runs of fixes, the newest first."""
    rows = tuple(
        (
            Cell(clock.moment_text(run.started)),
            Cell(plain(run.kind)),
            Cell(brief(run.plan, 24)),
            Cell(brief(run.author, 24)),
            Cell(brief(", ".join(run.approvals), 48) or "none"),
            Cell(brief(run.by, 48)),
            Cell(_outcomes(run), _run_tone(run)),
            Cell("no end" if run.exit_code is None else elapsed(run.seconds), right=True),
            Cell(brief(run.folder, 200)),
        )
        for run in runs
    )
    heads = ("when", "", "plan", "of", "approved", "run by", "hosts", "took", "kept in")
    return Sheet(
        title=f"{count(len(runs), 'run')} of fixes in {plain(store)}",
        kind="runs",
        blocks=(TableBlock(heads=heads, rows=rows),),
        end="there are earlier runs: -n 100 shows more" if more else "",
    )


def _outcomes(run: RecordedFixRun) -> str:
    """`2 changed, 1 refused`, the worst first."""
    ranks = {outcome.value: outcome.rank for outcome in Outcome}
    counts = sorted(run.outcomes.items(), key=lambda item: ranks.get(item[0], -1))
    return ", ".join(f"{number:,} {words(outcome)}" for outcome, number in counts) or "none"


def _run_tone(run: RecordedFixRun) -> str:
    return "fail" if run.exit_code in (None, 3) else "warning" if run.exit_code else "ok"


def words(outcome: str) -> str:
    return plain(outcome).replace("_", " ")


def tone(outcome: str) -> str:
    """The tone of how a host or a step ended."""
    if outcome in BAD:
        return "fail"
    good = any(outcome == known.value and known.good for known in Outcome)
    return "ok" if good else "warning"


def what_changed(actions: Sequence[RecordedAction]) -> str:
    """What alike actions changed: `gpu power_limit_mw: 500 W → 700 W (8 GPUs)`."""
    first = actions[0]
    if len(actions) == 1:
        return f"{brief(first.resource, LONGEST_NAME)}: {_change(first)}"
    resource = brief(row_keys(actions)[0][0], LONGEST_NAME)
    gpus = len({gpu for action in actions for gpu in GPU.findall(action.resource)})
    return f"{resource}: {_change(first)}" + (f" ({count(gpus, 'GPU')})" if gpus else "")


def _change(action: RecordedAction) -> str:
    """`500 W → 700 W`."""
    if action.before == action.after:
        return f"{brief(action.before, LONGEST)}, as before"
    return f"{brief(action.before, LONGEST)} → {brief(action.after, LONGEST) or 'not known'}"


def row_keys(actions: Iterable[RecordedAction]) -> list[tuple[str, Hashable]]:
    """For each action what identifies its row: actions that made the same change of several GPUs,
    or of resources that differ in one number only, share a row, whose resource comes first."""
    rows = [
        (
            GPU.sub("", action.resource),
            (action.run, action.host, action.fix, action.before, action.after, action.outcome),
        )
        for action in actions
    ]
    names = fold_names(rows)
    return [(name, values) for name, (_, values) in zip(names, rows, strict=True)]


def repairs(title: str, actions: Sequence[RecordedAction], clock: Clock) -> TableBlock | None:
    """What runs of fixes changed; None if they changed nothing."""
    heads = ("when", "host", "", "plan", "fix", "what", "outcome")
    rows = tuple(_repairs(actions, clock))
    return TableBlock(title=title, heads=heads, rows=rows) if rows else None


def _repairs(actions: Sequence[RecordedAction], clock: Clock) -> Iterator[tuple[Cell, ...]]:
    groups: dict[object, list[RecordedAction]] = {}
    for key, action in zip(row_keys(actions), actions, strict=True):
        groups.setdefault(key, []).append(action)
    for group in groups.values():
        first = group[0]
        yield (
            Cell(clock.moment_text(first.at)),
            Cell(name(first.host)),
            Cell("rollback" if first.kind == "rollback" else "fix"),
            Cell(brief(first.plan, 24)),
            Cell(brief(first.fix)),
            Cell(what_changed(group)),
            Cell(words(first.outcome), tone(first.outcome)),
        )
