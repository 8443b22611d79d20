"""`@local`: the machine that nodevet runs on, read without SSH."""

import os
from collections.abc import Mapping

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.inventory.entries import HostEntry
from nodevet.inventory.errors import InventoryError
from nodevet.inventory.settings import name_problem

LOCAL = "@local"
OVER_SSH = {"address", "port", "user", "key_file", "known_hosts"}


def hostname() -> str:
    """The kernel's, as gethostname(2) has it."""
    return os.uname().nodename


def this_machine() -> HostEntry:
    """This machine under its own hostname. Raises InventoryError if that is not usable."""
    name = hostname()
    problem = name_problem(name)
    if problem:
        text = f"this machine's hostname is {brief(name) or 'empty'}: {problem}"
        raise InventoryError([Problem(LOCAL, "", text, "set it with hostnamectl")])
    return HostEntry(name, LOCAL, local=True)


def localised(hosts: Mapping[str, HostEntry], machine: HostEntry) -> HostEntry:
    """This machine with what an inventory says of its name: groups, root, python, sudo, ..."""
    listed = hosts.get(machine.name)
    if listed is None:
        return machine
    kept = {key: setting for key, setting in listed.settings.items() if key not in OVER_SSH}
    return replace(listed, settings=kept, local=True)
