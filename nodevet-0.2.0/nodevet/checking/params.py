"""Types for the Params of several checks, and a function that makes Params from plain data."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from nodevet.base.typed import convert
from nodevet.model import CheckParams, FieldError

PCI_ID = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}")
PciId = Annotated[str, Meta(extra_json_schema={"pattern": f"^{PCI_ID.pattern}$"})]
PciIds = PciId | Annotated[tuple[PciId, ...], Meta(min_length=1)]
"""One or several PCI ids; `no_pci_ids` says which are invalid."""

Params = TypeVar("Params", bound=CheckParams)


def params_of(kind: type[Params], value: object) -> Params:
    """The Params from a baseline's plain value or mapping. Raises msgspec.ValidationError.

    As in a baseline, every key is text: `{0: 1}` means `{"0": 1}`.
    """
    if kind.whole is not None:
        value = {kind.whole: value}
    elif kind.bare is not None and not isinstance(value, Mapping):
        value = {kind.bare: value}
    return convert(msgspec.json.decode(msgspec.json.encode(value)), kind)


def no_pci_ids(field: str, ids: Iterable[str]) -> Iterator[FieldError]:
    """An error for each invalid PCI id of a field."""
    for place, text in enumerate(ids):
        if not PCI_ID.fullmatch(text):
            message = 'must be a PCI id such as "10de:2330": vendor:device, four hex digits each'
            yield FieldError(message, field, place)
