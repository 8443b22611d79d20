"""Hosts from Ansible's YAML inventories: groups with hosts, children and vars.

Ansible's documentation of the inventory plug-in `yaml` describes the form. If Ansible is not
installed, nodevet reads the file itself, and refuses what only Ansible can read.
"""

import os
import re
from pathlib import Path
from typing import Any

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.document.kinds import DocumentKind, recognize
from nodevet.document.parse import parse
from nodevet.document.text import Source
from nodevet.document.tree import Broken, Entry, Mapping, Node, Scalar, Sequence
from nodevet.inventory.ansible_groups import GROUP_KEYS
from nodevet.inventory.ansible_program import INSTALL, read_by_ansible
from nodevet.inventory.ansible_static import StaticInventory
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.sources.ansible_json import VAULT
from nodevet.inventory.sources.fleet_yaml import MAX_NODES

KIND = "Ansible's YAML (.yml)"
ENDINGS = (".yaml", ".yml", "")

OURS = re.compile(r"^(?:nodevet|defaults|hosts|groups)\s*:", re.MULTILINE)
ANSIBLES = re.compile(
    r"^(?:all|ungrouped|plugin)\s*:|^(?:\s+|[^\s#][^#\n]*:\s*\{\s*)(?:hosts|children|vars)\s*:",
    re.MULTILINE,
)
PLUGIN = "plugin"


def recognizes(path: Path) -> bool:
    """Whether the file has groups of Ansible, or the settings of an inventory plug-in."""
    if not path.is_file() or (not path.suffix and os.access(path, os.X_OK)):
        return False
    try:
        text = read_text(path)
    except InventoryError:  # the source that reads it says why
        return False
    if OURS.search(text) or not ANSIBLES.search(text):
        return False
    return recognize(text.encode()) in (None, DocumentKind.INVENTORY)


def read(path: Path) -> InventoryHosts:
    """The hosts of a YAML inventory of Ansible. Raises InventoryError."""
    return read_by_ansible(path) or _read(path)


def _read(path: Path) -> InventoryHosts:
    source = Source(path=path, shown=str(path), text=read_text(path), sha256="")
    tree = parse(source, max_nodes=MAX_NODES, loose=True)
    reader = _YamlReader(str(path), list(tree.problems))
    for entry in tree.root.entries if tree.root else ():
        reader.group(entry.key, entry.value, entry.place)
    if reader.problems:
        raise InventoryError(sorted(reader.problems, key=lambda problem: problem.place))
    return reader.inventory.hosts_read()


class _YamlReader:
    """Walks the tree in Ansible's order, so the same variables win."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.inventory = StaticInventory(file)

    def group(self, name: str, node: Node, place: Place) -> None:
        if name == PLUGIN:
            self.tell(place, name, "only Ansible runs inventory plug-ins", INSTALL)
            return
        self.inventory.group(name, self.place_in_file(place))
        for key, (value, at) in self.mapping(node, name).items():
            if key not in GROUP_KEYS:
                text = f"a group has {', '.join(GROUP_KEYS)} and nothing else"
                self.tell(at, f"{name}.{brief(key)}", text)
                continue
            for member, (part, where) in self.mapping(_as_mapping(value), f"{name}.{key}").items():
                self.member(name, key, member, part, where)

    def member(self, group: str, key: str, name: str, node: Node, place: Place) -> None:
        if key == "vars":
            self.inventory.variable(group, name, _value(node), self.place_in_file(place))
        elif key == "children":
            self.inventory.child(group, name, self.place_in_file(place))
            self.group(name, node, place)
        else:
            self.host(group, name, node, place)

    def host(self, group: str, pattern: str, node: Node, place: Place) -> None:
        own = self.mapping(node, f"{group}.hosts.{brief(pattern)}")
        variables = {key: _value(value) for key, (value, _) in own.items()}
        places = {key: self.place_in_file(at) for key, (_, at) in own.items()}
        try:
            self.inventory.host(group, pattern, variables, places, self.place_in_file(place))
        except ValueError as error:
            self.tell(place, f"{group}.hosts", str(error))

    def mapping(self, node: Node, path: str) -> dict[str, tuple[Node, Place]]:
        if isinstance(node, Mapping):
            return {entry.key: (entry.value, entry.place) for entry in node.entries}
        if not (isinstance(node, Scalar) and node.value is None):
            self.tell(node.place, path, "must be keys with values", "end each name with a colon")
        return {}

    def place_in_file(self, place: Place) -> Place:
        return place.within(self.file)

    def tell(self, place: Place, path: str, text: str, advice: str = "") -> None:
        self.problems.append(Problem(self.place_in_file(place), path, text, advice))


def _as_mapping(node: Node) -> Node:
    """A single name stands for a mapping with this key and no value."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node
    nothing = Scalar(place=node.place, value=None, text="")
    entry = Entry(key=node.text, place=node.place, value=nothing)
    return Mapping(place=node.place, entries=(entry,))


def _value(node: Node) -> Any:
    """A variable in the form in which Ansible lists it; encrypted values stay encrypted."""
    if isinstance(node, Broken):
        return {VAULT: ""} if node.tag == "!vault" else node.text
    if isinstance(node, Mapping):
        return {entry.key: _value(entry.value) for entry in node.entries}
    if isinstance(node, Sequence):
        return [_value(item) for item in node.items]
    return node.value
