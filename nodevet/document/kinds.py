"""What a file of nodevet's is, whatever its name: for messages about one in the place of another.

`recognize` looks only at the keys at the top, so that a file that does not decode is known too.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from pathlib import Path

import msgspec

MOST_BYTES = 64 << 20  # of a file that is looked at
_TOP_KEY = re.compile(r'^["\']?([A-Za-z_][A-Za-z0-9_.-]*)["\']?[ \t]*:(?=\s|$)', re.MULTILINE)


class FileKind(Enum):
    """What a file or a folder is; the value is how people call it."""

    BASELINE = "a baseline"
    INVENTORY = "an inventory"
    APPROVAL = "the rules of approval"
    SCENARIO = "a scenario of simulated nodes"
    RUN = "a saved run of checks"
    PLAN = "a plan"
    RESULT = "the result of a run of fixes"
    FIX_RUN = "the folder of a run of fixes"
    EVIDENCE = "saved evidence"


_WAYS = {
    FileKind.BASELINE: "use it with -b {file}",
    FileKind.INVENTORY: "use it with -i {file}",
    FileKind.APPROVAL: "nodevet reads it from the project's folder: --project {folder}",
    FileKind.SCENARIO: "boot it with: nodevet sim up {file}",
    FileKind.RUN: "render it with: nodevet report {file}",
    FileKind.PLAN: "read and sign it with: nodevet approve {file}",
    FileKind.RESULT: "render its folder with: nodevet report {folder}",
    FileKind.FIX_RUN: "render it with: nodevet report {file}",
    FileKind.EVIDENCE: "judge it with: nodevet check --evidence {file}",
}
# the first of these of which the file has all keys, of what JSON or YAML
_JSON_KEYS = (
    ({"nodevet_plan"}, FileKind.PLAN),
    ({"schema", "probe", "sections"}, FileKind.EVIDENCE),
    ({"host", "status", "evidence"}, FileKind.EVIDENCE),
    ({"schema", "plan", "digest", "hosts"}, FileKind.RESULT),
    ({"schema", "nodevet", "started", "hosts"}, FileKind.RUN),
    ({"_meta"}, FileKind.INVENTORY),
    ({"all"}, FileKind.INVENTORY),
)
_YAML_KEYS = (
    ({"expect"}, FileKind.BASELINE),
    ({"nodevet", "extends"}, FileKind.BASELINE),
    ({"nodevet", "applies"}, FileKind.BASELINE),
    ({"nodevet", "waivers"}, FileKind.BASELINE),
    ({"approvers"}, FileKind.APPROVAL),
    ({"approvals"}, FileKind.APPROVAL),
    ({"author_approves"}, FileKind.APPROVAL),
    ({"teams"}, FileKind.APPROVAL),
    ({"sim", "nodes"}, FileKind.SCENARIO),
    ({"nodevet", "hosts"}, FileKind.INVENTORY),
    ({"nodevet", "groups"}, FileKind.INVENTORY),
    ({"nodevet", "defaults"}, FileKind.INVENTORY),
    ({"nodevet", "title"}, FileKind.BASELINE),
    ({"nodevet", "severity"}, FileKind.BASELINE),
    ({"nodevet", "fix"}, FileKind.BASELINE),
)


def recognize(data: bytes) -> FileKind | None:
    """What a file's content is; None if it is nothing of nodevet's. Pure."""
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        return _first(_JSON_KEYS, _json_keys(text))
    return _first(_YAML_KEYS, _TOP_KEY.findall(text.decode("utf-8", "replace")))


def is_claimed(data: bytes) -> bool:
    """Whether a YAML file says that it is one of nodevet's, of whatever kind. Pure."""
    return "nodevet" in _TOP_KEY.findall(data.decode("utf-8", "replace"))


def kind_of(path: Path) -> FileKind | None:
    """What a file or a folder is; None if it is nothing of nodevet's, or cannot be read."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            if (path / "journal.jsonl").exists():
                return FileKind.FIX_RUN
            some = next(iter(sorted(path.glob("*.json"))), None)
            return FileKind.EVIDENCE if some and kind_of(some) is FileKind.EVIDENCE else None
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            return recognize(path.read_bytes())
    return None


def mistaken(path: Path, *expected: FileKind) -> str:
    """`this is a baseline; use it with -b site.yaml`; empty if the file is of an expected kind,
    or of none that is known."""
    found = kind_of(path)
    if found is None or found in expected:
        return ""
    return f"this is {found.value}; {way(found, path)}"


def way(kind: FileKind, path: Path) -> str:
    """What to do with a file of this kind."""
    return _WAYS[kind].format(file=path, folder=path.parent)


def _first(known: Iterable[tuple[set[str], FileKind]], keys: Iterable[str]) -> FileKind | None:
    found = set(keys)
    return next((kind for needed, kind in known if needed <= found), None)


def _json_keys(text: bytes) -> Iterable[str]:
    """The keys of the document, or of its first line."""
    for part in (text, text.split(b"\n", 1)[0]):
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return msgspec.json.decode(part, type=dict[str, msgspec.Raw])
    return ()
