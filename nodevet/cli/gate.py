"""`nodevet gate`: wait for a node to come up and settle, then pass or fail it."""

import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from nodevet.cli import options, session
from nodevet.cli.output import Output, distinct, replace, try_out
from nodevet.cli.seconds import Seconds
from nodevet.fleet import Options
from nodevet.model import Host, HostReport, Run, Severity, Status, exit_code
from nodevet.sweep import Bench, report


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict file. `verdict` is `pending` while the gate runs, then `pass` or `fail`."""

    verdict: str
    exit_code: int | None = None
    run: Run | None = None

    def text(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()


@click.command("gate")
@options.hosts
@options.baselines
@options.formats
@options.fail_on
@click.option(
    "--wait",
    type=Seconds(0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long a host may take to come up and be right.",
)
@click.option(
    "--settle",
    type=Seconds(0),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Uptime before which no result counts.",
)
@click.option(
    "--interval",
    type=Seconds(0.1),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Between two tries.",
)
@click.option(
    "--verdict",
    "verdict_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the verdict there, as JSON: pending, pass or fail.",
)
@options.expect_hostname
@options.reach
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    formats: tuple[str, ...],
    fail_on: str,
    wait: float,
    settle: float,
    interval: float,
    verdict_file: Path | None,
    expect_hostname: bool,
    project: Path,
    **reach: Any,
) -> None:
    """Pass or fail new nodes with one exit code.

    Tries each host again until it passes or --wait is over: a driver that still loads or a
    service that still starts is no failure yet. Strict: a host that cannot be reached and a
    value that cannot be read fail.

    \b
    Exit codes:
      0  pass
      1  fail: something is wrong, unknown or unreachable
      2  usage or configuration, or a report that could not be written
    """
    if verdict_file:
        begin(verdict_file)
    output = Output(formats)
    if verdict_file:
        distinct(verdict_file, output.sinks)
    bench = session.open_bench(project, names)
    hosts = session.inventory(targets, inventories, limit, expect_hostname=expect_hostname)
    attempts = Attempts(
        wait=wait,
        settle=settle,
        interval=interval,
        fail_on=Severity(fail_on),
        options=session.fleet_options(bench=bench, **reach),
    )
    seen = attempts.run({host.name: host for host in hosts}, bench)
    run = session.carry_out(hosts, seen, bench, output, Severity(fail_on))
    code = 0 if run.exit_code == 0 else 1
    if verdict_file:
        word = "pass" if code == 0 else "fail"
        output.replace(verdict_file, Verdict(verdict=word, exit_code=code, run=run).text())
    output.finish(run)
    click.get_current_context().exit(code)


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long a gate tries."""

    wait: float
    settle: float
    interval: float
    fail_on: Severity
    options: Options

    def run(self, hosts: Mapping[str, Host], bench: Bench) -> Generator[HostReport]:
        """Each host once: when it passes, or at the end of the wait with its last result."""
        from nodevet.fleet import visit

        end = time.monotonic() + self.wait
        waiting = dict(hosts)
        while waiting:
            last = time.monotonic() + self.interval >= end
            for one in visit(tuple(waiting.values()), self.options):
                result = self.settled(report(one, hosts[one.host], bench), one.evidence)
                if last or exit_code([result], self.fail_on) == 0:
                    del waiting[one.host]
                    yield result
            if waiting:
                time.sleep(self.interval)

    def settled(self, result: HostReport, evidence: bytes | None) -> HostReport:
        """The result, or a timeout where the host has not been up for long enough."""
        from nodevet.evidence.document import decode

        if result.status is not Status.VETTED or evidence is None or not self.settle:
            return result
        identity = decode(evidence).host.data
        uptime = identity.uptime_s if identity else None
        if uptime is not None and uptime >= self.settle:
            return result
        shown = "unknown" if uptime is None else f"{uptime:.0f} s"
        why = f"not settled: up for {shown}, wanted {self.settle:g} s"
        return msgspec.structs.replace(result, status=Status.TIMEOUT, why=why, findings=())


def begin(path: Path) -> None:
    """Say `pending`; where that cannot be written, at least no old pass may stay."""
    try:
        try_out(path)
        replace(path, Verdict(verdict="pending").text())
    except (OSError, click.UsageError):
        with suppress(OSError):
            if path.is_file():
                path.unlink()
        raise
