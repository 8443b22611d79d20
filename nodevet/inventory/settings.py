"""Validate an inventory's settings for reaching a host.

Every value ends up on a command line or in an SSH session. So nodevet refuses values that are not
plain names, paths or numbers: programs would read a leading dash as an option, and misread white
space and control characters.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodevet.base.host_names import NAME, name_problem
from nodevet.inventory.bmc import SECRET, validators

GROUP = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:/+-]{0,254})")
USER = re.compile(r"[A-Za-z0-9_.\\][A-Za-z0-9_.@\\$+-]{0,254}")
PROGRAM = re.compile(r"[A-Za-z0-9_./~+][A-Za-z0-9_./~+-]{0,1023}")
LONGEST_PATH = 4096


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _port(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("must be a whole number")
    if not 1 <= value <= 65535:
        raise ValueError("must be between 1 and 65535")
    return value


def _address(value: Any) -> str:
    problem = name_problem(_text(value))
    if problem:
        raise ValueError(problem.replace("host name", "host name or address"))
    return str(value)


def _matching(pattern: re.Pattern[str], kind: str) -> Callable[[Any], str]:
    def validate(value: Any) -> str:
        if pattern.fullmatch(_text(value)):
            return str(value)
        raise ValueError(f"must be {kind}")

    return validate


def _path(value: Any) -> str:
    path = _text(value)
    if not path or path.startswith("-") or not path.isprintable() or len(path) > LONGEST_PATH:
        raise ValueError("must be a path")
    return path


def _home_path(value: Any) -> str:
    path = _path(value)
    if '"' in path:
        raise ValueError("must be a path without quotes")
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        raise ValueError("cannot expand ~: this machine has no such user") from None


def _root(value: Any) -> str:
    path = _path(value)
    if not path.startswith("/"):
        raise ValueError("must be an absolute path")
    return path


def _expected_hostname(value: Any) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and NAME.fullmatch(value)):
        return value
    raise ValueError("must be true, false or a host name")


SETTINGS: Mapping[str, Callable[[Any], Any]] = {  # how to reach a host
    "address": _address,
    "port": _port,
    "user": _matching(USER, "a user name"),
    "key_file": _home_path,
    "known_hosts": _home_path,
    "root": _root,
    "whole_machine": _truth,
    "python": _matching(PROGRAM, "a program"),
    "sudo": _truth,
    "expect_hostname": _expected_hostname,
    **validators(
        _text, _address, _port, _home_path, _truth, _matching(GROUP, "a name of a power group")
    ),
}


def not_value(setting: str, shown: str) -> str:
    """The end of a message about a value: `, not 99999`; "" for a password."""
    return "" if setting == SECRET else f", not {shown}"


def validate(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The settings that are not None, and the problems as (setting, text)."""
    settings: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in values.items():
        if name not in SETTINGS:
            problems.append((name, "is not a setting of a host"))
        elif value is not None:
            try:
                settings[name] = SETTINGS[name](value)
            except ValueError as error:
                problems.append((name, str(error)))
    return ({} if problems else settings), problems
