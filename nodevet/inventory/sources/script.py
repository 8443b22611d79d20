"""Hosts from an executable that prints Ansible's JSON when it is run with `--list`."""

import os
from pathlib import Path

from nodevet.inventory import programs
from nodevet.inventory.documents import decode
from nodevet.inventory.entries import Found
from nodevet.inventory.sources import ansible_json

KIND = "an executable that prints Ansible's JSON"
ENDINGS = ()


def recognizes(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def read(path: Path) -> Found:
    """The hosts that a dynamic inventory script prints. Raises InventoryError."""
    command = [str(path.absolute()), "--list"]
    name = f"{path} --list"
    return ansible_json.parse(decode(programs.output(command, name), name), name)
