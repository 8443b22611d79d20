"""Evidence folders: visits that are kept in one, and judged again from it."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as changed
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec

from nodevet.base import age, bounds, typed
from nodevet.base.age import WEEK
from nodevet.base.files import read_input, write_whole
from nodevet.base.printable import brief, is_visible
from nodevet.checking.identity import expected_hostname
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import EvidenceError, check_envelope
from nodevet.fleet import Visit
from nodevet.model import Host, Status, Verdict
from nodevet.model.run import Run
from nodevet.vet.use.max_age import MaxAge
from nodevet.vet.use.targets import Targets, any_hostname

LARGEST = bounds.DOCUMENT + (1 << 20)  # bytes of a kept visit
LONGEST = 1000  # characters of why a file cannot be read
NOT_SAVED = "no evidence of it is saved there"


class SavedEvidenceError(Exception):
    """Saved evidence that cannot be used; the message names the file."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The saved visits to judge. `left_out`: saved hosts that are not asked for."""

    hosts: tuple[Host, ...]
    where: Mapping[str, Path | Visit]  # the file of each; of a pipe, which is read once, its visit
    left_out: tuple[str, ...] = ()

    @property
    def visits(self) -> Iterator[Visit]:
        """Reads each file on request, so that thousands of hosts need no memory."""
        for host in self.hosts:
            yield _visit_to(host.name, self.where.get(host.name))


def read_saved(paths: Sequence[Path], targets: Targets) -> Replay:
    """The hosts to judge and their saved visits: all within the limit, or the named ones.

    A host without a file has no evidence; a host whose file cannot be read, or that has two files,
    is unreadable. Raises SavedEvidenceError.
    """
    hosts_kept: dict[str, Host] = {}
    where: dict[str, Path | Visit] = {}
    files: dict[str, Path] = {}
    for file in saved_files(paths):
        is_file = file.is_file()  # read again when it is judged; a pipe is read once
        visit, host = visit_in(file, compare_keys=not is_file)
        if host.name in files:
            visit = _unreadable(
                host.name, f"two files are of this host: {files[host.name]}, {file}"
            )
        readable = visit.status is not Status.UNREADABLE and is_file
        where[host.name] = file if readable else visit
        hosts_kept[host.name], files[host.name] = host, file
    if not targets:
        saved = targets.hosts_within_limit(hosts_kept.values())
        hosts = saved if targets.expect_hostname else any_hostname(saved)
        return Replay(hosts=hosts, where=where)
    hosts = targets.hosts()
    return Replay(hosts=hosts, where=where, left_out=tuple(targets.strangers(where, hosts)))


def _visit_to(host: str, where: Path | Visit | None) -> Visit:
    """The visit saved there; a failed one if the file is missing or was replaced."""
    if isinstance(where, Visit):
        return where
    if where is None:
        return Visit(host, Status.PROBE_FAILED, NOT_SAVED)
    visit, _ = visit_in(where)
    if visit.host != host:
        return _unreadable(host, f"{where}: it now belongs to {visit.host}")
    return visit


def _unreadable(host: str, why: str) -> Visit:
    return Visit(host, Status.UNREADABLE, brief(why, LONGEST))


def not_asked(run: Run) -> tuple[frozenset[str], frozenset[str]]:
    """The hosts whose evidence was read before a baseline named something that it judges now, and
    what: `sysctl vm.swappiness`.
    """
    saved = {
        (report.host, finding.subject.label)
        for place, host in enumerate(run.summaries)
        if Verdict.UNKNOWN in host.verdicts
        for report in (run.hosts[place],)
        for finding in report.findings
        if finding.verdict is Verdict.UNKNOWN and finding.why == NOT_ASKED
    }
    return frozenset(host for host, _ in saved), frozenset(name for _, name in saved)


def strangers(folder: Path, hosts: Sequence[Host], targets: Targets) -> list[str]:
    """Hosts that have evidence in a folder and that this run does not visit."""
    return targets.strangers((unquote(path.stem) for path in folder.glob("*.json")), hosts)


def limit_of(most: float | None) -> MaxAge | None:
    """The maximum age of evidence: so many seconds, a week if None, no limit if infinite."""
    limit = MaxAge(now=time.time(), most=WEEK if most is None else most)
    return limit if math.isfinite(limit.most) else None


