"""Evidence that was taken apart is put together again, equal value for value."""

import json
from functools import cache
from typing import Any

import five_nights
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodevet.base.last_few import LastFew
from nodevet.evidence.core import SCHEMA, Record
from nodevet.evidence.document import Evidence, open_evidence
from nodevet.evidence.sections import sections
from nodevet.store import documents

NAMES = ("gpu", "infiniband", "network", "memory", "host", "nfs", "stuck", "processes", "unheard")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)


@cache
def of(kind: type[Record]) -> st.SearchStrategy[Any]:
    """JSON much like a record: some of its fields, with the records that lie in them."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        shape = documents._shape(field.type)
        if shape and documents._cut_of(shape[0]):
            inner = of(shape[0])
            fields[field.name] = SCALARS | (st.lists(inner, max_size=2) if shape[1] else inner)
        elif field.name in kind.volatile[:2] or len(fields) < 2:
            fields[field.name] = SCALARS
    return st.fixed_dictionaries({}, optional=fields)


def data(name: str) -> st.SearchStrategy[Any]:
    record = sections().get(name)
    return SCALARS | st.just([]) | (of(record) if record else st.dictionaries(st.text(), SCALARS))


def section(name: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "status": SCALARS,
            "why": SCALARS,
            "seconds": SCALARS,
            "before_s": SCALARS,
            "data": data(name),
            "more": st.just(1),
        },
    )


@st.composite
def of_sections(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from((*NAMES, "earlier.gpu")), unique=True, max_size=2))
    return {name: draw(section(name)) for name in names}


DOCUMENTS = st.fixed_dictionaries(
    {"sections": of_sections()},
    optional={
        "schema": SCALARS,
        "probe": SCALARS,
        "earlier": st.none() | of_sections(),
        "seconds": SCALARS,
        "steady": st.just({}),
    },
)


@given(DOCUMENTS)
@settings(max_examples=150, deadline=None)
@example({"sections": {}, "earlier": {}})
@example({"sections": {"gpu": {"seconds": 1, "data": {"gpus": [{"index": 0, "pstate": 1}, {}]}}}})
def test_a_split_document_is_joined_again(document: dict[str, Any]):
    text = json.dumps(document).encode()
    found = documents.split_document(text)
    if found is not None:
        again = documents.join_document(list(found.steady), found.steady, found.volatile)
        assert typed_values(msgspec.json.decode(again)) == typed_values(msgspec.json.decode(text))


@given(st.lists(DOCUMENTS, min_size=2, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_alike_documents_are_joined_once(several: list[dict[str, Any]], data: st.DataObject):
    listed = data.draw(st.lists(st.sampled_from(several), min_size=2, max_size=6))
    alike = LastFew()
    for document in listed:
        found = documents.split_document(json.dumps(document).encode())
        if found is not None:
            rest = msgspec.json.decode(found.volatile, type=dict[str, msgspec.Raw])
            rest.pop("seconds", None)
            untimed = msgspec.json.encode(rest)
            names = list(found.steady)
            again = documents.join_document(names, found.steady, found.volatile, alike)
            assert again == documents.join_document(names, found.steady, untimed)


SOME = tuple(name for name in NAMES if name in sections())


@given(st.lists(DOCUMENTS, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
@example([five_nights.document("gpu001", night) for night in (1, 2)])
@example([{"sections": {"memory": {"status": "ok", "data": {"available_kb": 10**45}}}}])
def test_split_and_joined_documents_decode_to_the_same_evidence(several: list[dict[str, Any]]):
    alike = LastFew()
    for document in several:
        text = json.dumps({**document, "schema": SCHEMA, "probe": "1"}).encode()
        found = documents.split_document(text)
        if found is not None:
            split = documents.open_split(found.steady, found.volatile, alike)
            assert split is not None
            assert_same(split.evidence, joined(found, readings=True))
            assert_same(split.steady, joined(found, readings=False))


def joined(found: documents.SplitDocument, *, readings: bool) -> Evidence:
    """The evidence of a joined document without the times of its sections."""
    rest = json.loads(found.volatile)
    rest.pop("seconds", None)
    for part in ("sections", "earlier"):
        for name, cut in (rest.get(part) or {}).items():
            kept = {key: value for key, value in cut.items() if key != "seconds"}
            rest[part][name] = kept if readings else {}
    volatile = msgspec.json.encode(rest)
    return open_evidence(documents.join_document(list(found.steady), found.steady, volatile))


def assert_same(one: Evidence, other: Evidence) -> None:
    for name in SOME:
        record = sections()[name]
        assert one[record] == other[record], name
        assert (one.earlier is None) == (other.earlier is None)
        if one.earlier is not None and other.earlier is not None:
            assert one.earlier[record] == other.earlier[record], name


def typed_values(value: Any) -> Any:
    """A JSON value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed_values(item) for item in value]
    return type(value), value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'{"sections": []}',
        b'{"sections": {"gpu": 1}}',
        b'{"sections": {}, "unheard": 1}',
        b'{"sections": {"gpu": {"status": "\xff"}}, "steady": 1}',
        b'{"sections": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_unusual_evidence_is_kept_whole(text: bytes):
    assert documents.split_document(text) is None


def test_readings_are_stored_apart_from_steady_values():
    gpus = [{"index": n, "uuid": f"GPU-{n}", "temperature_gpu_c": 40 + n} for n in range(2)]
    text = {"sections": {"gpu": {"status": "ok", "seconds": 1, "data": {"gpus": gpus}}}}
    first = documents.split_document(json.dumps(text).encode())
    gpus[0]["temperature_gpu_c"] = 80
    second = documents.split_document(json.dumps(text).encode())
    assert first and second and first.steady == second.steady
    rest = json.loads(second.volatile)
    assert rest["sections"]["gpu"]["data"] == {"gpus": {"temperature_gpu_c": [80, 41]}}


def test_every_field_that_is_said_to_be_volatile_exists():
    records = {record for section in sections().values() for record in within(section)}
    named = [(record, name) for record in records for name in record.volatile]
    assert len(named) > 80
    assert [each for each in named if each[1] not in each[0].__struct_fields__] == []


def within(record: type[Record]) -> set[type[Record]]:
    """A record and those that lie in it."""
    shapes = [documents._shape(field.type) for field in msgspec.structs.fields(record)]
    return {record}.union(*(within(shape[0]) for shape in shapes if shape))
