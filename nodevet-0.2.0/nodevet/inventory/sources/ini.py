"""Hosts from Ansible's INI inventories, and from plain lists of names.

"How to build your inventory" in Ansible's documentation describes the form: groups, children, vars,
and ranges such as `www[01:50]`. A file without groups and variables is a list of nodesets, one or
more on a line, as on standard input.
"""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.inventory.ansible_program import merged_beside, read_by_ansible
from nodevet.inventory.ansible_static import RANGE, StaticInventory
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import InventoryHosts, this_machine
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.select import make, words_of

KIND = "Ansible's INI, or a list of names (.ini, .txt)"
ENDINGS = (".ini", ".txt", ".hosts", ".list", ".cfg", "")
ONLY_NAMES = (".txt", ".list")

SECTION = re.compile(r"\[([^:\]]+)(?::(\w+))?\]\s*(?:[#;].*)?")
VARIABLE = re.compile(r"\s[A-Za-z_]\w*\s*=")
KINDS = ("hosts", "children", "vars")
SECTIONS = "write [GROUP], [GROUP:children] or [GROUP:vars]"


def recognizes(path: Path) -> bool:
    """Whether the file has an ending, or is neither a program nor YAML or JSON."""
    if path.suffix:
        return True
    if not path.is_file() or os.access(path, os.X_OK):
        return False
    rows = list(_rows(read_text(path)))
    return bool(rows) and not rows[0][1].startswith(("{", "---")) and ": " not in rows[0][1]


def read(path: Path) -> InventoryHosts:
    """The hosts of an INI inventory, or of a list of names. Raises InventoryError."""
    text, file = read_text(path), str(path)
    rows = list(_rows(text))
    if any(SECTION.fullmatch(row) or VARIABLE.search(row) or RANGE.search(row) for _, row in rows):
        return read_by_ansible(path) or _IniReader(file).read(rows)
    if path.suffix not in ONLY_NAMES and merged_beside(path) and (hosts := read_by_ansible(path)):
        return hosts
    entries, problems = make(words_of(text, file), this_machine)
    if problems:
        raise InventoryError(problems)
    return InventoryHosts(tuple(entries), frozenset())


def _rows(text: str) -> Iterator[tuple[int, str]]:
    """The lines with content, and their numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        row = line.strip()
        if row and row[0] not in "#;":
            yield number, row


class _IniReader:
    """Reads the lines of an inventory."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.inventory = StaticInventory(file)
        self.problems: list[Problem] = []

    def read(self, rows: list[tuple[int, str]]) -> InventoryHosts:
        group, kind = "ungrouped", "hosts"
        for number, row in rows:
            section = SECTION.fullmatch(row)
            if section:
                group, kind = section[1].strip(), section[2] or "hosts"
                self.inventory.group(group, self._place(number))
                if kind not in KINDS:
                    self._refuse(number, f"[{brief(group)}:{kind}] is not a section", SECTIONS)
                continue
            try:
                self._take(group, kind, row, self._place(number))
            except ValueError as error:
                self._refuse(number, str(error))
        if self.problems:
            raise InventoryError(self.problems)
        return self.inventory.hosts_read()

    def _take(self, group: str, kind: str, row: str, place: Place) -> None:
        """Raises ValueError."""
        if kind == "vars":
            name, equals, value = row.partition("=")
            if not equals:
                raise ValueError(f"{brief(row)} is not NAME=VALUE")
            self.inventory.variable(group, name.strip(), _value(value.strip()), place)
        elif kind == "children":
            self.inventory.child(group, row.split("#", maxsplit=1)[0].strip(), place)
        elif kind == "hosts":
            pattern, *words = shlex.split(row, comments=True)
            variables = dict(_pair(word) for word in words)
            self.inventory.host(group, pattern, variables, dict.fromkeys(variables, place), place)

    def _place(self, number: int) -> Place:
        return Place(number, 1, self.file)

    def _refuse(self, number: int, text: str, advice: str = "") -> None:
        self.problems.append(Problem(self._place(number), "", text, advice))


def _pair(word: str) -> tuple[str, Any]:
    """Raises ValueError."""
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"{brief(word)} is not NAME=VALUE; put each host on its own line")
    return name, _value(value)


def _value(text: str) -> Any:
    """The value of a Python literal, as in Ansible; else the text."""
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return literal if isinstance(literal, (str, int, float, bool)) else text
