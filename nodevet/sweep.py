"""From hosts to host reports: visits judged as they come in, and evidence kept and replayed."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote

import msgspec

from nodevet import age
from nodevet.baseline import choose
from nodevet.baseline.choose import CHECK
from nodevet.catalog import Catalog
from nodevet.evidence.document import EvidenceError, decode
from nodevet.fleet import Visit
from nodevet.identity import expected_hostname, judge_hostname
from nodevet.judge import judge
from nodevet.model import Baseline, Expectation, Host, HostReport, Status, unknown

JUDGING = 5.0  # seconds of CPU time for one host; a large one takes some hundredths
ASKS = 500  # names that the probe takes in one request
Asked = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
NOT_REACHED = "the run was ended before this host was done"


class SavedEvidenceError(Exception):
    """Saved evidence that cannot be used; the message names the file."""


class AskError(Exception):
    """What baselines ask of the probe cannot be asked; the message says why."""


class MaxAge(msgspec.Struct, frozen=True, kw_only=True):
    """How old evidence may be that is judged. Seconds; `now` since 1970 UTC."""

    now: float
    most: float


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What visits are judged by. `chosen` is the one baseline for every host, if there is one."""

    baselines: tuple[Baseline, ...]
    catalog: Catalog
    today: date
    age: MaxAge | None = None  # of saved evidence; None: it is judged whatever its age
    chosen: Baseline | None = None


def asks(bench: Bench) -> dict[str, tuple[str, ...]]:
    """The names that the probe must read for any of these baselines, by section.

    Raises AskError where a check names what is no name, or there are more than the probe takes.
    """
    found: dict[str, set[str]] = {}
    for baseline in bench.baselines:
        for wish in baseline.expectations:
            for section, names in _asked(bench.catalog, wish):
                found.setdefault(section, set()).update(names)
    count = sum(map(len, found.values()))
    if count > ASKS:
        raise AskError(
            f"the baselines name {count} kernel parameters and units together, and the probe "
            f"reads {ASKS}; judge with fewer at a time (-b)"
        )
    return {section: tuple(sorted(names)) for section, names in sorted(found.items())}


def _asked(catalog: Catalog, wish: Expectation) -> list[tuple[str, tuple[str, ...]]]:
    ask = catalog.check(wish.check).asks
    if ask is None:
        return []
    try:
        found = msgspec.convert(ask(wish.want), dict[str, tuple[Asked, ...]])
    except Exception as error:  # a fault in a user's own check
        raise AskError(
            f"{catalog.path(wish.check)}: asks failed: {type(error).__name__}: {error}"
        ) from error
    return list(found.items())


def report(visit: Visit, host: Host, bench: Bench) -> HostReport:
    """One visit, judged. A visit without usable evidence keeps its status and reason."""
    blank = HostReport(
        host=visit.host,
        status=visit.status,
        why=visit.why,
        seconds=round(visit.seconds, 3),
        groups=tuple(sorted(host.groups)),
        arrived=age.instant(visit.at),
    )
    if visit.evidence is None:
        return blank
    try:
        evidence = decode(visit.evidence)
    except EvidenceError as error:
        return msgspec.structs.replace(blank, status=Status.PROBE_FAILED, why=str(error))
    data = evidence.host.data
    named = judge_hostname(host, evidence)
    known = msgspec.structs.replace(
        blank,
        machine_id=data.machine_id if data else None,
        boot_id=data.boot_id if data else None,
        clock=age.instant(data.clock_s if data else None),
        findings=(named,) if named else (),
    )
    if bench.age and (why := _too_old(known, bench.age)):
        old = unknown(why=why, check=age.CHECK, advice=age.ADVICE)
        return msgspec.structs.replace(known, findings=(old,))
    baseline = bench.chosen or choose(bench.baselines, evidence, host)
    if isinstance(baseline, str):
        none = unknown(why=baseline, check=CHECK)
        return msgspec.structs.replace(known, findings=(*known.findings, none))
    findings = judge(
        evidence, baseline, bench.catalog, host=visit.host, today=bench.today, late=_budget()
    )
    return msgspec.structs.replace(
        known, baseline=baseline.name, findings=(*known.findings, *findings)
    )


