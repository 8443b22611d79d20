"""Recognize the kind of nodevet's files, whatever their names, for messages about a wrong kind.

`recognize` looks only at top-level keys, so it also knows files that do not decode.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from nodevet.base import typed
from nodevet.base.problems import Problem

MOST_BYTES = 64 << 20  # of a file that is read
GZIP, BUNDLE = b"\x1f\x8b", b'{"nodevet_incident"'
_TOP_KEY = re.compile(r'^["\']?([A-Za-z_][A-Za-z0-9_.-]*)["\']?[ \t]*:(?=\s|$)', re.MULTILINE)


class DocumentKind(Enum):
    """The kind of a file or a folder; the value is its name for people."""

    BASELINE = "a baseline"
    INVENTORY = "an inventory"
    APPROVAL = "the rules of approval"
    WORKLOAD = "a workload"
    FIX = "a fix"
    SCENARIO = "a scenario of simulated nodes"
    RUN = "a saved run of checks"
    PLAN = "a plan"
    RESULT = "the result of a run of fixes"
    FIX_RUN = "the folder of a run of fixes"
    EVIDENCE = "saved evidence"
    INCIDENT = "an incident bundle"
    DIAGNOSIS = "a diagnosis"
    FEED = "the output of feed"


_WAYS = {
    DocumentKind.BASELINE: "use it with -b {file}",
    DocumentKind.INVENTORY: "use it with -i {file}",
    DocumentKind.APPROVAL: "nodevet reads it from the project's folder: --project {folder}",
    DocumentKind.WORKLOAD: "compare nodes with it: nodevet feed {file}",
    DocumentKind.FIX: "check it with: nodevet lint {file}",
    DocumentKind.SCENARIO: "boot it with: nodevet sim up {file}",
    DocumentKind.RUN: "render it with: nodevet report {file}",
    DocumentKind.PLAN: "read and sign it with: nodevet approve {file}",
    DocumentKind.RESULT: "render its folder with: nodevet report {folder}",
    DocumentKind.FIX_RUN: "render it with: nodevet report {file}",
    DocumentKind.INCIDENT: "diagnose it with: nodevet diagnose --from {file}",
    DocumentKind.DIAGNOSIS: "render it with: nodevet report {file}",
    DocumentKind.FEED: "render it with: nodevet report {file}",
    DocumentKind.EVIDENCE: "judge it with: nodevet check --evidence {file}",
}
# the first entry of which the file has all keys counts
_JSON_KEYS = (
    ({"nodevet_plan"}, DocumentKind.PLAN),
    ({"nodevet_incident"}, DocumentKind.INCIDENT),
    ({"schema", "probe", "sections"}, DocumentKind.EVIDENCE),
    ({"host", "status", "evidence"}, DocumentKind.EVIDENCE),
    ({"schema", "plan", "digest", "hosts"}, DocumentKind.RESULT),
    ({"schema", "nodevet", "started", "hosts", "stragglers"}, DocumentKind.DIAGNOSIS),
    ({"schema", "nodevet", "started", "hosts"}, DocumentKind.RUN),
    ({"schema", "nodevet", "workload", "nodes"}, DocumentKind.FEED),
    ({"_meta"}, DocumentKind.INVENTORY),
    ({"all"}, DocumentKind.INVENTORY),
)
_YAML_KEYS = (
    ({"nodevet", "commands", "risk"}, DocumentKind.FIX),
    ({"expect"}, DocumentKind.BASELINE),
    ({"nodevet", "extends"}, DocumentKind.BASELINE),
    ({"nodevet", "applies"}, DocumentKind.BASELINE),
    ({"nodevet", "waivers"}, DocumentKind.BASELINE),
    ({"approvers"}, DocumentKind.APPROVAL),
    ({"approvals"}, DocumentKind.APPROVAL),
    ({"author_approves"}, DocumentKind.APPROVAL),
    ({"teams"}, DocumentKind.APPROVAL),
    ({"sim", "nodes"}, DocumentKind.SCENARIO),
    ({"nodevet", "workload"}, DocumentKind.WORKLOAD),
    ({"workload", "step"}, DocumentKind.WORKLOAD),
    ({"nodevet", "hosts"}, DocumentKind.INVENTORY),
    ({"nodevet", "groups"}, DocumentKind.INVENTORY),
    ({"nodevet", "defaults"}, DocumentKind.INVENTORY),
    ({"nodevet", "title"}, DocumentKind.BASELINE),
    ({"nodevet", "severity"}, DocumentKind.BASELINE),
    ({"nodevet", "fix"}, DocumentKind.BASELINE),
)


def recognize(data: bytes) -> DocumentKind | None:
    """The kind of a file's content, or None if it is not one of nodevet's. Pure."""
    if data[:2] == GZIP:
        return DocumentKind.INCIDENT if _gzip_start(data).startswith(BUNDLE) else None
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        return _first(_JSON_KEYS, _json_keys(text))
    return _first(_YAML_KEYS, _top_keys(text))


def is_claimed(data: bytes) -> bool:
    """Whether a YAML file claims to be nodevet's, of any kind. Pure."""
    return "nodevet" in _top_keys(data)


def _top_keys(data: bytes) -> Iterable[str]:
    """The top-level keys of a YAML file, also of one in UTF-16, so that its reader refuses it."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return _TOP_KEY.findall(data.decode(encoding, "replace"))


def kind_of(path: Path) -> DocumentKind | None:
    """The kind of a file or a folder; None if it is not nodevet's or cannot be read."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            if (path / "journal.jsonl").exists():
                return DocumentKind.FIX_RUN
            first = next(iter(sorted(path.glob("*.json"))), None)
            return (
                DocumentKind.EVIDENCE if first and kind_of(first) is DocumentKind.EVIDENCE else None
            )
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            return recognize(path.read_bytes())
    return None


def wrong_kind_text(path: Path, *expected: DocumentKind) -> str:
    """`this is a baseline; use it with -b site.yaml`; "" if the file is of an expected or of no
    known kind."""
    kind = kind_of(path)
    if kind is None or kind in expected:
        return ""
    return f"this is {kind.value}; {usage(kind, path)}"


def usage(kind: DocumentKind, path: Path) -> str:
    """How to use a file of this kind."""
    return _WAYS[kind].format(file=path, folder=path.parent)


def _gzip_start(data: bytes) -> bytes:
    """The beginning of a gzipped text, or b"" if it is damaged."""
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(data[:4096], len(BUNDLE))
    return b""


def _first(
    known: Iterable[tuple[set[str], DocumentKind]], keys: Iterable[str]
) -> DocumentKind | None:
    present = set(keys)
    return next((kind for needed, kind in known if needed <= present), None)


def _json_keys(text: bytes) -> Iterable[str]:
    """The keys of the document, or of its first line."""
    for part in (text, text.split(b"\n", 1)[0]):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return typed.decode(part, dict[str, msgspec.Raw])
    return ()


class Lintable(NamedTuple):
    """A kind of file that `nodevet lint` checks. Features list theirs in linting.py as `LINTED`."""

    name: str  # in messages of lint: workload
    kind: DocumentKind
    look: Callable[[Path], tuple[Sequence[str], Sequence[Problem]]]
    """The files that were checked, and their problems."""
    folder: str = ""  # of a project, besides its top: workloads
    names: Sequence[str] = ()  # of files that are of this kind whatever their content
