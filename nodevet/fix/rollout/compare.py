"""Whether a step may still run as planned, and whether it holds. Pure; the check decides."""

from collections.abc import Iterable, Sequence
from datetime import date
from enum import Enum

import msgspec
from msgspec.structs import replace

from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence
from nodevet.evidence.processes import Processes, service_of
from nodevet.fix.model import Step
from nodevet.fix.plan.holders import with_stopped
from nodevet.fix.rollout.subjects import gone_subjects_text, is_about, moved_gpus_text
from nodevet.fixing.model import FixError, PlannedChange
from nodevet.model import Finding, Severity, Subject, Verdict
from nodevet.model.baseline import Baseline
from nodevet.resource import after_reset
from nodevet.resource.core import canonical

FINE = (Verdict.OK, Verdict.NOT_APPLICABLE)


class StepStatus(Enum):
    """What to do about a step now."""

    GO = "go"
    UNCHANGED = "unchanged"
    PENDING = "pending"  # set already, and not in force yet
    STALE = "stale"


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """Baseline, catalog and date that judge the steps of one node."""

    host: str
    baseline: Baseline
    catalog: Catalog
    today: date

    def ask(self, check: str, evidence: Evidence) -> tuple[Finding, ...]:
        """The findings of one check; none if the baseline does not expect it, or in shadow."""
        wishes = tuple(wish for wish in self.baseline.expectations if wish.check == check)
        only = replace(self.baseline, expectations=wishes)
        findings = judge(evidence, only, self.catalog, host=self.host, today=self.today, most=None)
        return tuple(finding for finding in findings if finding.severity is not Severity.SHADOW)

    def compare(self, step: Step, evidence: Evidence) -> tuple[StepStatus, str]:
        """What to do about a step on this evidence, and why if it is stale."""
        findings = self.ask(step.fix, evidence)
        if not findings:
            return StepStatus.STALE, f"the baseline does not ask for {step.fix}"
        if gone_text := gone_subjects_text(step, findings, evidence):
            return StepStatus.STALE, gone_text
        if holds(step, findings, evidence):
            return StepStatus.UNCHANGED, ""
        if step.effective != "now" and self.waits(step, evidence):
            return StepStatus.PENDING, ""
        failures = [finding for finding in findings if finding.verdict is Verdict.FAIL]
        params = next(
            expectation.params
            for expectation in self.baseline.expectations
            if expectation.check == step.fix
        )
        try:
            fix = self.catalog.fix(step.fix)
            if fix is None:
                return StepStatus.STALE, f"there is no fix for {step.fix} here"
            changes = list(fix.changes(evidence, failures, params, step.options))
        except FixError as error:
            return StepStatus.STALE, str(error)
        except (Exception, SystemExit) as error:  # one fix's fault costs no other node
            return StepStatus.STALE, f"the fix cannot plan: {type(error).__name__}: {error}"
        if any(same_change(step, change) for change in changes):
            return StepStatus.GO, ""
        return StepStatus.STALE, _stale_reason(
            step, _findings_of(step, findings, evidence), changes
        )

    def waits(self, step: Step, evidence: Evidence) -> bool:
        """Whether the check would say ok after the next reset."""
        later = after_reset(evidence)
        return later != evidence and holds(step, self.ask(step.fix, later), later)

    def gone_text(self, step: Step, evidence: Evidence) -> str:
        """Which of a step's subjects no longer exist, in words; empty if all do."""
        return gone_subjects_text(step, self.ask(step.fix, evidence), evidence)

    def verdict(self, step: Step, evidence: Evidence) -> str:
        """Why the check does not say ok for a step; empty if it does."""
        findings = self.ask(step.fix, evidence)
        if gone_text := gone_subjects_text(step, findings, evidence):
            return gone_text
        if holds(step, findings, evidence):
            return ""
        about = _findings_of(step, findings, evidence)
        if step.services:
            silent = f"it names no process of {', '.join(step.services)} that is on a GPU"
            return failures_text(about) or silent
        return failures_text(about or findings) or "the check no longer reports it"


