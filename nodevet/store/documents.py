"""Split evidence into steady and volatile values, and join them again. Pure.

The rest of a mapping is a mapping of the fields that were cut out. A field that stays but lost some
of its own fields has its own rest under its key. The rest of a list of mappings is a mapping of
columns. Joining therefore needs no declarations: a key only in the rest was cut out, and a key in
both is joined recursively. A later nodevet may cut other fields.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.base.bounds import Text
from nodevet.base.last_few import LastFew
from nodevet.evidence.core import SCHEMA, Record, Section, SectionRecord
from nodevet.evidence.document import (
    Evidence,
    Sections,
    checked_section,
    number_problem,
    section_name,
)
from nodevet.evidence.sections import section_of

EARLIER = "earlier."
Raw = msgspec.Raw | msgspec.UnsetType


class SplitDocument(msgspec.Struct, frozen=True):
    """A document that was split."""

    steady: Mapping[str, bytes]  # by section; sections of the earlier reading are `earlier.NAME`
    volatile: bytes
    sent: Mapping[str, msgspec.Raw]  # the whole data of the requested sections


class _SentSection(msgspec.Struct, forbid_unknown_fields=True):
    """A section with its data as the probe sent them."""

    status: Raw = msgspec.UNSET
    why: Raw = msgspec.UNSET
    seconds: Raw = msgspec.UNSET
    before_s: Raw = msgspec.UNSET
    data: Raw = msgspec.UNSET


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    """A document as the probe sends it."""

    sections: dict[str, _SentSection]
    schema: Raw = msgspec.UNSET
    probe: Raw = msgspec.UNSET
    earlier: dict[str, _SentSection] | msgspec.UnsetType | None = msgspec.UNSET


class _Cut(msgspec.Struct, frozen=True):
    """How to split a record: a struct of its fields, each as the probe sent it."""

    kind: Any
    out: tuple[str, ...]  # fields that are cut out
    inner: tuple[tuple[str, "_Cut"], ...]  # fields that stay, but are split themselves


_SENT = typed.decoder(_Sent)
_TOP = typed.decoder(dict[str, msgspec.Raw])
_TAKEN = typed.decoder(list[msgspec.Raw])
_ANY = typed.decoder(Any)
_ENCODE = msgspec.json.Encoder().encode
_UNFIT = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError)


@cache
def _cut_of(record: type[Record]) -> _Cut | None:
    """How to split a record; None if nothing of it is volatile."""
    fields: list[tuple[str, Any, Any]] = []
    inner: list[tuple[str, _Cut]] = []
    out: list[str] = []
    for field in msgspec.structs.fields(record):
        shape = _shape(field.type)
        inner_cut = None if field.name in record.volatile else shape and _cut_of(shape[0])
        kind: Any = Raw
        if field.name in record.volatile:
            out.append(field.name)
        elif shape and inner_cut:
            inner.append((field.name, inner_cut))
            inner_kind: Any = inner_cut.kind
            kind = (list[inner_kind] if shape[1] else inner_kind) | None | msgspec.UnsetType
        fields.append((field.name, kind, msgspec.UNSET))
    if not out and not inner:
        return None
    struct = msgspec.defstruct(
        f"Cut{record.__name__}", fields, forbid_unknown_fields=True, gc=False
    )
    return _Cut(struct, tuple(out), tuple(inner))


def _shape(kind: Any) -> tuple[type[Record], bool] | None:
    """The record in the type of a field, and whether the field is a list of it."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind, False
    is_list = get_origin(kind) is tuple
    for argument in get_args(kind):
        if shape := _shape(argument):
            return shape[0], is_list or shape[1]
    return None


@cache
def _decoder_of(section: str) -> tuple[msgspec.json.Decoder[Any], _Cut] | None:
    record = section_of(section)
    cut = _cut_of(record) if record else None
    return (typed.decoder(cut.kind), cut) if cut else None


