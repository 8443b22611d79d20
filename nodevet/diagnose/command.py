"""`nodevet diagnose`: what the GPUs of live nodes wait for."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.vet import options as vetting


@click.command(
    "diagnose",
    cls=Command,
    group="Vet",
    order=6,
    examples=(
        ("Why is this machine's GPU slow?", "nodevet diagnose @local"),
        (
            "Which rank of a job do the others wait for?",
            "nodevet diagnose -i fleet.yaml --job 12345 --duration 30s",
        ),
        (
            "For a ticket, and a page with charts over time",
            "nodevet diagnose gpu007 --format markdown --format html:gpu007.html",
        ),
        (
            "Keep watching while you change something",
            "nodevet diagnose @local --watch --duration 3s",
        ),
        (
            "Keep it with the ticket, and diagnose it again tomorrow",
            "nodevet diagnose gpu007 --capture incident.json.gz\n"
            "nodevet diagnose --from incident.json.gz --rules",
        ),
    ),
)
@options.hosts
@click.option(
    "--duration",
    type=Duration(1, 600),
    default="30s",
    show_default=True,
    help="How long to watch.",
)
@click.option(
    "--interval",
    type=Duration(0.1, 60),
    default="1s",
    show_default=True,
    help="Time between two looks; longer if looking would cost more than 1 % of a core.",
)
@click.option(
    "--job",
    "job_name",
    metavar="JOB",
    help="Watch the hosts of a job, and say which rank the others wait for: 12345, 12345_7 or "
    "12345.0 of Slurm; NAMESPACE/NAME of a pod or job of Kubernetes.",
)
@click.option(
    "--ranks",
    "ranks_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="As --job, for ranks that a file lists, one on each line: HOST RANK, HOST:gpuN RANK or "
    "HOST:PID RANK.",
)
@click.option(
    "--nccl-ras",
    "ras_address",
    metavar="ADDRESS",
    help="With --job: ask NCCL's RAS port at ADDRESS on the host of rank 0 (localhost:28028, "
    "[::1]:28028), at the start and at the end of the watch. Asking has crashed live jobs, even "
    "with NCCL 2.29.7. nodevet asks only NCCL 2.29.2 or newer that has run for 3 minutes.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME[:FILE]",
    help="table, json, markdown or html; may be repeated.  [default: table]",
)
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all readings to an incident bundle for --from; gzip if FILE ends in .gz.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="With --capture: leave out the names of people, paths and machines.",
)
@click.option(
    "--from",
    "bundle",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Diagnose an incident bundle again, instead of watching hosts.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Repeat until Ctrl-C, with a line for each GPU; redrawn in place on a terminal.",
)
@click.option(
    "--rules",
    is_flag=True,
    help="In a table, show which rules held and which did not, and why.",
)
@options.baselines
@vetting.reach
@vetting.verbose
@display_options()
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    job_name: str | None,
    ranks_file: Path | None,
    ras_address: str | None,
    duration: float,
    interval: float,
    formats: tuple[str, ...],
    watch: bool,
    rules: bool,
    capture: Path | None,
    redact: bool,
    bundle: Path | None,
    names: tuple[str, ...],
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Say what each GPU waits for, and what to do next. Changes nothing.

    Watches the hosts while their jobs run: GPUs, CPUs, storage, memory, and the processes on the
    GPUs. Settings that differ from the baseline are suspects. Run it as root, or with --sudo: only
    root sees where other users' processes sleep.

    \b
    Exit codes:
      0  every GPU is busy, idle or waits for requests
      1  a GPU waits for anything else, is slowed down, stuck, lost or missing
      2  usage or configuration error
      3  a host or rank was not seen, no cause is clear, a GPU is busy or spins,
         or a GPU that waits for requests may be stuck
         (1 wins over 3; with --watch, of the last round)
    """
    from nodevet.base.outputs import try_out
    from nodevet.cli.speech import say
    from nodevet.diagnose import incident, jobs
    from nodevet.diagnose.ras_port import RAS_AGAIN, ras_port
    from nodevet.diagnose.sheet import diagnosis_sheet
    from nodevet.diagnose.use import diagnose_hosts, diagnose_visits
    from nodevet.sheet import FORMATS
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.progress import Bar
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.reports import distinct
    from nodevet.vet.use.targets import Targets

    named = job_name or ranks_file
    _refuse_pairs(
        (redact and not capture, "--redact goes with --capture FILE"),
        (
            bundle and (capture or targets or inventories or limit or named),
            "--from reads one bundle: leave out hosts, -i, --limit, --capture, --job and --ranks",
        ),
        (
            watch and (bundle or capture or formats or rules or named),
            "--watch shows hosts only: leave out --from, --capture, --format, --rules, --job and "
            "--ranks",
        ),
        (job_name and ranks_file, "--job and --ranks exclude each other"),
        (ras_address and not job_name, "--nccl-ras goes with --job JOB"),
    )
    ras = ras_port(ras_address, duration) if ras_address else None
    sinks = Sinks(formats, display=display, known=FORMATS)
    if capture:
        distinct(capture, sinks.sinks)
        try_out(capture)
    context = open_context(project, names)
    captured = incident.IncidentCapture()
    if bundle:
        visits, job = incident.read_bundle(bundle)
        diagnosis = diagnose_visits(visits, context, job=job)
    else:
        chosen = Targets(names=targets, inventories=inventories, limit=limit)
        job = jobs.named_job(job_name, ranks_file)
        hosts = jobs.hosts_of(job, chosen) if job else chosen.hosts()
        reached = fleet_options(context=context, commands=False, engine=engine_for(hosts), **reach)
        _refuse_pairs((ras and reached.engine, RAS_AGAIN))
        look = partial(diagnose_hosts, hosts, context, reached, seconds=duration, interval=interval)
        look = partial(look, job=job, again=jobs.asked_again, ras=ras)
        if watch:
            from nodevet.diagnose.watch import watch_rounds

            click.get_current_context().exit(watch_rounds(look, display, duration))
        with Bar(len(hosts), display) as bar:
            bar.start()
            diagnosis = look(save=captured.keep if capture else None, done=bar.advance)
    try:
        sinks.show(diagnosis, lambda: diagnosis_sheet(diagnosis, rules=rules))
    finally:  # neither file is lost because the other cannot be written
        if capture:
            captured.write(capture, job, redact=redact)
    if capture and (why := incident.remember(diagnosis, capture)):
        say(f"the bundle is not recorded: {why}")
    click.get_current_context().exit(diagnosis.exit_code)


def _refuse_pairs(*pairs: tuple[object, str]) -> None:
    """Raises UserError with the text of the first pair of options that is given."""
    from nodevet.base.errors import UserError

    for is_given, text in pairs:
        if is_given:
            raise UserError(text)
