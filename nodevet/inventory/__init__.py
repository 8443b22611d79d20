"""Where hosts come from: one file per source, and the words that choose among the hosts.

`read` is the whole interface. A source that is not used is not imported, so
that `@local` and plain names cost nothing.
"""

from collections.abc import Sequence
from typing import IO

from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.inventory.entries import MAX_HOSTS, Found, HostEntry, merge, same_machine
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.local import this_machine
from nodevet.inventory.select import Known, Word, make, narrow, pick
from nodevet.model import Host

__all__ = ["InventoryError", "limited", "read"]


def read(
    targets: Sequence[str],
    *,
    inventories: Sequence[str] = (),
    limit: Sequence[str] = (),
    stdin: IO[bytes] | None = None,
) -> tuple[Host, ...]:
    """The hosts of a run, each once, in the order of the inventories.

    `targets` are nodesets, `@group`, `user@host:port`, `@local`, and `-` for
    `stdin` (standard input if None). With inventories they choose among
    their hosts, and without targets all are meant; without inventories they
    are the hosts, in the order given. `limit` narrows either. Raises
    InventoryError with every problem found.
    """
    found = _read_all(inventories)
    words: list[Word] = []
    piped: list[str] = []
    for target in dict.fromkeys(targets):
        if target == "-":
            from nodevet.inventory.standard_input import read as read_stdin

            said = read_stdin(stdin)
            if isinstance(said, Found):
                found.append(said)
                piped = [entry.name for entry in said.entries]
            else:
                words += said
        else:
            words.append(Word(target, "target"))
    known, chosen = _choose(found, words, piped)
    everything = Known({**known.hosts, **{entry.name: entry for entry in chosen}}, known.groups)
    chosen, problems = narrow([Word(text, "--limit") for text in limit], everything, chosen)
    problems += same_machine(chosen)
    if problems:
        raise InventoryError(problems)
    return tuple(entry.host() for entry in chosen)


def limited(hosts: Sequence[Host], limit: Sequence[str]) -> tuple[Host, ...]:
    """The saved hosts that a limit, of names and groups, leaves. Raises InventoryError."""
    entries = [HostEntry(host.name, "", host.groups, local=host.local) for host in hosts]
    groups = frozenset(group for host in hosts for group in host.groups)
    known = Known({one.name: one for one in entries}, groups, "among the saved hosts")
    left, problems = narrow([Word(text, "--limit") for text in limit], known, entries)
    if problems:
        raise InventoryError(problems)
    names = {entry.name for entry in left}
    return tuple(host for host in hosts if host.name in names)


def _read_all(inventories: Sequence[str]) -> list[Found]:
    found, problems = [], []
    for name in dict.fromkeys(inventories):
        from nodevet.inventory.sources import read as read_source

        try:
            source = read_source(name)
            if not source.entries:
                problems.append(
                    Problem(brief(name), "", "holds no hosts", "add some, or leave it out")
                )
            found.append(source)
        except InventoryError as error:
            problems += error.problems
    if problems:
        raise InventoryError(problems)
    return found


def _choose(
    found: Sequence[Found], words: Sequence[Word], piped: Sequence[str]
) -> tuple[Known, list[HostEntry]]:
    """What can be named, and what the targets choose of it. Raises InventoryError."""
    hosts, problems = merge(entry for source in found for entry in source.entries)
    if len(hosts) > MAX_HOSTS:
        problems.append(Problem("inventory", "", f"more than {MAX_HOSTS:,} hosts"))
    known = Known(hosts, frozenset(group for source in found for group in source.groups))
    chosen = list(hosts.values())
    if not problems and found and (words or piped):
        chosen, problems = pick(words, known, piped, this_machine)
    elif not found and words:
        chosen, problems = make(words, this_machine)
    if not chosen and not problems:
        advice = "name some, such as gpu[001-128] or @local, or give an inventory with -i"
        problems.append(Problem("target", "", "no hosts to vet", advice))
    if problems:
        raise InventoryError(problems)
    return known, chosen
