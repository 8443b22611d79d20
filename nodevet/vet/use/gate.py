"""The gate: wait for hosts to come up and settle, then pass or fail them."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as replaced
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from nodevet.base import typed
from nodevet.base.durations import elapsed
from nodevet.base.errors import UserError
from nodevet.base.files import open_regular
from nodevet.base.outputs import FileError, file_errors, replace, try_out_regular
from nodevet.base.printable import brief
from nodevet.document.kinds import DocumentKind, recognize, wrong_kind_text
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Options
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.model.run import Run, exit_code
from nodevet.vet.findings.counted import with_counts
from nodevet.vet.findings.fold import lines
from nodevet.vet.use.beside import RawSection, visit_beside
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import Save, Vetted, judge_visit, recorded
from nodevet.vet.use.listener import VetListener, Waiting
from nodevet.vet.use.looks import AGAIN, UNKNOWN
from nodevet.vet.use.vet import collect

LONGEST = 160  # columns of one reason
LARGEST = 1 << 30  # bytes of a verdict file
MOST = 3  # checks that the reason of a host names


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict file. `verdict` is `pending` while the gate runs, then `pass` or `fail`; it stays
    `pending` if all that is still unknown passes by itself. A shell reads the first six lines at
    boot (nodevet.vet.gate_unit)."""

    verdict: str
    exit_code: int | None = None
    run: Run | None = None
    waiting: Mapping[str, str] = {}  # while pending: why each host has not passed

    def text(self, *, everything: bool = False) -> str:
        """As JSON. `everything`: with findings that passed, which are only counted without it."""
        run = with_counts(self.run) if self.run and not everything else self.run
        shown = msgspec.structs.replace(self, run=run)
        encoded = msgspec.json.encode(shown, enc_hook=tuple)  # of packed hosts, the reports
        return msgspec.json.format(encoded, indent=1).decode()


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a gate tries, and how often. Seconds."""

    wait: float  # until every host must have passed
    settle: float  # of uptime, before which no result counts
    interval: float  # between two attempts
    fail_on: Severity


def gate(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    attempts: Attempts,
    listener: VetListener | None = None,
    verdict: Path | None = None,
    save: Save | None = None,
) -> Run:
    """Try each host until it passes or the wait is over; its last result counts.

    `verdict`: the file that says, while the gate waits, for what. `save` has the visits whose
    results count.
    """
    listener = listener or VetListener()
    known: Mapping[str, str] = {}

    def waits(waiting: Waiting) -> None:
        nonlocal known
        listener.waiting(waiting)
        if verdict and waiting.gist != known:
            known = waiting.gist
            with suppress(OSError, FileError):  # it says pending already
                replace(verdict, GateVerdict(verdict="pending", waiting=waiting.reasons).text())

    visits = _try({host.name: host for host in hosts}, context, options, attempts, waits, save)
    return collect(hosts, visits, context, fail_on=attempts.fail_on, listener=listener)


def verdict_of(run: Run) -> GateVerdict:
    """Whether every host passed: strictly, so that what is unknown fails, unless nothing fails and
    all that is unknown passes by itself."""
    if run.exit_code == UNKNOWN and all(
        host.is_transient or exit_code([host], run.fail_on) == 0 for host in run.hosts
    ):
        return GateVerdict(verdict="pending", exit_code=AGAIN, run=run)
    code = 0 if run.exit_code == 0 else 1
    return GateVerdict(verdict="fail" if code else "pass", exit_code=code, run=run)


def _try(
    hosts: Mapping[str, Host],
    context: VetContext,
    options: Options,
    attempts: Attempts,
    waits: Callable[[Waiting], None],
    save: Save | None,
) -> Generator[HostReport]:
    """Each host once: when it passes, or at the end of the wait with its last result."""
    start = time.monotonic()
    end = start + attempts.wait
    waiting = dict(hosts)
    denied: dict[str, RawSection] = {}
    while waiting:
        last = time.monotonic() + attempts.interval >= end
        reasons: dict[str, str] = {}
        these, bounded = tuple(waiting.values()), _bounded(options, end)
        context = msgspec.structs.replace(context, today=date.today())  # a waiver may end meanwhile
        for one in visit_beside(these, bounded, context, denied):
            vetted = judge_visit(one, hosts[one.host], context, recorded(one, context))
            result = settled(vetted, attempts.settle)
            if last or exit_code([result], attempts.fail_on) == 0:
                del waiting[one.host]
                if save is not None and result is vetted.report:
                    save(one, hosts[one.host])
                yield result
                continue
            early = "" if result is vetted.report else reason(vetted.report, attempts.fail_on)
            why = reason(result, attempts.fail_on)
            reasons[one.host] = f"{why}; so far {early}" if early else why
        if waiting:
            now = time.monotonic()
            waits(
                Waiting(
                    reasons=reasons,
                    hosts=len(hosts),
                    since=now - start,
                    next_in=attempts.interval,
                    left=max(0.0, end - now),
                )
            )
            time.sleep(attempts.interval)


def _bounded(options: Options, end: float) -> Options:
    """A launcher that a queue must start, or workers of a pool that never come, end with the wait
    and what one visit may take."""
    if options.engine is None:
        return options
    remaining = max(0.0, end - time.monotonic())
    return replaced(options, within=remaining + options.deadline)


def reason(report: HostReport, fail_on: Severity) -> str:
    """Why a host has not passed, in a few words; empty if it has. Pure."""
    if exit_code([report], fail_on) == 0:
        return ""
    if report.status is not Status.VETTED:
        why = f"{report.status.value.replace('_', ' ')}: {report.why}"
        return brief(report.why if report.status is Status.TIMEOUT else why, LONGEST)
    run = Run(id="", nodevet="", started="", seconds=0.0, fail_on=fail_on, hosts=(report,))
    rows = [row for row in lines(run) if row.fails]
    why = "; ".join(f"{row.check}: {row.what}" if row.check else row.what for row in rows[:MOST])
    return f"{why}; and {len(rows) - MOST} more" if len(rows) > MOST else why


def settled(vetted: Vetted, settle: float) -> HostReport:
    """The report, or a timeout if the host has not been up for so many seconds."""
    result = vetted.report
    if result.status is not Status.VETTED or vetted.evidence is None or not settle:
        return result
    identity = vetted.evidence[HostInfo].data
    uptime = identity.uptime_s if identity else None
    if uptime is not None and uptime >= settle:
        return result
    uptime_text = "unknown" if uptime is None else elapsed(float(round(uptime)))
    why = f"not settled: up for {uptime_text}, expected {elapsed(settle)}"
    return msgspec.structs.replace(result, status=Status.TIMEOUT, why=why, findings=())


def shorten(path: Path, verdict: GateVerdict) -> None:
    """Write a verdict that is no pass in place and without the run. It needs no room on a full
    disk, which would leave `pending`: at boot a node takes jobs after that."""
    if verdict.exit_code:
        text = msgspec.structs.replace(verdict, run=None).text()
        with suppress(OSError), path.open("r+") as file:
            file.write(text)
            file.truncate()


def withdraw(path: Path) -> None:
    """Write `pending` into the verdict file of a gate that never began because its command line is
    not valid. A file that is not a verdict stays as it is. Raises FileError and OSError."""
    try:
        data = _data(path)
    except OSError:
        return
    if _is_verdict(data):
        begin(path)


class _EarlierVerdict(msgspec.Struct):
    verdict: Literal["pending", "pass", "fail"]


def _data(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(LARGEST)


def _is_verdict(data: bytes) -> bool:
    try:
        typed.decode(data, _EarlierVerdict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _spare(path: Path) -> None:
    """Raises UserError for a file that a verdict would overwrite: a file that is neither a verdict,
    nor a run of nodevet, nor empty.
    """
    with suppress(OSError):  # it is not there, or no file: see try_out_regular
        data = _data(path)
        if data.strip() and not _is_verdict(data) and recognize(data) is not DocumentKind.RUN:
            why = wrong_kind_text(path) or "this is not a verdict"
            raise UserError(
                f"{path}: {why}; --verdict would overwrite it: remove it, or name another file"
            )


def begin(path: Path) -> None:
    """Say `pending` in the verdict file; if it cannot be written, at least no old pass may stay.

    Raises FileError and OSError; UserError for a file that is something else, and stays.
    """
    _spare(path)
    try:
        try_out_regular(path)
        with file_errors(path):
            replace(path, GateVerdict(verdict="pending").text())
    except (OSError, FileError):
        with suppress(OSError):
            if path.is_file():
                path.unlink()
        raise
