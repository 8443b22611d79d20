"""The shards of a sweep, on the parent's side."""

import errno
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodevet.base.durations import elapsed
from nodevet.base.files import is_named_pipe, open_input
from nodevet.fleet.controller import child
from nodevet.fleet.controller.child import ChildProcess, Ending
from nodevet.fleet.model import FleetError, Options, Visit
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.payload import probe_payload
from nodevet.model import Host, Status

PROGRAM = "nodevet.fleet.worker.shard"
LARGEST = 5000  # hosts; an order has a few hundred bytes for each
ORDER_HOSTS = 500  # most hosts in one launcher's order, or with sessions of one worker
WORTHWHILE = 100  # hosts for which starting one more process gains more than it costs


class Shard:
    """One child process and its hosts."""

    def __init__(
        self, order: framing.BatchOrder, hosts: Sequence[Host] | Mapping[int, Host]
    ) -> None:
        self._hosts = {target.number: hosts[target.number] for target in order.targets}
        self._reader = framing.FrameReader(order.body_limit)
        self._fault = ""
        self._patience = order.deadline + child.STALL
        self.child = ChildProcess([sys.executable, "-I", "-m", PROGRAM], framing.write_order(order))
        self.due = time.monotonic() + self._patience

    def take(self, chunk: bytes) -> Iterator[Visit]:
        """The visits in its output. A child that writes malformed frames is killed."""
        self.due = time.monotonic() + self._patience
        try:
            for frame in self._reader.take(chunk):
                number, outcome = framing.read_outcome(frame)
                if number not in self._hosts:
                    raise framing.FrameError(
                        f"an answer for a host that it does not have: {number}"
                    )
                yield visit_of(self._hosts.pop(number), outcome)
        except framing.FrameError as error:
            self._fault = f"wrote malformed output: {error}"
            self.child.kill()

    def unfinished(self, ending: Ending, *, late: bool) -> Iterator[Visit]:
        """The visits of its unanswered hosts, now that the child has ended."""
        if late:
            status, how = Status.TIMEOUT, f"was silent for {elapsed(self._patience)} and was killed"
        else:
            status, how = Status.PROBE_FAILED, self._fault or str(ending)
        for host in self._hosts.values():
            why = f"the process that visits this host {how}"
            yield Visit(host.name, status, why, again=True)
        self._hosts.clear()


def visit_of(host: Host, outcome: framing.VisitOutcome) -> Visit:
    """The visit to a host with this outcome."""
    evidence = outcome.evidence if outcome.status == Status.VETTED else None
    return Visit(
        host.name,
        Status(outcome.status),
        outcome.why,
        evidence,
        outcome.seconds,
        again=outcome.again,
        steps=outcome.steps,
    )


def shards(hosts: Sequence[Host], options: Options, cpus: int) -> Iterator[Shard]:
    """Start a shard for each part of the hosts. Raises FleetError."""
    if not hosts:
        return
    check_options(options)
    for order in orders(hosts, options, cpus):
        yield Shard(order, hosts)


def check_options(options: Options) -> None:
    """Check the files of these options, see `check_files`."""
    accept_new = options.host_keys == "accept-new"
    check_files(options.ssh_config, options.known_hosts, accept_new=accept_new)


def check_files(
    ssh_config: Path | str | None, known_hosts: Path | str | None, *, accept_new: bool
) -> None:
    """Raises FleetError if a named file is missing, or if new keys cannot be stored."""
    if accept_new:
        _create_known_hosts(known_hosts)
    for name, path in (("ssh_config", ssh_config), ("known_hosts", known_hosts)):
        if path is not None:
            _check_file(name, expand_user(path))


def _check_file(name: str, path: Path) -> None:
    """Raises FleetError if a file is missing, or may be endless."""
    try:
        open_input(path).close()
    except FileNotFoundError as error:
        raise FleetError(f"{name} {path}: no such file") from error
    except OSError as error:
        raise FleetError(f"{name} {path}: {error.strerror}") from error


def _create_known_hosts(known_hosts: Path | str | None) -> None:
    """Create the file for new keys if it is missing. Raises FleetError if none can be stored."""
    path = expand_user(known_hosts or "~/.ssh/known_hosts")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_named_pipe(path):
            raise OSError(errno.EINVAL, "not a regular file")
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise FleetError(
            f"{path}: {error.strerror}; accepted host keys must be stored there"
        ) from error


def orders(
    hosts: Sequence[Host], options: Options, cpus: int, largest: int = LARGEST
) -> list[framing.BatchOrder]:
    """The hosts dealt out like cards, so that slow neighbours are in different shards."""
    requested = options.shards or min(cpus, math.ceil(len(hosts) / WORTHWHILE))
    count = max(min(requested, options.parallel, len(hosts)), math.ceil(len(hosts) / largest))
    return [
        order_of(
            range(place, len(hosts), count),
            hosts,
            options,
            max(1, options.parallel // count + (place < options.parallel % count)),
        )
        for place in range(count)
    ]


def order_of(
    numbers: Sequence[int], hosts: Sequence[Host], options: Options, parallel: int
) -> framing.BatchOrder:
    """The order of one shard: visit the hosts with these numbers, `parallel` at a time."""
    asks, places = _distinct([options.asks_for(hosts[number]) for number in numbers])
    return framing.BatchOrder(
        parallel=parallel,
        connect_timeout=options.connect_timeout,
        deadline=options.deadline,
        probe_deadline=options.probe_seconds,
        ssh_config=_path(options.ssh_config),
        known_hosts=_path(options.known_hosts),
        accept_new=options.host_keys == "accept-new",
        max_output=options.max_output,
        sample=options.sample,
        verbose=options.on_steps is not None,
        sections=options.sections,
        asks=[{section: tuple(names) for section, names in ask.items()} for ask in asks],
        targets=tuple(
            _target(number, hosts[number], options, place)
            for number, place in zip(numbers, places, strict=True)
        ),
        payload=probe_payload(options.sections, asks),
    )


Asks = Mapping[str, Sequence[Any]]


def _distinct(asks: Sequence[Asks]) -> tuple[list[Asks], list[int]]:
    """The different requests among those of all hosts, and for each host the place of its own."""
    ids = {id(ask): ask for ask in asks}
    places = {identity: place for place, identity in enumerate(ids)}
    return list(ids.values()), [places[id(ask)] for ask in asks]


def _path(path: Path | None) -> str | None:
    return None if path is None else str(expand_user(path).absolute())


def expand_user(path: Path | str) -> Path:
    """A path whose leading ~ or ~user is replaced. Raises FleetError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise FleetError(f"{path}: the home directory it names is not known here") from error


def _target(number: int, host: Host, options: Options, asks: int) -> framing.SshTarget:
    return framing.SshTarget(
        number=number,
        asks=asks,
        name=host.name,
        address=host.address,
        port=host.port,
        user=host.user or options.user,
        key_file=host.key_file,
        known_hosts=host.known_hosts,
        root=host.root,
        whole_machine=host.whole_machine,
        python=host.python,
        sudo=host.sudo or options.sudo,
    )
