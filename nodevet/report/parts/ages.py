"""How old the evidence of a run was that was judged again, in words. Pure."""

from nodevet.age import seconds_of, words
from nodevet.model import HostReport, Run, Status
from nodevet.report.parts.text import count


def read_at(report: HostReport) -> str:
    """When the evidence was read, ISO 8601, by the controller's clock or else by the node's."""
    return report.arrived or report.clock


def evidence_age(run: Run) -> str:
    """`evidence 3 d old`, `evidence 2 h to 3 d old`; empty for a run that visited its hosts."""
    started = seconds_of(run.started)
    if not run.replayed or started is None:
        return ""
    read = [seconds_of(read_at(report)) for report in run.hosts if report.status is Status.VETTED]
    ages = [max(0.0, started - at) for at in read if at is not None]
    told = []
    if ages:
        youngest, oldest = words(min(ages)), words(max(ages))
        span = oldest if youngest == oldest else f"{youngest} to {oldest}"
        told.append(f"evidence {span} old")
    if unknown := read.count(None):
        told.append(f"evidence of unknown age: {count(unknown, 'host')}")
    return ", ".join(told)
