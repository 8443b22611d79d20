"""Hosts from Ansible's INI inventories, and from plain lists of names.

The form is described in Ansible's documentation, "How to build your inventory": groups, children,
vars, ranges such as `www[01:50]`. A file without groups and variables is a list of nodesets, one or
more on a line, as on standard input.
"""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import MAX_HOSTS, InventoryHosts, this_machine
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.places import Steps
from nodevet.inventory.select import make, words_of
from nodevet.inventory.sources.ansible_json import hosts_of

KIND = "Ansible's INI, or a list of names (.ini, .txt)"
ENDINGS = (".ini", ".txt", ".hosts", ".list", ".cfg")

SECTION = re.compile(r"\[([^:\]]+)(?::(\w+))?\]\s*(?:[#;].*)?")
RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
VARIABLE = re.compile(r"\s[A-Za-z_]\w*\s*=")
MOST_RANGES = 16  # in one name
KINDS = ("hosts", "children", "vars")
SECTIONS = "write [GROUP], [GROUP:children] or [GROUP:vars]"


def recognizes(path: Path) -> bool:
    """A file without an ending, such as /etc/ansible/hosts, that is not a program, YAML or JSON."""
    if path.suffix or not path.is_file() or os.access(path, os.X_OK):
        return False
    rows = list(_rows(read_text(path)))
    return bool(rows) and not rows[0][1].startswith(("{", "---")) and ": " not in rows[0][1]


def read(path: Path) -> InventoryHosts:
    """The hosts of an INI inventory, or of a list of names. Raises InventoryError."""
    text, file = read_text(path), str(path)
    rows = list(_rows(text))
    if any(SECTION.fullmatch(row) or VARIABLE.search(row) or RANGE.search(row) for _, row in rows):
        return _IniReader(file).read(rows)
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
    """Turns lines into the document of `ansible-inventory --list`, with the place of each part."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.groups: dict[str, dict[str, Any]] = {}
        self.hostvars: dict[str, dict[str, Any]] = {}
        self.lines: dict[Steps, int] = {}
        self.problems: list[Problem] = []

    def read(self, rows: list[tuple[int, str]]) -> InventoryHosts:
        group, kind = "ungrouped", "hosts"
        for number, row in rows:
            section = SECTION.fullmatch(row)
            if section:
                group, kind = section[1].strip(), section[2] or "hosts"
                self.lines.setdefault((group,), number)
                self._group(group)
                if kind not in KINDS:
                    self._refuse(number, f"[{brief(group)}:{kind}] is not a section", SECTIONS)
                continue
            try:
                self._take(group, kind, number, row)
            except ValueError as error:
                self._refuse(number, str(error))
        if self.problems:
            raise InventoryError(self.problems)
        return hosts_of({"_meta": {"hostvars": self.hostvars}, **self.groups}, self._place)

    def _take(self, group: str, kind: str, number: int, row: str) -> None:
        """Raises ValueError."""
        if kind == "vars":
            name, equals, value = row.partition("=")
            if not equals:
                raise ValueError(f"{brief(row)} is not NAME=VALUE")
            self.lines[(group, "vars", name.strip())] = number
            self._group(group).setdefault("vars", {})[name.strip()] = _value(value.strip())
        elif kind == "children":
            child = row.split("#", maxsplit=1)[0].strip()
            self._group(child)
            children = self._group(group).setdefault("children", [])
            self.lines[(group, "children", len(children))] = number
            children.append(child)
        elif kind == "hosts":
            self._hosts(group, number, row)

    def _hosts(self, group: str, number: int, row: str) -> None:
        pattern, *variables = shlex.split(row, comments=True)
        host_variables = dict(_pair(word) for word in variables)
        pattern, port = _port(pattern)
        names = list(islice(_expand(pattern), MAX_HOSTS + 1))
        if len(names) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS:,} hosts")
        for name in names:
            self._group(group).setdefault("hosts", []).append(name)
            own = self.hostvars.setdefault(name, {})
            own.update(({"ansible_port": port} if port else {}) | host_variables)
            for variable in (*host_variables, "ansible_port"):
                self.lines[("_meta", "hostvars", name, variable)] = number
            self.lines.setdefault(("_meta", "hostvars", name), number)
            self.lines[(group, "hosts", len(self.groups[group]["hosts"]) - 1)] = number
        if len(self.hostvars) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS:,} hosts")

    def _group(self, name: str) -> dict[str, Any]:
        return self.groups.setdefault(name, {})

    def _place(self, steps: Steps) -> Place:
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return Place(self.lines.get(steps, 0), 1, self.file)

    def _refuse(self, number: int, text: str, advice: str = "") -> None:
        self.problems.append(Problem(Place(number, 1, self.file), "", text, advice))


def _pair(word: str) -> tuple[str, Any]:
    """Raises ValueError."""
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"{brief(word)} is not NAME=VALUE; put each host on its own line")
    return name, _value(value)


def _value(text: str) -> Any:
    """A literal of Python, as in Ansible, or else the text."""
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return literal if isinstance(literal, (str, int, float, bool)) else text


def _port(pattern: str) -> tuple[str, int | None]:
    """Host and port of `gpu1:2222`. A colon in a range or in an IPv6 address begins no port."""
    name, colon, port = pattern.rpartition(":")
    if colon and port.isascii() and port.isdigit() and ":" not in RANGE.sub("", name):
        return name.strip("[]") if name.startswith("[") else name, int(port[:10])
    return pattern, None


def _expand(pattern: str) -> Iterator[str]:
    """The hosts of a pattern, `db-[a:c]`, `www[01:50:2].example.com`. Raises ValueError."""
    match = RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    if len(RANGE.findall(pattern)) > MOST_RANGES:
        raise ValueError(f"more than {MOST_RANGES} ranges in one name")
    first, last, step = match[1], match[2], int(match[3] or 1)
    for middle in _steps(first, last, step):
        for rest in _expand(pattern[match.end() :]):
            yield f"{pattern[: match.start()]}{middle}{rest}"


def _steps(first: str, last: str, step: int) -> Iterator[str]:
    if step < 1:
        raise ValueError(f"[{first}:{last}:{step}] has no step")
    if (first + last).isascii() and first.isdigit() and last.isdigit():
        width = len(first) if first.startswith("0") else 0
        numbers = range(int(first), int(last) + 1, step)
        texts = [str(number).zfill(width) for number in numbers[:MAX_HOSTS]]
    elif len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
        numbers = range(ord(first), ord(last) + 1, step)
        texts = [chr(number) for number in numbers]
    else:
        raise ValueError(f"[{first}:{last}] is not a range")
    if not 0 < len(numbers) <= MAX_HOSTS:
        raise ValueError(f"[{first}:{last}] is a range of {len(numbers):,} hosts")
    yield from texts
