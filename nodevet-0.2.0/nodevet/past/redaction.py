"""Redact documents of the history for readers outside the site: no names of hosts, people or files.
Pure.

A host becomes `host 1`, a baseline `baseline 1`, a sweep `sweep 1`; equal names stay equal within
one document. Names of hosts are replaced in texts too. The ids and serial numbers of parts, the
expected and actual values, and times stay: outside readers ask for them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from nodevet.evidence.telling import TELLING
from nodevet.past.blame import ChangeLine
from nodevet.past.passport import Passport
from nodevet.past.run_diff import CMDLINE, FactDiff, HostDiff
from nodevet.past.story import StoryEvent, StoryKind
from nodevet.store.records.model import (
    FindingSpan,
    FixHost,
    FixProof,
    RecordedAction,
    RecordedFixRun,
    RecordedVisit,
)

HOSTS = frozenset(
    {
        *("host", "hosts", "drifted", "host_before", "host_after"),
        *("appeared", "vanished", "replaced", "rebooted"),
    }
)
"""The fields whose texts name hosts."""
LEFT_OUT: Mapping[str, Any] = {
    **dict.fromkeys(("machine_id", "boot_id"), None),
    **dict.fromkeys(("origin", "waiver", "plan", "after_plan", "store"), ""),
    **dict.fromkeys(("author", "approved_by", "run_by", "fix_run", "folder", "sha256"), ""),
    **dict.fromkeys(("groups", "approvals"), ()),
    "details": msgspec.UNSET,
}
"""The fields that name machines, files or people, each with the value that replaces it."""
_WORD = re.compile(r"[\w.-]+")
Any_ = TypeVar("Any_")


class Redactor:
    """Replaces names. `hosts`: all that the store knows."""

    def __init__(self, hosts: Iterable[str]) -> None:
        names = [host for host in hosts if not host.isdigit()]  # a number in a text is no host
        self._hosts = {spelt: host for host in names for spelt in (_label(host), host)}
        self._odd = [host for host in self._hosts if not _WORD.fullmatch(host)]
        self._names: dict[str, dict[str, str]] = {}

    def document(self, document: Any_) -> Any_:
        """A copy of a document without names of the site."""
        made: Any_ = self._value(document)
        return made

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a row of a table without names of the site."""
        clean = {
            name: None if name in LEFT_OUT else self._field(name, value)
            for name, value in row.items()
        }
        if "why" in row and not row.get("check"):  # a finding of the host as a whole
            clean["why"] = _kind_of(row["why"]) if "verdict" in row else ""
        if not _is_bare(row.get("resource", "")):
            clean |= {"resource": _kind(row["resource"]), "before": "", "after": ""}
        return clean

    def name(self, kind: str, name: str) -> str:
        """`host 1`; empty for an empty name."""
        if not name:
            return ""
        names = self._names.setdefault(kind, {})
        return names.setdefault(name, f"{kind} {len(names) + 1}")

    def text(self, text: str) -> str:
        """A text in which names of hosts are replaced."""
        for host in self._odd:
            if host in text:
                text = text.replace(host, self.name("host", host))
        return _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match[0].rstrip(".")
        host = self._hosts.get(word) or self._hosts.get(_label(word))
        return match[0] if host is None else self.name("host", host) + match[0][len(word) :]

    def _field(self, name: str, value: Any) -> Any:
        texts = isinstance(value, (tuple, list)) and all(type(item) is str for item in value)
        if name in LEFT_OUT and (texts or not isinstance(value, (tuple, list))):
            return LEFT_OUT[name] if value else value
        if name in HOSTS and isinstance(value, str):
            return self.name("host", value)
        if name in HOSTS and texts:
            return tuple(self.name("host", item) for item in value)
        if name == "baseline":
            return self.name("baseline", value)
        if name == "baselines":
            return {self.name("baseline", item): sha for item, sha in value.items()}
        if name == "series" and isinstance(value, str):
            return self.name("sweep", value)
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            clean = OF_KIND.get(type(value))
            value = clean(value) if clean else value
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            fields |= EMPTIED.get(type(value), {})
            return type(value)(**{name: self._field(name, old) for name, old in fields.items()})
        if type(value) is str:
            return self.text(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._value, value))
        if isinstance(value, Mapping):
            return {self._value(key): self._value(item) for key, item in value.items()}
        return value


def is_identifying(path: str) -> bool:
    """Whether a field of the evidence identifies a machine.

    >>> telling("host.hostname"), telling("gpu.gpus[].serial"), telling("gpu.gpus[].power_limit_mw")
    (True, True, False)
    """
    return not TELLING.isdisjoint(re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", path)))


def _label(host: str) -> str:
    """The first label of a host name; an address as a whole."""
    first = host.partition(".")[0]
    return first if any(map(str.isalpha, first)) else host


def _kind_of(reason: str) -> str:
    """`unreachable` of `unreachable: no answer on port 22 of 10.1.2.3`."""
    return reason.partition(":")[0]


def _span(span: FindingSpan) -> FindingSpan:
    return msgspec.structs.replace(span, why=_kind_of(span.why))


def _host_diff(diff: HostDiff) -> HostDiff:
    texts = {name: "not vetted" for name in ("before", "after") if getattr(diff, name)}
    return msgspec.structs.replace(diff, **texts)


def _fact(fact: FactDiff) -> FactDiff:
    """Leave out kernel command lines, which name servers and disks."""
    texts = {name: "left out" for name in ("before", "after") if getattr(fact, name)}
    return msgspec.structs.replace(fact, **texts) if fact.what == CMDLINE else fact


def _event(event: StoryEvent) -> StoryEvent:
    if event.kind is StoryKind.LOST:
        return msgspec.structs.replace(event, text=_kind_of(event.text))
    if event.kind is StoryKind.PLANNED:
        return msgspec.structs.replace(event, text=event.text.partition(";")[0])
    if event.kind in (StoryKind.FIX, StoryKind.ROLLBACK):
        return msgspec.structs.replace(event, text="", run="")
    if event.kind in (StoryKind.REPLACED, StoryKind.BASELINE):
        return msgspec.structs.replace(event, text="")
    if event.by is not None:
        return msgspec.structs.replace(event, run="")
    return event


def _action(action: RecordedAction) -> RecordedAction:
    action = msgspec.structs.replace(action, run="", step="")
    if _is_bare(action.resource):
        return action
    return msgspec.structs.replace(action, resource=_kind(action.resource), before="", after="")


def _is_bare(resource: str) -> bool:
    """Whether a resource and its values are settings of GPUs or the kernel, which name no site."""
    return _kind(resource) in ("", "gpu", "kernel")


def _kind(resource: str) -> str:
    """`file` of `file /etc/x.conf`."""
    return resource.partition(" ")[0]


def _change(line: ChangeLine) -> ChangeLine:
    return msgspec.structs.replace(line, before="", after="") if is_identifying(line.path) else line


EMPTIED: Mapping[type, Mapping[str, Any]] = {
    RecordedVisit: {"why": ""},
    Passport: {"around": ()},  # changes of the host, not of the part
    RecordedFixRun: {"id": "", "digest": "", "by": ""},
    FixHost: {"why": ""},
    FixProof: {"run": ""},
}
OF_KIND: Mapping[type, Callable[[Any], Any]] = {
    FindingSpan: _span,
    HostDiff: _host_diff,
    FactDiff: _fact,
    StoryEvent: _event,
    RecordedAction: _action,
    ChangeLine: _change,
}
"""What is also left out of some classes of documents."""
