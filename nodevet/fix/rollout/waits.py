"""Whether what was restored is in force, or waits for a reboot, a reset or a restart. Pure."""

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.processes import Processes, service_of
from nodevet.fix.journal.journal import StepState
from nodevet.fix.model import Step
from nodevet.resource import kind_of, restarts


def waits_for(step: Step, then: StepState, evidence: Evidence) -> str:
    """What brings the earlier state of a step into force, as `a reboot`; empty if it is.

    `then`: the step before it was reverted now. `evidence` was read after that. What the evidence
    does not show was not put in force, as far as is known.
    """
    modes = [kind_of(each).waits(each, evidence) for each in step.resources]
    if step.effective != "now" and any(waits is not None for waits in modes):
        return f"a {step.effective}" if any(modes) else ""
    if step.effective in ("reboot", "reset"):
        return f"a {step.effective}" if _booted_into(then, evidence) else ""
    if step.services and not restarts(step.actions) and _bound(step, then, evidence):
        return f"a restart of {', '.join(step.services)}"
    return ""


def _booted_into(then: StepState, evidence: Evidence) -> bool:
    """Whether the node runs what the step made of it: it was booted between the step and now,
    and not since the step was first reverted."""
    booted = data.boot_id if (data := evidence[HostInfo].data) else None
    if not booted:
        return True
    return booted == then.back_boot_id if then.waits else booted != then.boot_id


def _bound(step: Step, then: StepState, evidence: Evidence) -> bool:
    """Whether a process that computes on a GPU was started while the step was in place."""
    host, section = evidence[HostInfo].data, evidence[Processes].data
    if host is None or section is None or section.processes is None or not section.complete:
        return True
    theirs = [each for each in section.processes if service_of(each) in step.services]
    if then.waits:
        return host.boot_id == then.back_boot_id and any(
            _before(each.started_s, then.back_uptime_s) for each in theirs
        )
    return host.boot_id != then.boot_id or any(
        not _before(each.started_s, then.uptime_s) for each in theirs
    )


def _before(started_s: float | None, uptime_s: float | None) -> bool:
    """Seconds after boot; what is not known came later."""
    return started_s is not None and uptime_s is not None and started_s < uptime_s
