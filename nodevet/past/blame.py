"""What changed on the hosts that began to fail a check, but not on the others. Pure.

The evidence of two visits to one host is compared value by value. A change is identified by its
path in the evidence: `installed.packages[tuned].found[].version`. Named items have their own paths;
alike parts (GPUs, ports, CPUs) share one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nodevet.store.records.model import Moment

NAMES = ("name", "path", "unit", "module", "key")
PARTS = ("bus_id", "address", "id", "index", "cpu", "policies", "uuid", "slot", "port")
"""The fields that tell the items of a list apart: names, or numbers of alike parts."""
HALF = 0.5  # least share of the drifted hosts with a change that may explain the drift
TOLD = 0.3  # least difference between that share and the share of the other hosts
MOST = 12  # changes of a group that are listed
LONG_DAYS = 3.0  # between two visits; in a longer time much else may have happened
_PART = re.compile(r"\[#[^\]]*\]")
_ITEM = re.compile(r"\[[^\]]*\]")


class Change(NamedTuple):
    """One value of a host that changed, as JSON; empty: absent."""

    path: str
    before: str
    after: str


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and the hosts that have it."""

    path: str
    before: str  # as JSON; empty: it differs from host to host, or was absent
    after: str
    drifted: tuple[str, ...]
    others: int
    own: bool  # whether the check itself reads it


class DriftLook(msgspec.Struct, frozen=True, kw_only=True):
    """The two visits between which one host began to fail."""

    host: str
    good: Moment | None  # None: it failed at the first visit
    bad: Moment
    pruned: int = 0  # visits between them whose evidence was pruned


class DriftGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that began to fail in the same run, and passed last in the same run."""

    bad: Moment
    good: Moment
    days: float  # between the two, at most
    looks: tuple[DriftLook, ...]
    others: int  # hosts that both runs visited and that do not fail
    changes: tuple[ChangeLine, ...]  # that set them apart from the others, the clearest first
    more: int = 0  # such changes that are not listed
    rule: tuple[str, ...] = ()  # what changed in judging: the baseline, nodevet

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(look.host for look in self.looks)

    @property
    def clear(self) -> ChangeLine | None:
        """The first change on all of them and no other host that the check does not read itself."""
        lines = (line for line in self.changes if not line.own and self.is_sole(line))
        return next(lines, None)

    def is_sole(self, line: ChangeLine) -> bool:
        """Whether all of them have a change, and no other host."""
        return len(line.drifted) == len(self.looks) and not line.others and self.others > 0


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """When hosts began to fail a check, and what changed with it."""

    check: str
    now: bool  # whether they still fail; else this is about the last time
    groups: tuple[DriftGroup, ...]  # the newest first
    always: tuple[DriftLook, ...] = ()  # that failed at the first visit
    unread: tuple[DriftLook, ...] = ()  # whose evidence was pruned


def flat(value: Any, path: str, values: dict[str, str]) -> None:
    """Add every plain value to `values`, by its path, as JSON."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            flat(inner, f"{path}.{key}", values)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        mark, names = _item_names(value)
        for name, item in zip(names, value, strict=True):
            flat(item, f"{path}[{mark}{name}]", values)
    else:
        values[path] = msgspec.json.encode(value).decode()


