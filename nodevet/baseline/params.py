"""Params of a check from plain data, as a baseline would make them from YAML."""

import json
from typing import Any

import pydantic

from nodevet.model import Check, Value


def params_of(check: Check, fields: Value) -> Any | None:
    """The check's own Params of these fields; None if they are not what it takes."""
    try:
        return check.params.model_validate_json(json.dumps(fields))
    except pydantic.ValidationError:
        return None
