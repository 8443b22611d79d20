"""The keys of a baseline file, as pydantic models. `expect` is judged by the checks' Wants."""

import re
from datetime import date
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from nodevet.baseline.nodesets import bounded, hosts
from nodevet.model import Severity

VERSION = 1
PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


def _listed(value: Any) -> Any:
    """A single value stands for a list of one."""
    if not isinstance(value, (str, list)):
        raise ValueError("must be text, or a list of texts")
    return (value,) if isinstance(value, str) else tuple(value)


def _pci_id(value: str) -> str:
    found = value.lower()
    if not PCI_ID.fullmatch(found):
        raise ValueError(
            'must be a PCI id such as "10de:2330": vendor:device, four hex digits each'
        )
    return found


def _nodeset(value: str) -> str:
    hosts(value)
    return value


def _check_ids(value: Any) -> Any:
    """`[a, b]` stands for `{a: true, b: true}`."""
    if not isinstance(value, (dict, list)) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of check ids, or check ids with true or false")
    return value if isinstance(value, dict) else dict.fromkeys(value, True)


def _present(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _some(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("must not be an empty list; remove it, or name what is meant")
    return value


_TEXT = {"type": "string", "minLength": 1}
_ID = {"type": "string", "pattern": "^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$"}


def _one_or_more(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


Text = Annotated[str, AfterValidator(_present)]
Names = Annotated[tuple[Text, ...], BeforeValidator(_listed), _one_or_more(_TEXT)]
SomeNames = Annotated[Names, AfterValidator(_some), _one_or_more(_TEXT)]
PciIds = Annotated[
    tuple[Annotated[str, AfterValidator(_pci_id)], ...],
    BeforeValidator(_listed),
    AfterValidator(_some),
    _one_or_more(_ID),
]
Nodesets = Annotated[
    tuple[Annotated[str, AfterValidator(_nodeset)], ...],
    BeforeValidator(lambda value: bounded(_listed(value))),
    AfterValidator(_some),
    _one_or_more(_TEXT),
]
Fixes = Annotated[
    dict[str, bool],
    BeforeValidator(_check_ids),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "boolean"}},
            ]
        }
    ),
]


class Part(pydantic.BaseModel):
    """A mapping of the file."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class GpuPart(Part):
    """Which GPUs the baseline is for."""

    device: PciIds = Field((), description='PCI id or ids of the GPU: "10de:2330"')
    subsystem: PciIds = Field((), description="PCI id or ids of the board, if boards differ")
    count: int | None = Field(
        None, ge=1, description="GPUs in a healthy node; decides only between equal baselines"
    )


class AppliesPart(Part):
    """Which nodes the baseline is for. Every part that is given must match."""

    hosts: Nodesets = Field((), description="Host names as a nodeset: gpu[001-128]")
    groups: SomeNames = Field((), description="Inventory groups")
    gpu: GpuPart | None = Field(None, description="PCI ids of the GPUs")

    @pydantic.model_validator(mode="after")
    def _not_empty(self) -> "AppliesPart":
        if not (self.hosts or self.groups or self.gpu is not None):
            raise ValueError("says nothing; give hosts, groups or gpu, or remove it")
        return self


class WaiverPart(Part):
    """A failed finding that a named person accepted until a date: one value of it, or any."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["accepts"]}, {"required": ["any"]}]}
    )

    check: Text = Field(description="The check's id")
    owner: Text = Field(description="Who accepted it")
    reason: Text = Field(description="Why")
    until: date = Field(description="The last day it holds: 2026-12-31")
    accepts: Any = Field(
        None,
        description="The value that is accepted, as reports show it: x8, 7, 650 W; "
        "another value fails again",
        json_schema_extra={"type": ["string", "number", "boolean", "array", "object"]},
    )
    any: bool = Field(
        False, description="Every value is accepted", json_schema_extra={"const": True}
    )
    hosts: Nodesets = Field((), description="Host names as a nodeset; left out: every host")
    subject: Text | None = Field(
        None, description='A GPU\'s "GPU 4", UUID or bus id, or another subject; left out: all'
    )


class FilePart(Part):
    """A whole baseline file."""

    nodevet: Literal[1] = Field(description="Version of this format")
    title: str = Field("", description="What kind of node this is, in one line")
    extends: Names = Field((), description="Baselines to build on; a later one overrides")
    applies: AppliesPart | None = Field(None, description="Which nodes the baseline is for")
    expect: dict[str, Any] | None = Field(None, description="Check id: what is expected")
    severity: dict[str, Severity] | None = Field(
        None, description="Check id: how severe a failure is"
    )
    fix: Fixes = Field({}, description="Check ids that a plan may fix")
    waivers: tuple[WaiverPart, ...] = Field((), description="Findings accepted for a time")
