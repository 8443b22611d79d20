"""The groups of an Ansible inventory: who is in which, and whose variables win. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from nodevet.base.printable import brief
from nodevet.inventory.entries import ALL
from nodevet.inventory.json_places import Steps

META = "_meta"
GROUP_KEYS = ("hosts", "children", "vars")
MAKE = "make it with: ansible-inventory -i INVENTORY --list"

Said = tuple[Steps, str, str]  # where, problem, advice


class Groups:
    """The groups, hosts and variables of one document, checked for shape.

    `hosts` is in the order of the groups from `all` downwards, with the place
    that names each host first.
    """

    def __init__(self, document: Any, advice: str = "") -> None:
        """`advice`: how such a document is made."""
        self.problems: list[Said] = []
        self._advice = advice
        self.hosts: dict[str, Steps] = {}
        self.names: frozenset[str] = frozenset()
        self._members: dict[str, list[str]] = {}
        self._places: dict[str, Steps] = {}  # group: where its hosts are listed
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, list[str]] = {}
        self._direct: dict[str, list[str]] = {}  # host: groups that list it
        self._variables: dict[str, Mapping[str, Any]] = {}
        self._hostvars: dict[str, Mapping[str, Any]] = {}
        self._ranked: dict[frozenset[str], list[str]] = {}
        self._above: dict[str, frozenset[str]] = {}
        if not isinstance(document, Mapping):
            self.problems.append(((), "must be an object with groups", advice))
            return
        self._read_meta(document)
        for name, body in document.items():
            if name != META:
                self._read_group(name, body)
        self._link()

    def around(self, host: str) -> frozenset[str]:
        """Every group that the host is in, itself or through another; without `all`."""
        return self._around(host) - {ALL}

    def variable(self, host: str, name: str) -> tuple[Any, Steps]:
        """A host's value for a variable and where it is said; None if nothing says it."""
        own = self._hostvars.get(host)
        if own is not None and name in own:
            return own[name], (META, "hostvars", host, name)
        for group in self._by_precedence(host):
            if name in self._variables[group]:
                return self._variables[group][name], (group, "vars", name)
        return None, self.hosts[host]

    def _read_meta(self, document: Mapping[str, Any]) -> None:
        meta = document.get(META)
        hostvars = meta.get("hostvars") if isinstance(meta, Mapping) else None
        if not isinstance(hostvars, Mapping):
            self._refuse((META,), "the hosts' variables (_meta.hostvars) are missing")
            return
        for host, said in hostvars.items():
            if isinstance(said, Mapping):
                self._hostvars[host] = said
            else:
                self._refuse((META, "hostvars", host), "must be an object with variables")

    def _read_group(self, name: str, body: Any) -> None:
        if not name or not name.isprintable() or name[0] in "@!&^":
            self._refuse((name,), "not a name for a group")
        steps: Steps = (name, "hosts")
        if isinstance(body, list):
            body, steps = {"hosts": body}, (name,)
        if not isinstance(body, Mapping):
            self._refuse((name,), "a group is an object with hosts, children and vars")
            return
        for key in body:
            if key not in GROUP_KEYS:
                self._refuse((name, key), f"a group has {', '.join(GROUP_KEYS)} and nothing else")
        self._members[name] = self._names(body.get("hosts"), steps)
        self._places[name] = steps
        self._children[name] = self._names(body.get("children"), (name, "children"))
        said = body.get("vars")
        if isinstance(said, Mapping):
            self._variables[name] = said
        elif said is not None:
            self._refuse((name, "vars"), "must be an object with variables")

    def _names(self, listed: Any, steps: Steps) -> list[str]:
        if isinstance(listed, Mapping):
            listed = list(listed)
        if listed is None:
            return []
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            return listed
        self._refuse(steps, "must be a list of names")
        return []

    def _refuse(self, steps: Steps, problem: str) -> None:
        self.problems.append((steps, problem, self._advice))

    def _link(self) -> None:
        """Who is in what, and the order of the hosts."""
        for group, children in self._children.items():
            for child in children:
                self._parents.setdefault(child, []).append(group)
        self.names = frozenset(self._children).union(self._parents) - {ALL}
        for way in self._loops():
            text = f"{brief(way[0])} contains itself: {' > '.join(map(brief, way))}"
            steps = (way[-2], "children", self._children[way[-2]].index(way[-1]))
            self.problems.append((steps, text, "remove one of these groups from the one before it"))
        for group in self._top_down():
            for index, host in enumerate(self._members.get(group, ())):
                self.hosts.setdefault(host, (*self._places[group], index))
                self._direct.setdefault(host, []).append(group)
        for host in self._hostvars:
            self.hosts.setdefault(host, (META, "hostvars", host))

    def _loops(self) -> Iterator[Sequence[str]]:
        """The ways from a group down to itself: a, b, a."""
        done: set[str] = set()
        for start in self._children:
            way = {} if start in done else {start: iter(self._children[start])}
            while way:
                group, children = next(reversed(way.items()))
                child = next(children, None)
                if child is None:
                    done.add(group)
                    del way[group]
                elif child in way:
                    yield [*dropwhile(lambda name: name != child, way), child]  # noqa: B023
                elif child not in done:
                    way[child] = iter(self._children.get(child, ()))

    def _top_down(self) -> list[str]:
        """Every group once: depth first from `all`, then what hangs under nothing."""
        ordered: dict[str, None] = {}
        waiting = [*reversed(self._children), ALL]
        while waiting:
            group = waiting.pop()
            if group not in ordered:
                ordered[group] = None
                waiting += reversed(self._children.get(group, ()))
        return list(ordered)

    def _around(self, host: str) -> frozenset[str]:
        return frozenset().union(*(self._upward(group) for group in self._direct.get(host, ())))

    def _upward(self, group: str) -> frozenset[str]:
        """A group and all those it is in."""
        if group not in self._above:
            found, waiting = {group}, [group]
            while waiting:
                for parent in self._parents.get(waiting.pop(), ()):
                    if parent not in found:
                        found.add(parent)
                        waiting.append(parent)
            self._above[group] = frozenset(found)
        return self._above[group]

    def _by_precedence(self, host: str) -> list[str]:
        """The host's groups that have variables, the winning one first.

        As Ansible has it: deeper groups win, then a higher
        ansible_group_priority, then the name that sorts last. `all` is outermost.
        """
        if not self._variables:
            return []
        groups = self._around(host) | {ALL}
        if groups not in self._ranked:
            said = [group for group in groups if group in self._variables]
            self._ranked[groups] = sorted(said, key=self._rank, reverse=True)
        return self._ranked[groups]

    def _rank(self, group: str) -> tuple[int, int, str]:
        priority = self._variables[group].get("ansible_group_priority", 1)
        try:
            number = int(priority)
        except (OverflowError, TypeError, ValueError):
            self._refuse((group, "vars", "ansible_group_priority"), "must be a whole number")
            number = 1
        return self._depth(group), number, group

    def _depth(self, group: str) -> int:
        """The longest way down from `all`, in groups."""
        depth, level = 0, {group}
        while depth <= len(self.names) and level - {ALL}:
            level = {parent for name in level for parent in self._parents.get(name, ())}
            depth += 1
        return depth
