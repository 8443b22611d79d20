"""Params of a check from plain data, as a baseline would make them from YAML."""

from typing import Any

import msgspec

from nodevet.checking import params
from nodevet.model import Check, Value


def params_of(check: Check, fields: Value) -> Any | None:
    """The check's own Params of these fields; None if they are not what it takes."""
    try:
        return params.params_of(check.params, fields)
    except msgspec.ValidationError:
        return None