def split_document(document: bytes, names: Iterable[str] = ()) -> SplitDocument | None:
    """Split a document. None if the probe did not send it: it is stored whole. `names`: the
    sections of `SplitDocument.sent`."""
    try:
        sent = _SENT.decode(document)
        data_of = {name: sent.sections[name].data for name in names if name in sent.sections}
        rest: dict[str, Any] = {}
        for key in ("schema", "probe"):
            value = getattr(sent, key)
            if value is not msgspec.UNSET:
                rest[key] = value
        steady: dict[str, bytes] = {}
        if all(section.seconds is not msgspec.UNSET for section in sent.sections.values()):
            rest["seconds"] = [section.seconds for section in sent.sections.values()]
            for section in sent.sections.values():
                section.seconds = msgspec.UNSET
        rest["sections"] = _sections(sent.sections, "", steady)
        if sent.earlier is None:
            rest["earlier"] = None
        elif sent.earlier is not msgspec.UNSET:
            rest["earlier"] = _sections(sent.earlier, EARLIER, steady)
        asked_data = {name: data for name, data in data_of.items() if data is not msgspec.UNSET}
        return SplitDocument(steady, _ENCODE(rest), asked_data)
    except _UNFIT:
        return None


def _sections(
    taken: Mapping[str, _SentSection], prefix: str, steady: dict[str, bytes]
) -> dict[str, Any]:
    rests: dict[str, Any] = {}
    for name, section in taken.items():
        if not prefix and name.startswith(EARLIER):
            raise ValueError("a section has the name of one of the earlier reading")
        rest: dict[str, Any] = {}
        for key in ("seconds", "before_s"):
            value = getattr(section, key)
            if value is not msgspec.UNSET:
                rest[key] = value
                setattr(section, key, msgspec.UNSET)
        if section.data is not msgspec.UNSET and (decoding := _decoder_of(name)):
            decoder, cut = decoding
            try:
                value = decoder.decode(section.data)
            except _UNFIT:  # it does not fit this record: it stays whole
                pass
            else:
                if cut_out := _cut_from(cut, value):
                    rest["data"] = cut_out
                section.data = value
        if rest:
            rests[name] = rest
        steady[prefix + name] = _ENCODE(section)
    return rests


def _cut_from(cut: _Cut, value: Any) -> dict[str, Any]:
    """Cut the volatile fields out of a record, and return them."""
    rest: dict[str, Any] = {}
    for name in cut.out:
        field = getattr(value, name)
        if field is not msgspec.UNSET:
            rest[name] = field
            setattr(value, name, msgspec.UNSET)
    for name, inner_cut in cut.inner:
        field = getattr(value, name)
        if field is None or field is msgspec.UNSET:
            continue
        cut_out = _columns(inner_cut, field) if type(field) is list else _cut_from(inner_cut, field)
        if cut_out:
            rest[name] = cut_out
    return rest


def _columns(cut: _Cut, values: list[Any]) -> Any:
    """Cut the volatile fields out of a list of records, and return columns; rows if the records
    have different fields."""
    if not cut.inner and (columns := _plain_columns(cut, values)):
        return columns
    rows = [_cut_from(cut, value) for value in values]
    if not rows:
        return None
    names = rows[0].keys()
    if any(row.keys() != names for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in names}


def _plain_columns(cut: _Cut, values: list[Any]) -> dict[str, list[Any]] | None:
    """The columns of records that all have all fields and are not split deeper; else None."""
    columns = {name: list(map(attrgetter(name), values)) for name in cut.out}
    if any(msgspec.UnsetType in map(type, column) for column in columns.values()):
        return None
    for name in cut.out:
        for value in values:
            setattr(value, name, msgspec.UNSET)
    return columns if values else None


