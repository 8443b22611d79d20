"""Reboots of one node, and what holds after them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.fix.events import Phase
from nodevet.fix.journal.journal import HostBegin
from nodevet.fix.model import Step
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.clearance import Clearance, RefusedError
from nodevet.fix.rollout.ledger import KEPT, Ledger, leaves_nothing, of_packages
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.step_run import Steps
from nodevet.fixing.result import NOTHING_HELPED, REQUESTED, SWITCHED, Outcome
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.resource import RunCommand, next_resort


def unhelped(step: Step, why: str, *, cycled: bool) -> str:
    """Why a step failed that is only a reboot, and what is next. `cycled`: by power off and on."""
    return f"after the reboot {why}; {NOTHING_HELPED if cycled else next_resort(step.actions)}"


class RebootProof:
    """Every method may raise LostError."""

    def __init__(self, ledger: Ledger, steps: Steps, clearance: Clearance) -> None:
        self.ledger = ledger
        self.steps = steps
        self.session: NodeSession = steps.session
        self.clearance = clearance

    def prove(self, evidence: Evidence) -> None:
        """Reboot, check whether every step persists, and revert those that do not."""
        ledger, written = self.ledger, self.ledger.written()
        if why := self._denied(evidence):
            ledger.tell(written, f"not rebooted: {why}")
            return
        failing, evidence = self.failures_after_reboot(written, self._reboot(), evidence)
        drivers = [step for step in written if of_packages(step) and step.id in failing]
        other_steps = [step for step in written if step not in drivers]
        trials = [step for step in other_steps if step.keep]
        if any(step.id in failing for step in drivers):  # the next reboot does not try them again
            self._conclude(trials, failing, evidence)
        self._conclude(drivers, failing, evidence)
        if reverted := self._undone([*drivers, *trials]):  # without a driver nothing can be judged
            other_steps = [step for step in other_steps if ledger.outcome(step) in KEPT]
            failing, evidence = self._back(reverted, other_steps, evidence) or (failing, evidence)
        self._conclude(other_steps, failing, evidence)
        if reverted := self._undone(other_steps):
            persistent = [
                step
                for step in other_steps
                if ledger.outcome(step) is Outcome.VERIFIED_AFTER_REBOOT
            ]
            failing, evidence = self._back(reverted, persistent, evidence) or ({}, evidence)
            self._conclude([step for step in persistent if step.id in failing], failing, evidence)

    def _denied(self, evidence: Evidence) -> str:
        """Why the node may not be rebooted now; empty if it may, and if a drain hook that reboots
        nodes has ordered it."""
        try:
            evidence = self.clearance.node(
                evidence,
                lambda: self.session.retry_call(lambda: self.session.probe("after")),
                reboot=True,
            )
        except RefusedError as error:
            return str(error)
        except BlindError as error:
            return f"cannot tell what uses the node: {error}"
        return self.session.order_reboot(evidence)

    def _conclude(
        self, judged: Sequence[Step], failing: Mapping[str, str], evidence: Evidence
    ) -> None:
        """After a reboot, revert the `failing` steps; the others persist. A step whose subject is
        gone is unknown."""
        results = self.ledger.results
        for step in reversed(judged):
            result = results[step.id]
            gone_reason = (
                "" if leaves_nothing(step) else self.steps.context.gone_text(step, evidence)
            )
            if step.id in failing and gone_reason:
                why = f"after a reboot {gone_reason}"
                results[step.id] = replace(result, outcome=Outcome.UNKNOWN, why=why)
            elif step.id in failing:
                why = f"not persistent across reboot: {failing[step.id]}"
                if leaves_nothing(step):
                    why = unhelped(step, failing[step.id], cycled=self.session.terms.power_cycle)
                results[step.id] = self.steps.revert(step, result, why)
            elif step.keep and result.outcome is not Outcome.VERIFIED_AFTER_REBOOT:
                results[step.id] = self.steps.keep(step, result)
            else:
                after = self.steps.journal_states(step)
                results[step.id] = replace(
                    result,
                    outcome=Outcome.VERIFIED_AFTER_REBOOT,
                    why="",
                    after=after or result.after,
                )

    def _undone(self, steps: Sequence[Step]) -> list[Step]:
        """The reverted steps that need a reboot to take effect: their rollback needs one too."""
        return [
            step
            for step in steps
            if step.effective != "now"
            and not leaves_nothing(step)
            and self.ledger.outcome(step) is Outcome.FAILED
        ]

    def _back(
        self, reverted: Sequence[Step], steps: Sequence[Step], evidence: Evidence
    ) -> tuple[dict[str, str], Evidence] | None:
        """Reboot once more for reverted steps, and read them. Returns `failures_after_reboot` of
        `steps`; None if the node may not be rebooted, which is noted in the results."""
        ledger = self.ledger
        if why := self._denied(evidence):
            reason = f"reverted, effective after one more reboot; not rebooted: {why}"
            ledger.tell(reverted, reason)
            return None
        failing, evidence = self.failures_after_reboot(steps, self._reboot(), evidence)
        for step in reverted:
            look = partial(self.session.compare_states, ledger.results[step.id].before)
            try:
                _, differences = self.session.retry_call(look)
            except BlindError as error:
                why = f"not checked after one more reboot: {error}"
                ledger.tell([step], why, Outcome.UNKNOWN)
                continue
            if differences:
                reason = f"after one more reboot {'; '.join(differences.values())}"
                ledger.tell([step], reason, Outcome.ROLLBACK_FAILED)
            else:
                ledger.tell([step], "reverted, and rebooted once more")
        return failing, evidence

    def _reboot(self) -> str:
        """Reboot, and the new boot id."""
        session = self.session
        session.tell(Phase.REBOOTING, seconds=session.terms.reboot_seconds)
        try:
            booted = session.reboot()
            self.ledger.rebooted = True
        except WorkError as error:
            asked = SWITCHED if session.terms.power_cycle else REQUESTED
            raise LostError(f"{asked}: {error}{session.power_text()}") from error
        try:
            session.lock()
        except (WorkError, LockedError):
            session.reenter()
        return booted

    def failures_after_reboot(
        self, written: Sequence[Step], booted: str, evidence: Evidence
    ) -> tuple[dict[str, str], Evidence]:
        """Why each step does not hold after a reboot, once services had time to start, and the last
        evidence; `evidence` is from before.

        A step holds if the check says ok twice, with time between: a unit that starts late may
        revert it. `booted` is the expected boot id, written to the journal once all is judged.
        """
        results = self.ledger.results
        limit = time.monotonic() + self.session.terms.boot_settle
        good_rounds = 0
        self.session.tell(Phase.STARTING)
        self._started()
        ids = [step.id for step in written]
        self.session.tell(Phase.VERIFYING, *ids, seconds=self.session.terms.boot_settle)
        while True:
            try:
                evidence = self.session.retry_call(lambda: self.session.probe("rebooted"))
            except BlindError as error:
                failing = {step.id: f"cannot be verified: {error}" for step in written}
            else:
                if why := preconditions.node_mismatch(
                    self.clearance.planned, evidence, booted=booted
                ):
                    raise LostError(f"after the reboot: {why}")
                failing = {
                    step.id: why
                    for step in written
                    if (why := self.steps.context.verdict(step, evidence))
                }
                for step in written:
                    verdicts = self.steps.verifier.verdicts(step, evidence)
                    results[step.id] = replace(results[step.id], verdicts=verdicts)
            good_rounds = 0 if failing else good_rounds + 1
            if good_rounds == 2 or (failing and time.monotonic() >= limit):
                machine = self.clearance.planned.machine_id
                self.session.journal.write(
                    HostBegin(host=self.session.host, machine_id=machine, boot_id=booted)
                )
                return failing, evidence
            time.sleep(max(0.05, self.session.terms.settle))

    def _started(self) -> None:
        """Wait until systemd has started everything, for as long as an action may take. The exit
        code does not matter, nor that an old systemctl has no --wait."""
        wait = RunCommand(words=("systemctl", "is-system-running", "--wait"))
        with suppress(BlindError):
            self.session.retry_call(lambda: self.session.act(wait))
