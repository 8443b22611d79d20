"""The groups, hosts and variables in the file of an INI or YAML inventory of Ansible. Pure."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from nodevet.base.nodeset import MAX_HOSTS
from nodevet.base.problems import Place
from nodevet.inventory.entries import ALL, InventoryHosts
from nodevet.inventory.places import Steps
from nodevet.inventory.sources.ansible_json import hosts_of

UNGROUPED = "ungrouped"
RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
MOST_RANGES = 16  # in one name


class StaticInventory:
    """Collects the document of `ansible-inventory --list`, with the place of each part."""

    def __init__(self, file: str) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self.hostvars: dict[str, dict[str, Any]] = {}
        self._places: dict[Steps, Place] = {(): Place(1, 1, file)}

    def group(self, name: str, place: Place) -> dict[str, Any]:
        self._places.setdefault((name,), place)
        return self.groups.setdefault(name, {})

    def child(self, group: str, child: str, place: Place) -> None:
        children = self.group(group, place).setdefault("children", [])
        self._places[group, "children", len(children)] = place
        children.append(child)
        self.group(child, place)

    def variable(self, group: str, name: str, value: Any, place: Place) -> None:
        self._places[group, "vars", name] = place
        self.group(group, place).setdefault("vars", {})[name] = value

    def host(
        self,
        group: str,
        pattern: str,
        variables: Mapping[str, Any],
        variable_places: Mapping[str, Place],
        place: Place,
    ) -> None:
        """The hosts of a pattern such as `gpu[001:128]` or `gpu1:2222`. Later variables win, but as
        in Ansible, a port in a pattern counts only where a host is first named. Raises ValueError.
        """
        pattern, port = _port(pattern)
        names = list(islice(_expand(pattern), MAX_HOSTS + 1))
        if len(names) > MAX_HOSTS or len(self.hostvars) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS:,} hosts")
        members = self.group(group, place).setdefault("hosts", [])
        for name in names:
            self._places[group, "hosts", len(members)] = place
            members.append(name)
            if name not in self.hostvars:
                self.hostvars[name] = {"ansible_port": port} if port else {}
                self._places["_meta", "hostvars", name] = place
            self.hostvars[name].update(variables)
            for variable, at in variable_places.items():
                self._places["_meta", "hostvars", name, variable] = at

    def hosts_read(self) -> InventoryHosts:
        """Raises InventoryError with every problem."""
        self._settle_ungrouped()
        return hosts_of({"_meta": {"hostvars": self.hostvars}, **self.groups}, self._place)

    def _settle_ungrouped(self) -> None:
        """Put exactly the hosts without another group into `ungrouped`, as Ansible does."""
        everywhere = {ALL, UNGROUPED}
        grouped = {
            name
            for group, body in self.groups.items()
            if group not in everywhere
            for name in body.get("hosts", ())
        }
        for name in everywhere & set(self.groups):
            members = self.groups[name].get("hosts", [])
            lone = [host for host in members if host not in grouped]
            if name == UNGROUPED and len(lone) < len(members):
                self.groups[name]["hosts"] = lone
            elif name == ALL and lone:
                self.groups.setdefault(UNGROUPED, {}).setdefault("hosts", []).extend(lone)

    def _place(self, steps: Steps) -> Place:
        while steps not in self._places:
            steps = steps[:-1]
        return self._places[steps]


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
        if width > 1 and len(first) != len(last):
            raise ValueError(f"[{first}:{last}] has ends of two lengths")
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
