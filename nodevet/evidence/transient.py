"""Which states of a node pass by themselves, so that what is unknown is to be looked at again."""

from nodevet.evidence.document import Evidence, once
from nodevet.evidence.host import HostInfo
from nodevet.model import Finding, Verdict

BOOTING_S = 300.0  # since boot: drivers are loaded and services started


def is_booting(uptime_s: float | None) -> bool:
    return uptime_s is not None and uptime_s < BOOTING_S


@once
def reasons(evidence: Evidence) -> tuple[str, ...]:
    """The reasons that stand for such a state; "", which every reason holds, just after boot."""
    host = evidence[HostInfo].data
    return ("",) if host and is_booting(host.uptime_s) else evidence.transient_reasons


def transient(finding: Finding, evidence: Evidence) -> str:
    """What to add to the reason of an unknown finding that passes by itself; "" for all others."""
    if finding.verdict is not Verdict.UNKNOWN:
        return ""
    found = next((why for why in reasons(evidence) if why in finding.why), None)
    if found is None:
        return ""
    return "which passes by itself" if found else "and the machine has just booted"
