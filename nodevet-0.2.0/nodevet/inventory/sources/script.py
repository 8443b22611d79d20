"""Hosts from an executable that prints Ansible's JSON for the option `--list`."""

import os
from pathlib import Path

from nodevet.base.trust import distrust
from nodevet.inventory import programs
from nodevet.inventory.ansible_program import merged_beside, read_by_ansible
from nodevet.inventory.documents import decode
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.errors import inventory_error
from nodevet.inventory.sources import ansible_json

KIND = "an executable that prints Ansible's JSON"
ENDINGS = ()


def recognizes(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def read(path: Path) -> InventoryHosts:
    """The hosts that a dynamic inventory script prints. Raises InventoryError."""
    if os.geteuid() == 0 and (why := distrust(path, must_exist=True)):
        advice = "use a copy that others may not write, or a YAML inventory"
        raise inventory_error(path, f"{why}, so root does not run it", advice)
    if merged_beside(path) and (hosts := read_by_ansible(path)):
        return hosts
    command = [str(path.absolute()), "--list"]
    name = f"{path} --list"
    return ansible_json.parse(decode(programs.output(command, name), name), name)
