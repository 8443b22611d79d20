"""Where a run of fixes is, by what it told so far, in lines for a terminal or a log. Pure.

Times are seconds of one clock, whichever the caller has.
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
URGENT = (Phase.LOST, Phase.REVERTING, Phase.REBOOTING, Phase.DRAINING, Phase.STARTING)


class HostAt(msgspec.Struct, frozen=True, kw_only=True):
    """A host in hand."""

    begun: HostBegun
    since: float  # when it was begun
    doing: Doing | None = None
    at: float = 0.0  # when that began


class FixBoard:
    """The run so far. `take` what happened; then ask for lines."""

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
        elif known := self._hosts.get(event.host):
            again = known.doing is not None and known.doing.phase is event.phase
            at = known.at if again and event.phase is not Phase.LOST else now
            self._hosts[event.host] = replace(known, doing=event, at=at)

    def said(self, event: Event, *, terminal: bool) -> Said | None:
        """A host that ended; in a log one that begins, too."""
        if isinstance(event, HostEnded):
            return Said(ended(event), event.result.outcome.good)
        return Said(began(event)) if isinstance(event, HostBegun) and not terminal else None

    @property
    def waiting(self) -> bool:
        """Whether something goes on that a line could be about."""
        return bool(self._hosts or self._rest)

    # --- lines --------------------------------------------------------------------------------

    def head(self, now: float) -> str:
        """`12 of 200 hosts done: 11 changed, 1 unknown · 10 in hand · 1 more may fail · 3 min`."""
        done = sum(self._ended.values())
        total = self._run.hosts if self._run else done + len(self._hosts)
        ended = [
            f"{self._ended[outcome]:,} {outcome.words}"
            for outcome in reversed(Outcome)
            if self._ended[outcome]
        ]
        parts = [
            f"{done:,} of {count(total, 'host')} done" + (f": {', '.join(ended)}" if ended else ""),
            f"{len(self._hosts):,} in hand" if self._hosts else "",
            self._pause(now),
            self._budget(),
            about(now - self._began),
        ]
        return " · ".join(filter(None, parts))

    def rows(self, now: float, most: int) -> list[str]:
        """A line for each host in hand, what is rare first; at most so many."""
        hosts = self._ordered()
        shown = hosts if len(hosts) <= most else hosts[: max(0, most - 1)]
        rows = [_row(host, now) for host in shown]
        if len(shown) < len(hosts):
            rows.append(f"and {count(len(hosts) - len(shown), 'more host', 'more hosts')}")
        return rows

    def pulse(self, now: float) -> str:
        """All of it on one line, for a log."""
        return "; ".join([self.head(now), *self.rows(now, FEW)])

    def _ordered(self) -> list[HostAt]:
        def key(host: HostAt) -> tuple[int, float]:
            phase = host.doing.phase if host.doing else None
            return URGENT.index(phase) if phase in URGENT else len(URGENT), host.since

        return sorted(self._hosts.values(), key=key)

    def _pause(self, now: float) -> str:
        if self._rest is None:
            return ""
        since, seconds = self._rest
        return f"pause after the canary, {about(max(0.0, since + seconds - now))} left"

    def _budget(self) -> str:
        if self._stopped:
            return f"{self._stopped}: no further host is begun"
        most = self._run.limits.max_fail if self._run else 0
        told = self._run is not None and 0 < most < self._run.hosts
        return f"{min(most, self._may_fail):,} more may fail" if told else ""


def about(seconds: float) -> str:
    """In whole seconds, or less exact."""
    return elapsed(float(round(seconds)))


def began(host: HostBegun) -> str:
    """A host that begins, for a log."""
    return f"{name(host.host)}  begun{' (canary)' if host.canary else ''}"


def ended(event: HostEnded) -> str:
    """A host that ended, with the time that it took."""
    told = line(event.result)
    return f"{told}  {about(event.result.seconds)}" if event.result.seconds >= 1 else told


def _row(host: HostAt, now: float) -> str:
    who = f"{'canary ' if host.begun.canary else ''}{name(host.begun.host)}"
    if host.doing is None:
        return f"{who}: begun"
    parts = [who, _steps(host.begun.steps, host.doing.steps), _doing(host.doing, now - host.at)]
    return ": ".join(filter(None, parts))


def _steps(all_of: Sequence[str], about_these: Sequence[str]) -> str:
    """`3/5 power_limit`, or `steps 1-3 of 5`."""
    numbers = [all_of.index(each) + 1 for each in about_these if each in all_of]
    if not numbers:
        return ""
    if len(numbers) == 1:
        fix = about_these[0].rsplit("/", 2)[-2:][0]
        return f"{numbers[0]}/{len(all_of)} {plain(fix)}"
    return f"steps {min(numbers)}-{max(numbers)} of {len(all_of)}"


def _doing(doing: Doing, spent: float) -> str:
    left = None if doing.seconds is None else max(0.0, doing.seconds - spent)
    parts = [doing.phase.value]
    if doing.phase is Phase.SETTLING and left is not None:
        parts.append(f"{about(left)} left")
    elif doing.phase is Phase.LOST and left is not None:
        parts.append(f"gives up in about {about(left)}")
    else:
        parts += [about(spent)] if spent >= 1 else []
        bounded = doing.phase in BOUNDED and doing.seconds
        parts += [f"at most {about(doing.seconds)}"] if bounded and doing.seconds else []
    why = f" ({brief(doing.why, WHY)})" if doing.why else ""
    return ", ".join(parts) + why
