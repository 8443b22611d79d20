"""What an inventory may say about reaching a host, and what is refused.

Every value here ends up on a command line or in an SSH session, so what is not
plainly a name, a path or a number is refused: a leading dash would be read as
an option, white space and control characters as something else again.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic

NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
GROUP = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:/+-]{0,254})")
USER = re.compile(r"[A-Za-z0-9_.\\][A-Za-z0-9_.@\\$+-]{0,254}")
PROGRAM = re.compile(r"[A-Za-z0-9_./~+][A-Za-z0-9_./~+-]{0,1023}")
LONGEST_PATH = 4096


def is_address6(text: str) -> bool:
    """Whether it is an IPv6 address, with or without a scope (`fe80::1%eth0`)."""
    from ipaddress import AddressValueError, IPv6Address

    address, percent, scope = text.partition("%")
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return not percent or NAME.fullmatch(scope) is not None


def name_problem(name: str) -> str:
    """Why this cannot be a host's name; empty if it can."""
    if NAME.fullmatch(name) or (":" in name and is_address6(name)):
        return ""
    if not name:
        return "a host needs a name"
    if name.startswith("-"):
        return "a host name must not begin with a dash: ssh would take it for an option"
    if len(name) > 253:
        return "a host name has at most 253 characters"
    return "not a host name: only letters, digits, '.', '-' and '_', or an IPv6 address"


def _address(value: str) -> str:
    problem = name_problem(value)
    if problem:
        raise ValueError(problem.replace("host name", "host name or address"))
    return value


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[str], str]:
    def validate(value: str) -> str:
        if pattern.fullmatch(value):
            return value
        raise ValueError(f"must be {what}")

    return validate


def _path(value: str) -> str:
    if not value or value.startswith("-") or not value.isprintable() or len(value) > LONGEST_PATH:
        raise ValueError("must be a path")
    return value


def _home_path(value: str) -> str:
    if '"' in value:
        raise ValueError("must be a path without quotes")
    try:
        return str(Path(_path(value)).expanduser())
    except RuntimeError:
        raise ValueError("the home directory it names is not known here") from None


def _root(value: str) -> str:
    if not _path(value).startswith("/"):
        raise ValueError("must be an absolute path")
    return value


def _expected_hostname(value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    raise ValueError("must be true, false or a host name")


Text = pydantic.AfterValidator


class Settings(pydantic.BaseModel, frozen=True, extra="forbid", strict=True):
    """How to reach a host. None means that nothing is said."""

    address: Annotated[str, Text(_address)] | None = None
    port: Annotated[int, pydantic.Field(ge=1, le=65535)] | None = None
    user: Annotated[str, Text(_matching(USER, "a user name"))] | None = None
    key_file: Annotated[str, Text(_home_path)] | None = None
    known_hosts: Annotated[str, Text(_home_path)] | None = None
    root: Annotated[str, Text(_root)] | None = None
    whole_machine: bool | None = None
    python: Annotated[str, Text(_matching(PROGRAM, "a program"))] | None = None
    sudo: bool | None = None
    expect_hostname: Annotated[bool | str | None, pydantic.PlainValidator(_expected_hostname)] = (
        None
    )


MUST_BE = {
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "greater_than_equal": "must be between 1 and 65535",
    "less_than_equal": "must be between 1 and 65535",
}


def validate(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The settings that are said, and the problems as (setting, text)."""
    try:
        settings = Settings.model_validate(dict(values))
    except pydantic.ValidationError as error:
        return {}, [
            (
                str(item["loc"][0]),
                MUST_BE.get(item["type"], item["msg"].removeprefix("Value error, ")),
            )
            for item in error.errors(include_url=False, include_context=False)
        ]
    return settings.model_dump(exclude_none=True), []
