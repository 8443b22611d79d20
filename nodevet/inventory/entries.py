"""The hosts of the sources, merged into one list."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodevet.base.host_names import name_problem
from nodevet.base.nodeset import LOCAL
from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.base.shared import shared
from nodevet.inventory.bmc import PREFIX, bmc_of
from nodevet.inventory.errors import InventoryError
from nodevet.model import Host

ALL = "all"
"""The group of every host. It is never listed on a host."""

OVER_SSH = {"address", "port", "user", "key_file", "known_hosts"}


class Setting(NamedTuple):
    """One setting of a host and its place."""

    value: Any
    where: object


class HostEntry(msgspec.Struct, frozen=True):
    """The entry for one host at one place."""

    name: str
    where: object
    groups: frozenset[str] = frozenset()
    settings: Mapping[str, Setting] = {}
    local: bool = False

    def host(self) -> Host:
        values = {name: setting.value for name, setting in self.settings.items()}
        bmc = bmc_of(self.name, values)
        own = {name: value for name, value in values.items() if not name.startswith(PREFIX)}
        groups = shared(self.groups)  # even an empty one takes 216 bytes
        return Host(name=self.name, local=self.local, groups=groups, bmc=bmc, **own)


class InventoryHosts(msgspec.Struct, frozen=True):
    """The hosts of one source. `groups` includes those without a host."""

    entries: tuple[HostEntry, ...] = ()
    groups: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def merge(entries: Iterable[HostEntry]) -> tuple[dict[str, HostEntry], list[Problem]]:
    """One entry per name, in order of first mention, and a problem for each contradiction."""
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


def _contradictions(first: HostEntry, second: HostEntry) -> Iterable[Problem]:
    name = brief(first.name)
    if first.local != second.local:
        near, far = (first, second) if first.local else (second, first)
        text = f"{name} is this machine, but {far.where} reaches it over SSH"
        yield Problem(near.where, "", text, "keep one of the two")
    for key, setting in second.settings.items():
        known = first.settings.get(key)
        if known is not None and known.value != setting.value:
            text = f"{name} has {key} {brief(value_text(setting.value))}, but {known.where} says "
            text += brief(value_text(known.value))
            yield Problem(setting.where, "", text, "keep one of the two")


def same_machine(entries: Iterable[HostEntry]) -> list[Problem]:
    """A problem for each host with the address of another one: nodevet would vet one machine twice.

    Hosts with different roots may share an address, because one machine may hold several trees.
    """
    machines: dict[tuple[Any, ...], HostEntry] = {}
    problems = []
    for entry in entries:
        values = {key: setting.value for key, setting in entry.settings.items()}
        machine = (
            (None, None) if entry.local else (values.get("address", entry.name), values.get("port"))
        )
        known = machines.setdefault((*machine, values.get("root")), entry)
        if known is not entry:
            text = f"{brief(entry.name)} has the same address as {brief(known.name)}"
            where = entry.settings["address"].where if "address" in values else entry.where
            advice = "give each its own address or port, or keep one"
            problems.append(Problem(where, "", text, advice))
    return problems


def value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def hostname() -> str:
    """The kernel's hostname, from gethostname(2)."""
    return os.uname().nodename


def this_machine() -> HostEntry:
    """This machine by its own hostname. Raises InventoryError if the hostname is not usable."""
    name = hostname()
    problem = name_problem(name)
    if problem:
        text = f"this machine's hostname is {brief(name) or 'empty'}: {problem}"
        raise InventoryError([Problem(LOCAL, "", text, "set it with hostnamectl")])
    return HostEntry(name, LOCAL, local=True)


def with_settings(hosts: Mapping[str, HostEntry], machine: HostEntry) -> HostEntry:
    """This machine with an inventory's settings for its name: groups, root, python, sudo, ..."""
    entry = hosts.get(machine.name)
    if entry is None:
        return machine
    settings = {key: setting for key, setting in entry.settings.items() if key not in OVER_SSH}
    return replace(entry, settings=settings, local=True)
