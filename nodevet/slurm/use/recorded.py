"""The recorded run by which nodes are drained and resumed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nodevet.model import Finding, HostReport, Severity, Subject, Verdict
from nodevet.model.run import Run
from nodevet.slurm.decide import names_in_slurm

if TYPE_CHECKING:
    from nodevet.store import Store
    from nodevet.store.records.model import FindingSpan


def recorded_run(store: "Store", ref: str, passed: Iterable[str] | None) -> Run:
    """A recorded run, without the checks that passed. `passed`: the hosts that have those, too.
    Raises StoreError."""
    run = store.run(ref)
    findings: dict[str, list[Finding]] = {}
    for span in store.spans(run=run.id):
        if span.check and span.severity is not Severity.SHADOW:
            findings.setdefault(span.host, []).append(_finding(span))
    named = frozenset(passed or ())
    reports = [
        HostReport(
            host=visit.host,
            status=visit.status,
            why=visit.why,
            baseline=visit.baseline,
            findings=(
                *findings.get(visit.host, ()),
                *(
                    _passed(store, run.id, visit.host)
                    if named.intersection(names_in_slurm(visit.host))
                    else ()
                ),
            ),
            machine_id=visit.machine_id,
            boot_id=visit.boot_id,
            arrived=visit.arrived,
        )
        for visit in store.visits(run.id)
    ]
    return Run(
        id=run.id,
        nodevet=run.nodevet,
        started=run.started,
        seconds=run.seconds or 0.0,
        fail_on=run.fail_on,
        hosts=tuple(reports),
    )


def machines(
    store: "Store", asked: Iterable[tuple[str, str]]
) -> Mapping[tuple[str, str], str | None]:
    """The machine ids of these hosts in these runs; pairs that the store lacks are omitted."""
    from nodevet.store import StoreError

    known: dict[tuple[str, str], str | None] = {}
    for run, host in asked:
        try:
            known |= {(run, visit.host): visit.machine_id for visit in store.visits(run, [host])}
        except StoreError:  # the run of another store
            continue
    return known


def _finding(span: "FindingSpan") -> Finding:
    first = span.finding or Finding(verdict=span.verdict, why=span.why)
    return replace(first, check=span.check, verdict=span.verdict, severity=span.severity)


def _passed(store: "Store", run: str, host: str) -> Iterator[Finding]:
    for key, verdict in store.check_verdicts(run, host).items():
        if verdict in (Verdict.OK, Verdict.NOT_APPLICABLE):
            check, _, subject = key.partition("/")
            yield Finding(verdict=verdict, check=check, subject=Subject(id=subject))
