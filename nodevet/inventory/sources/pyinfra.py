"""Hosts from a pyinfra inventory: a Python file whose lists are groups, and its group_data.

Read as pyinfra 3 reads it: host data wins over group data, a later group over
an earlier one, and every group over `all`; a file in group_data wins over data
in the inventory. What pyinfra would leave out or trip over is an error here.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.base.trust import distrust
from nodevet.inventory import programs
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import ALL, Found, HostEntry, Setting
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.local import LOCAL, OVER_SSH, this_machine
from nodevet.inventory.python_places import PythonPlace
from nodevet.inventory.settings import name_problem, validate

KIND = "a pyinfra inventory (.py)"
ENDINGS = (".py",)

RUNNER = Path(__file__).parent.with_name("pyinfra_run.py")
GROUP_DATA = "group_data"
BOOT = (
    "import sys; del sys.argv[0]; sys.path[:] = filter(None, sys.path); import runpy;"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs RUNNER without its folder, or the current one, on the module path before all others."""

DATA = {
    "ssh_hostname": "address",
    "ssh_port": "port",
    "ssh_user": "user",
    "ssh_key": "key_file",
    "ssh_known_hosts_file": "known_hosts",
    "_sudo": "sudo",
    "nodevet_root": "root",
    "nodevet_whole_machine": "whole_machine",
    "nodevet_python": "python",
    "nodevet_expect_hostname": "expect_hostname",
}
"""pyinfra's host data, and ours that it passes over: our setting."""

UNSUPPORTED = {
    "ssh_config_file": "leave it out, and give that file with --ssh-config",
    "ssh_paramiko_connect_kwargs": "say it in ~/.ssh/config, which is followed",
    "_sudo_user": "nodevet uses sudo for root only",
    "_su_user": "use _sudo",
    "_doas": "use _sudo",
    "_dzdo": "use _sudo",
}
"""Host data that chooses the way to a host or the user there, and that nodevet cannot follow."""


@dataclass(frozen=True, slots=True)
class Other:
    """A value that is not plain data: a function, a class, an object."""

    kind: str


class PlacedValue(NamedTuple):
    """One value of host data, and the place that says it."""

    value: Any
    where: PythonPlace


Data = dict[str, PlacedValue]


@dataclass(frozen=True, slots=True)
class Group:
    """A list of the inventory: its hosts, each with the data that it has there."""

    hosts: list[tuple[str, Data]]
    data: Data


def read(path: Path) -> Found:
    """The hosts of a pyinfra inventory. Raises InventoryError."""
    text = read_text(path)
    if why := refused(path):
        raise InventoryError([Problem(brief(path), "", why)])
    command = [sys.executable, "-c", BOOT, str(RUNNER), str(path), *_modules(Path.cwd())]
    result = json.loads(programs.output(command, str(path)) or "{}")
    if not result:
        advice = "an inventory must not end the process"
        raise InventoryError([Problem(brief(path), "", "ended before it was read", advice)])
    if "failed" in result:
        file, line, column, problem = result["failed"]
        raise InventoryError([Problem(Place(line, column, file), "", brief(problem, limit=300))])
    reader = _PyinfraReader(text, str(path))
    found = reader.found(
        {name: untagged(item) for name, item in result["inventory"].items()},
        [
            (group, file, {name: untagged(item) for name, item in data.items()})
            for group, file, data in result["group_data"]
        ],
    )
    if reader.problems:
        raise InventoryError(reader.problems)
    return found


def refused(path: Path) -> str:
    """Why a program is not run that reading this inventory would run, or "".

    The user named the inventory, and so accepts it and the group_data beside it, but not what other
    users put into the current folder; root accepts neither.
    """
    here = Path.cwd()
    beside = path.resolve().parent
    programs = [path, *sorted((beside / GROUP_DATA).glob("*.py"))] if os.geteuid() == 0 else []
    if here != beside:
        programs += sorted((here / GROUP_DATA).glob("*.py"))
    doubts = ((each, distrust(each)) for each in programs)
    each, why = next((pair for pair in doubts if pair[1]), (path, ""))
    if not why:
        return ""
    whom = "root does not run" if os.geteuid() == 0 else "nodevet does not run"
    return f"{why}, so {whom} {each}; use a copy that others may not write, or a YAML inventory"


def _modules(here: Path) -> tuple[str, ...]:
    """The current folder, unless other users may add modules to it, as they may to /tmp."""
    sticky = here.stat().st_mode & stat.S_ISVTX
    return () if sticky or distrust(here) else (str(here),)


def untagged(item: Any) -> Any:
    """A value as pyinfra_run took it apart."""
    if not isinstance(item, dict):
        return item
    ((kind, parts),) = item.items()
    if kind == "list":
        return [untagged(part) for part in parts]
    if kind == "tuple":
        return tuple(untagged(part) for part in parts)
    if kind == "dict":
        return {key: untagged(part) for key, part in parts}
    return Other(parts)


