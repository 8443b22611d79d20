"""Hosts from Slurm: `@slurmpart:gpu`, `@slurmstate:idle`, `@slurmjob:123456`.

The names and operators are those of ClusterShell's group sources: `,` union, `!` difference, `&`
intersection, `^` either but not both, from left to right. nodevet checks each name, and then runs
sinfo and squeue itself, without a shell.
"""

import re
from pathlib import Path

from nodevet.base.nodeset import NodesetError, expand, joined, terms
from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.inventory import programs
from nodevet.inventory.documents import decode
from nodevet.inventory.entries import HostEntry, InventoryHosts
from nodevet.inventory.errors import InventoryError, inventory_error

KIND = "a group of Slurm (@slurmpart:gpu)"
ENDINGS = ()
PREFIX = "@slurm"
TERM = re.compile(r"@(slurmpart|slurmstate|slurmjob):(.*)")
NAMES = {
    "slurmpart": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"),
    "slurmstate": re.compile(r"[A-Za-z_]{2,30}"),
    "slurmjob": re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?"),
}
COMMANDS = {
    "slurmpart": ("sinfo", "--noheader", "--format=%N", "--partition"),
    "slurmstate": ("sinfo", "--noheader", "--format=%N", "--states"),
    "slurmjob": ("squeue", "--noheader", "--format=%N", "--jobs"),
}
EMPTY = {
    "slurmpart": "Slurm has no such partition, or it has no nodes",
    "slurmjob": "the job runs on no node",
}


def recognizes(path: Path) -> bool:
    return path.name.startswith(PREFIX) and not path.exists()


def read(path: Path) -> InventoryHosts:
    """The hosts of an expression, each with the groups that contain it. Raises InventoryError."""
    text = path.name  # nodevet.toml puts its folder before it
    try:
        operands = [(operator, *_checked(term, column)) for operator, term, column in terms(text)]
        groups = {f"{kind}:{name}": dict.fromkeys(_names(kind, name)) for _, kind, name in operands}
        chosen: dict[str, None] = {}
        for operator, kind, name in operands:
            chosen = joined(chosen, operator, groups[f"{kind}:{name}"])
    except NodesetError as error:
        raise InventoryError([Problem(brief(text), f"column {error.column}", str(error))]) from None
    entries = tuple(
        HostEntry(host, brief(text), frozenset(name for name in groups if host in groups[name]))
        for host in chosen
    )
    return InventoryHosts(entries, frozenset(groups))


def _checked(term: str, column: int) -> tuple[str, str]:
    """The kind and the name of a group. Raises NodesetError."""
    match = TERM.fullmatch(term)
    if match is None:
        raise NodesetError(f"{brief(term)}: not @slurmpart:, @slurmstate: or @slurmjob:", column)
    if not NAMES[match[1]].fullmatch(match[2]):
        raise NodesetError(f"{brief(match[2]) or 'nothing'}: not a name for {match[1]}", column)
    return match[1], match[2]


def _names(kind: str, name: str) -> list[str]:
    """The hosts of one group. Raises InventoryError and NodesetError."""
    shown = f"@{kind}:{name}"
    command = (*COMMANDS[kind], name)
    output = decode(programs.output(command, f"{shown}: {command[0]}"), shown)
    names = expand(",".join(output.split())) if output.strip() else []
    if not names and kind in EMPTY:
        raise inventory_error(shown, EMPTY[kind])
    return names
