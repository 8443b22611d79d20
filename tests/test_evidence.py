"""Decoding is validation: what cannot be one machine's evidence is not taken for it."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from nodevet import bounds
from nodevet.evidence.document import Evidence, EvidenceError, decode
from nodevet.evidence.lists import numbers

GPUS = [
    {"index": 0, "uuid": "GPU-1", "bus_id": "0000:19:00.0"},
    {"index": 1, "uuid": "GPU-2", "bus_id": "0000:3b:00.0"},
    {"index": 2},
    {"index": 3},
]
SECTIONS: dict[str, Any] = {
    "gpu": {"gpus": GPUS},
    "pci": {"functions": [{"address": "0000:19:00.0"}, {"address": "0000:3b:00.0"}]},
    "numa": {"nodes": [{"id": 0}, {"id": 1}]},
    "processes": {"processes": [{"pid": 1}, {"pid": 2}]},
    "filesystems": {"filesystems": [{"path": "/"}, {"path": "/var"}]},
}


def section(name: str, data: Any) -> Any:
    sections = {name: {"status": "ok", "data": data}}
    return getattr(decode(json.dumps({"schema": 1, "probe": "", "sections": sections})), name)


class Bounded(NamedTuple):
    """A list, mapping or text of the evidence; `made(n)` is its section's data with n of it."""

    name: str
    section: str
    most: int | None
    made: Callable[[int], Any]


def bounded(
    kind: msgspec.inspect.Type, name: str, wrap: Callable[[Any], Any]
) -> Iterator[tuple[str, int | None, Callable[[int], Any]]]:
    """What has a length in `kind` and below it. `wrap` puts a value of it into its section."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from bounded(each, name, wrap)
    elif isinstance(kind, msgspec.inspect.StrType):
        yield name, kind.max_length, lambda number: wrap("x" * number)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        items = kind.item_type
        yield name, kind.max_length, lambda number: wrap([item(items, n) for n in range(number)])
        yield from bounded(items, f"{name}[]", lambda value: wrap([value]))
    elif isinstance(kind, msgspec.inspect.DictType):
        values = kind.value_type
        yield (
            name,
            kind.max_length,
            lambda number: wrap({f"k{n}": item(values, n) for n in range(number)}),
        )
        yield from bounded(kind.key_type, f"{name} key", lambda value: wrap({value: item(values)}))
        yield from bounded(values, f"{name} value", lambda value: wrap({"k": value}))
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from bounded(
                field.type,
                f"{name}.{field.name}",
                lambda value, key=field.name: wrap({**item(kind), key: value}),
            )


def item(kind: msgspec.inspect.Type, number: int = 0) -> Any:
    """The least that decodes as `kind`, with `number` in what tells it apart."""
    if isinstance(kind, msgspec.inspect.StructType):
        return {each.name: item(each.type, number) for each in kind.fields if each.required}
    return f"{number}" if isinstance(kind, msgspec.inspect.StrType) else number


def whole() -> list[Bounded]:
    sections = {each.name: each.type for each in msgspec.structs.fields(Evidence)}
    return [
        Bounded(name, section, most, made)
        for section, kind in sections.items()
        if section not in ("schema", "probe")
        for name, most, made in bounded(
            msgspec.inspect.type_info(get_args(kind)[0]), section, lambda value: value
        )
    ]


PLACES = whole()


@pytest.mark.parametrize("place", PLACES, ids=[place.name for place in PLACES])
def test_d1_more_than_a_machine_can_have_is_an_error_that_says_so(place: Bounded) -> None:
    assert place.most is not None, f"{place.name} has no bound, see nodevet.bounds"
    assert section(place.section, place.made(place.most)).status == "ok"
    found = section(place.section, place.made(place.most + 1))
    assert found.status == "error" and found.data is None
    assert re.search(f"not valid: Expected .* of length <= {place.most} - at ", found.why)


def test_d1_a_document_larger_than_any_probe_sends_is_not_read() -> None:
    text = json.dumps({"schema": 1, "probe": "", "sections": {}})
    assert decode(text.ljust(bounds.DOCUMENT))
    with pytest.raises(EvidenceError, match="not an evidence document: more than 16 MiB"):
        decode(text.ljust(bounds.DOCUMENT + 1))


def test_d1_a_list_that_repeats_its_numbers_is_no_list_of_the_kernel() -> None:
    every = f"0-{bounds.HIGHEST_CPU}"
    assert len(numbers(every) or ()) == bounds.HIGHEST_CPU + 1
    assert numbers(f"{every},0") is numbers(",".join([every] * 9000)) is None
    assert numbers(f"0-{bounds.HIGHEST_CPU + 1}") is None


@pytest.mark.parametrize(
    ("name", "listed", "key", "words"),
    [
        ("gpu", "gpus", "uuid", "two gpus with the uuid GPU-1"),
        ("gpu", "gpus", "bus_id", "two gpus with the bus_id 0000:19:00.0"),
        ("pci", "functions", "address", "two functions with the address 0000:19:00.0"),
        ("numa", "nodes", "id", "two nodes with the id 0"),
        ("processes", "processes", "pid", "two processes with the pid 1"),
        ("filesystems", "filesystems", "path", "two filesystems with the path /"),
    ],
)
def test_two_things_are_not_one(name: str, listed: str, key: str, words: str) -> None:
    good = section(name, SECTIONS[name])
    assert (good.status, len(getattr(good.data, listed))) == ("ok", len(SECTIONS[name][listed]))
    first, second, *rest = SECTIONS[name][listed]
    bad = section(name, {listed: [first, {**second, key: first[key]}, *rest]})
    assert (bad.status, bad.data) == ("error", None)
    assert bad.why == f"the probe's answer is not valid: {words}"
