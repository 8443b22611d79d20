"""Hosts from an executable that prints Ansible's JSON when it is run with `--list`."""

from pathlib import Path

from nodevet.inventory import ansible_json, programs
from nodevet.inventory.documents import decode
from nodevet.inventory.entries import Found


def read(path: Path) -> Found:
    """The hosts that a dynamic inventory script prints. Raises InventoryError."""
    command = [str(path.absolute()), "--list"]
    name = f"{path} --list"
    return ansible_json.parse(decode(programs.output(command, name), name), name)
