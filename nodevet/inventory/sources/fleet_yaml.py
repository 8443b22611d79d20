"""Hosts from nodevet's own YAML; docs/inventories.md describes the format.

    nodevet: 1
    defaults: {user: ops}
    hosts:
      gpu[001-128]:
      gpu007: {address: 10.1.0.7, port: 2222}
    groups:
      h100:
        hosts: gpu[001-064]
        sudo: true

A host's own settings override those of its groups, an inner group overrides an outer one, and every
group overrides `defaults`. Groups that are not nested must not contradict each other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodevet.base.nodeset import LOCAL, MAX_HOSTS, NodesetError, expand
from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem, did_you_mean
from nodevet.document.parse import parse
from nodevet.document.text import Source
from nodevet.document.tree import Entry as Key
from nodevet.document.tree import Mapping as Keys
from nodevet.document.tree import Node, Scalar, Sequence, plain
from nodevet.inventory.bmc import PREFIX
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import (
    ALL,
    HostEntry,
    InventoryHosts,
    Setting,
    this_machine,
    value_text,
)
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.settings import GROUP, SETTINGS, not_value, validate

KIND = "YAML (.yaml)"
ENDINGS = (".yaml", ".yml")

MAX_NODES = 1_000_000
"""Keys and values: 100,000 hosts with a few settings each."""

BMC = "bmc"
OF_BMC = tuple(key.removeprefix(PREFIX) for key in SETTINGS if key.startswith(PREFIX))
KEYS = (*(key for key in SETTINGS if not key.startswith(PREFIX)), BMC)

Settings = Mapping[str, Setting]


def read(path: Path) -> InventoryHosts:
    """The hosts of a YAML inventory. Raises InventoryError."""
    text = read_text(path)
    tree = parse(Source(path=path, shown=str(path), text=text, sha256=""), max_nodes=MAX_NODES)
    problems = list(tree.problems)
    if tree.root is None:
        raise InventoryError(problems)
    reader = _FleetReader(str(path), problems)
    reader.document(tree.root)
    if problems:
        raise InventoryError(sorted(problems, key=lambda problem: problem.place))
    return reader.hosts_of_file()


@dataclass(frozen=True, slots=True)
class _Membership:
    """A host's membership in a group. `path`: the groups around it, outermost first, and it."""

    path: tuple[str, ...]
    settings: Settings
    where: Place


@dataclass(slots=True)
class _HostSettings:
    """The entries of the file for one host so far."""

    where: Place
    local: bool = False
    own: dict[str, Setting] = field(default_factory=dict)
    memberships: list[_Membership] = field(default_factory=list)


