"""What a gate waits for, on standard error: live on a terminal; in a log, a line for each
change."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from nodevet.base.durations import elapsed
from nodevet.cli.display import Screen
from nodevet.cli.live import Live, Said
from nodevet.sheet.text import count, nodeset
from nodevet.vet.terminal.output import Sinks
from nodevet.vet.terminal.progress import Watcher
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reports import Streaming

if TYPE_CHECKING:
    from nodevet.vet.use.listener import Waiting

EVERY = 60.0  # seconds between two lines of a log if nothing changes
MOST = 4  # groups of hosts that wait for the same, in one line


class GateBoard:
    """The last attempt."""

    def __init__(self) -> None:
        self._told: Waiting | None = None
        self._at = 0.0
        self._said: Mapping[str, str] = {}

    def take(self, event: "Waiting", now: float) -> None:
        self._told, self._at = event, now

    def event_line(self, event: "Waiting", *, terminal: bool) -> Said | None:
        """A line for the log if the reasons changed."""
        if terminal or event.gist == self._said:
            return None
        self._said = event.gist
        return Said(self.pulse(self._at))

    @property
    def waiting(self) -> bool:
        return self._told is not None

    def head(self, now: float) -> str:
        return "; ".join(self._parts(now))

    def rows(self, now: float, most: int) -> list[str]:
        groups = self._groups()
        shown = groups if len(groups) <= most else groups[: max(0, most - 1)]
        more = [f"and {len(groups) - len(shown):,} more"] if len(shown) < len(groups) else []
        return shown + more

    def pulse(self, now: float) -> str:
        """`12 s: waiting for 1 of 8 hosts: gpu1: ...; next try in 10 s; gives up in 9 min`."""
        waiting, *times = self._parts(now)
        return "; ".join([f"{waiting}: {'; '.join(self.rows(now, MOST))}", *times])

    def _parts(self, now: float) -> list[str]:
        if self._told is None:
            return [""]
        waiting, spent = self._told, now - self._at
        after = waiting.next_in - spent
        hosts = f"{len(waiting.reasons):,} of {count(waiting.hosts, 'host')}"
        return [
            f"{_rounded_text(waiting.since + spent)}: waiting for {hosts}",
            f"next try in {_rounded_text(after)}" if after >= 0.95 else "trying now",
            f"gives up in {_rounded_text(max(0.0, waiting.left - spent))}",
        ]

    def _groups(self) -> list[str]:
        """`gpu[1-2]: power_limit: 490 W, expected 700 W`, most hosts first."""
        hosts: dict[str, list[str]] = {}
        for host, why in self._told.reasons.items() if self._told else ():
            hosts.setdefault(why, []).append(host)
        ordered = sorted(hosts.items(), key=lambda pair: (-len(pair[1]), min(pair[1])))
        return [f"{nodeset(names)}: {why}" for why, names in ordered]


def _rounded_text(seconds: float) -> str:
    return elapsed(float(round(seconds)))


class GateWatcher(Watcher):
    """Shows what the gate waits for, and no bar."""

    def __init__(self, sinks: Sinks, live: Live) -> None:
        super().__init__(sinks)
        self._live = live

    def visiting(self) -> None:
        pass

    def waiting(self, waiting: "Waiting") -> None:
        self._live.tell(waiting)


@contextmanager
def gate_watched(sinks: Sinks) -> Iterator[VetListener]:
    """Streams to the sinks, and shows what a gate waits for unless --quiet was given."""
    with sinks.streams() as streams:
        screen = Screen() if streams.at_terminal else sinks.display.err
        live = Live(GateBoard(), sinks.display._replace(err=screen), EVERY)
        with nullcontext() if sinks.display.quiet else live:
            yield Streaming(streams, GateWatcher(sinks, live))
