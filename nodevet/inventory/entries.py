"""What the sources find, and how it becomes one list of hosts."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.model import Host

MAX_HOSTS = 100_000
"""More than this is a slip of the keyboard, not a fleet."""

ALL = "all"
"""The group of every host. It is never listed on a host."""


class Setting(NamedTuple):
    """One setting of a host, and the place that says it."""

    value: Any
    where: object


class HostEntry(msgspec.Struct, frozen=True):
    """What one place says about one host."""

    name: str
    where: object
    groups: frozenset[str] = frozenset()
    settings: Mapping[str, Setting] = {}
    local: bool = False

    def host(self) -> Host:
        values = {name: setting.value for name, setting in self.settings.items()}
        return Host(name=self.name, local=self.local, groups=self.groups, **values)


class Found(msgspec.Struct, frozen=True):
    """What one source holds. `groups` has also those without a host."""

    entries: tuple[HostEntry, ...] = ()
    groups: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def merge(entries: Iterable[HostEntry]) -> tuple[dict[str, HostEntry], list[Problem]]:
    """One entry per name, in order of first mention; what contradicts is a problem."""
    merged: dict[str, HostEntry] = {}
    problems: list[Problem] = []
    for entry in entries:
        known = merged.get(entry.name)
        if known is None:
            merged[entry.name] = entry
        else:
            problems.extend(_contradictions(known, entry))
            merged[entry.name] = HostEntry(
                name=known.name,
                where=known.where,
                groups=known.groups | entry.groups,
                settings={**known.settings, **entry.settings},
                local=known.local,
            )
    return merged, problems


def _contradictions(one: HostEntry, other: HostEntry) -> Iterable[Problem]:
    name = brief(one.name)
    if one.local != other.local:
        near, far = (one, other) if one.local else (other, one)
        text = f"{name} is this machine, but {far.where} reaches it over SSH"
        yield Problem(near.where, "", text, "keep one of the two")
    for key, setting in other.settings.items():
        known = one.settings.get(key)
        if known is not None and known.value != setting.value:
            says = f"{name} has {key} {brief(_say(setting.value))}"
            but = f"{known.where} says {brief(_say(known.value))}"
            yield Problem(setting.where, "", f"{says}, but {but}", "keep one of the two")


def same_machine(entries: Iterable[HostEntry]) -> list[Problem]:
    """Hosts under two names at one address: one of them would be vetted twice, the other never.

    With another root they are told apart: recorded nodes share a machine.
    """
    seen: dict[tuple[Any, ...], HostEntry] = {}
    problems = []
    for entry in entries:
        said = {key: setting.value for key, setting in entry.settings.items()}
        machine = (
            (None, None) if entry.local else (said.get("address", entry.name), said.get("port"))
        )
        known = seen.setdefault((*machine, said.get("root")), entry)
        if known is not entry:
            text = f"{brief(entry.name)} is reached at the same address as {brief(known.name)}"
            where = entry.settings["address"].where if "address" in said else entry.where
            advice = "give each its own address or port, or keep one"
            problems.append(Problem(where, "", text, advice))
    return problems


def _say(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
