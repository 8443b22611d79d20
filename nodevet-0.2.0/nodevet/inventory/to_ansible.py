"""Write hosts as the JSON of a dynamic inventory of Ansible; `ansible_json` reads it. Pure."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from nodevet.inventory.bmc import PREFIX, SECRET
from nodevet.inventory.entries import ALL
from nodevet.inventory.sources.ansible_json import VARIABLES
from nodevet.model import Host

Document = dict[str, Any]


def ansible_document(
    hosts: Iterable[Host],
    groups: Mapping[str, Iterable[str]] = {},
    variables: Mapping[str, Mapping[str, Any]] = {},
) -> Document:
    """The output of an inventory script for `--list`. `groups`: further groups and their hosts;
    `variables`: further variables of each host. Ansible evaluates templates in both, so they must
    not contain text from a node."""
    hosts = tuple(hosts)
    members: dict[str, list[str]] = {name: list(names) for name, names in groups.items()}
    for host in hosts:
        for group in sorted(host.groups - {ALL}):
            members.setdefault(group, []).append(host.name)
    hostvars = {host.name: {**_variables(host), **variables.get(host.name, {})} for host in hosts}
    lists = {name: {"hosts": names} for name, names in sorted(members.items())}
    whole = {"hosts": [host.name for host in hosts], "children": list(lists)}
    return {"_meta": {"hostvars": hostvars}, ALL: whole, **lists}


def _variables(host: Host) -> dict[str, Any]:
    """The variables by which Ansible and nodevet reach a host, without default values."""
    usual = Host(name=host.name)
    own = {
        setting: value
        for setting in VARIABLES
        if not setting.startswith(PREFIX)
        and (value := getattr(host, setting)) != getattr(usual, setting)
    }
    if host.bmc:
        values = {key: getattr(host.bmc, key) for key in host.bmc.__struct_fields__}
        own |= {PREFIX + key: value for key, value in values.items() if value not in (None, False)}
        own[SECRET] = {host.bmc.password[0]: host.bmc.password[1]}
        own[f"{PREFIX}timeout"] = f"{host.bmc.timeout:g}s"
    variables = {VARIABLES[setting][0]: value for setting, value in own.items()}
    if host.known_hosts:
        option = shlex.quote(f'UserKnownHostsFile="{host.known_hosts}"')
        variables["ansible_ssh_common_args"] = f"-o {option}"
    return {"ansible_connection": "local", **variables} if host.local else variables