def join_document(
    names: Iterable[str],
    steady: Mapping[str, bytes],
    volatile: bytes,
    alike: LastFew | None = None,
) -> bytes:
    """The document again, value for value; or some of its sections, those of `steady`.

    `names`: all steady sections, in order. `alike`: joined sections of other documents, to reuse;
    with it the result has no times of sections, which always differ.
    """
    rest = _TOP.decode(volatile)
    seconds_text = rest.pop("seconds", None)
    seconds = _TAKEN.decode(seconds_text) if seconds_text is not None and alike is None else []
    seconds_of = dict(
        zip((name for name in names if not name.startswith(EARLIER)), seconds, strict=False)
    )
    document: dict[str, Any] = {}
    for key, raw in rest.items():
        prefix = EARLIER if key == "earlier" else ""
        if key not in ("sections", "earlier") or bytes(raw) == b"null":
            document[key] = raw
            continue
        rests = _TOP.decode(raw)
        document[key] = {
            name.removeprefix(prefix): _join_once(alike, name, part, rests.get(name[len(prefix) :]))
            if alike
            else _join(
                part, rests.get(name[len(prefix) :]), None if prefix else seconds_of.get(name)
            )
            for name, part in steady.items()
            if name.startswith(EARLIER) == bool(prefix)
        }
    return _ENCODE(document)


class SplitSections(Sections):
    """The sections of a split document, each joined at first use and without its time. Similar
    documents share the decoded steady values, which get the readings of each."""

    def __init__(
        self, steady: Mapping[str, bytes], rests: Mapping[str, msgspec.Raw], alike: LastFew
    ) -> None:
        """`alike`: sections of other documents, to reuse."""
        self._steady, self._rests, self._shared = steady, rests, alike
        super().__init__(_JoinedSections(steady, rests, alike), alike)

    def __missing__(self, record: type[SectionRecord]) -> Section[Any]:
        section = self._with_readings(record)
        if section is None:
            return super().__missing__(record)
        self[record] = section
        return section

    def _with_readings(self, record: type[SectionRecord]) -> Section[Any] | None:
        """A section with its readings; None if it must be joined first."""
        name, cut = section_name(record), _cut_of(record)
        rest = _timeless(self._rests.get(name))
        if cut is None or rest.keys() != {"data"}:
            return None
        source = (self._steady[name], bytes(rest["data"]))
        return self._shared.get_or_make(
            (record, "read"), source, lambda: self._read(record, cut, *source)
        )

    def _read(
        self, record: type[SectionRecord], cut: _Cut, steady: bytes, readings: bytes
    ) -> Section[Any] | None:
        decoder = typed.decoder(Section[record])  # type: ignore[valid-type]
        try:
            section = self._shared.get_or_make(
                (record, "steady"), steady, lambda: decoder.decode(steady)
            )
            if section.status != "ok" or section.data is None:
                return None
            if number_problem(steady) or number_problem(readings):
                return None
            data = _with_readings(cut, section.data, readings)
        except _UNFIT:
            return None
        return checked_section(replace(section, data=data))


