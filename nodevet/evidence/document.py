"""All sections of one probe run, and their JSON form. Decoding is validation.

A section that does not decode becomes `error` with the decoder's message; the others stay.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nodevet.base import bounds, typed
from nodevet.base.bounds import Text
from nodevet.base.last_few import LastFew
from nodevet.base.printable import brief
from nodevet.base.upgrades import Upgrades, can_upgrade, upgrade
from nodevet.evidence.core import MISSING, SCHEMA, Data, Record, Section, SectionRecord
from nodevet.evidence.sections import section_of, sections


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The sections of an earlier visit in the same boot: nodevet.evidence.last_look."""

    sections: "Sections"
    seconds: float  # from then to when this evidence was read


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one probe run read on one node; `evidence[Gpus]` is section gpu."""

    schema: int
    probe: Text  # nodevet version of the payload
    sections: "Sections"
    # those that hold counters as they were before, if they were sampled: nodevet.evidence.rates
    earlier: "Sections | None" = None
    since: Recorded | None = None  # never in the document: `--since` adds it

    def __getitem__(self, record: type[Data]) -> Section[Data]:
        """The section of this record; an `error` section if it was not read."""
        section: Section[Data] = self.sections[record]
        return section

    @property
    def transient_reasons(self) -> tuple[str, ...]:
        """Why sections are unread in a state of the node that passes by itself."""
        names = [name for name, raw in self.sections.raw.items() if b'"transient"' in bytes(raw)]
        records = filter(None, map(section_of, names))
        transient_sections = (self.sections[record] for record in records)
        return tuple(
            section.why for section in transient_sections if section.transient and section.why
        )

    def with_data(self, data: SectionRecord) -> "Evidence":
        """The same evidence with this data in its section."""
        section = replace(self[type(data)], status="ok", why="", data=data)
        sections = Sections(self.sections.raw)
        sections.update({**self.sections, type(data): section})
        return replace(self, sections=sections)


def section_name(record: type[SectionRecord]) -> str:
    """The name of a record's section, which is that of its file."""
    return record.__module__.rpartition(".")[2]


class Sections(dict[type[SectionRecord], Section[Any]]):
    """Sections by record, each decoded at first use: a baseline needs few."""

    def __init__(
        self, raw: Mapping[str, msgspec.Raw], cache_of_sections: LastFew | None = None
    ) -> None:
        self.raw = raw
        self._alike = cache_of_sections
        self.known: dict[object, Any] = {}  # see `answer_once`
        super().__init__()

    def __missing__(self, record: type[SectionRecord]) -> Section[Any]:
        raw, alike = self.raw.get(section_name(record)), self._alike
        if raw is None or alike is None:
            section = _section(record, raw)
        else:
            section = alike.get_or_make(record, bytes(raw), lambda: _section(record, raw))
        self[record] = section
        return section


Answer = TypeVar("Answer")


def answer_once(question: Callable[[Evidence], Answer]) -> Callable[[Evidence], Answer]:
    """Compute a function of evidence once; all checks share the answer."""

    @wraps(question)
    def cached_answer(evidence: Evidence) -> Answer:
        answers = evidence.sections.known
        if question not in answers:
            answers[question] = question(evidence)
        answer: Answer = answers[question]
        return answer

    return cached_answer


class EvidenceError(Exception):
    """The document is not evidence; the message is one sentence."""


UPGRADES: Upgrades = {}
"""Functions from the sections of a schema, JSON values by name, to the next schema's."""

STATUSES = ("ok", "absent", "denied", "error", "timeout")


class _Envelope(msgspec.Struct, frozen=True):
    schema: int
    probe: Text
    sections: dict[str, msgspec.Raw]
    earlier: dict[str, msgspec.Raw] | None = None


@cache
def _decoder(record: type[SectionRecord]) -> msgspec.json.Decoder[Section[Any]]:
    kind = cast(Any, Section)[record]
    return typed.decoder(kind)


def _section(record: type[SectionRecord], raw: msgspec.Raw | None) -> Section[Any]:
    if raw is None:
        return Section(status="error", why=MISSING)
    if bytes(raw).count(b"{") > bounds.OBJECTS:
        why = f"more than {bounds.OBJECTS:,} objects"
        return Section(status="error", why=f"the probe's answer is not valid: {why}")
    try:
        section = _decoder(record).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Section(status="error", why=f"the probe's answer is not valid: {error}")
    if problem := number_problem(bytes(raw)):
        return Section(status="error", why=f"the probe's answer is not valid: {problem}")
    return checked_section(section)


_DIGITS = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else byte for byte in range(256))
_LONG = b"0" * len(str(bounds.NUMBER))


def number_problem(raw: bytes) -> str:
    """The first integer beyond `bounds.NUMBER` in a section's JSON; "" if there is none. Decoders
    have no such limit, and arithmetic and databases fail with what is beyond it."""
    if _LONG not in raw.translate(_DIGITS):
        return ""
    try:
        json.loads(raw, parse_int=_bounded)
    except _TooLargeError as error:
        return str(error)
    except RecursionError:  # in what decoders skip
        return "nested too deep"
    return ""


