"""Hosts from a folder of Ansible inventories, as `ansible-inventory` merges them."""

from pathlib import Path

from nodevet.document.kinds import kind_of
from nodevet.inventory.ansible_program import read_by_ansible
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.errors import inventory_error

KIND = "a folder of Ansible inventories"
ENDINGS = ()


def recognizes(path: Path) -> bool:
    """Whether this is a folder, but not one that nodevet wrote, such as saved evidence."""
    return path.is_dir() and kind_of(path) is None


def read(path: Path) -> InventoryHosts:
    """The hosts of all inventories in a folder. Raises InventoryError."""
    hosts = read_by_ansible(path)
    if hosts is None:
        advice = "name a file, or install ansible-core"
        raise inventory_error(path, "is a folder, which only Ansible reads", advice)
    return hosts
