"""`nodevet gate`: wait for a node to come up and settle, then pass or fail it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.cli.display import ADVICE, QUIET, Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.vet.use.after_gate import AfterGates


@click.command(
    "gate",
    cls=Command,
    group="Vet",
    order=2,
    examples=(
        (
            "A new node: give it 15 minutes to come up and pass",
            "nodevet gate gpu017 -b site.yaml --wait 15m --verdict /run/vet/gpu017.json",
        ),
        (
            "This node at every boot: print a systemd unit",
            "nodevet gate --install -b /etc/nodevet/site.yaml",
        ),
    ),
)
@options.hosts
@options.baselines
@vetting.formats
@vetting.everything
@vetting.fail_on
@click.option(
    "--wait",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Give every host this long to come up and pass.",
)
@click.option(
    "--settle",
    type=Duration(),
    default="30s",
    show_default=True,
    help="Ignore the results of a host until it has been up this long.",
)
@click.option(
    "--interval",
    type=Duration(0.1),
    default="10s",
    show_default=True,
    help="Wait this long between two attempts.",
)
@click.option(
    "--verdict",
    "verdict_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the verdict to FILE, as JSON: pending, pass or fail.",
)
@click.option(
    "--install",
    is_flag=True,
    help="Print a systemd unit that vets this node at every boot, before slurmd and kubelet start.",
)
@vetting.after_gate
@options.store
@vetting.since
@vetting.sample
@vetting.expect_hostname
@vetting.reach
@vetting.verbose
@display_options(QUIET, ADVICE)
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    formats: tuple[str, ...],
    everything: bool,
    fail_on: str,
    wait: float,
    settle: float,
    interval: float,
    verdict_file: Path | None,
    install: bool,
    after: "AfterGates",
    store: str | None,
    since: tuple[Path, ...],
    expect_hostname: bool,
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Pass or fail new nodes with one exit code.

    nodevet tries each host again until it passes or --wait is over: a driver that still loads, or a
    service that still starts, is not a failure yet. At the end, an unreachable host or a value that
    cannot be read is a failure. With --store, nodevet records the last result of each host.

    \b
    Exit codes:
      0  pass
      1  fail: something fails, is unknown or is unreachable; or a pass could not
         be signed or written
      2  usage or configuration error; or a report could not be written, or the
         run not recorded
      75 nothing fails, and everything still unknown passes by itself (the
         package manager is at work): run the gate again
    With --format nico on standard output, 0 whatever the verdict is, unless a
    pass could not be signed or a report not be written.
    """
    if install:
        from nodevet.vet.terminal.gate_unit import print_gate_unit

        print_gate_unit(click.get_current_context())
        return
    from nodevet.model import Severity
    from nodevet.vet.terminal.gate_watch import gate_watched
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.since import asks_store, tell_not_compared, with_since
    from nodevet.vet.use.context import open_context, parser_of
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.gate import Attempts, begin, gate, shorten, verdict_of
    from nodevet.vet.use.reach import fleet_options, judged_alone
    from nodevet.vet.use.reports import distinct
    from nodevet.vet.use.stores import recorded_in
    from nodevet.vet.use.targets import Targets
    from nodevet.vet.use.visited import (
        UNRECORDED,
        open_memory,
        recording_of,
        since_store,
        with_news,
    )

    if verdict_file:
        begin(verdict_file)
    sinks = Sinks(formats, display=display, everything=everything)
    if verdict_file:
        distinct(verdict_file, sinks.sinks)
    opened = open_context(project, names, parser_of(targets, inventories))
    context = with_since(opened, since, reach["sample"])
    hosts = Targets(
        names=targets, inventories=inventories, limit=limit, expect_hostname=expect_hostname
    ).hosts()
    attempts = Attempts(wait=wait, settle=settle, interval=interval, fail_on=Severity(fail_on))
    reached = fleet_options(context=context, choosing=True, engine=engine_for(hosts), **reach)
    with gate_watched(sinks) as listener:
        url = recorded_in(store, None, reaches=False)
        with open_memory(url, listener, asked=True) as memory:
            if asks_store(since):
                context = since_store(context, memory)
            recording = recording_of(memory, hosts, listener)
            if recording is None:
                reached = judged_alone(reached, context)
            run = gate(
                hosts,
                context,
                reached,
                attempts,
                recording or listener,
                verdict_file,
                save=after.saving(recording.keep if recording else None),
            )
            done = with_news(recording, run, memory, listener)
    tell_not_compared(context, quiet=display.quiet)
    judged = verdict_of(done.run)
    verdict = after.finish(done.run, judged, hosts, reached)
    if verdict_file and not sinks.replace(verdict_file, verdict.text(everything=everything)):
        shorten(verdict_file, verdict)
    with done.reporting():
        sinks.finish(done.run)
    is_told = sinks.has_verdict_in_text and verdict.exit_code == judged.exit_code
    code = UNRECORDED if done.broken else 0 if is_told else verdict.exit_code or 0
    click.get_current_context().exit(code)
