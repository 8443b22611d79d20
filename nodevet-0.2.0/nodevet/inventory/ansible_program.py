"""Let Ansible itself read an inventory, with the user's settings, plug-ins and vault."""

import os
import shutil
from pathlib import Path

from nodevet.base.trust import distrust
from nodevet.inventory import programs
from nodevet.inventory.documents import decode
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.errors import inventory_error
from nodevet.inventory.sources.ansible_json import hosts_of, load

PROGRAM = "ansible-inventory"
BESIDE = ("group_vars", "host_vars")
STRICT = {  # an inventory that Ansible can only read in part is an error
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    "ANSIBLE_NOCOLOR": "true",
}
INSTALL = "install ansible-core, or run: ansible-inventory -i FILE --list > hosts.json"


def read_by_ansible(path: Path) -> InventoryHosts | None:
    """The hosts that `ansible-inventory --list` prints. None if it is not installed and nodevet can
    read the file without it. Raises InventoryError."""
    program = shutil.which(PROGRAM)
    beside = merged_beside(path)
    if program is None:
        if beside:
            text = f"only Ansible can merge the variables in {beside[0].name} beside it"
            raise inventory_error(path, text, INSTALL)
        return None
    if os.geteuid() == 0:
        for file in (path, *beside, Path("ansible.cfg")):
            if why := distrust(file):
                text = f"{why}, so root does not let Ansible read it"
                raise inventory_error(path, text, "use a copy that others may not write")
    command = [program, "--inventory", str(path.absolute()), "--list"]
    name = f"ansible-inventory -i {path} --list"
    output = programs.output(command, name, env={**os.environ, **STRICT})
    return hosts_of(load(decode(output, name), name), lambda _: path)


def merged_beside(path: Path) -> list[Path]:
    """The folders beside an inventory whose variables Ansible merges into it."""
    around = path if path.is_dir() else path.parent
    return [folder for name in BESIDE if (folder := around / name).is_dir()]
