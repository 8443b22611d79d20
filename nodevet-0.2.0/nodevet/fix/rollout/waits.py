"""Whether a restored state is in force, or waits for a reboot, reset or restart. Pure."""

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.processes import Processes, service_of
from nodevet.fix.journal.journal import StepState
from nodevet.fix.model import Step
from nodevet.fix.rollout.ledger import leaves_nothing
from nodevet.resource import kind_of, restarts


def pending_until(step: Step, record: StepState, evidence: Evidence) -> str:
    """The event that brings the earlier state of a step into force, such as `a reboot`; empty if it
    is in force.

    `record`: of the step before it was reverted now. `evidence` was read after that. A setting that
    it does not show counts as not in force.
    """
    if leaves_nothing(step):
        return ""
    modes = [kind_of(resource).is_pending(resource, evidence) for resource in step.resources]
    if step.effective != "now" and any(is_pending is not None for is_pending in modes):
        return f"a {step.effective}" if any(modes) else ""
    if step.effective in ("reboot", "reset"):
        return f"a {step.effective}" if _was_booted_since(record, evidence) else ""
    if step.services and not restarts(step.actions) and _has_bound_process(step, record, evidence):
        return f"a restart of {', '.join(step.services)}"
    return ""


def _was_booted_since(record: StepState, evidence: Evidence) -> bool:
    """Whether the node runs with the step's change: it booted after the step, and not since the
    step was first reverted."""
    booted = data.boot_id if (data := evidence[HostInfo].data) else None
    if not booted:
        return True
    return booted == record.back_boot_id if record.waits else booted != record.boot_id


def _has_bound_process(step: Step, record: StepState, evidence: Evidence) -> bool:
    """Whether a process that computes on a GPU was started while the step was in place."""
    host, section = evidence[HostInfo].data, evidence[Processes].data
    if host is None or section is None or section.processes is None or not section.complete:
        return True
    processes = [process for process in section.processes if service_of(process) in step.services]
    if record.waits:
        return host.boot_id == record.back_boot_id and any(
            _started_before(process.started_s, record.back_uptime_s) for process in processes
        )
    return host.boot_id != record.boot_id or any(
        not _started_before(process.started_s, record.uptime_s) for process in processes
    )


def _started_before(started_s: float | None, uptime_s: float | None) -> bool:
    """Whether a process started before a time, both in seconds after boot; False if unknown."""
    return started_s is not None and uptime_s is not None and started_s < uptime_s
