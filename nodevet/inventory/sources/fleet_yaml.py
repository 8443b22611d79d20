"""Hosts from nodevet's own YAML; the format is described in docs/inventories.md.

    nodevet: 1
    defaults: {user: ops}
    hosts:
      gpu[001-128]:
      gpu007: {address: 10.1.0.7, port: 2222}
    groups:
      h100:
        hosts: gpu[001-064]
        sudo: true

What a host says of itself wins over its groups, an inner group over the one
around it, and every group over `defaults`. Two groups that are not one inside
the other must not disagree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem, did_you_mean
from nodevet.document.parse import parse
from nodevet.document.text import Source
from nodevet.document.tree import Entry as Key
from nodevet.document.tree import Mapping as Keys
from nodevet.document.tree import Node, Scalar, Sequence, plain
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import ALL, MAX_HOSTS, Found, HostEntry, Setting
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.local import LOCAL, this_machine
from nodevet.inventory.nodeset import NodesetError, expand
from nodevet.inventory.settings import GROUP, SETTINGS, validate

KIND = "YAML (.yaml)"
ENDINGS = (".yaml", ".yml")

MAX_NODES = 1_000_000
"""Keys and values: 100,000 hosts with a few settings each."""

ANSIBLE_KEYS = {"all", "ungrouped", "plugin"}

Said = Mapping[str, Setting]


def read(path: Path) -> Found:
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
    return reader.found()


@dataclass(frozen=True, slots=True)
class _Membership:
    """A host in a group, with every group around it, outermost first."""

    path: tuple[str, ...]
    said: Said
    where: Place


@dataclass(slots=True)
class _Seen:
    """What the file says about one host so far."""

    where: Place
    local: bool = False
    own: dict[str, Setting] = field(default_factory=dict)
    memberships: list[_Membership] = field(default_factory=list)


class _FleetReader:
    """Walks the tree once and collects hosts, groups and problems."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.hosts: dict[str, _Seen] = {}
        self.groups: dict[str, Place] = {}
        self.defaults: Said = {}

    def document(self, root: Keys) -> None:
        ansible = ANSIBLE_KEYS & {entry.key for entry in root.entries}
        keys = self.keys(
            root, "", ("nodevet", "defaults", "hosts", "groups"), ansible=bool(ansible)
        )
        version = keys.get("nodevet")
        if version is None:
            text = "the version of the format is missing"
            self.tell(root.place, "nodevet", text, "begin with the line: nodevet: 1")
        elif plain(version.value) != 1:
            text = "this nodevet reads version 1 of the format"
            self.tell(version.value.place, "nodevet", text, "write nodevet: 1")
        if "defaults" in keys:
            self.defaults = self.said(keys["defaults"].value, "defaults")
        if "hosts" in keys:
            self.listed(keys["hosts"].value, "hosts", None)
        if "groups" in keys:
            self.nested(keys["groups"].value, "groups", (), {})

    def found(self) -> Found:
        """The hosts with their settings resolved. Raises InventoryError if groups disagree."""
        entries = [self.resolve(name, seen) for name, seen in self.hosts.items()]
        if self.problems:
            raise InventoryError(self.problems)
        return Found(tuple(entries), frozenset(self.groups))

    def resolve(self, name: str, seen: _Seen) -> HostEntry:
        paths = {member.path for member in seen.memberships}
        outer = {path[:size] for path in paths for size in range(1, len(path))}
        said: dict[str, Setting] = {}
        for member in seen.memberships:
            if member.path in outer:
                continue
            for key, setting in member.said.items():
                known = said.setdefault(key, setting)
                if known.value != setting.value and key not in seen.own:
                    text = f"{name} gets {key} {_say(setting)} here and {_say(known)} at"
                    advice = f"write {key} on {name} itself"
                    problem = Problem(setting.where, "", f"{text} {known.where}", advice)
                    self.problems.append(problem)
        return HostEntry(
            name=name,
            where=seen.where,
            groups=frozenset(group for path in paths for group in path),
            settings={**self.defaults, **said, **seen.own},
            local=seen.local,
        )

    def nested(self, node: Node, path: str, outer: tuple[str, ...], inherited: Said) -> None:
        """The groups of a mapping, and those inside them."""
        for entry in self.mapping(node, path):
            where = f"{path}.{brief(entry.key)}"
            if not GROUP.fullmatch(entry.key) or entry.key == ALL:
                text = "is always every host" if entry.key == ALL else "not a name for a group"
                self.tell(entry.place, where, text, "use letters, digits, '_', '-' and '.'")
                continue
            known = self.groups.setdefault(entry.key, self.place(entry.place))
            if known != self.place(entry.place):
                text = f"the group is defined twice, first at {known}"
                self.tell(entry.place, where, text, "give one of them another name")
            if isinstance(entry.value, Scalar) and entry.value.value is None:
                continue
            keys = self.keys(entry.value, where, ("hosts", "groups", *SETTINGS))
            said = {**inherited, **self.settings(keys, where)}
            inner = (*outer, entry.key)
            if "hosts" in keys:
                member = _Membership(inner, said, self.place(entry.place))
                self.listed(keys["hosts"].value, f"{where}.hosts", member)
            if "groups" in keys:
                self.nested(keys["groups"].value, f"{where}.groups", inner, said)

    def listed(self, node: Node, path: str, member: _Membership | None) -> None:
        """Hosts as one nodeset, a list of them, or nodesets with settings."""
        if isinstance(node, Keys):
            for entry in node.entries:
                where = f"{path}.{brief(entry.key)}"
                own = self.said(entry.value, where, empty=True)
                self.add(entry.key, self.place(entry.place), where, own, member)
        elif isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self.listed_text(item, f"{path}[{index}]", member)
        else:
            self.listed_text(node, path, member)

    def listed_text(self, node: Node, path: str, member: _Membership | None) -> None:
        if isinstance(node, Scalar) and node.value is not None:
            self.add(node.text, self.place(node.place), path, {}, member)
        elif isinstance(node, (Scalar, Keys, Sequence)):
            text = "must be a nodeset such as gpu[001-128]"
            self.tell(node.place, path, text, 'in a list, quote it: "gpu[001-128]"')

    def add(
        self, nodeset: str, where: Place, path: str, own: Said, member: _Membership | None
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
            seen = self.hosts.get(name)
            if seen is None:
                seen = self.hosts[name] = _Seen(where, local)
            elif seen.local != local and (local or member is None):
                text = f"{name} is both {LOCAL} and a host reached over SSH, at {seen.where}"
                self.problems.append(Problem(where, path, text, "keep one of the two"))
            for key, setting in own.items():
                known = seen.own.setdefault(key, setting)
                if known.value != setting.value:
                    text = f"{name} has {key} {_say(setting)} here and {_say(known)} at"
                    advice = "keep one of the two"
                    self.problems.append(
                        Problem(setting.where, path, f"{text} {known.where}", advice)
                    )
            if member is not None:
                seen.memberships.append(member)

    def said(self, node: Node, path: str, *, empty: bool = False) -> Said:
        if empty and isinstance(node, Scalar) and node.value is None:
            return {}
        return self.settings(self.keys(node, path, tuple(SETTINGS)), path)

    def settings(self, keys: Mapping[str, Key], path: str) -> Said:
        given = {key: entry for key, entry in keys.items() if key in SETTINGS}
        values, wrong = validate({key: plain(entry.value) for key, entry in given.items()})
        for key, text in wrong:
            node = given[key].value
            shown = f"{text}, not {brief(node.text)}" if isinstance(node, Scalar) else text
            self.tell(node.place, f"{path}.{key}", shown)
        return {key: Setting(value, self.place(given[key].place)) for key, value in values.items()}

    def keys(
        self, node: Node, path: str, allowed: tuple[str, ...], *, ansible: bool = False
    ) -> dict[str, Key]:
        """The entries of a mapping by key; a key that is not allowed is a problem."""
        known = {}
        for entry in self.mapping(node, path):
            if entry.key in allowed:
                known[entry.key] = entry
                continue
            where = f"{path}.{brief(entry.key)}" if path else brief(entry.key)
            advice = did_you_mean(entry.key, allowed) or f"known here: {', '.join(allowed)}"
            if ansible:
                advice = (
                    "for an Ansible inventory run: ansible-inventory -i FILE --list > FILE.json"
                )
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


def _say(setting: Setting) -> str:
    value = setting.value
    return brief(str(value).lower() if isinstance(value, bool) else value)
