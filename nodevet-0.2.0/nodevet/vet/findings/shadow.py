"""Findings of severity shadow, as lines, for `--shadow`. Pure."""

from msgspec import UNSET
from msgspec.structs import replace

from nodevet.model import Run, Severity, Status
from nodevet.vet.findings.counted import with_stand_ins
from nodevet.vet.findings.fold import Line, lines
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.words import LIMIT, WHOLE

SHADOW = "SHADOW"


def shadowed(run: Run, *, everything: bool = False) -> tuple[Line, ...]:
    """The lines that these checks would add if they counted; `everything`: also what passed."""
    reports = (
        with_stand_ins(run.hosts[place]) for place, host in enumerate(run.summaries) if host.shadow
    )
    alone = replace(
        run,
        fail_on=Severity.SHADOW,
        hosts=tuple(
            replace(report, status=Status.VETTED, findings=report.shadow or (), shadow=UNSET)
            for report in reports
        ),
    )
    rows = [row for row in lines(alone, WHOLE if everything else LIMIT) if row.check]
    rows += passed(alone, ranges=True) if everything else ()
    return tuple(replace(row, label=f"{SHADOW} {row.label}", fails=False) for row in rows)
