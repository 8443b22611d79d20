"""Read the hosts of a run from inventories, and choose among them by words.

`read` is the whole interface. nodevet imports only the sources that it uses, so `@local` and plain
names cost nothing. Each source is a file in `sources`.
"""

import sys
from collections.abc import Sequence
from typing import IO

from nodevet.base.nodeset import MAX_HOSTS
from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.inventory.bmc_problems import bmc_problems
from nodevet.inventory.entries import HostEntry, InventoryHosts, merge, same_machine, this_machine
from nodevet.inventory.errors import InventoryError, inventory_error
from nodevet.inventory.select import NameTable, Word, make, narrow, pick, words_of
from nodevet.model import Host

STDIN = "<stdin>"

__all__ = ["InventoryError", "limit_hosts", "read"]


def read(
    targets: Sequence[str],
    *,
    inventories: Sequence[str] = (),
    limit: Sequence[str] = (),
    stdin: IO[bytes] | None = None,
) -> tuple[Host, ...]:
    """The hosts of a run, each once, in the order of the inventories.

    `targets` are nodesets, `@group`, `user@host:port`, `@local`, and `-` for `stdin` (standard
    input if None). With inventories, targets choose among the hosts of these inventories, by
    default all of them. Without inventories, targets name the hosts, in this order. `limit` narrows
    either. Raises InventoryError with every problem.
    """
    sources = _read_all(inventories)
    words: list[Word] = []
    piped: list[str] = []
    for target in dict.fromkeys(targets):
        if target == "-":
            stdin_hosts = _read_stdin(stdin)
            if isinstance(stdin_hosts, InventoryHosts):
                sources.append(stdin_hosts)
                piped = [entry.name for entry in stdin_hosts.entries]
            else:
                words += stdin_hosts
        else:
            words.append(Word(target, "target"))
    known, chosen = _choose(sources, words, piped)
    everything = NameTable({**known.hosts, **{entry.name: entry for entry in chosen}}, known.groups)
    chosen, problems = narrow([Word(text, "--limit") for text in limit], everything, chosen)
    problems += [*same_machine(chosen), *bmc_problems(chosen)]
    if problems:
        raise InventoryError(problems)
    return tuple(entry.host() for entry in chosen)


def limit_hosts(hosts: Sequence[Host], limit: Sequence[str]) -> tuple[Host, ...]:
    """The saved hosts within a limit of names and groups. Raises InventoryError."""
    entries = [HostEntry(host.name, "", host.groups, local=host.local) for host in hosts]
    groups = frozenset(group for host in hosts for group in host.groups)
    known = NameTable({entry.name: entry for entry in entries}, groups, "among the saved hosts")
    remaining, problems = narrow([Word(text, "--limit") for text in limit], known, entries)
    if problems:
        raise InventoryError(problems)
    names = {entry.name for entry in remaining}
    return tuple(host for host in hosts if host.name in names)


def _read_all(inventories: Sequence[str]) -> list[InventoryHosts]:
    sources, problems = [], []
    for name in dict.fromkeys(inventories):
        from nodevet.inventory.sources import read as read_source

        try:
            source = read_source(name)
            if not source.entries:
                problems.append(
                    Problem(brief(name), "", "holds no hosts", "add some, or leave it out")
                )
            sources.append(source)
        except InventoryError as error:
            problems += error.problems
    if problems:
        raise InventoryError(problems)
    return sources


def _read_stdin(stream: IO[bytes] | None) -> InventoryHosts | list[Word]:
    """Hosts from Ansible's JSON; or words, any number of nodesets on a line. Raises InventoryError
    if the input is too large, not text, or names no host.
    """
    from nodevet.inventory.documents import MAX_BYTES, decode

    text = decode((stream or sys.stdin.buffer).read(MAX_BYTES + 1), STDIN)
    if text.lstrip()[:1] == "{":
        from nodevet.inventory.sources.ansible_json import parse

        return parse(text, STDIN)
    words = list(words_of(text, STDIN))
    if not words:
        raise inventory_error(STDIN, "names no host", "write one nodeset per line")
    return words


def _choose(
    sources: Sequence[InventoryHosts], words: Sequence[Word], piped: Sequence[str]
) -> tuple[NameTable, list[HostEntry]]:
    """The hosts and groups that words can name, and the chosen hosts. Raises InventoryError."""
    hosts, problems = merge(entry for source in sources for entry in source.entries)
    if len(hosts) > MAX_HOSTS:
        problems.append(Problem("inventory", "", f"more than {MAX_HOSTS:,} hosts"))
    known = NameTable(hosts, frozenset(group for source in sources for group in source.groups))
    chosen = list(hosts.values())
    if not problems and sources and (words or piped):
        chosen, problems = pick(words, known, piped, this_machine)
    elif not sources and words:
        chosen, problems = make(words, this_machine)
    if not chosen and not problems:
        advice = "name some, such as gpu[001-128] or @local, or give an inventory with -i"
        problems.append(Problem("target", "", "no hosts to vet", advice))
    if problems:
        raise InventoryError(problems)
    return known, chosen
