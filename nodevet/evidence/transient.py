"""States of a node that pass by themselves, so that unknown findings deserve another look."""

from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.host import HostInfo
from nodevet.evidence.services import Units
from nodevet.model import Finding, Verdict

BOOTING_S = 300.0  # since boot: drivers are loaded and services started


def is_booting(uptime_s: float | None) -> bool:
    return uptime_s is not None and uptime_s < BOOTING_S


@answer_once
def reasons(evidence: Evidence) -> tuple[str, ...]:
    """The reasons for such a state; just after boot "", which is part of every reason."""
    host, units = evidence[HostInfo].data, evidence[Units].data
    if host and is_booting(host.uptime_s):
        return ("",)
    return (*evidence.transient_reasons, *([units.busy] if units and units.busy else ()))


def transient(finding: Finding, evidence: Evidence) -> str:
    """The addition to the reason of an unknown finding that passes by itself; else ""."""
    if finding.verdict is not Verdict.UNKNOWN:
        return ""
    reason = next((why for why in reasons(evidence) if why in finding.why), None)
    if reason is None:
        return ""
    return "which passes by itself" if reason else "and the machine has just booted"
