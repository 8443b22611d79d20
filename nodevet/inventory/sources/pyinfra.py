"""Hosts from a pyinfra inventory: a Python file whose lists are groups, and its group_data.

As in pyinfra 3, host data overrides group data, a later group overrides an earlier one, and every
group overrides `all`; a file in group_data overrides data in the inventory. nodevet refuses parts
that pyinfra would ignore or fail on.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nodevet.base.host_names import name_problem
from nodevet.base.nodeset import LOCAL
from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.base.trust import distrust
from nodevet.inventory import programs
from nodevet.inventory.bmc import PREFIX
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import (
    ALL,
    OVER_SSH,
    HostEntry,
    InventoryHosts,
    Setting,
    this_machine,
)
from nodevet.inventory.errors import InventoryError, inventory_error
from nodevet.inventory.places import PythonPlace
from nodevet.inventory.settings import SETTINGS, not_value, validate

KIND = "a pyinfra inventory (.py)"
ENDINGS = (".py",)

RUNNER = Path(__file__).parent.with_name("pyinfra_run.py")
GROUP_DATA = "group_data"
BOOT = (
    "import sys; del sys.argv[0]; sys.path[:] = filter(None, sys.path); import runpy;"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs RUNNER with neither its folder nor the current one first on the module path."""

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
    **{f"nodevet_{key.replace('.', '_')}": key for key in SETTINGS if key.startswith(PREFIX)},
}
"""Keys of host data, pyinfra's and ours, and the setting of each. pyinfra ignores ours."""

OVER_A_NETWORK = ("@ssh", "@nodevet")  # connectors; the second one is nodevet's own
UNSUPPORTED = {
    "ssh_config_file": "leave it out, and give that file with --ssh-config",
    "ssh_paramiko_connect_kwargs": "write it into ~/.ssh/config, which nodevet follows",
    "_sudo_user": "nodevet uses sudo for root only",
    "_su_user": "use _sudo",
    "_doas": "use _sudo",
    "_dzdo": "use _sudo",
}
"""Host data that chooses a way to the host, or a user there, that nodevet does not support."""


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """A value that is not plain data: a function, a class, an object."""

    kind: str


class PlacedValue(NamedTuple):
    """One value of host data and its place."""

    value: Any
    where: PythonPlace


Data = dict[str, PlacedValue]


@dataclass(frozen=True, slots=True)
class PyinfraGroup:
    """A list in the inventory: its hosts, each with its data in this list."""

    hosts: list[tuple[str, Data]]
    data: Data


def read(path: Path) -> InventoryHosts:
    """The hosts of a pyinfra inventory. Raises InventoryError."""
    text = read_text(path)
    if why := refusal(path):
        raise inventory_error(path, why)
    command = [sys.executable, "-c", BOOT, str(RUNNER), str(path), *_modules(Path.cwd())]
    result = json.loads(programs.output(command, str(path)) or "{}")
    if not result:
        advice = "an inventory must not end the process"
        raise inventory_error(path, "ended before it was read", advice)
    if "failed" in result:
        file, line, column, problem = result["failed"]
        raise InventoryError([Problem(Place(line, column, file), "", brief(problem, limit=300))])
    reader = _PyinfraReader(text, str(path))
    hosts = reader.hosts(
        {name: untagged(item) for name, item in result["inventory"].items()},
        [
            (group, file, {name: untagged(item) for name, item in data.items()})
            for group, file, data in result["group_data"]
        ],
    )
    if reader.problems:
        raise InventoryError(reader.problems)
    return hosts


def refusal(path: Path) -> str:
    """Why nodevet does not run a program of this inventory, or "".

    The user named the inventory, and so accepts it and the group_data beside it, but not files of
    other users in the current folder; root accepts neither.
    """
    folder = Path.cwd()
    inventory_folder = path.resolve().parent
    programs = []
    if os.geteuid() == 0:
        programs += [path, *sorted((inventory_folder / GROUP_DATA).glob("*.py"))]
    if folder != inventory_folder:
        programs += sorted((folder / GROUP_DATA).glob("*.py"))
    doubts = ((file, distrust(file, must_exist=True)) for file in programs)
    file, why = next((pair for pair in doubts if pair[1]), (path, ""))
    if not why:
        return ""
    user = "root does not run" if os.geteuid() == 0 else "nodevet does not run"
    return f"{why}, so {user} {file}; use a copy that others may not write, or a YAML inventory"


def _modules(folder: Path) -> tuple[str, ...]:
    """The current folder, unless other users may add modules to it, as to /tmp."""
    sticky = folder.stat().st_mode & stat.S_ISVTX
    return () if sticky or distrust(folder) else (str(folder),)


def untagged(item: Any) -> Any:
    """A value from the tagged form of pyinfra_run."""
    if not isinstance(item, dict):
        return item
    ((kind, parts),) = item.items()
    if kind == "list":
        return [untagged(part) for part in parts]
    if kind == "tuple":
        return tuple(untagged(part) for part in parts)
    if kind == "dict":
        return {key: untagged(part) for key, part in parts}
    return OpaqueValue(parts)


