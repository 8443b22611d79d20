"""`nodevet check`: vet hosts against their baselines."""

from pathlib import Path
from typing import Any

import click

from nodevet.cli import UserError, options, session
from nodevet.cli.output import Output
from nodevet.model import Severity


@click.command("check")
@options.hosts
@options.baselines
@options.formats
@options.previous
@options.fail_on
@click.option(
    "--evidence",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Judge saved evidence, a file or a folder, without touching a node.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep each host's evidence in DIR, for --evidence.",
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
    previous: Path | None,
    fail_on: str,
    evidence: tuple[Path, ...],
    save: Path | None,
    expect_hostname: bool,
    project: Path,
    **reach: Any,
) -> None:
    """Vet hosts against their baselines. Nothing on a node is changed.

    HOSTS are nodesets (gpu[001-128]), groups of an inventory (@rack1), @local for this
    machine, or - to read them from standard input.

    \b
    Exit codes:
      0  every host was vetted and is as its baseline says
      1  something is wrong, at or above --fail-on
      2  usage or configuration, or a report that could not be written
      3  something could not be judged: unreachable, timeout, unknown (1 wins over 3)
    With --format nagios on standard output they are a Nagios plug-in's:
    0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """
    from nodevet.fleet import visit
    from nodevet.sweep import replay, reports

    output = Output(formats, save)
    before = session.earlier_run(previous) if previous else None
    bench = session.open_bench(project, names)
    if evidence:
        if targets or inventories or save:
            raise UserError("--evidence judges what was saved; it takes no hosts and no --save")
        kept = list(replay(evidence))
        hosts = tuple(host for _, host in kept)
        hosts = hosts if expect_hostname else session.any_hostname(hosts)
        if len({host.name for host in hosts}) < len(hosts):
            raise UserError("--evidence: two files are of the same host")
        by_name = {host.name: host for host in hosts}
        seen = reports((visit for visit, _ in kept), by_name, bench)
    else:
        hosts = session.inventory(targets, inventories, limit, expect_hostname=expect_hostname)
        by_name = {host.name: host for host in hosts}
        reach_options = session.fleet_options(bench=bench, **reach)
        seen = reports(visit(hosts, reach_options), by_name, bench, output.keep)
    run = session.carry_out(hosts, seen, bench, output, Severity(fail_on))
    output.finish(run, before)
    click.get_current_context().exit(output.code(run))
