"""`nodevet check`: vet hosts against their baselines."""

import math
import time
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from nodevet.age import WEEK
from nodevet.cli import UserError, options, saved, session
from nodevet.cli.output import Output
from nodevet.cli.seconds import longest
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
    help="Judge saved evidence, a file or a folder, without touching a node; with hosts or an "
    "inventory, only theirs.",
)
@click.option(
    "--max-age",
    callback=longest,
    metavar="TIME",
    help="Older saved evidence is unknown: 90m, 24h, 2d, or none for any age.  [default: 7d]",
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
    max_age: float | None,
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
    from nodevet.sweep import MaxAge, reports

    if max_age is not None and not evidence:
        raise UserError("--max-age is about --evidence; what is visited now has no age")
    if evidence and save:
        raise UserError("--evidence judges what was saved; it takes no --save")
    output = Output(formats, save)
    before = session.earlier_run(previous) if previous else None
    if previous and before:
        saved.tell_age(previous, before, most=saved.PREVIOUS)
    bench = session.open_bench(project, names)
    if evidence:
        hosts, visits = saved.replayed(evidence, targets, inventories, limit)
        hosts = hosts if expect_hostname else session.any_hostname(hosts)
        limits = MaxAge(now=time.time(), most=WEEK if max_age is None else max_age)
        bench = structs.replace(bench, age=limits if math.isfinite(limits.most) else None)
        seen = reports(iter(visits), {host.name: host for host in hosts}, bench)
    else:
        hosts = session.inventory(targets, inventories, limit, expect_hostname=expect_hostname)
        if save:
            saved.tell_strangers(save, hosts, inventories)
        reach_options = session.fleet_options(bench=bench, **reach)
        by_name = {host.name: host for host in hosts}
        seen = reports(visit(hosts, reach_options), by_name, bench, output.keep)
    run = session.carry_out(hosts, seen, bench, output, Severity(fail_on), replayed=bool(evidence))
    output.finish(run, before)
    click.get_current_context().exit(output.code(run))