class _PyinfraReader:
    """Turns the definitions of the files into hosts, as pyinfra would build its inventory."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.problems: list[Problem] = []

    def hosts(
        self, names: Mapping[str, Any], group_data: Iterable[tuple[str, str, Any]]
    ) -> InventoryHosts:
        groups = {}
        for name, value in names.items():
            group = self.group(name, value)
            if group is not None:
                groups[name] = group
        everything = groups.pop(ALL, None) or PyinfraGroup(
            [(host, {}) for group in groups.values() for host, _ in group.hosts], {}
        )
        groups.setdefault(
            Path(self.file).name.rpartition(".")[0], PyinfraGroup(everything.hosts, {})
        )
        for name, file, values in group_data:
            text = read_text(Path(file))
            placed = {
                key: PlacedValue(value, PythonPlace(text, file, (key,)))
                for key, value in values.items()
            }
            group = everything if name == ALL else groups.setdefault(name, PyinfraGroup([], {}))
            group.data.update(placed)
        self.refuse_left_out(groups, everything)
        names_in_order = dict.fromkeys(name for name, _ in everything.hosts)
        entries = self.entries(list(names_in_order), groups, everything)
        return InventoryHosts(tuple(entries), frozenset(groups))

    def group(self, name: str, value: Any) -> PyinfraGroup | None:
        """The group of a variable; None if pyinfra does not take it for a group."""
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
        return PyinfraGroup([host for host in hosts if host], self.data(data, (name,)))

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

    def refuse_left_out(self, groups: Mapping[str, PyinfraGroup], everything: PyinfraGroup) -> None:
        known = {name for name, _ in everything.hosts}
        for group, members in groups.items():
            for name, _ in members.hosts:
                if name not in known:
                    text = f"{brief(name)} is not in `all`, so pyinfra would leave it out"
                    self.tell((name, group), group, text, "add it to `all`, or remove it here")

    def entries(
        self, names: list[str], groups: Mapping[str, PyinfraGroup], everything: PyinfraGroup
    ) -> list[HostEntry]:
        own: dict[str, Data] = {name: {} for name in names}
        groups_of: dict[str, list[str]] = {name: [] for name in names}
        for group, members in (*groups.items(), (ALL, everything)):
            for name, data in members.hosts:
                if name in own:
                    own[name].update(data)
                    groups_of[name].append(group)
        inherited: dict[tuple[str, ...], Data] = {}
        entries = []
        for name in names:
            host_groups = tuple(dict.fromkeys(group for group in groups_of[name] if group != ALL))
            if host_groups not in inherited:
                inherited[host_groups] = dict(everything.data)
                for group in host_groups:
                    inherited[host_groups].update(groups[group].data)
            data = {**inherited[host_groups], **own[name]}
            entry = self.entry(name, frozenset(host_groups), data)
            entries += [entry] if entry else []
        return entries

    def entry(self, name: str, groups: frozenset[str], data: Data) -> HostEntry | None:
        connector, slash, host = name.partition("/")
        local = name == LOCAL
        if local:
            host = this_machine().name
        elif connector not in OVER_A_NETWORK or not slash:
            host = name
        problem = name_problem(host)
        if host.startswith("@"):
            problem = f"the connector {brief(connector)} is not supported"
            self.tell(
                (name,), "", problem, "nodevet reaches hosts over @ssh and @nodevet, or @local"
            )
            return None
        if problem:
            self.tell((name,), "", f"{brief(name) or 'an empty name'}: {problem}")
            return None
        for key, advice in UNSUPPORTED.items():
            if key in data and data[key].value and data[key].value != "root":
                text = f"{host} has {key}, which nodevet does not support"
                self.problems.append(Problem(data[key].where, "", text, advice))
        placed = {
            setting: data[key]
            for key, setting in DATA.items()
            if key in data and data[key].value is not None and not (local and setting in OVER_SSH)
        }
        values, wrong = validate({setting: item.value for setting, item in placed.items()})
        for setting, text in wrong:
            key = next(key for key, ours in DATA.items() if ours == setting)
            value = placed[setting].value
            actual = f"a {value.kind}" if isinstance(value, OpaqueValue) else brief(repr(value))
            place = placed[setting].where
            self.problems.append(Problem(place, f"{host}.{key}", text + not_value(setting, actual)))
        settings = {key: Setting(value, placed[key].where) for key, value in values.items()}
        where = PythonPlace(self.text, self.file, (name, *sorted(groups)))
        return HostEntry(host, where, groups, settings, local)

    def tell(self, words: tuple[str, ...], path: str, text: str, advice: str = "") -> None:
        place = PythonPlace(self.text, self.file, words)
        self.problems.append(Problem(place, path, text, advice))
