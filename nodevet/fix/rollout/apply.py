"""A run over many nodes: their order, within the failure budget; every node has an outcome."""

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from types import FrameType

from msgspec.structs import replace

from nodevet.fix.events import (
    EventHandler,
    HostBegun,
    HostEnded,
    Resting,
    RunBegun,
    ignore_event,
    without_errors,
)
from nodevet.fix.journal.account import host_end
from nodevet.fix.journal.journal import Journal, JournalError, JournalState
from nodevet.fix.model import Plan
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.ledger import Closed, Withdrawn, new_result
from nodevet.fix.rollout.limits import (
    Limits,
    RolloutProgress,
    in_canary,
    room,
    stop_reason,
    unproven_reason,
)
from nodevet.fix.rollout.node_run import NodeApply, NodeTask
from nodevet.fix.rollout.power import Powers
from nodevet.fix.rollout.session import NodeSession, SessionTerms
from nodevet.fixing.result import LEFT_OUT, NO_FURTHER, HostResult, Outcome, Refusal
from nodevet.fleet.executor import Executor
from nodevet.model.baseline import Baseline

Work = Callable[[str, bool], HostResult]
"""(host, whether it is a canary) -> its result. Runs in a thread of its own."""


class Stop(AbstractContextManager["Stop"]):
    """After a first Ctrl-C the run starts no more nodes, and nodes in progress end; a second one
    ends everything.

    A lost terminal counts as a first one, however many signals it sends. `note` is called from the
    handler of a signal.
    """

    def __init__(self, note: Callable[[str], None] = lambda text: None) -> None:
        self.asked = False
        self._pressed = False
        self._hung_up = False
        self._told = note
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
            for number in (signal.SIGINT, signal.SIGTERM, *hung_up):  # nohup ignores it
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as it was given to us
        if self._hung_up:  # what is left is to be written down
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._hung_up = True
        elif self._pressed:
            raise KeyboardInterrupt
        else:
            self._pressed = True
        if not self.asked:
            self.asked = True
            self._told(
                "nodevet starts no more nodes; those in progress finish first (again: leave them "
                "as they are)"
            )


class HostRunner:
    """Runs `work` on hosts within limits. `pause`: seconds between the canary and the rest."""

    def __init__(
        self,
        limits: Limits,
        work: Work,
        journal: Journal,
        on_event: EventHandler,
        stop: Stop,
        pause: float = 0.0,
    ) -> None:
        self._journal = journal
        self._limits = limits
        self._work = work
        self._on_event = without_errors(on_event)
        self._stop = stop
        self._pause = pause
        self._ended: queue.SimpleQueue[HostResult] = queue.SimpleQueue()

    def run(self, hosts: Sequence[str], progress: RolloutProgress) -> tuple[list[HostResult], str]:
        """The results of the hosts that were started, and why the others were not."""
        waiting, results = list(hosts), list[HostResult]()
        canary, pause_end = in_canary(self._limits, progress), 0.0
        while True:
            if canary and not in_canary(self._limits, progress):
                canary, pause_end = False, time.monotonic() + self._pause
                if self._pause and waiting:
                    self._on_event(Resting(seconds=self._pause))
            pause_left = max(0.0, pause_end - time.monotonic()) if waiting else 0.0
            disk_problem = self._journal.broken or self._journal.low
            may_begin = not (self._stop.asked or pause_left or disk_problem)
            for _ in range(min(room(self._limits, progress), len(waiting)) if may_begin else 0):
                self._begin(waiting.pop(0), canary)
                progress = progress.with_host_begun()
            if not progress.running:
                is_over = stop_reason(self._limits, progress) or self._stop.asked or disk_problem
                if not waiting or is_over:
                    break
            try:
                # woken now and then: a Ctrl-C is taken while nothing ends
                result = self._ended.get(timeout=min(pause_left, 0.2) or 0.2)
            except queue.Empty:
                continue
            progress = progress.with_host_ended(result, self._limits)
            results.append(result)
            self._on_event(
                HostEnded(
                    result=result,
                    may_fail=max(0, self._limits.max_fail - progress.failed),
                    stopped=self._why_stopped(progress, waiting),
                )
            )
        why = self._why_stopped(progress, waiting)
        if disk_problem and waiting:
            why = why or f"{NO_FURTHER}: {disk_problem}"
        return results, why or ("interrupted" if self._stop.asked and waiting else "")

    def _why_stopped(self, progress: RolloutProgress, waiting: Sequence[str]) -> str:
        """Why the run starts no more nodes; reports a failure even if no node is left."""
        return stop_reason(self._limits, progress) if waiting or progress.failed else ""

    def _begin(self, host: str, canary: bool) -> None:
        # daemons: a second Ctrl-C does not wait for them
        threading.Thread(
            target=lambda: self._ended.put(self._safely(host, canary)), name=host, daemon=True
        ).start()

    def _safely(self, host: str, canary: bool) -> HostResult:
        try:
            return self._work(host, canary)
        except Exception as error:  # a node without an outcome would keep the run from ending
            why = f"internal error (please report): {type(error).__name__}: {error}"
            result = HostResult(host=host, outcome=Outcome.UNKNOWN, why=why, canary=canary)
            with suppress(JournalError):
                self._journal.write(host_end(result))
            return result


