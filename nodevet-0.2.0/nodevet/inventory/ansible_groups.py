"""The groups of an Ansible inventory, their members, and the precedence of variables. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from nodevet.base.printable import brief
from nodevet.inventory.entries import ALL
from nodevet.inventory.places import Steps

META = "_meta"
GROUP_KEYS = ("hosts", "children", "vars")
MAKE = "make it with: ansible-inventory -i INVENTORY --list"

GroupProblem = tuple[Steps, str, str]  # place, problem, advice


class Groups:
    """The groups, hosts and variables of one document.

    `hosts` is in the order of the groups from `all` downwards, each with the first place that names
    it.
    """

    def __init__(self, document: Any, advice: str = "") -> None:
        """`advice`: how to make such a document."""
        self.problems: list[GroupProblem] = []
        self._advice = advice
        self.hosts: dict[str, Steps] = {}
        self.names: frozenset[str] = frozenset()
        self._members: dict[str, list[str]] = {}
        self._places: dict[str, Steps] = {}  # of the list of a group's hosts
        self._children: dict[str, list[str]] = {}
        self._parents: dict[str, list[str]] = {}
        self._direct: dict[str, list[str]] = {}  # by host, the groups that list it
        self._variables: dict[str, Mapping[str, Any]] = {}
        self._hostvars: dict[str, Mapping[str, Any]] = {}
        self._precedence: dict[frozenset[str], list[str]] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        if not isinstance(document, Mapping):
            self.problems.append(((), "must be an object with groups", advice))
            return
        self._read_meta(document)
        for name, body in document.items():
            if name != META:
                self._read_group(name, body)
        self._link()

    def groups_of(self, host: str) -> frozenset[str]:
        """Every group of a host, direct or through another group, except `all`."""
        return self._groups_of(host) - {ALL}

    def variable(self, host: str, name: str) -> tuple[Any, Steps]:
        """The value of a variable of a host, and its place; None if the host does not have it."""
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
        for host, variables in hostvars.items():
            if isinstance(variables, Mapping):
                self._hostvars[host] = variables
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
        variables = body.get("vars")
        if isinstance(variables, Mapping):
            self._variables[name] = variables
        elif variables is not None:
            self._refuse((name, "vars"), "must be an object with variables")

    def _names(self, names: Any, steps: Steps) -> list[str]:
        if isinstance(names, Mapping):
            names = list(names)
        if names is None:
            return []
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
        self._refuse(steps, "must be a list of names")
        return []

    def _refuse(self, steps: Steps, problem: str) -> None:
        self.problems.append((steps, problem, self._advice))

    def _link(self) -> None:
        """Link the groups, and order the hosts."""
        for group, children in self._children.items():
            for child in children:
                self._parents.setdefault(child, []).append(group)
        self.names = frozenset(self._children).union(self._parents) - {ALL}
        for loop in self._loops():
            text = f"{brief(loop[0])} contains itself: {' > '.join(map(brief, loop))}"
            steps = (loop[-2], "children", self._children[loop[-2]].index(loop[-1]))
            self.problems.append((steps, text, "remove one of these groups from the one before it"))
        for group in self._top_down():
            for index, host in enumerate(self._members.get(group, ())):
                self.hosts.setdefault(host, (*self._places[group], index))
                self._direct.setdefault(host, []).append(group)
        for host in self._hostvars:
            self.hosts.setdefault(host, (META, "hostvars", host))

    def _loops(self) -> Iterator[Sequence[str]]:
        """Each path from a group through its children back to itself: a, b, a."""
        done: set[str] = set()
        for start in self._children:
            path = {} if start in done else {start: iter(self._children[start])}
            while path:
                group, children = next(reversed(path.items()))
                child = next(children, None)
                if child is None:
                    done.add(group)
                    del path[group]
                elif child in path:
                    yield [*dropwhile(lambda name: name != child, path), child]  # noqa: B023
                elif child not in done:
                    path[child] = iter(self._children.get(child, ()))

    def _top_down(self) -> list[str]:
        """Every group once: depth first from `all`, then groups without a parent."""
        ordered: dict[str, None] = {}
        waiting = [*reversed(self._children), ALL]
        while waiting:
            group = waiting.pop()
            if group not in ordered:
                ordered[group] = None
                waiting += reversed(self._children.get(group, ()))
        return list(ordered)

    def _groups_of(self, host: str) -> frozenset[str]:
        return frozenset().union(*(self._upward(group) for group in self._direct.get(host, ())))

    def _upward(self, group: str) -> frozenset[str]:
        """A group and all its ancestors."""
        if group not in self._ancestors:
            groups, waiting = {group}, [group]
            while waiting:
                for parent in self._parents.get(waiting.pop(), ()):
                    if parent not in groups:
                        groups.add(parent)
                        waiting.append(parent)
            self._ancestors[group] = frozenset(groups)
        return self._ancestors[group]

    def _by_precedence(self, host: str) -> list[str]:
        """The host's groups with variables, the winning one first.

        As in Ansible, deeper groups win, then a higher ansible_group_priority, then the name that
        sorts last. `all` is outermost.
        """
        if not self._variables:
            return []
        groups = self._groups_of(host) | {ALL}
        if groups not in self._precedence:
            with_variables = [group for group in groups if group in self._variables]
            self._precedence[groups] = sorted(with_variables, key=self._rank, reverse=True)
        return self._precedence[groups]

    def _rank(self, group: str) -> tuple[int, int, str]:
        priority = self._variables[group].get("ansible_group_priority", 1)
        try:
            number = int(priority)
        except (OverflowError, TypeError, ValueError):
            self._refuse((group, "vars", "ansible_group_priority"), "must be a whole number")
            number = 1
        return self._depth(group), number, group

    def _depth(self, group: str) -> int:
        """The length of the longest path from `all` to a group."""
        depth, level = 0, {group}
        while depth <= len(self.names) and level - {ALL}:
            level = {parent for name in level for parent in self._parents.get(name, ())}
            depth += 1
        return depth
