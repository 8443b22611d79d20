"""Which hosts are one machine under several names, by the ids that they report. Pure.

Two ids prove it: the boot id, which the kernel draws at random at each boot, and the UUID of a GPU.
A machine id alone does not, because images are copied with it. Containers of one kernel share its
boot id: they are two hosts if their machine ids differ, or, without machine ids, if they share no
GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from nodevet.evidence.ids import is_id, is_uuid

Key = Callable[["Machine"], Iterable[object]]


class Machine(NamedTuple):
    """The ids that a host reports; empty if not read, or if it is a placeholder."""

    host: str
    machine_id: str
    boot_id: str
    gpus: tuple[str, ...]  # UUIDs


class OneMachine(NamedTuple):
    """Hosts that are one machine, and what they share."""

    hosts: tuple[str, ...]
    shared: str


class Undecided(NamedTuple):
    """A host without a boot id, and the hosts with its machine id, one of which it may be."""

    host: str
    others: tuple[str, ...]


def machine(host: str, machine_id: str | None, boot_id: str | None, gpus: Iterable[str]) -> Machine:
    """A host with only those ids that distinguish it from others."""
    return Machine(
        host,
        (machine_id or "") if is_id(machine_id) else "",
        (boot_id or "") if is_id(boot_id) else "",
        tuple(filter(is_uuid, gpus)),
    )


def one_machine(machines: Iterable[Machine], *, kernels: bool = False) -> tuple[OneMachine, ...]:
    """The hosts that are one machine. `kernels`: whether containers of one kernel are one machine,
    too."""
    listed = tuple(machines)
    links = [*_alike(listed, lambda host: host.gpus)]
    for same in _alike(listed, lambda host: filter(None, (host.boot_id,))):
        if kernels:
            links.append(same)
        else:
            links += _alike(same, lambda host: filter(None, (host.machine_id,)))
            links.append(_without_machine_id(same))
    return tuple(
        OneMachine(tuple(host.host for host in group), _shared(group))
        for group in _joined(listed, links)
    )


def undecided_hosts(machines: Iterable[Machine]) -> Iterator[Undecided]:
    """The hosts that may be the same machine as others, because no id that was read distinguishes
    them."""
    for same in _alike(machines, lambda host: filter(None, (host.machine_id,))):
        for host in same:
            if not host.boot_id:
                others = [
                    other for other in same if other is not host and not (host.gpus and other.gpus)
                ]
                if others:
                    yield Undecided(host.host, tuple(other.host for other in others))


def _without_machine_id(same: Sequence[Machine]) -> Sequence[Machine]:
    """The machines with one boot id that neither machine ids nor GPUs distinguish."""
    unread = [host for host in same if not host.machine_id]
    bare = [host for host in same if not host.gpus]
    if any(not host.gpus for host in unread):
        return same
    return [*unread, *bare] if unread and bare else []


def _alike(machines: Iterable[Machine], key: Key) -> Iterator[Sequence[Machine]]:
    """The groups of machines that share a key, one group for each key."""
    listed = tuple(machines)
    times = Counter(value for host in listed for value in key(host))  # most values are of one host
    by_key: dict[object, list[Machine]] = {}
    for host in listed:
        for value in key(host):
            if times[value] > 1:
                by_key.setdefault(value, []).append(host)
    return iter(by_key.values())


def _joined(
    machines: Sequence[Machine], links: Iterable[Sequence[Machine]]
) -> Iterator[Sequence[Machine]]:
    """The groups of several machines that these links join, each in the order of `machines`."""
    groups = {id(first): [first] for first in machines}  # two machines may have one name, or none
    for link in links:
        for first, second in pairwise(link):
            small, large = sorted((groups[id(first)], groups[id(second)]), key=len)
            if small is not large:
                large += small
                groups.update((id(member), large) for member in small)
    order = {id(first): place for place, first in enumerate(machines)}
    several = {id(group): group for group in groups.values() if len(group) > 1}
    return (sorted(group, key=lambda first: order[id(first)]) for group in several.values())


def _shared(group: Sequence[Machine]) -> str:
    """`the same machine id and boot id, 8 GPUs in common`."""
    ids = [
        word
        for word, name in (("machine id", "machine_id"), ("boot id", "boot_id"))
        if max(
            Counter(filter(None, (getattr(member, name) for member in group))).values(), default=0
        )
        > 1
    ]
    uuids = Counter(uuid for member in group for uuid in set(member.gpus))
    gpus = [uuid for uuid, times in uuids.items() if times > 1]
    texts = [f"the same {' and '.join(ids)}"] if ids else []
    if gpus:
        texts.append(f"{gpus[0]} in common" if len(gpus) == 1 else f"{len(gpus)} GPUs in common")
    return ", ".join(texts)