@dataclass(frozen=True, kw_only=True)
class ApplyOrder:
    """A plan, and everything that an apply needs."""

    plan: Plan
    context: Callable[
        [str, Baseline], StepContext
    ]  # of a host, with the baseline it was planned by
    baselines: Mapping[str, Baseline]  # by name, as they are now
    hosts: frozenset[str]  # that can be reached
    terms: SessionTerms
    only: frozenset[str] | None = None  # hosts of the plan; None: all
    verify_reboot: bool = False  # canaries are rebooted
    closed: Closed = lambda reboot: ""
    withdrawn: Withdrawn = lambda: ""
    keep: Callable[[str, str, bytes], None] = lambda host, name, document: None  # evidence
    powers: Powers = field(default_factory=dict)

    def work(
        self,
        executor: Executor,
        journal: Journal,
        earlier: JournalState | None,
        on_event: EventHandler = ignore_event,
    ) -> Work:
        """The function that applies the plan on one node."""
        send = without_errors(on_event)

        def journal_end(host_result: HostResult) -> HostResult:
            journal.write(host_end(host_result))
            return host_result

        def run_host(host: str, canary: bool) -> HostResult:
            planned = self.plan.nodes[host]
            steps = self.plan.host_steps(host)
            is_begun = _was_begun(host, earlier)
            send(HostBegun(host=host, canary=canary, steps=tuple(step.id for step in steps)))
            if host not in self.hosts:
                return journal_end(self._unknown_result(host, canary, earlier))
            if not is_begun and (why := self.closed(False)):
                return journal_end(replace(self.untouched_result(host, why), canary=canary))
            baseline = self.baselines.get(planned.baseline)
            reboot = self.terms.reboot or (canary and self.verify_reboot)
            task = NodeTask(
                host=host,
                planned=planned,
                steps=steps,
                closed=lambda reboot: (
                    preconditions.baseline_mismatch(self.plan, planned, baseline)
                    or self.closed(reboot)
                ),
                withdrawn=self.withdrawn,
                canary=canary,
                reboot=reboot,
            )
            session = NodeSession(
                host,
                executor,
                journal,
                self.terms,
                lambda name, document: self.keep(host, name, document),
                planned,
                on_event,
                self.powers.get(host),
            )
            context = self.context(host, baseline) if baseline else None
            return NodeApply(task, session, context).run(earlier if is_begun else None)

        return run_host

    def _unknown_result(self, host: str, canary: bool, earlier: JournalState | None) -> HostResult:
        steps = tuple(new_result(step) for step in self.plan.host_steps(host))
        is_touched = earlier and any(earlier.step(step.id).touched for step in steps)
        return HostResult(
            host=host,
            outcome=Outcome.UNKNOWN if is_touched else Outcome.REFUSED,
            refusal=None if is_touched else Refusal.UNREACHABLE,
            why="the inventory does not name it",
            canary=canary,
            steps=steps,
        )

    def is_chosen(self, host: str) -> bool:
        """Whether the host is among those of this run."""
        return self.only is None or host in self.only

    def untouched_result(self, host: str, why: str) -> HostResult:
        steps = tuple(new_result(step) for step in self.plan.host_steps(host))
        if not steps:
            why = "the plan has no step for it"
            return HostResult(host=host, outcome=Outcome.UNCHANGED, why=why)
        return HostResult(host=host, outcome=Outcome.NOT_ATTEMPTED, why=why, steps=steps)


