"""The gate: wait for hosts to come up and settle, then pass or fail them."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from nodevet.durations import elapsed
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Options, visit
from nodevet.model import Host, HostReport, Run, Severity, Status, exit_code
from nodevet.run.context import VetContext
from nodevet.run.files import FileError, replace, try_out
from nodevet.run.listener import VetListener
from nodevet.run.vet import Vetted, collect, judge_visit


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict file. `verdict` is `pending` while the gate runs, then `pass` or `fail`."""

    verdict: str
    exit_code: int | None = None
    run: Run | None = None

    def text(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long a gate tries. Seconds."""

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
) -> Run:
    """Try each host until it passes or the wait is over; its last result counts."""
    tried = _try({host.name: host for host in hosts}, context, options, attempts)
    return collect(hosts, tried, context, fail_on=attempts.fail_on, listener=listener)


def verdict_of(run: Run) -> GateVerdict:
    """Whether every host passed: strictly, so that what is unknown fails."""
    code = 0 if run.exit_code == 0 else 1
    return GateVerdict(verdict="fail" if code else "pass", exit_code=code, run=run)


def _try(
    hosts: Mapping[str, Host], context: VetContext, options: Options, attempts: Attempts
) -> Generator[HostReport]:
    """Each host once: when it passes, or at the end of the wait with its last result."""
    end = time.monotonic() + attempts.wait
    waiting = dict(hosts)
    while waiting:
        last = time.monotonic() + attempts.interval >= end
        for one in visit(tuple(waiting.values()), options):
            result = settled(judge_visit(one, hosts[one.host], context), attempts.settle)
            if last or exit_code([result], attempts.fail_on) == 0:
                del waiting[one.host]
                yield result
        if waiting:
            time.sleep(attempts.interval)


def settled(vetted: Vetted, settle: float) -> HostReport:
    """The report, or a timeout if the host has not been up for so many seconds."""
    result = vetted.report
    if result.status is not Status.VETTED or vetted.evidence is None or not settle:
        return result
    identity = vetted.evidence[HostInfo].data
    uptime = identity.uptime_s if identity else None
    if uptime is not None and uptime >= settle:
        return result
    shown = "unknown" if uptime is None else f"{uptime:.0f} s"
    why = f"not settled: up for {shown}, expected {elapsed(settle)}"
    return msgspec.structs.replace(result, status=Status.TIMEOUT, why=why, findings=())


def begin(path: Path) -> None:
    """Say `pending` in the verdict file; if it cannot be written, at least no old pass may stay.

    Raises FileError and OSError.
    """
    try:
        try_out(path)
        replace(path, GateVerdict(verdict="pending").text())
    except (OSError, FileError):
        with suppress(OSError):
            if path.is_file():
                path.unlink()
        raise