def _timeless(rest: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """The rest of a section without its time."""
    keys: dict[str, msgspec.Raw] = {} if rest is None else _TOP.decode(rest)
    keys.pop("seconds", None)
    return keys


class _JoinedSections(Mapping[str, msgspec.Raw]):
    def __init__(
        self, steady: Mapping[str, bytes], rests: Mapping[str, msgspec.Raw], alike: LastFew
    ) -> None:
        self._steady, self._rests, self._alike = steady, rests, alike

    def __getitem__(self, name: str) -> msgspec.Raw:
        rest = _timeless(self._rests.get(name))
        raw = msgspec.Raw(_ENCODE(rest)) if rest else None
        return _join_once(self._alike, name, self._steady[name], raw)

    def __iter__(self) -> Iterator[str]:
        return iter(self._steady)

    def __len__(self) -> int:
        return len(self._steady)


def _with_readings(cut: _Cut, record: Any, rest: bytes | msgspec.Raw) -> Any:
    """A record, or a list of them, with these readings. Raises one of _UNFIT if their form is an
    unusual one."""
    readings = _TOP.decode(rest)
    if isinstance(record, tuple):
        columns = [_column(_kind_of(record[0]), name).decode(raw) for name, raw in readings.items()]
        if readings.keys() - set(cut.out):
            raise ValueError("records in a list of records")
        rows = zip(record, *columns, strict=True)
        return tuple(replace(item, **dict(zip(readings, row, strict=True))) for item, *row in rows)
    inner = dict(cut.inner)
    return replace(
        record,
        **{
            name: _with_readings(inner[name], getattr(record, name), raw)
            if name in inner
            else _field(_kind_of(record), name).decode(raw)
            for name, raw in readings.items()
        },
    )


def _kind_of(record: Record) -> type[Record]:
    return type(record)


@cache
def _field(record: type[Record], name: str) -> msgspec.json.Decoder[Any]:
    """The decoder of a volatile field."""
    if name not in record.volatile:
        raise ValueError("an older nodevet cut it out")
    kinds = {field.name: field.type for field in msgspec.structs.fields(record)}
    return typed.decoder(kinds[name])


@cache
def _column(record: type[Record], name: str) -> msgspec.json.Decoder[Any]:
    """The decoder of a volatile field of the records of a list."""
    if name not in record.volatile:
        raise ValueError("an older nodevet cut it out, or it is a record")
    kinds = {field.name: field.type for field in msgspec.structs.fields(record)}
    kind: Any = kinds[name]
    return typed.decoder(list[kind])


class _SplitHead(msgspec.Struct):
    schema: int
    probe: Text


class OpenSplit(NamedTuple):
    """A split document, opened."""

    evidence: Evidence
    steady: Evidence  # as if no volatile value had been read


def open_split(steady: Mapping[str, bytes], volatile: bytes, alike: LastFew) -> OpenSplit | None:
    """Some sections of a split document, without their times; None if it must be joined first."""
    try:
        head = typed.decode(volatile, _SplitHead)
    except msgspec.DecodeError:
        return None
    if head.schema != SCHEMA:
        return None
    rest = _TOP.decode(volatile)
    with_readings: dict[str, Sections] = {}
    without: dict[str, Sections] = {}
    for key, prefix in (("sections", ""), ("earlier", EARLIER)):
        if key in rest and bytes(rest[key]) != b"null":
            named = {
                name.removeprefix(prefix): part
                for name, part in steady.items()
                if name.startswith(EARLIER) == bool(prefix)
            }
            with_readings[key] = SplitSections(named, _TOP.decode(rest[key]), alike)
            without[key] = SplitSections(named, {}, alike)
    evidence, bare = (
        Evidence(
            schema=SCHEMA,
            probe=head.probe,
            sections=parts["sections"],
            earlier=parts.get("earlier"),
        )
        for parts in (with_readings, without)
    )
    return OpenSplit(evidence, bare)


def _join_once(alike: LastFew, name: str, steady: bytes, rest: msgspec.Raw | None) -> msgspec.Raw:
    of = (steady, None if rest is None else bytes(rest))
    return alike.get_or_make(name, of, lambda: _join(steady, rest, None))


def _join(steady: bytes, rest: msgspec.Raw | None, seconds: msgspec.Raw | None) -> msgspec.Raw:
    cut = _TOP.decode(rest) if rest is not None else {}
    if "data" in cut and rest is not None:
        steady = _ENCODE(_merge(_ANY.decode(steady), _ANY.decode(rest)))
    elif cut and rest is not None:
        steady = _add_fields(steady, bytes(rest)[1:-1])
    if seconds is not None:
        steady = _add_fields(steady, b'"seconds":' + bytes(seconds))
    return msgspec.Raw(steady)


def _add_fields(steady: bytes, more: bytes) -> bytes:
    """A JSON object with more fields."""
    return steady[:-1] + (b"" if steady == b"{}" else b",") + more + b"}"


def _merge(value: Any, rest: Any) -> Any:
    if type(value) is list:
        if type(rest) is dict:
            for name, column in rest.items():
                for item, cut in zip(value, column, strict=True):
                    item[name] = _merge(item[name], cut) if name in item else cut
            return value
        return [_merge(item, cut) if cut else item for item, cut in zip(value, rest, strict=True)]
    for name, cut in rest.items():
        value[name] = _merge(value[name], cut) if name in value else cut
    return value
