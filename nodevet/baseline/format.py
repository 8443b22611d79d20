"""The keys of a baseline file. The Params of checks validate `expect`."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from nodevet.base.nodeset import MAX_HOSTS
from nodevet.baseline.nodesets import hosts
from nodevet.checking.params import PciIds, no_pci_ids
from nodevet.model import FieldError, Severity, refuse

VERSION = 1
Item = TypeVar("Item")

Text = Annotated[str, Meta(pattern=r"\S", title="text that is not empty")]
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Names = Name | tuple[Name, ...]
SomeNames = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]


CheckIds = Annotated[tuple[str, ...], Meta(title="a list of check ids")]
Switches = Annotated[dict[str, bool], Meta(title="check ids with true or false")]


def as_tuple(value: Item | tuple[Item, ...]) -> tuple[Item, ...]:
    """The value, in a tuple if it is a single one."""
    return value if isinstance(value, tuple) else (value,)


def blank_names(part: msgspec.Struct, *fields: str) -> Iterator[FieldError]:
    """An error for each blank name in these fields."""
    for field in fields:
        for place, name in enumerate(as_tuple(getattr(part, field))):
            if not name.strip():
                yield FieldError("must not be empty", field, place)


def nodeset_errors(field: str, texts: tuple[str, ...]) -> Iterator[FieldError]:
    """An error for each invalid nodeset of a field."""
    number = 0
    for place, text in enumerate(texts):
        try:
            number += len(hosts(text))
        except ValueError as error:
            yield FieldError(str(error), field, place)
        if number > MAX_HOSTS:
            yield FieldError(f"names more than {MAX_HOSTS:,} hosts; check the range", field)
            return


class YamlPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file."""


class GpuPart(YamlPart, frozen=True, kw_only=True):
    """Which GPUs the baseline is for."""

    device: PciIds = ()
    """PCI id or ids of the GPU, such as "10de:2330", vendor:device"""
    subsystem: PciIds = ()
    """PCI id or ids of the board, if boards differ"""
    count: Annotated[int, Meta(ge=1)] | None = None
    """GPUs in a healthy node; decides only between equal baselines"""

    def __post_init__(self) -> None:
        refuse(
            (
                *no_pci_ids("device", as_tuple(self.device)),
                *no_pci_ids("subsystem", as_tuple(self.subsystem)),
            )
        )


class AppliesPart(YamlPart, frozen=True, kw_only=True):
    """Which nodes the baseline is for. Every part that is given must match."""

    hosts: SomeNames = ()
    """Host names as a nodeset: gpu[001-128]"""
    groups: SomeNames = ()
    """Inventory groups"""
    gpu: GpuPart | None = None
    """PCI ids of the GPUs"""

    def __post_init__(self) -> None:
        if not (self.hosts or self.groups or self.gpu is not None):
            raise ValueError("says nothing; give hosts, groups or gpu, or remove it")
        refuse((*nodeset_errors("hosts", as_tuple(self.hosts)), *blank_names(self, "groups")))


class WaiverPart(YamlPart, frozen=True, kw_only=True):
    """A failed finding that a named person accepted until a date: one value of it, or any."""

    check: Text
    """The check's id"""
    owner: Text
    """Who accepted it"""
    reason: Text
    """Why"""
    until: date
    """The last day it holds: 2026-12-31"""
    accepts: Any = None
    """The value that is accepted, as reports show it: x8, 7, 650 W; another value fails again"""
    any: bool = False
    """Every value is accepted"""
    hosts: SomeNames = ()
    """Host names as a nodeset; left out: every host"""
    subject: Text = ""
    """A GPU's "GPU 4", UUID or bus id, or another subject; left out: all"""

    def __post_init__(self) -> None:
        refuse(nodeset_errors("hosts", as_tuple(self.hosts)))


class FilePart(YamlPart, frozen=True, kw_only=True):
    """A whole baseline file."""

    nodevet: Literal[1]
    """Version of this format"""
    title: str = ""
    """What kind of node this is, in one line"""
    extends: Names = ()
    """Baselines to build on; a later one overrides"""
    applies: AppliesPart | None = None
    """Which nodes the baseline is for"""
    expect: dict[str, Any] | None = None
    """Check id: what is expected"""
    allow_commands: bool = False
    """Whether checks may have commands run on nodes; `extends` does not inherit it"""
    allow_file_text: bool = False
    """Whether `file` rules may ask about the text of files that not everyone on the node may read;
    `extends` does not inherit it"""
    severity: dict[str, Severity] | None = None
    """Check id: how severe a failure is"""
    fix: CheckIds | Switches = ()
    """Check ids that a plan may fix"""
    waivers: tuple[WaiverPart, ...] = ()
    """Findings accepted for a time"""

    def __post_init__(self) -> None:
        refuse(blank_names(self, "extends"))

    @property
    def fixes(self) -> dict[str, bool]:
        """`[a, b]` stands for `{a: true, b: true}`."""
        return self.fix if isinstance(self.fix, dict) else dict.fromkeys(self.fix, True)
