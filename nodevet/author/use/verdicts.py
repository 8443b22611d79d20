"""The verdicts of a saved or recorded run."""

import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nodevet.author.host_list import HostVerdict, RunVerdicts, VerdictClass
from nodevet.base.age import run_refusal
from nodevet.base.errors import UserError
from nodevet.base.host_names import name_problem
from nodevet.base.printable import brief
from nodevet.inventory.settings import GROUP
from nodevet.model import Host, Verdict

if TYPE_CHECKING:
    from nodevet.model import HostReport
    from nodevet.model.run import Run


class VerdictSource(NamedTuple):
    """A run: its verdicts, its hosts, and notes for the user."""

    verdicts: RunVerdicts
    hosts: tuple[Host, ...]
    notes: tuple[str, ...] = ()


def read_verdicts(
    source: str, store: str | None, max_age: float, classes: Collection[VerdictClass]
) -> VerdictSource:
    """The run of a file, or of the store. Raises UserError if it is older than `max_age` seconds,
    and what reading it raises."""
    is_file = Path(source).is_file()
    started, found = _saved(source, max_age) if is_file else _recorded(source, store)
    if why := run_refusal(started, now=time.time(), most=max_age):
        raise UserError(f"--from {source}: {why}; vet the hosts again, or see --max-age")
    if found.verdicts.doubt and VerdictClass.OK in classes:
        text = f"{found.verdicts.doubt}, so no host of it is ok"
        raise UserError(f"--from {source}: {text}; vet the hosts without these options")
    return found


def _saved(source: str, max_age: float) -> tuple[str, VerdictSource]:
    from nodevet.vet.use.earlier import SavedRunError, read_run

    try:
        run, notes = read_run(Path(source), most=max_age)
    except SavedRunError as error:
        raise UserError(str(error)) from error
    verdicts = {
        report.host: HostVerdict(outcome=report.outcome, failing=_failing(report))
        for report in run.hosts
    }
    hosts = tuple(_host(source, report.host, report.groups) for report in run.hosts)
    recorded = RunVerdicts(run=run.id, hosts=verdicts, doubt=_doubt(run))
    return run.started, VerdictSource(recorded, hosts, tuple(notes))


def _doubt(run: "Run") -> str:
    if run.only or run.skip:
        return "the run did not judge all checks (--only or --skip)"
    return "the run judged saved evidence (--evidence)" if run.replayed else ""


def _recorded(source: str, store: str | None) -> tuple[str, VerdictSource]:
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        run = history.run(source)
        visits = tuple(history.visits(run.id))
        failing: dict[str, list[str]] = {}
        for span in history.spans(run=run.id):
            if span.verdict is Verdict.FAIL and span.check:
                failing.setdefault(span.host, []).append(span.check)
    verdicts = {
        visit.host: HostVerdict(outcome=visit.outcome, failing=_sorted(failing.get(visit.host, ())))
        for visit in visits
    }
    hosts = tuple(_host(source, visit.host, visit.groups) for visit in visits)
    return run.started, VerdictSource(RunVerdicts(run=run.id, hosts=verdicts), hosts)


def _host(source: str, name: str, groups: Iterable[str]) -> Host:
    """Raises UserError for a name that no inventory may have."""
    if problem := name_problem(name):
        raise UserError(f"--from {source}: {brief(name)}: {problem}")
    return Host(name=name, groups=frozenset(group for group in groups if GROUP.fullmatch(group)))


def _failing(report: "HostReport") -> tuple[str, ...]:
    return _sorted(finding.check for finding in report.findings if finding.verdict is Verdict.FAIL)


def _sorted(checks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(checks)))
