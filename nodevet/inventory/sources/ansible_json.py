"""Hosts from the JSON that `ansible-inventory --list` prints, with or without `--export`.

Dynamic inventory scripts print the same form: see "Developing dynamic inventory" in Ansible's
developer guide. The variables are those of Ansible's plug-ins for ssh connections and for sudo.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodevet.base.host_names import name_problem
from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem
from nodevet.inventory.ansible_groups import MAKE, Groups
from nodevet.inventory.bmc import PREFIX
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import OVER_SSH, HostEntry, InventoryHosts, Setting
from nodevet.inventory.errors import InventoryError, inventory_error
from nodevet.inventory.places import JsonPlace, Steps, first_duplicate, place
from nodevet.inventory.settings import SETTINGS, not_value, validate

KIND = "the JSON of `ansible-inventory --list` (.json)"
ENDINGS = (".json",)

VARIABLES = {
    "address": ("ansible_host", "ansible_ssh_host"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "key_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "python": ("ansible_python_interpreter",),
    "sudo": ("ansible_become",),
    "known_hosts": ("nodevet_known_hosts",),
    "root": ("nodevet_root",),
    "whole_machine": ("nodevet_whole_machine",),
    "expect_hostname": ("nodevet_expect_hostname",),
    **{key: (f"nodevet_{key.replace('.', '_')}",) for key in SETTINGS if key.startswith(PREFIX)},
}
"""Our setting: its variables."""

SSH = {"ssh", "smart", "paramiko", "paramiko_ssh", "libssh"}
DISCOVERED = {"auto", "auto_silent", "auto_legacy", "auto_legacy_silent"}
CONTROLLER = "{{ ansible_playbook_python }}"
BOOLEANS = {
    **dict.fromkeys(("yes", "true", "on", "y", "t", "1"), True),
    **dict.fromkeys(("no", "false", "off", "n", "f", "0"), False),
}
TRUTHS = ("sudo", "whole_machine", "expect_hostname", "bmc.insecure")
ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
Locate = Callable[[Steps], object]  # the place of a part of the document, for str()
REROUTING = re.compile(
    r"(?i:\b(?:proxyjump|proxycommand|hostname|port|user|bindaddress|bindinterface|canonical\w+)"
    r"['\"]?(?:\s|=))|(?:^|\s)['\"]?-[46AaCfGgKkMNnqsTtVvXxYy]*[JWFplbB]"
)
"""Parts of SSH arguments that lead to another machine, by another way or to another user: ssh(1),
ssh_config(5)."""
OTHER_WAYS = (
    "ansible_ssh_executable",
    "ansible_paramiko_proxy_command",
    "ansible_libssh_proxy_command",
)
OPENSSH = ("ssh", "/usr/bin/ssh")
INTO_CONFIG = "write them into ~/.ssh/config, which nodevet follows, and remove them here"
TEMPLATE = re.compile(r"\{[{%]")
VAULT = "__ansible_vault"  # the key of an encrypted value


def read(path: Path) -> InventoryHosts:
    """The hosts of a JSON inventory file. Raises InventoryError."""
    return parse(read_text(path), str(path))


def parse(text: str, file: str) -> InventoryHosts:
    """The hosts of JSON text. Raises InventoryError with every problem in it."""
    return hosts_of(load(text, file), lambda steps: JsonPlace(text, file, steps), MAKE)


def hosts_of(document: Any, place: Locate, advice: str = "") -> InventoryHosts:
    """The hosts of a document in the form of `ansible-inventory --list`. `place`: finds a part of
    it; `advice`: how to make such a document. Raises InventoryError with every problem."""
    groups = Groups(document, advice)
    reader = _AnsibleReader(groups, place)
    entries = [reader.entry(name) for name in groups.hosts]
    problems = [
        Problem(place(steps), _path(steps), text, advice) for steps, text, advice in groups.problems
    ]
    problems += reader.problems
    if problems:
        raise InventoryError(problems)
    return InventoryHosts(tuple(entries), groups.names)


class _DuplicateKeyError(ValueError):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise _DuplicateKeyError
    return mapping


def load(text: str, file: str) -> Any:
    """A JSON document. Raises InventoryError."""
    try:
        return json.loads(text, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        where = Place(error.lineno, error.colno, file)
        raise InventoryError([Problem(where, "", f"not JSON: {error.msg}", MAKE)]) from None
    except _DuplicateKeyError:
        key, offset = first_duplicate(text)
        problem = f"the key {brief(key)} is given twice"
        where = place(text, file, offset)
        raise InventoryError([Problem(where, "", problem, "keep one of the two")]) from None
    except (RecursionError, ValueError):
        problem = "nested too deep, or a number too long, for an inventory"
        raise inventory_error(file, problem) from None


class _AnsibleReader:
    """Turns Ansible's variables into our settings."""

    def __init__(self, groups: Groups, place: Locate) -> None:
        self.groups = groups
        self.place = place
        self.problems: list[Problem] = []

    def entry(self, name: str) -> HostEntry:
        host_steps = self.groups.hosts[name]
        problem = name_problem(name)
        if problem:
            self.tell(host_steps, problem)
        steps_of: dict[str, Steps] = {}
        values: dict[str, Any] = {}
        local = self.is_local(name)
        for setting, variables in VARIABLES.items():
            if local and setting in OVER_SSH:
                continue
            for variable in variables:
                value, steps = self.groups.variable(name, variable)
                if value is None or (setting == "python" and _is_discovered(value, local)):
                    continue
                if why := _unreadable(value):
                    text = f"{variable} {why}, which only Ansible can resolve"
                    self.tell(steps, text, "write the value itself into the inventory")
                    continue
                value = _plain(setting, value)
                if setting in values and values[setting] != value:
                    text = f"{' and '.join(variables)} disagree"
                    self.tell(steps, text, "keep one of the two")
                values[setting], steps_of[setting] = value, steps
        settings, wrong = validate(values)
        for setting, text in wrong:
            self.tell(steps_of[setting], text + not_value(setting, brief(values[setting])))
        self.refuse_unsupported(name, sudo=bool(settings.get("sudo")), local=local)
        return HostEntry(
            name=name,
            where=self.place(host_steps),
            groups=self.groups.groups_of(name),
            settings={
                key: Setting(value, self.place(steps_of[key])) for key, value in settings.items()
            },
            local=local,
        )

    def is_local(self, name: str) -> bool:
        value, steps = self.groups.variable(name, "ansible_connection")
        kind = str(value or "ssh").rpartition(".")[2]
        if kind not in SSH and kind != "local":
            text = f"the connection {brief(value)} is not supported"
            self.tell(steps, text, "nodevet reaches hosts over ssh, or local")
        return kind == "local"

    def refuse_unsupported(self, name: str, *, sudo: bool, local: bool) -> None:
        for variable, only in (("ansible_become_method", "sudo"), ("ansible_become_user", "root")):
            value, steps = self.groups.variable(name, variable)
            if sudo and value is not None and str(value).rpartition(".")[2] != only:
                self.tell(steps, f"{brief(value)} is not supported", f"nodevet knows {only} only")
        for variable in () if local else ARGUMENTS:
            value, steps = self.groups.variable(name, variable)
            if REROUTING.search(str(value or "")) or _unreadable(value):
                self.tell(steps, "nodevet does not support these SSH arguments", INTO_CONFIG)
        for variable in () if local else OTHER_WAYS:
            value, steps = self.groups.variable(name, variable)
            if value and value not in OPENSSH:
                text = "nodevet uses no other SSH program to reach hosts"
                self.tell(steps, text, INTO_CONFIG)

    def tell(self, steps: Steps, text: str, advice: str = "") -> None:
        self.problems.append(Problem(self.place(steps), _path(steps), text, advice))


def _path(steps: Steps) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{brief(step)}" for step in steps)
    return path.removeprefix(".")


def _unreadable(value: Any) -> str:
    """Why only Ansible can resolve the value of a variable, or ""."""
    if isinstance(value, Mapping) and VAULT in value:
        return "is encrypted by Ansible Vault"
    return "holds a template" if isinstance(value, str) and TEMPLATE.search(value) else ""


def _is_discovered(value: Any, local: bool) -> bool:
    return value in DISCOVERED or (local and value == CONTROLLER)


def _plain(setting: str, value: Any) -> Any:
    """The value in the type of its setting: Ansible also takes text for numbers and booleans."""
    if setting.endswith("port") and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:10])
    if setting in TRUTHS and isinstance(value, (str, int)):
        return BOOLEANS.get(str(value).lower(), value)
    return value
