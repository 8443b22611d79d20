"""What leaves the site: documents of the history without what names hosts, people or files. Pure.

A host is `host 1`, a baseline `baseline 1`, a sweep `sweep 1`: the same name is the same within one
document. Names of hosts are found in texts, too. What parts are (ids, serial numbers), what checks
expected and found, and when, stays: it is what is asked for.
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
"""The fields that name hosts, where they are texts."""
LEFT_OUT: Mapping[str, Any] = {
    **dict.fromkeys(("machine_id", "boot_id"), None),
    **dict.fromkeys(("origin", "waiver", "plan", "after_plan", "store"), ""),
    **dict.fromkeys(("author", "approved_by", "run_by", "fix_run", "folder", "sha256"), ""),
    **dict.fromkeys(("groups", "approvals"), ()),
    "details": msgspec.UNSET,
}
"""The fields that name machines, files or people, each with what stands there instead."""
_WORD = re.compile(r"[\w.-]+")
Any_ = TypeVar("Any_")


class Redactor:
    """Gives names that tell nothing; `hosts`: all that are known."""

    def __init__(self, hosts: Iterable[str]) -> None:
        told = [host for host in hosts if not host.isdigit()]  # a number in a text is none
        self._hosts = {spelt: host for host in told for spelt in (_label(host), host)}
        self._odd = [host for host in self._hosts if not _WORD.fullmatch(host)]
        self._names: dict[str, dict[str, str]] = {}

    def document(self, found: Any_) -> Any_:
        """The same document without what names the site."""
        made: Any_ = self._value(found)
        return made

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of a table, likewise."""
        left = {
            name: None if name in LEFT_OUT else self._field(name, value)
            for name, value in row.items()
        }
        if "why" in row and not row.get("check"):  # of a host as a whole
            left["why"] = _kind_of(row["why"]) if "verdict" in row else ""
        if not _is_bare(row.get("resource", "")):
            left |= {"resource": _kind(row["resource"]), "before": "", "after": ""}
        return left

    def name(self, kind: str, name: str) -> str:
        """`host 1`; nothing for no name."""
        if not name:
            return ""
        names = self._names.setdefault(kind, {})
        return names.setdefault(name, f"{kind} {len(names) + 1}")

    def text(self, text: str) -> str:
        """A text with the names of hosts replaced."""
        for host in self._odd:
            if host in text:
                text = text.replace(host, self.name("host", host))
        return _WORD.sub(self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0].rstrip(".")
        host = self._hosts.get(word) or self._hosts.get(_label(word))
        return found[0] if host is None else self.name("host", host) + found[0][len(word) :]

    def _field(self, name: str, value: Any) -> Any:
        texts = isinstance(value, (tuple, list)) and all(type(each) is str for each in value)
        if name in LEFT_OUT and (texts or not isinstance(value, (tuple, list))):
            return LEFT_OUT[name] if value else value
        if name in HOSTS and isinstance(value, str):
            return self.name("host", value)
        if name in HOSTS and texts:
            return tuple(self.name("host", each) for each in value)
        if name == "baseline":
            return self.name("baseline", value)
        if name == "baselines":
            return {self.name("baseline", each): sha for each, sha in value.items()}
        if name == "series" and isinstance(value, str):
            return self.name("sweep", value)
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            value = OF_KIND.get(type(value), _as_it_is)(value)
            fields = {each: getattr(value, each) for each in value.__struct_fields__}
            return type(value)(**{each: self._field(each, old) for each, old in fields.items()})
        if type(value) is str:
            return self.text(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._value, value))
        if isinstance(value, Mapping):
            return {self._value(key): self._value(each) for key, each in value.items()}
        return value


def telling(path: str) -> bool:
    """Whether a field of the evidence names something.

    >>> telling("host.hostname"), telling("gpu.gpus[].serial"), telling("gpu.gpus[].power_limit_mw")
    (True, True, False)
    """
    return not TELLING.isdisjoint(re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", path)))


def _label(host: str) -> str:
    """The first label of a name; of an address the whole."""
    first = host.partition(".")[0]
    return first if any(map(str.isalpha, first)) else host


def _as_it_is(value: Any) -> Any:
    return value


def _kind_of(reason: str) -> str:
    """`unreachable` of `unreachable: no answer on port 22 of 10.1.2.3`."""
    return reason.partition(":")[0]


def _visit(visit: RecordedVisit) -> RecordedVisit:
    return msgspec.structs.replace(visit, why="")


def _span(span: FindingSpan) -> FindingSpan:
    return msgspec.structs.replace(span, why=_kind_of(span.why))


def _host_diff(diff: HostDiff) -> HostDiff:
    told = {name: "not vetted" for name in ("before", "after") if getattr(diff, name)}
    return msgspec.structs.replace(diff, **told)


def _fact(fact: FactDiff) -> FactDiff:
    """A kernel command line names servers and disks."""
    told = {name: "left out" for name in ("before", "after") if getattr(fact, name)}
    return msgspec.structs.replace(fact, **told) if fact.what == CMDLINE else fact


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


def _passport(found: Passport) -> Passport:
    return msgspec.structs.replace(found, around=())  # of the host, not of the part


def _fix_run(run: RecordedFixRun) -> RecordedFixRun:
    return msgspec.structs.replace(run, id="", digest="", by="")


def _fix_host(host: FixHost) -> FixHost:
    return msgspec.structs.replace(host, why="")


def _action(action: RecordedAction) -> RecordedAction:
    action = msgspec.structs.replace(action, run="", step="")
    if _is_bare(action.resource):
        return action
    return msgspec.structs.replace(action, resource=_kind(action.resource), before="", after="")


def _proof(proof: FixProof) -> FixProof:
    return msgspec.structs.replace(proof, run="")


def _is_bare(resource: str) -> bool:
    """Whether a resource and its values name nothing of the site: settings of GPUs, of the
    kernel."""
    return _kind(resource) in ("", "gpu", "kernel")


def _kind(resource: str) -> str:
    """`file` of `file /etc/x.conf`."""
    return resource.partition(" ")[0]


def _change(line: ChangeLine) -> ChangeLine:
    return msgspec.structs.replace(line, before="", after="") if telling(line.path) else line


OF_KIND: Mapping[type, Callable[[Any], Any]] = {
    RecordedVisit: _visit,
    FindingSpan: _span,
    HostDiff: _host_diff,
    FactDiff: _fact,
    StoryEvent: _event,
    Passport: _passport,
    RecordedFixRun: _fix_run,
    FixHost: _fix_host,
    RecordedAction: _action,
    FixProof: _proof,
    ChangeLine: _change,
}
"""What else is left out of some documents."""