def _too_old(report: HostReport, limit: MaxAge) -> str:
    return age.too_old(report.arrived, report.clock, now=limit.now, most=limit.most)


def _budget() -> Callable[[], bool]:
    """Whether judging, from now on, has taken longer than one host may hold up the others."""
    end = time.thread_time() + JUDGING
    return lambda: time.thread_time() > end


def reports(
    visits: Iterator[Visit],
    hosts: Mapping[str, Host],
    bench: Bench,
    save: Callable[[Visit, Host], None] | None = None,
) -> Generator[HostReport]:
    """Every visit judged as it comes in, after `save` had it.

    Hosts that the run did not get to are saved as that, or what an earlier run saved of
    them would be taken for theirs.
    """
    left = dict(hosts)
    try:
        for visit in visits:
            host = left.pop(visit.host)
            if save is not None:
                save(visit, host)
            yield report(visit, host, bench)
    finally:
        if isinstance(visits, Generator):
            visits.close()
        if save is not None:
            for host in left.values():
                save(Visit(host.name, Status.INTERRUPTED, NOT_REACHED), host)


def keep(visit: Visit, host: Host, folder: Path) -> None:
    """Write a visit to `folder`/HOST.json, so that `replay` finds every host again."""
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(
        {
            "host": visit.host,
            "status": visit.status,
            "why": visit.why,
            "seconds": round(visit.seconds, 3),
            "groups": sorted(host.groups),
            "arrived": age.instant(visit.at) or None,
            "expect_hostname": expected_hostname(host) is not None and host.expect_hostname,
            "evidence": msgspec.Raw(visit.evidence) if visit.evidence else None,
        }
    )
    path = folder / f"{quote(visit.host, safe='')}.json"
    part = path.with_suffix(".part")
    try:
        part.write_bytes(text)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


class _Kept(msgspec.Struct, frozen=True):
    host: str
    status: Status
    evidence: msgspec.Raw
    why: str = ""
    seconds: float = 0.0
    groups: frozenset[str] = frozenset()
    expect_hostname: bool | str = True
    arrived: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


def replay(paths: Iterable[Path]) -> Iterator[tuple[Visit, Host]]:
    """Visits and their hosts from what `keep` or `nodevet probe` wrote: files, or folders of them.

    Raises SavedEvidenceError for a file that is neither.
    """
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise SavedEvidenceError(f"{path}: holds no evidence; `nodevet check --save` writes it")
        for file in files:
            yield _visit(file)


def _visit(path: Path) -> tuple[Visit, Host]:
    text = path.read_bytes()
    with suppress(msgspec.DecodeError):
        kept = msgspec.json.decode(text, type=_Kept)
        evidence = None if bytes(kept.evidence) == b"null" else bytes(kept.evidence)
        if (kept.status is Status.VETTED) != (evidence is not None):
            raise SavedEvidenceError(f"{path}: its status and its evidence contradict each other")
        at = kept.arrived.timestamp() if kept.arrived else None
        visit = Visit(kept.host, kept.status, kept.why, evidence, kept.seconds, at)
        return visit, Host(name=kept.host, groups=kept.groups, expect_hostname=kept.expect_hostname)
    try:
        decode(text)
    except EvidenceError as error:
        raise SavedEvidenceError(f"{path}: {error}") from error
    name = unquote(path.stem)
    return Visit(name, Status.VETTED, "", text, 0.0), Host(name=name, expect_hostname=False)


def missing(hosts: Iterable[Host], seen: Iterable[HostReport]) -> Iterator[HostReport]:
    """A report for every host that a run did not get to."""
    done = {host.host for host in seen}
    for host in hosts:
        if host.name not in done:
            yield HostReport(host=host.name, status=Status.INTERRUPTED, why=NOT_REACHED)
