"""The verdicts of a node's checks after its steps, for its history. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.evidence.host import HostInfo
from nodevet.fix.journal.records import Proof
from nodevet.fix.model import Step
from nodevet.fix.rollout.compare import StepContext, is_ok
from nodevet.fix.rollout.ledger import Ledger
from nodevet.fix.rollout.session import TimedEvidence
from nodevet.fixing.result import Outcome
from nodevet.model import Finding, Verdict

PROVED = (Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT)
MOST = 128  # keys of one check: one that says ok of more proves nothing here


def proofs(ledger: Ledger, context: StepContext, reading: TimedEvidence) -> tuple[Proof, ...]:
    """A proof for each check whose steps changed something and hold on this evidence."""
    steps = [step for step in ledger.task.steps if ledger.outcome(step) in PROVED]
    proven = [step for step in steps if not context.verdict(step, reading.evidence)]
    return tuple(_proofs(proven, context, reading))


def _proofs(steps: Sequence[Step], context: StepContext, reading: TimedEvidence) -> Iterator[Proof]:
    host = reading.evidence[HostInfo].data
    if host is None or not host.machine_id:
        return
    for check in dict.fromkeys(step.fix for step in steps):
        keys = ok_keys(context.ask(check, reading.evidence))
        if len(keys) <= MOST:
            subjects = (label for step in steps if step.fix == check for label in step.subjects)
            yield Proof(
                check=check,
                asked=reading.asked,
                at=reading.at,
                machine_id=host.machine_id,
                keys=keys,
                subjects=tuple(dict.fromkeys(subjects)),
            )


def ok_keys(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The keys whose findings are ok; some of them may be not applicable."""
    verdicts: dict[str, set[Verdict]] = {}
    for finding in findings:
        verdicts.setdefault(finding.key, set()).add(finding.verdict)
    return tuple(key for key, key_verdicts in verdicts.items() if is_ok(key_verdicts))
