"""All sections of one probe run, and their JSON form. Decoding is validation.

A section that does not decode becomes `error` with the decoder's words, and the others live on.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nodevet.base import bounds, typed
from nodevet.base.bounds import Text
from nodevet.base.last_few import LastFew
from nodevet.base.upgrades import Upgrades, can_upgrade, upgrade
from nodevet.evidence.core import MISSING, SCHEMA, Data, Record, Section, SectionRecord
from nodevet.evidence.sections import section_of, sections


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier visit to the machine read in the same boot: nodevet.evidence.last_look."""

    sections: "Sections"
    seconds: float  # from then to when this evidence was read


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one probe run read on one node: `evidence[Gpus]` is what section gpu says."""

    schema: int
    probe: Text  # nodevet version of the payload
    sections: "Sections"
    # those that hold counters as they were before, if they were sampled: nodevet.evidence.rates
    earlier: "Sections | None" = None
    since: Recorded | None = None  # never in the document: `--since` adds it

    def __getitem__(self, record: type[Data]) -> Section[Data]:
        """The section of which this is the record; one that says so if it was not read."""
        section: Section[Data] = self.sections[record]
        return section

    @property
    def transient_reasons(self) -> tuple[str, ...]:
        """Why sections were not read in a state of the node that passes by itself."""
        names = [name for name, raw in self.sections.raw.items() if b'"transient"' in bytes(raw)]
        records = filter(None, map(section_of, names))
        found = (self.sections[record] for record in records)
        return tuple(section.why for section in found if section.transient and section.why)

    def having(self, data: SectionRecord) -> "Evidence":
        """The same evidence with other values in the section that these are of."""
        section = replace(self[type(data)], status="ok", why="", data=data)
        sections = Sections(self.sections.raw)
        sections.update({**self.sections, type(data): section})
        return replace(self, sections=sections)


class Sections(dict[type[SectionRecord], Section[Any]]):
    """Each section as its record, decoded when it is first asked for: a baseline asks a few."""

    def __init__(self, raw: Mapping[str, msgspec.Raw], alike: LastFew | None = None) -> None:
        self.raw = raw
        self._alike = alike
        self.known: dict[object, Any] = {}  # see `once`
        super().__init__()

    def __missing__(self, record: type[SectionRecord]) -> Section[Any]:
        name = record.__module__.rpartition(".")[2]  # its file's, which is the section's
        raw, alike = self.raw.get(name), self._alike
        if raw is None or alike is None:
            section = _section(record, raw)
        else:
            section = alike.get_or_make(record, bytes(raw), lambda: _section(record, raw))
        self[record] = section
        return section


Answer = TypeVar("Answer")


def once(ask: Callable[[Evidence], Answer]) -> Callable[[Evidence], Answer]:
    """A question that many checks have: the same evidence is asked once. The answer is shared."""

    @wraps(ask)
    def asked(evidence: Evidence) -> Answer:
        known = evidence.sections.known
        if ask not in known:
            known[ask] = ask(evidence)
        answer: Answer = known[ask]
        return answer

    return asked


class EvidenceError(Exception):
    """The document is not evidence at all; the message is one sentence."""


UPGRADES: Upgrades = {}
"""How the sections of an earlier schema, JSON values by name, become those of the next."""

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
    try:
        section = _decoder(record).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Section(status="error", why=f"the probe's answer is not valid: {error}")
    if section.status not in STATUSES:
        return Section(status="error", why=f"the probe's answer has no status {section.status!r}")
    if section.status == "ok":
        if section.data is None:
            return Section(status="error", why="the probe's answer says ok and holds no data")
        wrong = _twice(section.data) or section.data.contradiction()
        if wrong:
            return Section(status="error", why=f"the probe's answer is not valid: {wrong}")
        settled = section.data.settled()
        return section if settled is section.data else replace(section, data=settled)
    if not section.why:
        return Section(status="error", why=f"the probe's answer says {section.status} and not why")
    return replace(section, before_s=None, data=None)


def _twice(data: SectionRecord) -> str:
    """Two items of a list that say that they are the same; empty if there are none."""
    repeats = (_repeat(data, path.split("[].")) for path in data.unique)
    return next(filter(None, repeats), "")


def _repeat(owner: Record, path: Sequence[str]) -> str:
    """The first two items that are the same in a list of this record, or of a record below it."""
    listed, *below = path
    items: Sequence[Record] = getattr(owner, listed) or ()
    if len(below) == 1:
        return _repeated_key(listed, items, below[0].split("+"))
    repeats = ((place, _repeat(item, below)) for place, item in enumerate(items))
    return next((f"{listed}[{place}] has {found}" for place, found in repeats if found), "")


def _repeated_key(listed: str, items: Sequence[Record], keys: Sequence[str]) -> str:
    seen = set()
    for item in items:
        value = tuple(getattr(item, key) for key in keys)
        if value in seen:
            told = " and ".join(f"the {key} {each}" for key, each in zip(keys, value, strict=True))
            return f"two {listed} with {told}"
        if any(each is not None for each in value):
            seen.add(value)
    return ""


def decode(document: bytes | str, *, upgrades: Upgrades = UPGRADES) -> Evidence:
    """Evidence from its JSON form, every section of it; see `opened`."""
    evidence = opened(document, upgrades=upgrades)
    for record in sections().values():
        evidence[record]
    return evidence


def opened(
    document: bytes | str, *, upgrades: Upgrades = UPGRADES, alike: LastFew | None = None
) -> Evidence:
    """Evidence from its JSON form; what no one asks for is not decoded.

    Raises EvidenceError if the document as a whole is unusable. A single broken section becomes
    `error`; an unknown section (a newer probe's) is ignored. Evidence of an older schema goes
    through `upgrades` first, one schema at a time. `alike`: sections of other hosts, which are not
    decoded again if they are the same.
    """
    envelope = _envelope(document)
    _check(envelope.schema, upgrades)
    found = Sections(_current(envelope.schema, envelope.sections, upgrades), alike)
    earlier = None
    if envelope.earlier is not None:
        earlier = Sections(_current(envelope.schema, envelope.earlier, upgrades), alike)
    return Evidence(schema=SCHEMA, probe=envelope.probe, sections=found, earlier=earlier)


def check_envelope(document: bytes | str) -> None:
    """Whether this is evidence at all, of whatever sections. Raises EvidenceError."""
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
    schema: int, found: Mapping[str, msgspec.Raw], upgrades: Upgrades
) -> Mapping[str, msgspec.Raw]:
    """The sections in today's schema. Raises EvidenceError for one that leads nowhere."""
    if schema == SCHEMA:
        return found
    try:
        values = {name: msgspec.json.decode(raw) for name, raw in found.items()}
        values = upgrade(values, schema, SCHEMA, upgrades)
        return {name: msgspec.Raw(msgspec.json.encode(each)) for name, each in values.items()}
    except Exception as error:  # what an old schema may hold is not known here
        raise EvidenceError(f"evidence schema {schema} does not upgrade: {error}") from error