def _progress_of(results: Iterable[HostResult], limits: Limits) -> RolloutProgress:
    """The progress of a run with these results."""
    progress = RolloutProgress()
    for result in results:
        progress = progress.with_host_begun().with_host_ended(result, limits)
    return progress


def unproven_canaries(limits: Limits, finished: Mapping[str, HostResult]) -> frozenset[str]:
    """Nodes of an earlier try that were changed but not proven: the others wait for them."""
    if not in_canary(limits, _progress_of(finished.values(), limits)):
        return frozenset()
    return frozenset(host for host, result in finished.items() if unproven_reason(limits, result))


def _was_begun(host: str, earlier: JournalState | None) -> bool:
    return earlier is not None and (
        earlier.host(host) is not None
        or any(state.touched for id, state in earlier.steps.items() if id.startswith(f"{host}/"))
    )


def apply(
    order: ApplyOrder,
    executor: Executor,
    journal: Journal,
    limits: Limits,
    *,
    pause: float = 0.0,
    earlier: JournalState | None = None,
    finished: Mapping[str, HostResult] | None = None,
    on_event: EventHandler = ignore_event,
    stop: Stop,
) -> tuple[tuple[HostResult, ...], str]:
    """The results of all nodes, in the plan's order, and why the run stopped early.

    `finished` are nodes of an earlier try: they stay as they are, and count in the budget.
    Interrupted nodes, and canaries that it did not prove, go first, whatever the budget: each is
    completed or reverted.
    """
    results_before = dict(finished or {})
    for host in unproven_canaries(limits, results_before):
        del results_before[host]
    hosts_of_run = [
        host for host in order.plan.nodes if order.plan.host_steps(host) and order.is_chosen(host)
    ]
    hosts = [host for host in hosts_of_run if host not in results_before]
    begun_hosts = [host for host in hosts if _was_begun(host, earlier)]
    without_errors(on_event)(RunBegun(hosts=len(hosts), limits=limits))
    work = order.work(executor, journal, earlier, on_event)
    results = dict(results_before)
    if begun_hosts:
        no_limits = Limits(canary=0, batch=limits.batch, max_fail=len(begun_hosts))
        # nothing but canaries is begun before enough of them are proven
        canary = in_canary(limits, _progress_of(results_before.values(), limits))
        runner = HostRunner(no_limits, lambda host, _: work(host, canary), journal, on_event, stop)
        host_results, _ = runner.run(begun_hosts, RolloutProgress())
        results |= {result.host: result for result in host_results}
    progress = _progress_of(results.values(), limits)
    remaining = [host for host in hosts if host not in results]
    host_results, why = HostRunner(limits, work, journal, on_event, stop, pause).run(
        remaining, progress
    )
    results |= {result.host: result for result in host_results}
    for host in order.plan.nodes:
        if host not in results:
            reason = (why or "interrupted") if order.is_chosen(host) else LEFT_OUT
            results[host] = order.untouched_result(host, reason)
    return tuple(results[host] for host in order.plan.nodes), why
