"""Problems of the BMCs of hosts, with the settings that hosts inherit from their groups."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nodevet.base.problems import Problem
from nodevet.base.trust import distrust
from nodevet.inventory.bmc import HOST, PREFIX, SECRET
from nodevet.inventory.entries import HostEntry, Setting

STDIN = "<stdin>"
NEEDED = ("kind", "address", "user", "password")
OF_REDFISH = ("ca", "insecure")
Found = tuple[str, str, str]  # the setting, the problem, the advice


def bmc_problems(entries: Iterable[HostEntry]) -> list[Problem]:
    """A problem for each host whose BMC settings are incomplete, wrong, or another host's."""
    problems, owners = [], dict[tuple[Any, ...], str]()
    for entry in entries:
        own = {key: setting for key, setting in entry.settings.items() if key.startswith(PREFIX)}
        if not own:
            continue
        found = _problem({key: one.value for key, one in own.items()})
        found = found or _command_problem(own[SECRET]) or _shared(entry.name, own, owners)
        if found:
            key, text, advice = found
            place = own.get(key) or next(iter(own.values()))
            problems.append(Problem(place.where, key, f"{entry.name}: {text}", advice))
    return problems


def _shared(
    name: str, own: Mapping[str, Setting], owners: dict[tuple[Any, ...], str]
) -> Found | None:
    address = own["bmc.address"].value.replace(HOST, name)
    port = own["bmc.port"].value if "bmc.port" in own else None
    owner = owners.setdefault((address, port), name)
    if owner == name:
        return None
    advice = f"give each host its own address; {HOST} stands for the name of the host"
    return "bmc.address", f"its BMC has the same address as the BMC of {owner}", advice


def _command_problem(secret: Setting) -> Found | None:
    """Refuse a password command in a file that other users may change."""
    file = getattr(secret.where, "file", "")
    if secret.value[0] != "command" or file == STDIN:
        return None
    if why := distrust(Path(file)):
        return SECRET, f"names a command, and {why}", "make it writable for you alone"
    return None


def _problem(values: Mapping[str, Any]) -> Found | None:
    missing = [name for name in NEEDED if PREFIX + name not in values]
    if missing:
        advice = "add it here, or to a group of the host"
        return "bmc", f"its BMC lacks {', '.join(missing)}", advice
    if values["bmc.kind"] == "ipmi":
        for name in OF_REDFISH:
            if PREFIX + name in values:
                return PREFIX + name, f"{name} is for redfish: IPMI has no TLS", "remove it"
    if values.get("bmc.insecure") and "bmc.ca" in values:
        return (
            "bmc.insecure",
            "the certificate is not verified, so ca has no effect",
            "keep one",
        )
    return None
