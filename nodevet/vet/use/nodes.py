"""The evidence of hosts, for what learns from them: visited now, or saved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from nodevet.checking.identity import machine_in, several_names
from nodevet.evidence.document import Evidence, EvidenceError, decode
from nodevet.fleet import Options, Visit, visit
from nodevet.model import Host
from nodevet.vet.use.saved import read_saved
from nodevet.vet.use.targets import Targets


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts in the order in which they were named, and why the others are not used: no evidence, or
    several names of one machine."""

    evidence: Mapping[str, Evidence]
    lost: Mapping[str, str]


def visited(hosts: Sequence[Host], options: Options, done: Callable[[], None]) -> Nodes:
    """Read them now; `done` is called after each. Raises KeyboardInterrupt."""

    def visits() -> Iterable[Visit]:
        with closing(visit(hosts, options)) as visits:
            for one in visits:
                done()
                yield one

    return _nodes([host.name for host in hosts], visits())


def saved(paths: Sequence[Path], targets: Targets) -> Nodes:
    """The nodes of saved evidence. Raises SavedEvidenceError."""
    replay = read_saved(paths, targets)
    return _nodes([host.name for host in replay.hosts], replay.visits)


def _nodes(hosts: Iterable[str], visits: Iterable[Visit]) -> Nodes:
    read: dict[str, Evidence] = {}
    lost: dict[str, str] = {}
    for one in visits:
        if one.evidence is None:
            lost[one.host] = one.why or one.status.value
            continue
        try:
            read[one.host] = decode(one.evidence)
        except EvidenceError as error:
            lost[one.host] = str(error)
    lost |= several_names(machine_in(host, evidence) for host, evidence in read.items())
    order = list(hosts)
    return Nodes(
        evidence={host: read[host] for host in order if host in read and host not in lost},
        lost={host: lost[host] for host in order if host in lost},
    )
