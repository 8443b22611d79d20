"""A reboot of the node as a fix of its own: what only the next boot repairs."""

from collections.abc import Sequence

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource.boot import Reboot

NOTE = "only the plan's --reboot or --power-cycle reboots the node"


def change(evidence: Evidence, findings: Sequence[Finding]) -> PlannedChange:
    """A reboot that should repair the parts that these findings name. Raises FixError.

    If one of them is about a part that NVML does not list, the check must be fine as a whole: after
    the reboot the part is a GPU with another label.
    """
    host = evidence[HostInfo].data
    if host is None or not host.boot_id:
        raise FixError(f"cannot tell which boot the node runs: {evidence[HostInfo].why}")
    labels = tuple(dict.fromkeys(finding.subject.label for finding in findings))
    action = Reboot(boot_id=host.boot_id)
    return PlannedChange(
        expected=findings[0].expected,
        actual=", ".join(dict.fromkeys(str(finding.actual) for finding in findings)),
        subjects=labels if all(finding.subject.kind == "gpu" for finding in findings) else (),
        actions=(action,),
        resources=(action.resource,),
        risk=Risk.REBOOT,
        effective="reboot",
        note=NOTE,
    )


def retrain(evidence: Evidence, findings: Sequence[Finding], advice: str) -> PlannedChange:
    """A reboot, if the advice of every finding begins with `advice`. Raises FixError if a reboot
    does not help one of them, and as `change`."""
    others = [finding for finding in findings if not finding.advice.startswith(advice)]
    if others:
        label = others[0].subject.label or "the node"
        raise FixError(f"{label}: no reboot helps: {others[0].advice or others[0].why}")
    return change(evidence, findings)
