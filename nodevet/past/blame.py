"""What changed on the hosts that began to fail a check, and not on the others meanwhile. Pure.

Evidence of two looks at one host is compared value by value. A change is told by its path in the
evidence: `installed.packages[tuned].found[].version`; of things with a name by that, of parts that
are alike (GPUs, ports, CPUs) as one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nodevet.store.records.model import Moment

NAMES = ("name", "path", "unit", "module", "key")
PARTS = ("bus_id", "address", "id", "index", "cpu", "policies", "uuid", "slot", "port")
"""The fields by which the items of a list are told apart: by name, or as parts that are alike."""
HALF = 0.5  # of the hosts that drifted, on which a change is at least that may explain it
TOLD = 0.3  # by how much more often it is there than on the others, at least
MOST = 12  # changes of a group that are listed
LONG_DAYS = 3.0  # between the two looks, from which on much else may have happened
_PART = re.compile(r"\[#[^\]]*\]")
_ITEM = re.compile(r"\[[^\]]*\]")


class Change(NamedTuple):
    """One value of a host that is another than before, as JSON; empty: it was not there."""

    path: str
    before: str
    after: str


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and on how many of the hosts it is."""

    path: str
    before: str  # as JSON; empty: it differs from host to host, or was not there
    after: str
    drifted: tuple[str, ...]
    others: int
    own: bool  # what the check itself reads


class DriftLook(msgspec.Struct, frozen=True, kw_only=True):
    """The two looks between which one host began to fail."""

    host: str
    good: Moment | None  # None: it failed when it was first looked at
    bad: Moment
    pruned: int = 0  # looks between them whose evidence is kept no more


class DriftGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that began to fail in one run, and were last seen good in one."""

    bad: Moment
    good: Moment
    days: float  # between the two, at most
    looks: tuple[DriftLook, ...]
    others: int  # that were looked at in both runs and do not fail
    changes: tuple[ChangeLine, ...]  # what tells them from the others, the clearest first
    more: int = 0  # that do so, too, and are not listed
    rule: tuple[str, ...] = ()  # what judged them is another: the baseline, nodevet

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(look.host for look in self.looks)

    @property
    def clear(self) -> ChangeLine | None:
        """What is on all of them and on no other, and is not what the check reads itself."""
        found = (line for line in self.changes if not line.own and self.is_sole(line))
        return next(found, None)

    def is_sole(self, line: ChangeLine) -> bool:
        """Whether a change is on all of them and on no other."""
        return len(line.drifted) == len(self.looks) and not line.others and self.others > 0


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """When hosts began to fail a check, and what changed with it."""

    check: str
    now: bool  # whether they still fail; else it is the last time that they did
    groups: tuple[DriftGroup, ...]  # the newest first
    always: tuple[DriftLook, ...] = ()  # that failed at the first look
    unread: tuple[DriftLook, ...] = ()  # whose evidence is kept no more


def flat(value: Any, path: str, found: dict[str, str]) -> None:
    """Every plain value with its path, as JSON."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            flat(inner, f"{path}.{key}", found)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        mark, names = _told_apart(value)
        for name, item in zip(names, value, strict=True):
            flat(item, f"{path}[{mark}{name}]", found)
    else:
        found[path] = msgspec.json.encode(value).decode()