class _PyinfraReader:
    """From what the files define to hosts, as pyinfra would build its inventory."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.problems: list[Problem] = []

    def found(self, names: Mapping[str, Any], group_data: Iterable[tuple[str, str, Any]]) -> Found:
        groups = {}
        for name, value in names.items():
            group = self.group(name, value)
            if group is not None:
                groups[name] = group
        everything = groups.pop(ALL, None) or Group(
            [(host, {}) for group in groups.values() for host, _ in group.hosts], {}
        )
        groups.setdefault(Path(self.file).name.rpartition(".")[0], Group(everything.hosts, {}))
        for name, file, values in group_data:
            text = read_text(Path(file))
            said = {
                key: PlacedValue(value, PythonPlace(text, file, (key,)))
                for key, value in values.items()
            }
            group = everything if name == ALL else groups.setdefault(name, Group([], {}))
            group.data.update(said)
        self.refuse_left_out(groups, everything)
        names_in_order = dict.fromkeys(name for name, _ in everything.hosts)
        entries = self.entries(list(names_in_order), groups, everything)
        return Found(tuple(entries), frozenset(groups))

    def group(self, name: str, value: Any) -> Group | None:
        """A variable as a group; None if it is none, as pyinfra has it."""
        data: Any = {}
        if isinstance(value, tuple):
            if len(value) != 2 or not isinstance(value[0], (list, tuple)):
                if any(isinstance(part, (str, list, tuple)) for part in value):
                    self.tell((name,), name, "a group is a list of hosts, or (hosts, data)")
                return None
            value, data = value
        if not isinstance(value, list | tuple) or name == "":
            return None
        hostlike = [isinstance(item, (str, tuple)) for item in value]
        if not any(hostlike) and value:
            return None
        if not isinstance(data, dict):
            self.tell((name,), name, "the data of a group is a dict")
            data = {}
        if not all(hostlike):
            text = "a host is a name or (name, data); pyinfra would leave out the whole group"
            self.tell((name,), name, text)
        hosts = [
            self.member(name, item) for item, fits in zip(value, hostlike, strict=True) if fits
        ]
        return Group([host for host in hosts if host], self.data(data, (name,)))

    def member(self, group: str, item: Any) -> tuple[str, Data] | None:
        if isinstance(item, str):
            return item, {}
        if len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], dict):
            return item[0], self.data(item[1], (item[0], group))
        self.tell((group,), group, "a host is a name or (name, data)")
        return None

    def data(self, values: Mapping[str, Any], words: tuple[str, ...]) -> Data:
        place = PythonPlace(self.text, self.file, words)
        return {key: PlacedValue(value, place) for key, value in values.items()}

    def refuse_left_out(self, groups: Mapping[str, Group], everything: Group) -> None:
        known = {name for name, _ in everything.hosts}
        for group, listed in groups.items():
            for name, _ in listed.hosts:
                if name not in known:
                    text = f"{brief(name)} is not in `all`, so pyinfra would leave it out"
                    self.tell((name, group), group, text, "add it to `all`, or remove it here")

    def entries(
        self, names: list[str], groups: Mapping[str, Group], everything: Group
    ) -> list[HostEntry]:
        own: dict[str, Data] = {name: {} for name in names}
        member: dict[str, list[str]] = {name: [] for name in names}
        for group, listed in (*groups.items(), (ALL, everything)):
            for name, data in listed.hosts:
                if name in own:
                    own[name].update(data)
                    member[name].append(group)
        inherited: dict[tuple[str, ...], Data] = {}
        entries = []
        for name in names:
            above = tuple(dict.fromkeys(group for group in member[name] if group != ALL))
            if above not in inherited:
                inherited[above] = dict(everything.data)
                for group in above:
                    inherited[above].update(groups[group].data)
            entry = self.entry(name, frozenset(above), {**inherited[above], **own[name]})
            entries += [entry] if entry else []
        return entries

    def entry(self, name: str, groups: frozenset[str], data: Data) -> HostEntry | None:
        connector, slash, host = name.partition("/")
        local = name == LOCAL
        if local:
            host = this_machine().name
        elif connector != "@ssh" or not slash:
            host = name
        problem = name_problem(host)
        if host.startswith("@"):
            problem = f"the connector {brief(connector)} is not supported"
            self.tell((name,), "", problem, "nodevet reaches hosts over @ssh, or @local")
            return None
        if problem:
            self.tell((name,), "", f"{brief(name) or 'an empty name'}: {problem}")
            return None
        for key, advice in UNSUPPORTED.items():
            if key in data and data[key].value and data[key].value != "root":
                text = f"{host} has {key}, which nodevet does not follow"
                self.problems.append(Problem(data[key].where, "", text, advice))
        said = {
            setting: data[key]
            for key, setting in DATA.items()
            if key in data and data[key].value is not None and not (local and setting in OVER_SSH)
        }
        values, wrong = validate({setting: found.value for setting, found in said.items()})
        for setting, text in wrong:
            key = next(key for key, ours in DATA.items() if ours == setting)
            value = said[setting].value
            shown = f"a {value.kind}" if isinstance(value, Other) else brief(repr(value))
            place = said[setting].where
            self.problems.append(Problem(place, f"{host}.{key}", f"{text}, not {shown}"))
        settings = {key: Setting(value, said[key].where) for key, value in values.items()}
        where = PythonPlace(self.text, self.file, (name, *sorted(groups)))
        return HostEntry(host, where, groups, settings, local)

    def tell(self, words: tuple[str, ...], path: str, text: str, advice: str = "") -> None:
        place = PythonPlace(self.text, self.file, words)
        self.problems.append(Problem(place, path, text, advice))
