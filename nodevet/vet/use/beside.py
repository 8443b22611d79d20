"""Join the visits of nodes with what a feature reads of them elsewhere, at the same time.

A feature with a `beside.py` has `SECTION`, the section of the evidence that it fills, `has(host)`,
`begin(hosts, end, asked)`, which reads in the background (nodevet.bmc.use.Readings), and
`joined(visit, section)`. `asked` has what the baselines of a host ask of the section, by host.
"""

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from types import ModuleType
from typing import Any

from nodevet.base.features import feature_modules
from nodevet.fleet import Options, Visit, visit
from nodevet.model import Host, Status
from nodevet.vet.use.asks import asks_each, judges_by
from nodevet.vet.use.context import VetContext

RawSection = Mapping[str, Any]
DENIED = "denied"
MOST_WAITING = 256
"""Visits whose evidence waits for its other half; with more, no further visit is taken."""


def visit_beside(
    hosts: Sequence[Host],
    options: Options,
    context: VetContext,
    denied: dict[str, RawSection] | None = None,
) -> Generator[Visit]:
    """As nodevet.fleet.visit. A visit waits for the other reading of its own host; one of a host
    without such a reading waits for nothing.

    `denied`: the sections of the hosts that an earlier call was denied. They are not read again,
    because another try with a refused password may lock an account. Those that this call is denied
    are added.
    """
    denied = {} if denied is None else denied
    end = math.inf if options.within is None else time.monotonic() + options.within
    visits = visit(hosts, options)
    if all(host.bmc is None for host in hosts):
        return visits  # a run without BMCs imports no feature for them
    for feature in feature_modules("beside"):
        asked = judges_by(context, feature.SECTION)
        names = _names(hosts, context, feature.SECTION) if asked else None
        visits = _joined(visits, hosts, feature, end, denied, names)
    return visits


def _names(hosts: Sequence[Host], context: VetContext, section: str) -> dict[str, tuple[str, ...]]:
    """What the baselines of each host ask of a section, without questions."""
    of = asks_each(context, commands=False)
    asked = {host.name: of(host).get(section, ()) for host in hosts}
    return {
        host: tuple(name for name in names if isinstance(name, str))
        for host, names in asked.items()
    }


def _joined(
    visits: Generator[Visit],
    hosts: Sequence[Host],
    feature: ModuleType,
    end: float,
    denied: dict[str, RawSection],
    names: Mapping[str, Sequence[str]] | None,
) -> Generator[Visit]:
    """`end`: of the whole run, by time.monotonic(). `names`: see `_names`; None: no baseline judges
    the section, which only explains a lost host."""
    asked, names = names is not None, names or {}
    by_name = {host.name: host for host in hosts}
    readings = _begun(feature, hosts if asked else (), end, denied, names)
    waiting: dict[str, Visit] = {}

    def ready() -> Iterator[Visit]:
        for name in waiting.keys() & readings.done.keys():
            section = readings.done.pop(name)
            if section["status"] == DENIED:
                denied[name] = section
            yield feature.joined(waiting.pop(name), section)

    with closing(visits):
        for one in visits:
            is_lost = one.evidence is None and one.status is not Status.INTERRUPTED
            if feature.has(by_name[one.host]) and (is_lost or (asked and one.evidence)):
                waiting[one.host] = one
            else:
                yield one
            readings.take()
            yield from ready()
            while asked and len(waiting) > MOST_WAITING:
                readings.take(wait=True)
                yield from ready()
    if not asked:
        lost = [by_name[name] for name in waiting]
        readings = _begun(feature, lost, end, denied, names)
    yield from ready()
    while waiting:
        readings.take(wait=True)
        yield from ready()


def _begun(
    feature: ModuleType,
    hosts: Sequence[Host],
    end: float,
    denied: Mapping[str, RawSection],
    names: Mapping[str, Sequence[str]],
) -> Any:
    """The feature's readings of these hosts; those that were denied are there already."""
    readings = feature.begin([host for host in hosts if host.name not in denied], end, names)
    readings.done |= {host.name: denied[host.name] for host in hosts if host.name in denied}
    return readings