def _item_names(items: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """A mark (`#` for alike parts) and the names of the items."""
    for mark, fields in (("", NAMES), ("#", PARTS)):
        for field in fields:
            texts = [item.get(field) for item in items]
            is_plain = all(isinstance(text, (str, int)) for text in texts)
            if is_plain and len(set(texts)) == len(texts):
                return mark, [str(text) for text in texts]
    return "#", [str(place) for place in range(len(items))]


def find_changes(
    before: Mapping[str, bytes], after: Mapping[str, bytes], paths: Collection[str] | None = None
) -> frozenset[Change]:
    """The changes of these paths (None: all) between two visits, given the data by section."""
    sections = None if paths is None else {_section(path) for path in paths}
    changes = set()
    for name in {*before, *after}:
        if before.get(name) == after.get(name) or (sections is not None and name not in sections):
            continue
        old, new = _values(name, before), _values(name, after)
        for path in {*old, *new}:
            if old.get(path, "") != new.get(path, ""):
                pattern = _PART.sub("[]", path)
                if paths is None or pattern in paths:
                    changes.add(Change(pattern, old.get(path, ""), new.get(path, "")))
    return frozenset(changes)


def _section(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _values(name: str, sections: Mapping[str, bytes]) -> dict[str, str]:
    values: dict[str, str] = {}
    if name in sections:
        section = msgspec.json.decode(sections[name])
        flat(section.get("data", {}), name, values)
        if section.get("status") != "ok":
            values[f"{name} (status)"] = msgspec.json.encode(section.get("status")).decode()
    return values


def shared_paths(changed: Mapping[str, frozenset[Change]]) -> frozenset[str]:
    """The paths that changed on at least HALF of these hosts."""
    counts = Counter(path for changes in changed.values() for path in {c.path for c in changes})
    return frozenset(path for path, number in counts.items() if number >= HALF * len(changed))


def separating_changes(
    drifted: Mapping[str, frozenset[Change]],
    others: Iterable[frozenset[Change]],
    reads: Collection[str],
) -> list[ChangeLine]:
    """The changes that the drifted hosts have more often than the others, the clearest first.

    A line names the values if hosts share them; else it only says that the path changed.
    """
    other_changes = list(others)
    paths: dict[str, list[tuple[str, Change]]] = {}
    for host, changes in drifted.items():
        for change in changes:
            paths.setdefault(change.path, []).append((host, change))
    elsewhere: dict[str, list[frozenset[Change]]] = {path: [] for path in paths}
    for changes in other_changes:
        for path in {change.path for change in changes} & paths.keys():
            elsewhere[path].append(frozenset(c for c in changes if c.path == path))
    lines = []
    for path, pairs in paths.items():
        candidates = _lines(path, pairs, elsewhere[path], reads)
        best = max(candidates, key=lambda line: _clarity(line, drifted, other_changes))
        is_frequent = len(best.drifted) >= HALF * len(drifted)
        if is_frequent and _clarity(best, drifted, other_changes)[0] >= TOLD:
            lines.append(best)
    lines.sort(key=lambda line: (-_clarity(line, drifted, other_changes)[0], line.own, line.path))
    return lines


def _clarity(
    line: ChangeLine, drifted: Mapping[str, object], others: Sequence[object]
) -> tuple[float, int]:
    """How much more often the drifted hosts have it; then how many values the line names."""
    share = len(line.drifted) / len(drifted)
    other_share = line.others / len(others) if others else 0.0
    return share - other_share, bool(line.before) + bool(line.after)


def _lines(
    path: str,
    pairs: Sequence[tuple[str, Change]],
    elsewhere: Sequence[frozenset[Change]],
    reads: Collection[str],
) -> Iterator[ChangeLine]:
    """The possible lines of a path: it changed, to this value, from this value to that one."""
    is_own = any(_covers(read, path) for read in reads)
    hosts = tuple(sorted({host for host, _ in pairs}))
    sole = pairs[0][1] if len(pairs) == 1 else Change(path, "", "")
    yield ChangeLine(
        path=path,
        before=sole.before,
        after=sole.after,
        drifted=hosts,
        others=len(elsewhere),
        own=is_own,
    )
    changed = len(hosts) + len(elsewhere)
    values_after = {change.after for _, change in pairs}.union(
        *({e.after for e in s} for s in elsewhere)
    )
    if changed > 1 and 2 * len(values_after) > changed:  # each host has its own: a clock
        return
    for after in {change.after for _, change in pairs}:
        sharing = tuple(sorted({host for host, change in pairs if change.after == after}))
        number = sum(
            any(other_change.after == after for other_change in changes) for changes in elsewhere
        )
        yield ChangeLine(
            path=path, before="", after=after, drifted=sharing, others=number, own=is_own
        )
    for shared_change in {change for _, change in pairs}:
        sharing = tuple(sorted({host for host, change in pairs if change == shared_change}))
        number = sum(shared_change in changes for changes in elsewhere)
        yield ChangeLine(
            path=path,
            before=shared_change.before,
            after=shared_change.after,
            drifted=sharing,
            others=number,
            own=is_own,
        )


def _covers(read: str, path: str) -> bool:
    """Whether a check that reads `read` reads a path."""
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
    """The group of hosts that began to fail in one run and passed last in one run."""
    lines = separating_changes(drifted, others, reads)
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