def keep(visit: Visit, host: Host, folder: Path) -> None:
    """Write a visit to `folder`/HOST.json, so that `replay` finds every host again.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(document_of(visit, host))
    # not durable: a sync per host would cost a sweep more than what a power cut could lose
    write_whole(folder / f"{quote(visit.host, safe='')}.json", text, durable=False)


def document_of(visit: Visit, host: Host) -> dict[str, Any]:
    """A visit as it is saved: a KeptVisit. An answer that is not evidence is not saved, because it
    would spoil the file."""
    if visit.evidence:
        try:
            check_envelope(visit.evidence)
        except EvidenceError as error:
            visit = changed(visit, status=Status.PROBE_FAILED, why=str(error), evidence=None)
    return {
        "host": visit.host,
        "status": visit.status,
        "why": visit.why,
        "seconds": round(visit.seconds, 3),
        "groups": sorted(host.groups),
        "arrived": age.instant(visit.at) or None,
        "expect_hostname": expected_hostname(host) is not None and host.expect_hostname,
        "evidence": msgspec.Raw(visit.evidence) if visit.evidence else None,
    }


class KeptVisit(msgspec.Struct, frozen=True):
    """The end of a visit to one host, with its evidence."""

    host: str
    status: Status
    evidence: msgspec.Raw
    why: str = ""  # of a status other than vetted
    seconds: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 0.0
    groups: frozenset[Annotated[str, msgspec.Meta(pattern=r"\S")]] = frozenset()
    expect_hostname: bool | str = True  # whether the node's own hostname is to be the host's
    arrived: Annotated[datetime, msgspec.Meta(tz=True)] | None = None  # by the controller's clock


def replay(paths: Sequence[Path]) -> Iterator[tuple[Visit, Host]]:
    """Visits and their hosts from what `keep` or `nodevet probe` wrote: files, or folders of them.

    See `visit_in` and `saved_files`.
    """
    yield from map(visit_in, saved_files(paths))


def saved_files(paths: Sequence[Path]) -> Iterator[Path]:
    """These files, and those in these folders, each once.

    Raises SavedEvidenceError for a folder that is empty, unreadable or not of saved evidence, and
    for a file of another kind if the user named only that file.
    """
    yield from dict.fromkeys(file for path in paths for file in _files(path, alone=len(paths) == 1))


def _files(path: Path, *, alone: bool) -> Sequence[Path]:
    is_folder = path.is_dir()
    if (is_folder or alone) and (wrong := wrong_kind_text(path, DocumentKind.EVIDENCE)):
        raise SavedEvidenceError(f"{path}: {wrong}")
    if not is_folder:
        return [path]
    try:
        files = sorted(file for file in path.iterdir() if file.name.endswith(".json"))
    except OSError as error:
        raise SavedEvidenceError(f"{path}: cannot be read: {error.strerror}") from error
    if not files:
        raise SavedEvidenceError(f"{path}: holds no evidence; `nodevet check --save` writes it")
    return files


def visit_in(path: Path, *, compare_keys: bool = True) -> tuple[Visit, Host]:
    """As `read_visit`; an unreadable file is a visit to the host that it is named after."""
    try:
        return read_visit(path, compare_keys=compare_keys)
    except OSError as error:
        why = f"{path}: cannot be read: {error.strerror}"
    except SavedEvidenceError as error:
        why = str(error)
    name = _host_of_file(path)
    return _unreadable(name, why), Host(name=name, expect_hostname=False)


def read_visit(path: Path, *, compare_keys: bool = True) -> tuple[Visit, Host]:
    """The visit that one file holds, and its host. Raises OSError, and SavedEvidenceError for a
    file that is none. `compare_keys`: it also raises for a key that is there twice."""
    text = read_input(path, LARGEST + 1)
    if len(text) > LARGEST:
        raise SavedEvidenceError(f"{path}: more than {LARGEST >> 20} MiB: not evidence of one host")
    visit = _visit(text, path)
    if not compare_keys:
        return visit
    try:
        key = typed.repeated_key(text)
    except msgspec.DecodeError as error:
        raise SavedEvidenceError(f"{path}: {error}") from error
    if key:
        raise SavedEvidenceError(f"{path}: two values for the key {brief(repr(key))}")
    return visit


def _visit(text: bytes, path: Path) -> tuple[Visit, Host]:
    try:
        return visit_of(typed.decode(text, KeptVisit), path)
    except msgspec.DecodeError as error:
        if _is_kept(text):
            raise SavedEvidenceError(f"{path}: not the visit of a host: {error}") from error
    try:
        check_envelope(text)
    except EvidenceError as error:
        wrong = wrong_kind_text(path, DocumentKind.EVIDENCE)
        why = wrong or f"{error}; `nodevet check --save DIR` writes it"
        raise SavedEvidenceError(f"{path}: {why}") from error
    name = _host_of_file(path)
    return Visit(name, Status.VETTED, "", text, 0.0), Host(name=name, expect_hostname=False)


def _is_kept(text: bytes) -> bool:
    """Whether a document is a KeptVisit, not the output of a probe."""
    try:
        keys = typed.decode(text, dict[str, msgspec.Raw]).keys()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return "sections" not in keys and len(keys & set(KeptVisit.__struct_fields__)) > 1


def _host_of_file(path: Path) -> str:
    """The host that a file is named after, or the file's own name if that can be no host's."""
    name = unquote(path.stem)
    return path.name if _no_name(name) else name


def _no_name(name: str) -> bool:
    return not name.strip() or not is_visible(name)


def visit_of(kept: KeptVisit, path: Path) -> tuple[Visit, Host]:
    """A visit as it was, and its host. Raises SavedEvidenceError if it contradicts itself, or has a
    name that no host has."""
    evidence = None if bytes(kept.evidence) == b"null" else bytes(kept.evidence)
    for field in ("host", "expect_hostname"):
        name = getattr(kept, field)
        if isinstance(name, str) and _no_name(name):
            raise SavedEvidenceError(f"{path}: {field} is {brief(repr(name))}, which names no host")
    if evidence is not None and not evidence.startswith(b"{"):
        raise SavedEvidenceError(f"{path}: its evidence is not an object")
    if (kept.status is Status.VETTED) != (evidence is not None):
        raise SavedEvidenceError(f"{path}: its status and its evidence contradict each other")
    at = kept.arrived.timestamp() if kept.arrived else None
    visit = Visit(kept.host, kept.status, kept.why, evidence, kept.seconds, at)
    return visit, Host(name=kept.host, groups=kept.groups, expect_hostname=kept.expect_hostname)
