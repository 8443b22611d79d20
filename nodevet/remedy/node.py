"""One node's sequence: lock, probe, compare, write, verify, and the reboot where it is wanted."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from nodevet.evidence import Evidence
from nodevet.fix import Risk, Run
from nodevet.remedy import guards
from nodevet.remedy.compare import Bench, Standing
from nodevet.remedy.hands import LockedError, WorkError
from nodevet.remedy.journal import HostBegin, HostEnd, JournalError, RunState, Stage, StepState
from nodevet.remedy.nouns import PlannedNode, Step
from nodevet.remedy.result import HostResult, Outcome, Refusal, StepResult, worst
from nodevet.remedy.site import BlindError, LostError, Site
from nodevet.remedy.steps import RefusedError, Steps, begin, of_packages, recalled

BAD = frozenset({Outcome.FAILED, Outcome.HALF, Outcome.DOUBT})
WRITTEN = frozenset({Outcome.DONE, Outcome.PENDING})


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done on one node."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    closed: str = ""  # why no further step may be begun
    canary: bool = False
    reboot: bool = False


class Node:
    """One node of a run. `run` never raises but for what ends the whole run."""

    def __init__(self, task: Task, site: Site, bench: Bench | None) -> None:
        self.task = task
        self.site = site
        self._results: dict[str, StepResult] = {}
        self._about = guards.services_of(task.steps)
        self._steps = Steps(site, bench, self._about) if bench else None
        self._rebooted = False

    def run(self, earlier: RunState | None = None) -> HostResult:
        """Every step, in order, up to the first that is refused or fails.

        `earlier` is what the journal says of a run that is resumed.
        """
        started = time.monotonic()
        refusal, why, lost = None, "", ""
        self._recall(earlier)
        try:
            self._run(earlier)
        except RefusedError as error:
            refusal, why = error.refusal, str(error)
        except (LostError, JournalError) as error:
            lost = str(error)
        finally:
            with suppress(WorkError):
                self.site.hands.close(self.task.host)
        result = self._result(refusal, why, lost, time.monotonic() - started)
        with suppress(JournalError):  # its words are in `lost`, or the file ends here
            self.site.journal.write(
                HostEnd(host=result.host, outcome=result.outcome.value, why=result.why)
            )
        return result

    def _result(self, refusal: Refusal | None, why: str, lost: str, seconds: float) -> HostResult:
        for step in self.task.steps:
            if lost and self._steps and step.id in self._steps.begun - self._results.keys():
                self._results[step.id] = begin(step, outcome=Outcome.DOUBT, why=lost)
        steps = tuple(self._results.get(step.id) or begin(step) for step in self.task.steps)
        outcome = worst(self._results.values())
        told = [step.why for step in steps if step.outcome is outcome and step.why]
        if lost and not self._results:
            outcome, told = Outcome.UNTOUCHED, [lost]
        elif lost and outcome is not Outcome.HALF:
            outcome, told = Outcome.DOUBT, [lost, *told]
        elif refusal and outcome in BAD:
            told = [*told, why]
        elif refusal:
            outcome, told = Outcome.REFUSED, [why]
        if outcome in (Outcome.FAILED, Outcome.REFUSED):
            told += [f"{step.id} is done, and stays" for step in steps if step.outcome in WRITTEN]
        return HostResult(
            host=self.task.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(told)),
            refusal=refusal if outcome is Outcome.REFUSED else None,
            canary=self.task.canary,
            rebooted=self._rebooted,
            seconds=round(seconds, 3),
            steps=steps,
        )

    # --- the sequence -------------------------------------------------------------------------

    def _run(self, earlier: RunState | None) -> None:
        task = self.task
        steps = self._steps
        if steps is None or (task.closed and not self._results):
            raise RefusedError(Refusal.STALE, task.closed)
        self._enter()
        evidence = self._first_look(earlier)
        if earlier is not None:
            evidence = self._resume(steps, earlier, evidence)
        if self._stopped():
            return
        evidence = self._guarded(steps, evidence)
        for step in self._open():
            if why := guards.other_node(task.planned, evidence):  # it was lost, and came back
                raise RefusedError(Refusal.STALE, why)
            self._results[step.id], evidence = steps.carry_out(step, evidence)
            if self._stopped():
                return
            self._still(steps, step, evidence)
            if self._stopped():
                return
        if task.reboot and any(one.outcome in WRITTEN for one in self._results.values()):
            self._reboot(steps, evidence)

    def _open(self) -> list[Step]:
        return [step for step in self.task.steps if step.id not in self._results]

    def _stopped(self) -> bool:
        return any(result.outcome in BAD for result in self._results.values())

    def _enter(self) -> None:
        try:
            self.site.enter()
        except LockedError as error:
            raise RefusedError(Refusal.LOCKED, str(error)) from error
        except WorkError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _first_look(self, earlier: RunState | None) -> Evidence:
        """Fresh evidence of the node that was planned for. Raises RefusedError."""
        known = earlier.host(self.task.host) if earlier else None
        evidence = self._probe("before" if known is None else "resumed")
        booted = None
        if known is not None and evidence.host.data is not None:
            booted = evidence.host.data.boot_id  # what was begun is looked at after a reboot too
        if why := guards.other_node(self.task.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        host = evidence.host.data
        if host is not None:
            self.site.journal.write(
                HostBegin(
                    host=self.task.host,
                    machine_id=host.machine_id or "",
                    boot_id=host.boot_id or "",
                )
            )
        return evidence

    def _probe(self, name: str) -> Evidence:
        try:
            return self.site.probe(name)
        except (WorkError, BlindError) as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _guarded(self, steps: Steps, evidence: Evidence) -> Evidence:
        """Nothing is written before every step may run and the node is drained where it must be.

        Raises RefusedError. The evidence is fresh where the drain hook took its time.
        """
        todo = self._open()
        if not todo:
            return evidence
        if why := self.task.closed or guards.other_node(self.task.planned, evidence):
            raise RefusedError(Refusal.STALE, why)
        drain = any(step.risk.rank >= Risk.DRAIN.rank for step in todo) or self.task.reboot
        going = [step for step in todo if self._compared(steps, step, evidence) is Standing.GO]
        steps.unowned(going)
        for step in going[1:]:  # the first one is looked at as it begins
            steps.as_planned(step)
        if not drain or not going:
            for step in going:
                steps.standing(step, evidence)
            return evidence
        if not self.site.terms.drain_hook:
            why = "it must be drained first, and no --drain-hook says that it is"
            raise RefusedError(Refusal.GUARD, why)
        if why := guards.drained(self.site.terms.drain_hook, self.task.host):
            raise RefusedError(Refusal.GUARD, why)
        evidence = self._probe("before")
        if why := guards.other_node(self.task.planned, evidence):
            raise RefusedError(Refusal.STALE, why)
        if busy := self._busy(evidence):
            raise RefusedError(Refusal.GUARD, f"drained, and yet {busy}")
        for step in todo:
            steps.standing(step, evidence)
        return evidence

    def _busy(self, evidence: Evidence) -> str:
        """What uses a GPU of a drained node, besides what the steps themselves are about."""
        return "; ".join(guards.users(evidence, (), nvml=False, services=self._about))

    def _compared(self, steps: Steps, step: Step, evidence: Evidence) -> Standing:
        """Without the guard: a node is drained only where that has a purpose."""
        standing, why = steps.bench.compare(step, evidence)
        if standing is Standing.STALE:
            raise RefusedError(Refusal.STALE, f"{step.id}: {why}")
        return standing

    def _still(self, steps: Steps, last: Step, evidence: Evidence) -> None:
        """A step that undoes an earlier one is put back, and the earlier one with it if need be."""
        if self._results[last.id].outcome not in WRITTEN or self._dark(evidence):
            return
        earlier = [step for step in self.task.steps if self._written(step) and step is not last]
        broken = [step for step in earlier if self._broken(steps, step, evidence)]
        if not broken:
            return
        why = f"it undoes {', '.join(step.id for step in broken)}"
        self._results[last.id] = steps.take_back(last, self._results[last.id], why)
        try:
            evidence = self.site.steadily(lambda: self.site.probe("after"))
        except BlindError as error:
            told = f"cannot be verified after {last.id} was put back: {error}"
            broken_now = broken
        else:
            told = f"undone by {last.id}"
            broken_now = [step for step in broken if self._broken(steps, step, evidence)]
        for step in reversed(broken_now):
            self._results[step.id] = steps.take_back(step, self._results[step.id], told)

    def _dark(self, evidence: Evidence) -> bool:
        """Whether NVML says nothing before the reboot that a new driver waits for: its library
        does not talk to the old module. What was verified earlier can be judged after it alone."""
        return evidence.gpu.data is None and any(
            step.effective == "reboot"
            and of_packages(step)
            and self._results[step.id].outcome in (*WRITTEN, Outcome.DOUBT)
            for step in self.task.steps
            if step.id in self._results
        )

    def _driverless(self, evidence: Evidence) -> bool:
        """Whether NVML says nothing because a driver that did not come up was put back."""
        return evidence.gpu.data is None and any(
            of_packages(step) and self._results[step.id].outcome is Outcome.FAILED
            for step in self.task.steps
            if step.id in self._results
        )

    def _written(self, step: Step) -> bool:
        result = self._results.get(step.id)
        return result is not None and result.outcome in WRITTEN

    def _broken(self, steps: Steps, step: Step, evidence: Evidence) -> str:
        return steps.verdict(step, evidence, self._results[step.id].after).why

    # --- reboot -------------------------------------------------------------------------------

    def _reboot(self, steps: Steps, evidence: Evidence) -> None:
        """Reboot, and let the check say whether every step persists; put back what does not."""
        written = [step for step in self.task.steps if self._written(step)]
        if busy := self._busy(evidence):
            self._tell(written, f"not rebooted: {busy}")
            return
        amiss = self._after_boot(steps, written, self._boot())
        drivers = [step for step in written if of_packages(step) and step.id in amiss]
        others = [step for step in written if step not in drivers]
        self._conclude(steps, drivers, amiss)
        if back := self._undone(drivers):  # without a driver nothing else can be judged
            told = self._boot_back(steps, back, others)
            amiss = amiss if told is None else told
        self._conclude(steps, others, amiss)
        if back := self._undone(others):
            kept = [step for step in others if self._results[step.id].outcome is Outcome.PERSISTS]
            told = self._boot_back(steps, back, kept) or {}
            self._conclude(steps, [step for step in kept if step.id in told], told)

    def _conclude(self, steps: Steps, judged: Sequence[Step], amiss: Mapping[str, str]) -> None:
        """After a reboot: what is `amiss` is put back, the rest persists."""
        for step in reversed(judged):
            result = self._results[step.id]
            if step.id in amiss:
                why = f"does not outlast a reboot: {amiss[step.id]}"
                self._results[step.id] = steps.take_back(step, result, why)
            else:
                after = steps.left(step)
                self._results[step.id] = replace(
                    result, outcome=Outcome.PERSISTS, why="", after=after or result.after
                )

    def _undone(self, some: Sequence[Step]) -> list[Step]:
        """Those that were put back and were in force from a reboot on: so is what was before."""
        return [
            step
            for step in some
            if step.effective != "now" and self._results[step.id].outcome is Outcome.FAILED
        ]

    def _boot_back(
        self, steps: Steps, back: Sequence[Step], kept: Sequence[Step]
    ) -> dict[str, str] | None:
        """Reboot once more for what was put back, and look at it. Why each of `kept` does not
        hold then; None where it is not rebooted, which is told."""
        try:
            busy = self._busy(self.site.steadily(lambda: self.site.probe("after")))
        except BlindError as error:
            busy = f"nobody knows what uses it: {error}"
        if busy:
            self._tell(back, f"put back, and in force after one more reboot; not rebooted: {busy}")
            return None
        amiss = self._after_boot(steps, kept, self._boot())
        for step in back:
            look = partial(self.site.left, self._results[step.id].before)
            try:
                _, left = self.site.steadily(look)
            except BlindError as error:
                self._tell([step], f"not looked at after one more reboot: {error}", Outcome.DOUBT)
                continue
            if left:
                told = f"after one more reboot {'; '.join(left.values())}"
                self._tell([step], told, Outcome.HALF)
            else:
                self._tell([step], "put back, and rebooted once more")
        return amiss

    def _tell(self, steps: Sequence[Step], why: str, outcome: Outcome | None = None) -> None:
        for step in steps:
            result = self._results[step.id]
            told = "; ".join(filter(None, (result.why, why)))
            self._results[step.id] = replace(result, outcome=outcome or result.outcome, why=told)

    def _boot(self) -> str:
        """Reboot, and the new boot id. Raises LostError."""
        site = self.site
        try:
            booted = site.hands.reboot(self.task.host, seconds=site.terms.reboot_seconds)
            self._rebooted = True
        except WorkError as error:
            raise LostError(f"it was told to reboot: {error}") from error
        try:
            site.hands.lock(self.task.host, site.terms.who)
        except (WorkError, LockedError):
            site.reenter()
        return booted

    def _after_boot(self, steps: Steps, written: Sequence[Step], booted: str) -> dict[str, str]:
        """Why each step does not hold after a reboot, once what starts at boot had its time.

        It holds where the check says ok twice, with time between: a unit that starts late may
        set it back.
        """
        limit = time.monotonic() + self.site.terms.boot_settle
        noted, held = False, 0
        self._booted()
        while True:
            try:
                evidence = self.site.steadily(lambda: self.site.probe("rebooted"))
            except BlindError as error:
                amiss = {step.id: f"cannot be verified: {error}" for step in written}
            else:
                if why := guards.other_node(self.task.planned, evidence, booted=booted):
                    raise LostError(f"after the reboot: {why}")
                if not noted:
                    self.site.journal.write(
                        HostBegin(
                            host=self.task.host,
                            machine_id=self.task.planned.machine_id,
                            boot_id=booted,
                        )
                    )
                    noted = True
                amiss = {
                    step.id: why for step in written if (why := steps.bench.verdict(step, evidence))
                }
                for step in written:
                    result, said = self._results[step.id], steps.verdicts(step, evidence)
                    self._results[step.id] = replace(result, verdicts=said)
            held = 0 if amiss else held + 1
            if held == 2 or (amiss and time.monotonic() >= limit):
                return amiss
            time.sleep(max(0.05, self.site.terms.settle))

    def _booted(self) -> None:
        """Wait until systemd has started all that starts at boot, for as long as an action may
        take. How that ended does not matter here, nor that an old systemctl knows no --wait."""
        wait = Run(words=("systemctl", "is-system-running", "--wait"))
        with suppress(BlindError):
            self.site.steadily(lambda: self.site.hands.act(self.task.host, wait))

    # --- resume -------------------------------------------------------------------------------

    def _recall(self, earlier: RunState | None) -> None:
        """What the journal says of each step, until the node is looked at."""
        for step in self.task.steps if earlier else ():
            state = earlier.step(step.id) if earlier else StepState()
            if state.stage is Stage.ROLLED_BACK:
                result = recalled(step, state, outcome=Outcome.FAILED, why=state.why)
            elif state.stage is Stage.VERIFIED:
                result = recalled(step, state, outcome=Outcome.DONE)
            elif state.touched:
                result = recalled(step, state, outcome=Outcome.DOUBT, why=state.why)
            else:
                continue
            self._results[step.id] = result

    def _resume(self, steps: Steps, earlier: RunState, evidence: Evidence) -> Evidence:
        """What an earlier controller began: completed, or put back."""
        known = earlier.host(self.task.host)
        host = evidence.host.data
        rebooted = bool(known and host and known.boot_id != host.boot_id)
        for step in sorted(self.task.steps, key=of_packages, reverse=rebooted):
            state = earlier.step(step.id)
            if state.stage is Stage.VERIFIED:
                self._results[step.id] = self._again(steps, step, evidence, rebooted=rebooted)
            elif state.touched:
                self._results[step.id], evidence = steps.resume(step, state, evidence)
        return evidence

    def _again(self, steps: Steps, step: Step, evidence: Evidence, *, rebooted: bool) -> StepResult:
        """A step that was verified before the controller ended, on evidence of now."""
        result = replace(self._results[step.id], verdicts=steps.verdicts(step, evidence))
        why = steps.bench.verdict(step, evidence)
        if not why:
            return replace(result, outcome=Outcome.PERSISTS if rebooted else Outcome.DONE)
        later = step.effective != "now"
        if not rebooted and self._dark(evidence) and not of_packages(step):
            return replace(result, outcome=Outcome.PENDING if later else Outcome.DONE)
        if not rebooted and later:
            return self._still_pending(steps, step, evidence)
        if rebooted and self._driverless(evidence) and not of_packages(step):
            told = "cannot be judged before one more reboot: the driver was put back"
            return replace(result, outcome=Outcome.DOUBT, why=told)
        back = steps.take_back(step, result, f"was right, and is not any more: {why}")
        if later and rebooted and back.outcome is Outcome.FAILED:
            return replace(back, why=f"{back.why}; put back, and in force after one more reboot")
        return back

    def _still_pending(self, steps: Steps, step: Step, evidence: Evidence) -> StepResult:
        """A step that was in place before the controller ended, and comes into force later."""
        result = self._results[step.id]
        try:
            after = self.site.steadily(lambda: self.site.look(step.touches))
        except BlindError as error:
            return replace(result, outcome=Outcome.DOUBT, why=str(error))
        if steps.verdict(step, evidence, after).pending:
            return replace(result, outcome=Outcome.PENDING, after=after)
        return steps.take_back(step, result, "was set, and is not any more")
