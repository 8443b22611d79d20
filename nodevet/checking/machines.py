"""Which hosts are one machine under several names, by what each says of itself. Pure.

What proves it: the boot id, which the kernel draws at random at each boot, and the UUID of a GPU.
A machine id alone does not, since images are copied with it. Containers of one kernel share its
boot id: they are two hosts if their machine ids, or else all their GPUs, differ.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from nodevet.evidence.ids import is_id, is_uuid

Key = Callable[["Machine"], Iterable[object]]


class Machine(NamedTuple):
    """What a host says of itself; empty where it was not read, or is a placeholder."""

    host: str
    machine_id: str
    boot_id: str
    gpus: tuple[str, ...]  # UUIDs


class OneMachine(NamedTuple):
    """Hosts that are one machine, and what they share."""

    hosts: tuple[str, ...]
    shared: str


class Undecided(NamedTuple):
    """A host without a boot id that may be one of others, which have its machine id."""

    host: str
    others: tuple[str, ...]


def machine(host: str, machine_id: str | None, boot_id: str | None, gpus: Iterable[str]) -> Machine:
    """A host by those of its ids that tell it from others."""
    return Machine(
        host,
        (machine_id or "") if is_id(machine_id) else "",
        (boot_id or "") if is_id(boot_id) else "",
        tuple(filter(is_uuid, gpus)),
    )


def one_machine(machines: Iterable[Machine], *, kernels: bool = False) -> tuple[OneMachine, ...]:
    """The hosts that are one machine. `kernels`: containers of one kernel are one, too."""
    listed = tuple(machines)
    links = [*_alike(listed, lambda one: one.gpus)]
    for same in _alike(listed, lambda one: filter(None, (one.boot_id,))):
        if kernels:
            links.append(same)
        else:
            links += _alike(same, lambda one: filter(None, (one.machine_id,)))
            links.append(_without_machine_id(same))
    return tuple(
        OneMachine(tuple(one.host for one in group), _shared(group))
        for group in _joined(listed, links)
    )


def undecided(machines: Iterable[Machine]) -> Iterator[Undecided]:
    """The hosts that may be another of these, as nothing that was read tells them apart."""
    for same in _alike(machines, lambda one: filter(None, (one.machine_id,))):
        for one in same:
            if not one.boot_id:
                others = [each for each in same if each is not one and not (one.gpus and each.gpus)]
                if others:
                    yield Undecided(one.host, tuple(each.host for each in others))


def _without_machine_id(same: Sequence[Machine]) -> Sequence[Machine]:
    """Those of one boot id that neither machine ids nor GPUs tell apart."""
    unread = [one for one in same if not one.machine_id]
    bare = [one for one in same if not one.gpus]
    if any(not one.gpus for one in unread):
        return same
    return [*unread, *bare] if unread and bare else []


def _alike(machines: Iterable[Machine], key: Key) -> Iterator[Sequence[Machine]]:
    """The machines that have a key in common; once for each key."""
    found: dict[object, list[Machine]] = {}
    for one in machines:
        for each in key(one):
            found.setdefault(each, []).append(one)
    return (same for same in found.values() if len(same) > 1)


def _joined(
    machines: Sequence[Machine], links: Iterable[Sequence[Machine]]
) -> Iterator[Sequence[Machine]]:
    """The groups of several that these links make, each in the order of `machines`."""
    groups = {id(one): [one] for one in machines}  # two may have one name, or none
    for link in links:
        for one, other in pairwise(link):
            small, large = sorted((groups[id(one)], groups[id(other)]), key=len)
            if small is not large:
                large += small
                groups.update((id(each), large) for each in small)
    order = {id(one): place for place, one in enumerate(machines)}
    several = {id(group): group for group in groups.values() if len(group) > 1}
    return (sorted(group, key=lambda one: order[id(one)]) for group in several.values())


def _shared(group: Sequence[Machine]) -> str:
    """`the same machine id and boot id, 8 GPUs in common`."""
    ids = [
        word
        for word, name in (("machine id", "machine_id"), ("boot id", "boot_id"))
        if max(Counter(filter(None, (getattr(one, name) for one in group))).values(), default=0) > 1
    ]
    uuids = Counter(uuid for one in group for uuid in set(one.gpus))
    gpus = [uuid for uuid, times in uuids.items() if times > 1]
    told = [f"the same {' and '.join(ids)}"] if ids else []
    if gpus:
        told.append(f"{gpus[0]} in common" if len(gpus) == 1 else f"{len(gpus)} GPUs in common")
    return ", ".join(told)
