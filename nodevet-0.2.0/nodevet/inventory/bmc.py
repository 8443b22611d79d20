"""The settings of a host's BMC. Each is a separate setting, such as `bmc.user`, so a host may take
some of them from its group.

An inventory says where the password is, and never contains it. No message shows a password.
"""

from collections.abc import Callable, Mapping
from typing import Any

from nodevet.base.durations import EXAMPLES, seconds_of
from nodevet.model import Bmc

PREFIX = "bmc."
SECRET = "bmc.password"  # noqa: S105 (the name of a setting)
HOST = "%h"  # in an address: the host's name, as in ssh_config
WHERE = "must say where the password is: {file: PATH}, {env: NAME} or {command: [PROGRAM, ...]}"
LEAST_TIMEOUT, MOST_TIMEOUT = 1.0, 1800.0  # seconds
MOST_WORDS = 64  # of a command

Validate = Callable[[Any], Any]


def validators(
    text: Validate,
    address: Validate,
    port: Validate,
    path: Validate,
    truth: Validate,
    group: Validate,
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

    def identity(value: Any) -> str:
        if value != "unproven":
            raise ValueError("must be unproven, or left out")
        return str(value)

    def timeout(value: Any) -> float:
        seconds = seconds_of(text(value))
        if seconds is None:
            raise ValueError(f"must be a time ({EXAMPLES})")
        if not LEAST_TIMEOUT <= seconds <= MOST_TIMEOUT:
            raise ValueError("must be between 1s and 30m")
        return seconds

    return {
        "bmc.kind": kind,
        "bmc.address": bmc_address,
        "bmc.port": port,
        "bmc.user": user,
        SECRET: password,
        "bmc.ca": path,
        "bmc.insecure": truth,
        "bmc.power_group": group,
        "bmc.identity": identity,
        "bmc.timeout": timeout,
    }


def _is_word(word: object) -> bool:
    return isinstance(word, str) and bool(word) and word.isprintable()


def bmc_of(name: str, values: Mapping[str, Any]) -> Bmc | None:
    """The BMC of a host from its settings; None if it has none."""
    own = {key.removeprefix(PREFIX): value for key, value in values.items() if PREFIX in key}
    if not own:
        return None
    return Bmc(**{**own, "address": own["address"].replace(HOST, name)})
