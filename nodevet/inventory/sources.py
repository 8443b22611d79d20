"""Which source reads a file. Each is a module with `read(path) -> Found`, imported when needed."""

import os
from importlib import import_module
from pathlib import Path

from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import Found
from nodevet.inventory.errors import InventoryError
from nodevet.printable import brief
from nodevet.problems import Problem

BY_SUFFIX = {
    ".py": "pyinfra_file",
    ".yaml": "fleet_yaml",
    ".yml": "fleet_yaml",
    ".json": "ansible_json",
}
KINDS = "a pyinfra inventory (.py), YAML (.yaml), the JSON of `ansible-inventory --list` (.json)"
EXECUTABLE = "an executable that prints that JSON"
FOR_ANSIBLE = "for an Ansible inventory run: ansible-inventory -i FILE --list > FILE.json"


def read(name: str) -> Found:
    """The hosts of one inventory file. Raises InventoryError."""
    path = Path(name)
    module = BY_SUFFIX.get(path.suffix.lower())
    if name == "-":
        advice = "leave out -i, and give - as a target"
        raise InventoryError([Problem("-i -", "", "standard input is a target", advice)])
    if "[" in name and not path.exists():
        advice = "give a nodeset as a target, without -i"
        raise InventoryError([Problem(brief(name), "", "there is no such file", advice)])
    if module is None and path.is_file() and os.access(path, os.X_OK):
        module = "script"
    if module is None:
        read_text(path)  # a file that is not there is said first
        text = f"not an inventory that nodevet reads: {KINDS} or {EXECUTABLE}"
        raise InventoryError([Problem(brief(name), "", text, FOR_ANSIBLE)])
    source = import_module(f"nodevet.inventory.{module}")
    found: Found = source.read(path)
    return found
