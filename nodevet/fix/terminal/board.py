"""The progress of a run of fixes, from its events, as lines for a terminal or a log. Pure.

Times are seconds of any one clock.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.cli.live import Said
from nodevet.fix.events import Doing, Event, HostBegun, HostEnded, Phase, Resting, RunBegun
from nodevet.fix.result_text import line
from nodevet.fixing.result import Outcome
from nodevet.sheet.text import count, name

FEW = 4  # hosts that one line of a log names
WHY = 60  # columns of a reason in a live line
BOUNDED = frozenset({Phase.DRAINING, Phase.REBOOTING, Phase.STARTING, Phase.VERIFYING})
URGENT = (
    Phase.LOST,
    Phase.REVERTING,
    Phase.SWITCHING,
    Phase.REBOOTING,
    Phase.DRAINING,
    Phase.STARTING,
)


class HostAt(msgspec.Struct, frozen=True, kw_only=True):
    """A host in progress."""

    begun: HostBegun
    since: float  # when it was begun
    doing: Doing | None = None
    at: float = 0.0  # when that began


class FixBoard:
    """The run so far: `take` receives events, other methods return lines."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._run: RunBegun | None = None
        self._hosts: dict[str, HostAt] = {}
        self._ended: Counter[Outcome] = Counter()
        self._rest: tuple[float, float] | None = None  # the pause: since, seconds
        self._may_fail, self._stopped = 0, ""

    def take(self, event: Event, now: float) -> None:
        if isinstance(event, RunBegun):
            self._run, self._may_fail = event, event.limits.max_fail
        elif isinstance(event, HostBegun):
            self._rest = None
            self._hosts[event.host] = HostAt(begun=event, since=now)
        elif isinstance(event, HostEnded):
            self._hosts.pop(event.result.host, None)
            self._ended[event.result.outcome] += 1
            self._may_fail, self._stopped = event.may_fail, event.stopped
        elif isinstance(event, Resting):
            self._rest = (now, event.seconds)
        elif host := self._hosts.get(event.host):
            same_phase = host.doing is not None and host.doing.phase is event.phase
            at = host.at if same_phase and event.phase is not Phase.LOST else now
            self._hosts[event.host] = replace(host, doing=event, at=at)

    def event_line(self, event: Event, *, terminal: bool) -> Said | None:
        """A line about a host that ended; in a log also about one that begins."""
        if isinstance(event, HostEnded):
            return Said(ended_text(event), event.result.outcome.good)
        return Said(begun_text(event)) if isinstance(event, HostBegun) and not terminal else None

    @property
    def waiting(self) -> bool:
        """Whether something goes on that a line could show."""
        return bool(self._hosts or self._rest)

    # --- lines --------------------------------------------------------------------------------

    def head(self, now: float) -> str:
        """`12 of 200 hosts done: 12 changed · 10 in progress · 1 more may fail · 3 min`."""
        ended_count = sum(self._ended.values())
        total = self._run.hosts if self._run else ended_count + len(self._hosts)
        outcomes = [
            f"{self._ended[outcome]:,} {outcome.words}"
            for outcome in reversed(Outcome)
            if self._ended[outcome]
        ]
        parts = [
            f"{ended_count:,} of {count(total, 'host')} done"
            + (f": {', '.join(outcomes)}" if outcomes else ""),
            f"{len(self._hosts):,} in progress" if self._hosts else "",
            self._pause(now),
            self._budget(),
            duration_text(now - self._began),
        ]
        return " · ".join(filter(None, parts))

    def rows(self, now: float, most: int) -> list[str]:
        """At most `most` lines about hosts in progress, rare phases first."""
        hosts = self._hosts_by_urgency()
        listed = hosts if len(hosts) <= most else hosts[: max(0, most - 1)]
        rows = [_row(host, now) for host in listed]
        if len(listed) < len(hosts):
            rows.append(f"and {count(len(hosts) - len(listed), 'more host', 'more hosts')}")
        return rows

    def pulse(self, now: float) -> str:
        """Everything in one line, for a log."""
        return "; ".join([self.head(now), *self.rows(now, FEW)])

    def _hosts_by_urgency(self) -> list[HostAt]:
        def key(host: HostAt) -> tuple[int, float]:
            phase = host.doing.phase if host.doing else None
            return URGENT.index(phase) if phase in URGENT else len(URGENT), host.since

        return sorted(self._hosts.values(), key=key)

    def _pause(self, now: float) -> str:
        if self._rest is None:
            return ""
        since, seconds = self._rest
        return f"pause after the canary, {duration_text(max(0.0, since + seconds - now))} left"

    def _budget(self) -> str:
        if self._stopped:
            return f"{self._stopped}: no more hosts are started"
        limit = self._run.limits.max_fail if self._run else 0
        is_useful = self._run is not None and 0 < limit < self._run.hosts
        return f"{min(limit, self._may_fail):,} more may fail" if is_useful else ""


def duration_text(seconds: float) -> str:
    """A duration in whole seconds, or less exact."""
    return elapsed(float(round(seconds)))


def begun_text(host: HostBegun) -> str:
    """A host that begins, for a log."""
    return f"{name(host.host)}  started{' (canary)' if host.canary else ''}"


def ended_text(event: HostEnded) -> str:
    """A host that ended, with the time that it took."""
    text = line(event.result)
    return f"{text}  {duration_text(event.result.seconds)}" if event.result.seconds >= 1 else text


def _row(host: HostAt, now: float) -> str:
    label = f"{'canary ' if host.begun.canary else ''}{name(host.begun.host)}"
    if host.doing is None:
        return f"{label}: started"
    parts = [
        label,
        _steps(host.begun.steps, host.doing.steps),
        _doing_text(host.doing, now - host.at),
    ]
    return ": ".join(filter(None, parts))


def _steps(plan_steps: Sequence[str], current: Sequence[str]) -> str:
    """`3/5 power_limit`, or `steps 1-3 of 5`."""
    numbers = [plan_steps.index(step) + 1 for step in current if step in plan_steps]
    if not numbers:
        return ""
    if len(numbers) == 1:
        fix = current[0].rsplit("/", 2)[-2:][0]
        return f"{numbers[0]}/{len(plan_steps)} {plain(fix)}"
    return f"steps {min(numbers)}-{max(numbers)} of {len(plan_steps)}"


def _doing_text(doing: Doing, elapsed_seconds: float) -> str:
    remaining = None if doing.seconds is None else max(0.0, doing.seconds - elapsed_seconds)
    parts = [doing.phase.value]
    if doing.phase is Phase.SETTLING and remaining is not None:
        parts.append(f"{duration_text(remaining)} left")
    elif doing.phase is Phase.LOST and remaining is not None:
        parts.append(f"gives up in about {duration_text(remaining)}")
    else:
        parts += [duration_text(elapsed_seconds)] if elapsed_seconds >= 1 else []
        bounded = doing.phase in BOUNDED and doing.seconds
        parts += [f"at most {duration_text(doing.seconds)}"] if bounded and doing.seconds else []
    why = f" ({brief(doing.why, WHY)})" if doing.why else ""
    return ", ".join(parts) + why
