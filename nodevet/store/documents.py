"""Evidence taken apart into what stays and what differs between two looks, and put together. Pure.

What was cut out of a mapping is a mapping of that; of a value that stays but had something cut out
of it, its own rest stands under its key. What was cut out of a list of mappings is a mapping of
columns. So putting together needs no declarations: what is in the rest and not in the value was cut
out, and what is in both goes deeper. A later nodevet may cut otherwise.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_origin

import msgspec

from nodevet.base import typed
from nodevet.base.last_few import LastFew
from nodevet.evidence.core import Record
from nodevet.evidence.sections import sections

EARLIER = "earlier."
Raw = msgspec.Raw | msgspec.UnsetType


class Apart(msgspec.Struct, frozen=True):
    """A document that was taken apart."""

    steady: Mapping[str, bytes]  # by section; those of the earlier reading as `earlier.NAME`
    volatile: bytes
    sent: Mapping[str, msgspec.Raw]  # the data of the sections that were asked for, whole


class _SentSection(msgspec.Struct, forbid_unknown_fields=True):
    """A section with its data as they were sent."""

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
    """How a record is taken apart: by a struct of its fields, each as it was sent."""

    kind: Any
    out: tuple[str, ...]  # what is cut out
    inner: tuple[tuple[str, "_Cut"], ...]  # what stays, with something cut out of it


_SENT = typed.decoder(_Sent)
_TOP = typed.decoder(dict[str, msgspec.Raw])
_TAKEN = typed.decoder(list[msgspec.Raw])
_ANY = typed.decoder(Any)
_ENCODE = msgspec.json.Encoder().encode
_UNFIT = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError)


@cache
def _cut_of(record: type[Record]) -> _Cut | None:
    """None: nothing of it is volatile."""
    fields: list[tuple[str, Any, Any]] = []
    inner: list[tuple[str, _Cut]] = []
    out: list[str] = []
    for field in msgspec.structs.fields(record):
        shape = _shape(field.type)
        below = None if field.name in record.volatile else shape and _cut_of(shape[0])
        kind: Any = Raw
        if field.name in record.volatile:
            out.append(field.name)
        elif shape and below:
            inner.append((field.name, below))
            one: Any = below.kind
            kind = (list[one] if shape[1] else one) | None | msgspec.UnsetType
        fields.append((field.name, kind, msgspec.UNSET))
    if not out and not inner:
        return None
    made = msgspec.defstruct(f"Cut{record.__name__}", fields, forbid_unknown_fields=True, gc=False)
    return _Cut(made, tuple(out), tuple(inner))


def _shape(kind: Any) -> tuple[type[Record], bool] | None:
    """The record in a field's type, and whether there is a list of it."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind, False
    listed = get_origin(kind) is tuple
    for each in get_args(kind):
        if found := _shape(each):
            return found[0], listed or found[1]
    return None


@cache
def _decoder_of(section: str) -> tuple[msgspec.json.Decoder[Any], _Cut] | None:
    record = sections().get(section)
    cut = _cut_of(record) if record else None
    return (typed.decoder(cut.kind), cut) if cut else None


def apart(document: bytes, asked: Iterable[str] = ()) -> Apart | None:
    """None for what is not as the probe sends it: it is kept whole. `asked`: see Apart.sent."""
    try:
        sent = _SENT.decode(document)
        listed = {name: sent.sections[name].data for name in asked if name in sent.sections}
        rest: dict[str, Any] = {}
        for key in ("schema", "probe"):
            value = getattr(sent, key)
            if value is not msgspec.UNSET:
                rest[key] = value
        steady: dict[str, bytes] = {}
        if all(taken.seconds is not msgspec.UNSET for taken in sent.sections.values()):
            rest["seconds"] = [taken.seconds for taken in sent.sections.values()]
            for taken in sent.sections.values():
                taken.seconds = msgspec.UNSET
        rest["sections"] = _sections(sent.sections, "", steady)
        if sent.earlier is None:
            rest["earlier"] = None
        elif sent.earlier is not msgspec.UNSET:
            rest["earlier"] = _sections(sent.earlier, EARLIER, steady)
        whole = {name: data for name, data in listed.items() if data is not msgspec.UNSET}
        return Apart(steady, _ENCODE(rest), whole)
    except _UNFIT:
        return None