class _FleetReader:
    """Walks the tree once and collects hosts, groups and problems."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.hosts: dict[str, _HostSettings] = {}
        self.groups: dict[str, Place] = {}
        self.defaults: Settings = {}

    def document(self, root: Keys) -> None:
        version = root.get("nodevet")
        if version is None and not {"defaults", "hosts", "groups"} & {e.key for e in root.entries}:
            text = "not an inventory: nodevet's begin with the line nodevet: 1, and Ansible's have"
            text += " groups with hosts, children or vars"
            self.tell(root.place, "", text, "correct it, or name another file")
            return
        keys = self.keys(root, "", ("nodevet", "defaults", "hosts", "groups"))
        if version is None:
            text = "the version of the format is missing"
            self.tell(root.place, "nodevet", text, "begin with the line: nodevet: 1")
        elif plain(version.value) != 1:
            text = "this nodevet reads version 1 of the format"
            self.tell(version.value.place, "nodevet", text, "write nodevet: 1")
        if "defaults" in keys:
            self.defaults = self.own_settings(keys["defaults"].value, "defaults")
        if "hosts" in keys:
            self.host_list(keys["hosts"].value, "hosts", None)
        if "groups" in keys:
            self.group_tree(keys["groups"].value, "groups", (), {})

    def hosts_of_file(self) -> InventoryHosts:
        """The hosts with their settings resolved. Raises InventoryError if groups disagree."""
        entries = [self.resolve(name, host) for name, host in self.hosts.items()]
        if self.problems:
            raise InventoryError(self.problems)
        return InventoryHosts(tuple(entries), frozenset(self.groups))

    def resolve(self, name: str, host: _HostSettings) -> HostEntry:
        paths = {member.path for member in host.memberships}
        outer = {path[:size] for path in paths for size in range(1, len(path))}
        settings: dict[str, Setting] = {}
        for member in host.memberships:
            if member.path in outer:
                continue
            for key, setting in member.settings.items():
                known = settings.setdefault(key, setting)
                if known.value != setting.value and key not in host.own:
                    text = f"{name} gets {key} {_text(setting)} here and {_text(known)} at"
                    advice = f"write {key} on {name} itself"
                    problem = Problem(setting.where, "", f"{text} {known.where}", advice)
                    self.problems.append(problem)
        return HostEntry(
            name=name,
            where=host.where,
            groups=frozenset(group for path in paths for group in path),
            settings={**self.defaults, **settings, **host.own},
            local=host.local,
        )

    def group_tree(
        self, node: Node, path: str, outer: tuple[str, ...], inherited: Settings
    ) -> None:
        """Collect the groups of a mapping, and the groups inside them."""
        for entry in self.mapping(node, path):
            where = f"{path}.{brief(entry.key)}"
            if not GROUP.fullmatch(entry.key) or entry.key == ALL:
                text = "always means every host" if entry.key == ALL else "not a name for a group"
                self.tell(entry.place, where, text, "use letters, digits, '_', '-' and '.'")
                continue
            known = self.groups.setdefault(entry.key, self.place(entry.place))
            if known != self.place(entry.place):
                text = f"the group is defined twice, first at {known}"
                self.tell(entry.place, where, text, "give one of them another name")
            if isinstance(entry.value, Scalar) and entry.value.value is None:
                continue
            keys = self.keys(entry.value, where, ("hosts", "groups", *KEYS))
            settings = {**inherited, **self.settings(keys, where)}
            inner = (*outer, entry.key)
            if "hosts" in keys:
                member = _Membership(inner, settings, self.place(entry.place))
                self.host_list(keys["hosts"].value, f"{where}.hosts", member)
            if "groups" in keys:
                self.group_tree(keys["groups"].value, f"{where}.groups", inner, settings)

    def host_list(self, node: Node, path: str, member: _Membership | None) -> None:
        """Collect hosts from one nodeset, a list of nodesets, or nodesets with settings."""
        if isinstance(node, Keys):
            for entry in node.entries:
                where = f"{path}.{brief(entry.key)}"
                own = self.own_settings(entry.value, where, empty=True)
                self.add(entry.key, self.place(entry.place), where, own, member)
        elif isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self.host_text(item, f"{path}[{index}]", member)
        else:
            self.host_text(node, path, member)

    def host_text(self, node: Node, path: str, member: _Membership | None) -> None:
        if isinstance(node, Scalar) and node.value is not None:
            self.add(node.text, self.place(node.place), path, {}, member)
        elif isinstance(node, (Scalar, Keys, Sequence)):
            text = "must be a nodeset such as gpu[001-128]"
            self.tell(node.place, path, text, 'in a list, quote it: "gpu[001-128]"')

    def add(
        self, nodeset: str, where: Place, path: str, own: Settings, member: _Membership | None
    ) -> None:
        local = nodeset == LOCAL
        try:
            names = [this_machine().name] if local else expand(nodeset)
        except NodesetError as error:
            self.problems.append(Problem(where, path, str(error)))
            return
        if len(self.hosts) + len(names) > 2 * MAX_HOSTS:
            raise InventoryError([Problem(where, path, f"more than {MAX_HOSTS:,} hosts")])
        for name in names:
            host = self.hosts.get(name)
            if host is None:
                host = self.hosts[name] = _HostSettings(where, local)
            elif host.local != local and (local or member is None):
                text = f"{name} is both {LOCAL} and a host reached over SSH, at {host.where}"
                self.problems.append(Problem(where, path, text, "keep one of the two"))
            for key, setting in own.items():
                known = host.own.setdefault(key, setting)
                if known.value != setting.value:
                    text = f"{name} has {key} {_text(setting)} here and {_text(known)} at"
                    advice = "keep one of the two"
                    self.problems.append(
                        Problem(setting.where, path, f"{text} {known.where}", advice)
                    )
            if member is not None:
                host.memberships.append(member)

    def own_settings(self, node: Node, path: str, *, empty: bool = False) -> Settings:
        if empty and isinstance(node, Scalar) and node.value is None:
            return {}
        return self.settings(self.keys(node, path, KEYS), path)

    def settings(self, keys: Mapping[str, Key], path: str) -> Settings:
        entries = {key: entry for key, entry in keys.items() if key in SETTINGS}
        if BMC in keys:
            inner = self.keys(keys[BMC].value, f"{path}.{BMC}", OF_BMC)
            entries |= {PREFIX + key: entry for key, entry in inner.items()}
        values, wrong = validate({key: plain(entry.value) for key, entry in entries.items()})
        for key, text in wrong:
            node = entries[key].value
            message = text + not_value(key, brief(node.text)) if isinstance(node, Scalar) else text
            self.tell(node.place, f"{path}.{key}", message)
        return {
            key: Setting(value, self.place(entries[key].place)) for key, value in values.items()
        }

    def keys(self, node: Node, path: str, allowed: tuple[str, ...]) -> dict[str, Key]:
        """The entries of a mapping by key; reports keys that are not allowed."""
        known = {}
        for entry in self.mapping(node, path):
            if entry.key in allowed:
                known[entry.key] = entry
                continue
            where = f"{path}.{brief(entry.key)}" if path else brief(entry.key)
            advice = did_you_mean(entry.key, allowed) or f"known here: {', '.join(allowed)}"
            self.tell(entry.place, where, "unknown key", advice)
        return known

    def mapping(self, node: Node, path: str) -> Iterator[Key]:
        if isinstance(node, Keys):
            yield from node.entries
        elif isinstance(node, (Scalar, Sequence)):
            self.tell(node.place, path, "must be keys with values", "write key: value")

    def place(self, mark: Place) -> Place:
        return mark.within(self.file)

    def tell(self, where: Place, path: str, text: str, advice: str = "") -> None:
        self.problems.append(Problem(where.within(self.file), path, text, advice))


def _text(setting: Setting) -> str:
    return brief(value_text(setting.value))