class _TooLargeError(Exception):
    """An integer that no counter has."""


def _bounded(text: str) -> int:
    if len(text.lstrip("-")) > len(_LONG) or abs(value := int(text)) >= bounds.NUMBER:
        raise _TooLargeError(f"no counter has the value {brief(text, 30)}")
    return value


def checked_section(section: Section[Data]) -> Section[Data]:
    """A decoded section; an `error` section if it contradicts itself."""
    if section.status not in STATUSES:
        return Section(status="error", why=f"the probe's answer has no status {section.status!r}")
    if section.status == "ok":
        if section.data is None:
            return Section(status="error", why="the probe's answer says ok and holds no data")
        problem = _duplicate(section.data) or section.data.contradiction()
        if problem:
            return Section(status="error", why=f"the probe's answer is not valid: {problem}")
        settled = section.data.with_parts_compared()
        return section if settled is section.data else replace(section, data=settled)
    if not section.why:
        return Section(status="error", why=f"the probe's answer says {section.status} and not why")
    return replace(section, before_s=None, data=None)


def _duplicate(data: SectionRecord) -> str:
    """Two items of a list with the same key; "" if there are none."""
    repeats = (_first_duplicate(data, path.split("[].")) for path in data.unique)
    return next(filter(None, repeats), "")


def _first_duplicate(owner: Record, path: Sequence[str]) -> str:
    """The first two items with the same key in a list of this record or below it."""
    field, *rest = path
    items: Sequence[Record] = getattr(owner, field) or ()
    if len(rest) == 1:
        return _duplicate_key(field, items, rest[0].split("+"))
    repeats = ((index, _first_duplicate(item, rest)) for index, item in enumerate(items))
    return next(
        (f"{field}[{index}] has {duplicate}" for index, duplicate in repeats if duplicate), ""
    )


def _duplicate_key(field: str, items: Sequence[Record], keys: Sequence[str]) -> str:
    if len(set(map(attrgetter(*keys), items))) == len(items):
        return ""
    values = set()
    for item in items:
        value = tuple(getattr(item, key) for key in keys)
        if value in values:
            keys_text = " and ".join(
                f"the {key} {part}" for key, part in zip(keys, value, strict=True)
            )
            return f"two {field} with {keys_text}"
        if any(part is not None for part in value):
            values.add(value)
    return ""


def decode(document: bytes | str, *, upgrades: Upgrades = UPGRADES) -> Evidence:
    """Evidence from its JSON form, with all sections decoded; see `open_evidence`."""
    evidence = open_evidence(document, upgrades=upgrades)
    for record in sections().values():
        evidence[record]
    return evidence


def open_evidence(
    document: bytes | str, *, upgrades: Upgrades = UPGRADES, alike: LastFew | None = None
) -> Evidence:
    """Evidence from its JSON form; sections are decoded at first use.

    Raises EvidenceError if the whole document is unusable. A broken section becomes `error`; an
    unknown section (a newer probe's) is ignored. `upgrades` convert an older schema step by step.
    `alike`: a cache of equal sections of other hosts.
    """
    envelope = _envelope(document)
    _check(envelope.schema, upgrades)
    current_sections = Sections(_current(envelope.schema, envelope.sections, upgrades), alike)
    earlier = None
    if envelope.earlier is not None:
        earlier = Sections(_current(envelope.schema, envelope.earlier, upgrades), alike)
    return Evidence(schema=SCHEMA, probe=envelope.probe, sections=current_sections, earlier=earlier)


def check_envelope(document: bytes | str) -> None:
    """Raise EvidenceError if this is not evidence; ignores its sections."""
    _check(_envelope(document).schema, UPGRADES)


def _envelope(document: bytes | str) -> _Envelope:
    if len(document) > bounds.DOCUMENT:
        raise EvidenceError(f"not an evidence document: more than {bounds.DOCUMENT >> 20} MiB")
    try:
        return typed.decode(document, _Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"not an evidence document: {error}") from error


def _check(schema: int, upgrades: Upgrades) -> None:
    if not can_upgrade(schema, SCHEMA, upgrades):
        raise EvidenceError(f"evidence schema {schema}; this nodevet reads {SCHEMA}")


def _current(
    schema: int, raw_sections: Mapping[str, msgspec.Raw], upgrades: Upgrades
) -> Mapping[str, msgspec.Raw]:
    """The sections in the current schema. Raises EvidenceError."""
    if schema == SCHEMA:
        return raw_sections
    try:
        values = {name: msgspec.json.decode(raw) for name, raw in raw_sections.items()}
        values = upgrade(values, schema, SCHEMA, upgrades)
        return {name: msgspec.Raw(msgspec.json.encode(section)) for name, section in values.items()}
    except Exception as error:  # an old schema may hold anything
        raise EvidenceError(f"evidence schema {schema} does not upgrade: {error}") from error
