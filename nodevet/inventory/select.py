"""Choose hosts by the words of the command line: targets, groups and limits. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from nodevet.base.nodeset import LOCAL, NameSet, NodesetError, expand_term, joined, terms
from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem, did_you_mean
from nodevet.inventory.entries import ALL, HostEntry, merge, with_settings
from nodevet.inventory.errors import shorten
from nodevet.inventory.single import is_single, single

WORD = re.compile(r"[^\s\[#]*(?:\[[^\]\n]*\]?[^\s\[#]*)*")  # of lines of text


class Word(NamedTuple):
    """One word of the command line or of standard input, and its place."""

    text: str
    where: object  # its str() is `target`, `--limit` or `<stdin>:3:1`


def words_of(text: str, name: str) -> Iterator[Word]:
    """The nodesets in a text. `name`: of its file, for messages."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORD.finditer(line.partition("#")[0]):
            word = match[0].strip(",")
            if word:
                yield Word(word, Place(number, match.start() + 1, name))


class TermError(Exception):
    """An operand that names no host."""

    def __init__(self, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.advice = advice


class NameTable(msgspec.Struct, frozen=True):
    """The hosts and groups that words can name."""

    hosts: Mapping[str, HostEntry]
    groups: frozenset[str] = frozenset()
    place: str = "in the inventory"

    def members(self, group: str) -> list[str]:
        """The hosts of a group. Raises TermError if there are none."""
        if group in (ALL, "*"):
            return list(self.hosts)
        names = [entry.name for entry in self.hosts.values() if group in entry.groups]
        if names:
            return names
        if group in self.groups:
            raise TermError(f"the group @{brief(group)} has no hosts")
        if not self.groups and not self.hosts:
            advice = "give an inventory that has it with -i"
            raise TermError(f"no group @{brief(group)} here", advice)
        if not self.groups:
            advice = "there are no groups at all: name hosts, or add the group to the inventory"
            raise TermError(f"no group @{brief(group)} {self.place}", advice)
        near = did_you_mean(f"@{group}", [f"@{name}" for name in self.groups])
        groups_text = f"there are {_groups_text(sorted(self.groups))}"
        raise TermError(f"no group @{brief(group)} {self.place}", f"{near} {groups_text}".strip())

    def local(self) -> list[str]:
        return [entry.name for entry in self.hosts.values() if entry.local]

    def unknown(self, names: list[str]) -> TermError:
        verb = "is" if len(names) == 1 else "are"
        hosts_text = f"there are {shorten(list(self.hosts))}" if self.hosts else ""
        advice = did_you_mean(names[0], self.hosts) or hosts_text
        return TermError(f"{shorten(names)} {verb} not {self.place}", advice)


Resolve = Callable[[str], Iterable[str]]


def make(
    words: Iterable[Word], local: Callable[[], HostEntry]
) -> tuple[list[HostEntry], list[Problem]]:
    """The hosts that targets name without an inventory."""
    entries_made: list[HostEntry] = []

    def resolve(term: str) -> list[str]:
        if term == LOCAL:
            entries = [local()]
        elif term.startswith("@"):
            NameTable({}).members(term[1:])
            entries = []
        elif is_single(term):
            entries = [single(term)]
        else:
            entries = [HostEntry(name, "target") for name in expand_term(term)]
        entries_made.extend(entries)
        return [entry.name for entry in entries]

    chosen, problems = _evaluate(words, resolve, chosen={}, all_names=None)
    hosts, contradictions = merge(entries_made)
    return [hosts[name] for name in chosen], [*problems, *contradictions]


def pick(
    words: Iterable[Word], known: NameTable, chosen: Iterable[str], local: Callable[[], HostEntry]
) -> tuple[list[HostEntry], list[Problem]]:
    """The hosts of the inventory that targets name or that are already chosen, in its order."""
    machine: dict[str, HostEntry] = {}

    def resolve(term: str) -> list[str]:
        if term == LOCAL:
            local_names = known.local()
            if not local_names:
                entry = with_settings(known.hosts, local())
                machine[entry.name] = entry
                local_names = [entry.name]
            return local_names
        if term.startswith("@"):
            return known.members(term[1:])
        if is_single(term):
            text = "the inventory sets user and port of its hosts"
            raise TermError(text, "name the host without user and port")
        names = expand_term(term)
        missing = [name for name in names if name not in known.hosts and name not in machine]
        if missing:
            raise known.unknown(missing)
        return names

    names, problems = _evaluate(words, resolve, dict.fromkeys(chosen), all_names=known.hosts)
    everything = {**known.hosts, **machine}
    return [entry for name, entry in everything.items() if name in names], problems


def narrow(
    words: Iterable[Word], known: NameTable, hosts: list[HostEntry]
) -> tuple[list[HostEntry], list[Problem]]:
    """The hosts within the limits. A part of a limit that names no known host is a problem."""

    def resolve(term: str) -> list[str]:
        if term == LOCAL:
            return known.local()
        if term.startswith("@"):
            return known.members(term[1:])
        if is_single(term):
            raise TermError("a limit takes names and groups", "leave out user and port")
        names = expand_term(term)
        known_names = [name for name in names if name in known.hosts]
        if not known_names:
            raise known.unknown(names)
        return known_names

    words = list(words)
    names, problems = _evaluate(words, resolve, chosen={}, all_names=known.hosts)
    remaining = [entry for entry in hosts if entry.name in names]
    if words and not remaining and not problems:
        text = f"none of the {len(hosts)} chosen hosts is within the limit"
        if len(hosts) == 1:
            text = f"only {brief(hosts[0].name)} was chosen, and the limit excludes it"
        problems.append(Problem(words[0].where, brief(words[0].text), text, "widen the limit"))
    return (remaining if words else hosts), problems


def _evaluate(
    words: Iterable[Word], resolve: Resolve, chosen: NameSet, all_names: Iterable[str] | None
) -> tuple[NameSet, list[Problem]]:
    """The names that the words choose together, from left to right.

    Words that begin with an operator come last, so that `!gpu013` removes the host wherever it
    stands. If there are only such words, they apply to `all_names`.
    """
    problems: list[Problem] = []
    first = not chosen
    for word in sorted(words, key=lambda word: word.text.lstrip()[:1] in ("!", "&", "^")):
        column, advice = 1, ""
        try:
            for operator, term, column in terms(word.text):
                if first and operator != ",":
                    if all_names is None:
                        raise TermError(f"{operator} has nothing to its left", "name hosts first")
                    chosen = dict.fromkeys(all_names)
                first = False
                chosen = joined(chosen, operator, dict.fromkeys(_resolve_at(resolve, term, column)))
            continue
        except TermError as error:
            text, advice = str(error), error.advice
        except NodesetError as error:
            text, column = str(error), error.column
        first = False
        path = brief(word.text) + (f", column {column}" if column > 1 else "")
        problems.append(Problem(word.where, path, text, advice))
    return chosen, problems


def _resolve_at(resolve: Resolve, term: str, column: int) -> Iterable[str]:
    try:
        return resolve(term)
    except NodesetError as error:
        raise NodesetError(str(error), column + error.column - 1) from None


def _groups_text(groups: list[str]) -> str:
    first_groups = ", ".join(f"@{brief(group)}" for group in groups[:10])
    return f"{first_groups} and {len(groups) - 10} more" if len(groups) > 10 else first_groups