def _sections(
    taken: Mapping[str, _SentSection], prefix: str, steady: dict[str, bytes]
) -> dict[str, Any]:
    rests: dict[str, Any] = {}
    for name, section in taken.items():
        if not prefix and name.startswith(EARLIER):
            raise ValueError("a section named like one of the earlier reading")
        rest: dict[str, Any] = {}
        for key in ("seconds", "before_s"):
            value = getattr(section, key)
            if value is not msgspec.UNSET:
                rest[key] = value
                setattr(section, key, msgspec.UNSET)
        found = _decoder_of(name)
        if found and section.data is not msgspec.UNSET:
            decoder, cut = found
            try:
                value = decoder.decode(section.data)
            except _UNFIT:  # not as this record is: it stays whole
                pass
            else:
                if cut_out := _cut_out(cut, value):
                    rest["data"] = cut_out
                section.data = value
        if rest:
            rests[name] = rest
        steady[prefix + name] = _ENCODE(section)
    return rests


def _cut_out(cut: _Cut, value: Any) -> dict[str, Any]:
    """What is cut out of one record, which is changed."""
    rest: dict[str, Any] = {}
    for name in cut.out:
        each = getattr(value, name)
        if each is not msgspec.UNSET:
            rest[name] = each
            setattr(value, name, msgspec.UNSET)
    for name, below in cut.inner:
        each = getattr(value, name)
        if each is None or each is msgspec.UNSET:
            continue
        cut_out = _columns(below, each) if type(each) is list else _cut_out(below, each)
        if cut_out:
            rest[name] = cut_out
    return rest


def _columns(cut: _Cut, values: list[Any]) -> Any:
    """What is cut out of a list of records: columns, or rows where these differ in what they
    have."""
    if not cut.inner and (columns := _plain_columns(cut, values)):
        return columns
    rows = [_cut_out(cut, value) for value in values]
    if not rows:
        return None
    names = rows[0].keys()
    if any(row.keys() != names for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in names}


def _plain_columns(cut: _Cut, values: list[Any]) -> dict[str, list[Any]] | None:
    """The columns of records that all have all of it, with nothing deeper."""
    columns = {name: list(map(attrgetter(name), values)) for name in cut.out}
    if any(msgspec.UnsetType in map(type, column) for column in columns.values()):
        return None
    for name in cut.out:
        for value in values:
            setattr(value, name, msgspec.UNSET)
    return columns if values else None


def together(
    names: Iterable[str],
    steady: Mapping[str, bytes],
    volatile: bytes,
    alike: LastFew | None = None,
) -> bytes:
    """The document again, equal value for value; with some of its sections, of these alone.

    `names`: of all that was steady, in its order. `alike`: what was put together of other
    documents; it is then not told how long each section took, which is never the same.
    """
    rest = _TOP.decode(volatile)
    taken = rest.pop("seconds", None)
    seconds = _TAKEN.decode(taken) if taken is not None and alike is None else []
    took = dict(
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
            name.removeprefix(prefix): _alike(alike, name, part, rests.get(name[len(prefix) :]))
            if alike
            else _joined(part, rests.get(name[len(prefix) :]), None if prefix else took.get(name))
            for name, part in steady.items()
            if name.startswith(EARLIER) == bool(prefix)
        }
    return _ENCODE(document)


def _alike(alike: LastFew, name: str, steady: bytes, rest: msgspec.Raw | None) -> msgspec.Raw:
    of = (steady, None if rest is None else bytes(rest))
    return alike.get_or_make(name, of, lambda: _joined(steady, rest, None))


def _joined(steady: bytes, rest: msgspec.Raw | None, seconds: msgspec.Raw | None) -> msgspec.Raw:
    cut = _TOP.decode(rest) if rest is not None else {}
    if "data" in cut and rest is not None:
        steady = _ENCODE(_merged(_ANY.decode(steady), _ANY.decode(rest)))
    elif cut and rest is not None:
        steady = _beside(steady, bytes(rest)[1:-1])
    if seconds is not None:
        steady = _beside(steady, b'"seconds":' + bytes(seconds))
    return msgspec.Raw(steady)


def _beside(steady: bytes, more: bytes) -> bytes:
    """A JSON object with one more field, or some."""
    return steady[:-1] + (b"" if steady == b"{}" else b",") + more + b"}"


def _merged(value: Any, rest: Any) -> Any:
    if type(value) is list:
        if type(rest) is dict:
            for name, column in rest.items():
                for item, cut in zip(value, column, strict=True):
                    item[name] = _merged(item[name], cut) if name in item else cut
            return value
        return [_merged(item, cut) if cut else item for item, cut in zip(value, rest, strict=True)]
    for name, cut in rest.items():
        value[name] = _merged(value[name], cut) if name in value else cut
    return value
