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
from nodevet.fix.rollout.ledger import Ledger
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.step_results import of_packages
from nodevet.fix.rollout.step_run import Steps
from nodevet.fixing.result import Outcome
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.resource import RunCommand


class RebootProof:
    """Every method may raise LostError."""

    def __init__(self, ledger: Ledger, steps: Steps, clearance: Clearance) -> None:
        self.ledger = ledger
        self.steps = steps
        self.session: NodeSession = steps.session
        self.clearance = clearance

    def prove(self, evidence: Evidence) -> None:
        """Reboot, and let the check say whether every step persists; revert what does not."""
        ledger, written = self.ledger, self.ledger.written()
        if why := self._denied(evidence):
            ledger.tell(written, f"not rebooted: {why}")
            return
        failing, evidence = self.settled(written, self._reboot(), evidence)
        drivers = [step for step in written if of_packages(step) and step.id in failing]
        others = [step for step in written if step not in drivers]
        self._conclude(drivers, failing, evidence)
        if back := self._undone(drivers):  # without a driver nothing else can be judged
            failing, evidence = self._back(back, others, evidence) or (failing, evidence)
        self._conclude(others, failing, evidence)
        if back := self._undone(others):
            kept = [
                step for step in others if ledger.outcome(step) is Outcome.VERIFIED_AFTER_REBOOT
            ]
            failing, evidence = self._back(back, kept, evidence) or ({}, evidence)
            self._conclude([step for step in kept if step.id in failing], failing, evidence)

    def _denied(self, evidence: Evidence) -> str:
        """Why the node may not be rebooted now."""
        try:
            self.clearance.node(
                evidence,
                lambda: self.session.steadily(lambda: self.session.probe("after")),
                reboot=True,
            )
        except RefusedError as error:
            return str(error)
        except BlindError as error:
            return f"cannot tell what uses the node: {error}"
        return ""

    def _conclude(
        self, judged: Sequence[Step], failing: Mapping[str, str], evidence: Evidence
    ) -> None:
        """After a reboot: what is `failing` is reverted, the rest persists. A step whose subject is
        gone is unknown."""
        results = self.ledger.results
        for step in reversed(judged):
            result = results[step.id]
            if step.id in failing and (missing := self.steps.context.gone(step, evidence)):
                why = f"after a reboot {missing}"
                results[step.id] = replace(result, outcome=Outcome.UNKNOWN, why=why)
            elif step.id in failing:
                why = f"not persistent across reboot: {failing[step.id]}"
                results[step.id] = self.steps.revert(step, result, why)
            else:
                after = self.steps.left(step)
                results[step.id] = replace(
                    result,
                    outcome=Outcome.VERIFIED_AFTER_REBOOT,
                    why="",
                    after=after or result.after,
                )

    def _undone(self, some: Sequence[Step]) -> list[Step]:
        """Those that were reverted and take effect with a reboot: so does what was before."""
        return [
            step
            for step in some
            if step.effective != "now" and self.ledger.outcome(step) is Outcome.FAILED
        ]

    def _back(
        self, back: Sequence[Step], kept: Sequence[Step], evidence: Evidence
    ) -> tuple[dict[str, str], Evidence] | None:
        """Reboot once more for what was reverted, and look at it. As `settled` of `kept`; None
        if it is not rebooted, which is told."""
        ledger = self.ledger
        if why := self._denied(evidence):
            told = f"reverted, in force after one more reboot; not rebooted: {why}"
            ledger.tell(back, told)
            return None
        failing, evidence = self.settled(kept, self._reboot(), evidence)
        for step in back:
            look = partial(self.session.left, ledger.results[step.id].before)
            try:
                _, left = self.session.steadily(look)
            except BlindError as error:
                why = f"not looked at after one more reboot: {error}"
                ledger.tell([step], why, Outcome.UNKNOWN)
                continue
            if left:
                told = f"after one more reboot {'; '.join(left.values())}"
                ledger.tell([step], told, Outcome.ROLLBACK_FAILED)
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
            raise LostError(f"it was told to reboot: {error}") from error
        try:
            session.executor.lock(session.host, session.terms.who)
        except (WorkError, LockedError):
            session.reenter()
        return booted

    def settled(
        self, written: Sequence[Step], booted: str, evidence: Evidence
    ) -> tuple[dict[str, str], Evidence]:
        """Why each step does not hold after a reboot, once what starts at boot had its time, with
        the last evidence; `evidence` is that of before.

        A step holds if the check says ok twice, with time between: a unit that starts late may
        set it back. `booted` is the boot id to expect. The journal has it once all is judged.
        """
        results = self.ledger.results
        limit = time.monotonic() + self.session.terms.boot_settle
        held = 0
        self.session.tell(Phase.STARTING)
        self._started()
        ids = [step.id for step in written]
        self.session.tell(Phase.VERIFYING, *ids, seconds=self.session.terms.boot_settle)
        while True:
            try:
                evidence = self.session.steadily(lambda: self.session.probe("rebooted"))
            except BlindError as error:
                failing = {step.id: f"cannot be verified: {error}" for step in written}
            else:
                if why := preconditions.other_node(self.clearance.planned, evidence, booted=booted):
                    raise LostError(f"after the reboot: {why}")
                failing = {
                    step.id: why
                    for step in written
                    if (why := self.steps.context.verdict(step, evidence))
                }
                for step in written:
                    said = self.steps.verifier.verdicts(step, evidence)
                    results[step.id] = replace(results[step.id], verdicts=said)
            held = 0 if failing else held + 1
            if held == 2 or (failing and time.monotonic() >= limit):
                machine = self.clearance.planned.machine_id
                self.session.journal.write(
                    HostBegin(host=self.session.host, machine_id=machine, boot_id=booted)
                )
                return failing, evidence
            time.sleep(max(0.05, self.session.terms.settle))

    def _started(self) -> None:
        """Wait until systemd has started all that starts at boot, for as long as an action may
        take. How that ended does not matter here, nor that an old systemctl knows no --wait."""
        wait = RunCommand(words=("systemctl", "is-system-running", "--wait"))
        with suppress(BlindError):
            self.session.steadily(lambda: self.session.act(wait))