def _told_apart(items: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """What the items are called; parts that are alike have a mark before it."""
    for mark, fields in (("", NAMES), ("#", PARTS)):
        for field in fields:
            found = [item.get(field) for item in items]
            plain = all(isinstance(each, (str, int)) for each in found)
            if plain and len(set(found)) == len(found):
                return mark, [str(each) for each in found]
    return "#", [str(place) for place in range(len(items))]


def differing(
    before: Mapping[str, bytes], after: Mapping[str, bytes], paths: Collection[str] | None = None
) -> frozenset[Change]:
    """What differs between two looks, by section; `paths`: of these alone."""
    wanted = None if paths is None else {_section(path) for path in paths}
    found = set()
    for name in {*before, *after}:
        if before.get(name) == after.get(name) or (wanted is not None and name not in wanted):
            continue
        old, new = _values(name, before), _values(name, after)
        for path in {*old, *new}:
            if old.get(path, "") != new.get(path, ""):
                told = _PART.sub("[]", path)
                if paths is None or told in paths:
                    found.add(Change(told, old.get(path, ""), new.get(path, "")))
    return frozenset(found)


def _section(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _values(name: str, sections: Mapping[str, bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    if name in sections:
        section = msgspec.json.decode(sections[name])
        flat(section.get("data", {}), name, found)
        if section.get("status") != "ok":
            found[f"{name} (status)"] = msgspec.json.encode(section.get("status")).decode()
    return found


def shared(changed: Mapping[str, frozenset[Change]]) -> frozenset[str]:
    """The paths that changed on so many of these hosts that they may explain all of them."""
    counts = Counter(path for found in changed.values() for path in {each.path for each in found})
    return frozenset(path for path, number in counts.items() if number >= HALF * len(changed))


def separating(
    drifted: Mapping[str, frozenset[Change]],
    others: Iterable[frozenset[Change]],
    reads: Collection[str],
) -> list[ChangeLine]:
    """What is on the hosts that drifted rather than on the others, the clearest first.

    A path is told by its values if these are shared, else as changed at all.
    """
    listed = list(others)
    paths: dict[str, list[tuple[str, Change]]] = {}
    for host, found in drifted.items():
        for change in found:
            paths.setdefault(change.path, []).append((host, change))
    elsewhere: dict[str, list[frozenset[Change]]] = {path: [] for path in paths}
    for seen in listed:
        for path in {change.path for change in seen} & paths.keys():
            elsewhere[path].append(frozenset(each for each in seen if each.path == path))
    lines = []
    for path, own in paths.items():
        told = _lines(path, own, elsewhere[path], reads)
        best = max(told, key=lambda line: _clear(line, drifted, listed))
        often = len(best.drifted) >= HALF * len(drifted)
        if often and _clear(best, drifted, listed)[0] >= TOLD:
            lines.append(best)
    lines.sort(key=lambda line: (-_clear(line, drifted, listed)[0], line.own, line.path))
    return lines


def _clear(
    line: ChangeLine, drifted: Mapping[str, object], others: Sequence[object]
) -> tuple[float, int]:
    """By how much more often it is on those that drifted; then the more it says the better."""
    there = len(line.drifted) / len(drifted)
    elsewhere = line.others / len(others) if others else 0.0
    return there - elsewhere, bool(line.before) + bool(line.after)


def _lines(
    path: str,
    own: Sequence[tuple[str, Change]],
    elsewhere: Sequence[frozenset[Change]],
    reads: Collection[str],
) -> Iterator[ChangeLine]:
    """A path as it can be told: changed at all, to this value, from this value to that one."""
    is_own = any(_covers(read, path) for read in reads)
    hosts = tuple(sorted({host for host, _ in own}))
    sole = own[0][1] if len(own) == 1 else Change(path, "", "")
    yield ChangeLine(
        path=path,
        before=sole.before,
        after=sole.after,
        drifted=hosts,
        others=len(elsewhere),
        own=is_own,
    )
    changed = len(hosts) + len(elsewhere)
    every = {change.after for _, change in own}.union(*({e.after for e in s} for s in elsewhere))
    if changed > 1 and 2 * len(every) > changed:  # each host has its own: a clock, a counter
        return
    for after in {change.after for _, change in own}:
        told = tuple(sorted({host for host, change in own if change.after == after}))
        there = sum(any(each.after == after for each in seen) for seen in elsewhere)
        yield ChangeLine(path=path, before="", after=after, drifted=told, others=there, own=is_own)
    for one in {change for _, change in own}:
        told = tuple(sorted({host for host, change in own if change == one}))
        there = sum(one in seen for seen in elsewhere)
        yield ChangeLine(
            path=path, before=one.before, after=one.after, drifted=told, others=there, own=is_own
        )


def _covers(read: str, path: str) -> bool:
    """Whether a check that reads this reads a path."""
    plain = _ITEM.sub("[]", path)
    return plain == read or plain.startswith((f"{read}.", f"{read}["))


def group(
    looks: Sequence[DriftLook],
    drifted: Mapping[str, frozenset[Change]],
    others: Sequence[frozenset[Change]],
    *,
    reads: Collection[str],
    days: float,
    rule: Sequence[str] = (),
) -> DriftGroup:
    """The hosts that began to fail in one run and were last seen good in one."""
    lines = separating(drifted, others, reads)
    return DriftGroup(
        bad=min(look.bad for look in looks),
        good=min(look.good for look in looks if look.good is not None),
        days=days,
        looks=tuple(sorted(looks, key=lambda look: look.host)),
        others=len(others),
        changes=tuple(lines[:MOST]),
        more=max(0, len(lines) - MOST),
        rule=tuple(rule),
    )