def holds(step: Step, findings: Sequence[Finding], evidence: Evidence) -> bool:
    """Whether the check says ok for every subject of a step.

    For services, the subjects are their current processes. A GPU is the one with the planned UUID,
    whatever its number is now. Subjects may have new names, as groups of CPUs do: then no finding
    of the check may fail. A step with a subject that is gone does not hold.
    """
    about = _findings_of(step, findings, evidence)
    if gone_subjects_text(step, findings, evidence):
        return False
    if step.services:
        return is_ok(finding.verdict for finding in about)
    by_name: dict[str, list[Verdict]] = {}
    for finding in about:
        by_name.setdefault(_name(step, finding.subject), []).append(finding.verdict)
    uuid_by_label = step.uuid_by_label
    names = {uuid_by_label.get(label, label) for label in step.subjects}
    if by_name and by_name.keys() >= names:
        return all(map(is_ok, by_name.values()))
    return is_ok(finding.verdict for finding in findings)


def is_ok(verdicts: Iterable[Verdict]) -> bool:
    """Whether at least one of the verdicts is ok and the others are ok or not applicable.

    >>> is_ok([Verdict.OK, Verdict.NOT_APPLICABLE]), is_ok([Verdict.NOT_APPLICABLE])
    (True, False)
    """
    unique = set(verdicts)
    return Verdict.OK in unique and unique <= set(FINE)


def _findings_of(step: Step, findings: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """The findings on a step's subjects, or on processes of its services; all if it names none."""
    if step.services:
        processes = ((data := evidence[Processes].data) and data.processes) or ()
        pids = {str(process.pid) for process in processes if service_of(process) in step.services}
        return [
            finding
            for finding in findings
            if finding.subject.kind == "process" and finding.subject.id in pids
        ]
    if not step.subjects:
        return list(findings)
    return [finding for finding in findings if is_about(step, finding.subject)]


def _name(step: Step, subject: Subject) -> str:
    """The planned UUID of a GPU, else the label."""
    return subject.uuid if subject.uuid in step.subject_uuids and subject.uuid else subject.label


def failures_text(findings: Sequence[Finding]) -> str:
    """The failures, in few words."""
    parts = []
    for finding in findings:
        if finding.verdict in FINE:
            continue
        label = f"{finding.subject.label}: " if finding.subject.label else ""
        if finding.verdict is Verdict.FAIL and finding.expected is not finding.actual:
            words = f"{finding.text(finding.actual)}, expected {finding.text(finding.expected)}"
        else:
            words = finding.verdict.value
        parts.append(f"{label}{words}{f' ({finding.why})' if finding.why else ''}")
    rest = [f"and {len(parts) - 3} more"] if len(parts) > 4 else []
    return "; ".join([*parts[:3], *rest] if rest else parts)


def _stale_reason(step: Step, about: Sequence[Finding], changes: Sequence[PlannedChange]) -> str:
    if moved := moved_gpus_text(step, [finding.subject for finding in about]):
        return f"plan is stale: {moved}"
    actual = [change.actual for change in changes if set(change.subjects) & set(step.subjects)]
    if len(actual) == 1 and canonical(actual[0]) != canonical(step.actual):
        finding = Finding(verdict=Verdict.FAIL, unit=step.unit)
        return f"is {finding.text(actual[0])} now, and was {finding.text(step.actual)} when planned"
    if actual:
        return "plan is stale: planning again gives different actions"
    return failures_text(about) or "the setting to change no longer exists"


def same_change(step: Step, change: PlannedChange) -> bool:
    """Whether the fix would now do exactly what was planned."""
    fields = ("expected", "actual", "subjects", "actions", "keep", "resources", "risk", "gpus")
    change = with_stopped(change, step.holders)
    return all(
        canonical(getattr(step, f)) == canonical(getattr(change, f))
        for f in (*fields, "effective", "services")
    )
