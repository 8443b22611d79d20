"""The settings of a host's BMC: each is a setting of its own, `bmc.user`, so that a host may take
some from its group.

A password is never part of an inventory, only where it is. No message shows the value.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodevet.base.problems import Problem
from nodevet.base.trust import distrust
from nodevet.model import Bmc

if TYPE_CHECKING:
    from nodevet.inventory.entries import HostEntry, Setting

PREFIX = "bmc."
SECRET = "bmc.password"  # noqa: S105 (the name of a setting)
NEEDED = ("kind", "address", "user", "password")
OF_REDFISH = ("ca", "insecure")
HOST = "%h"  # in an address: the host's name, as in ssh_config
WHERE = "must say where the password is: {file: PATH}, {env: NAME} or {command: [PROGRAM, ...]}"
MOST_WORDS = 64  # of a command

STDIN = "<stdin>"

Validate = Callable[[Any], Any]
Found = tuple[str, str, str]  # the setting at fault, what is wrong, and what to do


def validators(
    text: Validate, address: Validate, port: Validate, path: Validate, truth: Validate
) -> Mapping[str, Validate]:
    """The validators of a BMC's settings, from those of other settings."""

    def kind(value: Any) -> str:
        if value not in ("redfish", "ipmi"):
            raise ValueError("must be redfish or ipmi")
        return str(value)

    def bmc_address(value: Any) -> str:
        address(text(value).replace(HOST, "h"))
        return str(value)

    def user(value: Any) -> str:
        name = str(text(value))
        if not name or len(name) > 255 or not name.isprintable() or name[0] == "-" or ":" in name:
            raise ValueError("must be a user name of the BMC")
        return name

    def password(value: Any) -> tuple[str, Any]:
        if not isinstance(value, Mapping) or len(value) != 1:
            raise ValueError(WHERE)
        ((source, where),) = value.items()
        if source == "file":
            return "file", path(where)
        if source == "env" and isinstance(where, str) and where.isidentifier():
            return "env", where
        words = where if isinstance(where, list) else ()
        if source == "command" and 0 < len(words) <= MOST_WORDS and all(map(_is_word, words)):
            return "command", tuple(words)
        raise ValueError(WHERE)

    return {
        "bmc.kind": kind,
        "bmc.address": bmc_address,
        "bmc.port": port,
        "bmc.user": user,
        SECRET: password,
        "bmc.ca": path,
        "bmc.insecure": truth,
    }


def _is_word(word: object) -> bool:
    return isinstance(word, str) and bool(word) and word.isprintable()


def bmc_of(name: str, values: Mapping[str, Any]) -> Bmc | None:
    """The BMC of a host from its settings; None if it has none."""
    own = {key.removeprefix(PREFIX): value for key, value in values.items() if PREFIX in key}
    if not own:
        return None
    return Bmc(**{**own, "address": own["address"].replace(HOST, name)})


def bmc_problems(entries: Iterable["HostEntry"]) -> list[Problem]:
    """One problem for each host whose settings do not make a BMC, or the BMC of another host."""
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
    name: str, own: Mapping[str, "Setting"], owners: dict[tuple[Any, ...], str]
) -> Found | None:
    address = own["bmc.address"].value.replace(HOST, name)
    port = own["bmc.port"].value if "bmc.port" in own else None
    owner = owners.setdefault((address, port), name)
    if owner == name:
        return None
    advice = f"give each its own; {HOST} in it stands for the host's name"
    return "bmc.address", f"its BMC has the address of {owner}'s", advice


def _command_problem(secret: "Setting") -> Found | None:
    """A file that names a command to run must be in no other user's hands."""
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
        return "bmc.insecure", "the certificate is not verified, so ca has no use", "keep one"
    return None
