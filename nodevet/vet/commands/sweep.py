"""`nodevet sweep`: vet a fleet as nodevet.toml says, record it, report and tell what changed."""

import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import ADVICE, QUIET, Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.model import Run
    from nodevet.vet.terminal.recording import Visited
    from nodevet.vet.use.sweep import Sweep

LONGEST = 86400.0  # seconds


@click.command(
    "sweep",
    cls=Command,
    group="Vet",
    order=3,
    examples=(
        ("The one sweep of nodevet.toml: vet, record, report, tell", "nodevet sweep"),
        (
            "A service and a timer of systemd for the sweep of that name",
            "nodevet sweep nightly --install",
        ),
        ("Without nodevet.toml", "nodevet sweep -i fleet.yaml --format html:report.html"),
    ),
)
@click.argument("name", required=False, shell_complete=completing.sweeps)
@options.config
@options.inventory(help="Inventory, instead of those of the file.")
@click.option("--limit", multiple=True, metavar="NODESET", help="Only these hosts or groups.")
@options.baselines
@vetting.formats
@vetting.fail_on_new
@options.store
@click.option(
    "--jitter",
    type=Duration(0, LONGEST),
    help="Begin at a random time within this.",
)
@click.option(
    "--within",
    type=Duration(10, LONGEST),
    help="Time limit of the whole sweep; hosts that were not reached by then are named.",
)
@click.option(
    "--heartbeat",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write when it began and ended, for node_exporter's textfile collector.",
)
@click.option("--no-notify", is_flag=True, help="Tell nobody.")
@click.option("--no-lock", is_flag=True, help="Even if the inventory is being swept.")
@click.option(
    "--install",
    is_flag=True,
    help="Print a service and a timer of systemd, and what to do with them; visit nothing.",
)
@vetting.sample
@vetting.reach
@display_options(QUIET, ADVICE)
@options.project
def command(
    name: str | None,
    config: Path | None,
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    formats: tuple[str, ...],
    store: str | None,
    no_notify: bool,
    no_lock: bool,
    install: bool,
    display: Display,
    project: Project,
    **given: Any,
) -> None:
    """Vet, record and report a fleet as nodevet.toml says.

    Judges counters and the kernel log by what came since the last sweep of the same name that was
    reported, and marks what is new, fixed, and stands since when. NAME is needed if the file has
    several sweeps. Options override the file.

    \b
    Exit codes: as of `nodevet check`, and
      2   also: it could not be recorded, or a report could not be written
      75  the inventory is being swept already
    """
    from nodevet.cli.speech import say
    from nodevet.settings import settings
    from nodevet.vet.use.sweep import chosen

    context = click.get_current_context()
    typed = frozenset(
        key
        for key in context.params
        if context.get_parameter_source(key) is ParameterSource.COMMANDLINE
    )
    instead = {
        "inventory": inventories,
        "limit": limit,
        "baseline": names,
        "fail_on": given["fail_on"] if "fail_on" in typed else None,
        "heartbeat": str(given["heartbeat"]) if given["heartbeat"] else None,
        "notify": False if no_notify else None,
    }
    found = settings(config)
    if found.doubt:
        say(f"warning: {found.doubt}, and {found.file} can name commands")
    sweep = chosen(
        found, name, {key: value for key, value in instead.items() if value not in (None, ())}
    )
    if install:
        _print_units(sweep)
        return
    given["project"] = project if project.named else Project(folder=sweep.project)
    context.exit(_swept(sweep, formats, store, typed, given, display, lock=not no_lock))


def _print_units(sweep: "Sweep") -> None:
    """What systemd needs, and the commands that put it there."""
    import getpass

    from nodevet.base.files import state_folder
    from nodevet.vet.use.units import service, timer

    if sweep.found.file is None:
        raise UserError("--install needs a nodevet.toml, which the service reads")
    said = sweep.said
    script = Path(sys.argv[0]).resolve()
    runs = script.suffix != ".py" and os.access(script, os.X_OK)
    program = (str(script),) if runs else (sys.executable, "-m", "nodevet")
    texts = (
        service(
            sweep.name,
            program,
            sweep.found.file.resolve(),
            user=getpass.getuser(),
            within=said.within,
            state=str(state_folder().parent),
        ),
        timer(sweep.name, at=said.at, jitter=said.jitter),
    )
    unit = f"nodevet-sweep-{sweep.name}"
    click.echo("\n".join(texts), nl=False)
    click.echo(
        f"\n# Each part above is a file in /etc/systemd/system; then:\n"
        f"#   systemctl daemon-reload && systemctl enable --now {unit}.timer\n"
        f"# To see what it did: journalctl -u {unit}"
    )


def _swept(
    sweep: "Sweep",
    formats: tuple[str, ...],
    store: str | None,
    typed: frozenset[str],
    given: Mapping[str, Any],
    display: Display,
    *,
    lock: bool,
) -> int:
    """Its exit code."""
    from contextlib import nullcontext

    from nodevet.base.durations import elapsed, seconds_of
    from nodevet.cli.speech import say
    from nodevet.store.errors import StoreHeldError
    from nodevet.vet.use.sweep import urls
    from nodevet.vet.use.sweep_lock import HELD, HeldError, locked

    people = urls(sweep)  # before hours are spent on what cannot be told
    said = sweep.said
    jitter = given["jitter"]
    if jitter is None:
        jitter = seconds_of(said.jitter) if said.jitter else 0.0
    if jitter:
        wait = random.uniform(0, jitter)  # noqa: S311
        say(f"begins in {elapsed(wait)}")
        time.sleep(wait)
    held = locked(sweep.locks, f"nodevet sweep {sweep.name}") if lock else nullcontext()
    try:
        with held:
            return _made(sweep, formats, store, typed, given, display, people, lock=lock)
    except (HeldError, StoreHeldError) as error:
        say(str(error))
        return HELD


def _made(
    sweep: "Sweep",
    formats: tuple[str, ...],
    store: str | None,
    typed: frozenset[str],
    given: Mapping[str, Any],
    display: Display,
    people: tuple[str, ...],
    *,
    lock: bool,
) -> int:
    from msgspec import structs

    from nodevet.base.durations import seconds_of
    from nodevet.cli.speech import say
    from nodevet.settings.model import fail_on
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.recording import opened, visited, with_store
    from nodevet.vet.terminal.since import tell_not_compared
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.engine import engine
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.sweep import reach
    from nodevet.vet.use.targets import Targets

    said = sweep.said
    sinks = Sinks(formats or sweep.formats, sweep.path(said.save), display)
    told = reach(sweep, {key: given[key] for key in REACH}, typed)
    with opened(store, sweep.store, reaches=True, asked=True) as memory:
        if lock and memory.store is not None:
            memory.store.free(sweep.name)  # before anything is written; it is asked again then
        _beat(sweep, {"start_timestamp_seconds": time.time()})
        context = open_context(given["project"], sweep.baselines)
        targets = Targets(
            names=tuple(said.hosts),
            inventories=sweep.inventories,
            limit=tuple(said.limit),
            expect_hostname=said.expect_hostname,
        )
        hosts = targets.hosts()
        within = given["within"] or (seconds_of(said.within) if said.within else None)
        if said.since:
            context = with_store(context, memory, sweep.name, told["sample"])
        reached = fleet_options(
            context=context,
            choosing=True,
            engine=engine(sweep.engine, sweep.launchers, sweep.sites),
            second_try=said.second_try,
            within=within,
            **told,
        )
        done = visited(
            hosts,
            context,
            reached,
            sinks,
            memory,
            fail_on=fail_on(said.fail_on),
            series=sweep.name,
            whole=not targets.limit,
            budget=sweep.budget,
            alone=lock,
        )
    if not display.quiet:
        if sweep.budget and not memory:
            say(
                f"{sweep.name}: not recorded, so what many hosts begin to fail at once is not known"
            )
        if done.run.news and not done.run.news.since:
            say(f"{sweep.name}: the first recorded sweep; nothing is marked as new")
        tell_not_compared(context, quiet=False)
    failed = _told(sweep, done.run, people)
    if failed and done.run.news:
        news = structs.replace(done.run.news, not_notified=failed)
        done = structs.replace(done, run=structs.replace(done.run, news=news))
    try:
        with done.reporting():
            sinks.finish(done.run)
        code = done.code(sinks)
    except UserError:
        _ended(sweep, done, 2, len(failed))
        raise
    _ended(sweep, done, code, len(failed))
    if not done.broken:
        _thin_out(sweep, store)
    return code


def _thin_out(sweep: "Sweep", store: str | None) -> None:
    """Let go of old evidence as the settings say. What goes wrong is no reason to fail."""
    from nodevet.cli.speech import say
    from nodevet.store import StoreError, open_store
    from nodevet.store.records.retention import Retention
    from nodevet.vet.use.which_store import recorded_in

    kept, url = sweep.retention, recorded_in(store, sweep.store, reaches=True)
    if kept is None or url is None:
        return
    policy = Retention(daily=kept.daily, weekly=kept.weekly, monthly=kept.monthly)
    try:
        with open_store(url or None) as opened:
            opened.prune(policy)
    except StoreError as error:
        say(f"warning: old evidence was not thinned out: {error}")


REACH = (
    "parallel",
    "connect_timeout",
    "deadline",
    "ssh_config",
    "known_hosts",
    "accept_new",
    "sudo",
    "sample",
)


def _told(sweep: "Sweep", run: "Run", people: tuple[str, ...]) -> tuple[str, ...]:
    """Tell what is new or fixed; who could not be told."""
    from nodevet.cli.speech import say
    from nodevet.vet.use.notify import message, notify
    from nodevet.vet.use.sweep import wanted

    if sweep.told is None or not people:
        return ()
    news = message(run, sweep.name, wanted(sweep.told))
    if news is None:
        return ()
    failed = notify(people, news)
    for each in failed:
        say(f"warning: could not notify {each}")
    return failed


def _ended(sweep: "Sweep", done: "Visited", code: int, failed: int) -> None:
    from nodevet.model import Status

    vetted = sum(host.status is Status.VETTED for host in done.run.summaries)
    _beat(
        sweep,
        {
            "end_timestamp_seconds": time.time(),
            "exit_code": code,
            "hosts": len(done.run.hosts),
            "vetted_hosts": vetted,
            "notify_failed": failed,
        },
    )


def _beat(sweep: "Sweep", values: Mapping[str, float]) -> None:
    """The heartbeat is no reason to end a sweep."""
    from nodevet.base.outputs import FileError
    from nodevet.cli.speech import say
    from nodevet.vet.use.heartbeat import beat

    path = sweep.path(sweep.said.heartbeat)
    if path is None:
        return
    try:
        beat(path, sweep.name, values)
    except FileError as error:
        say(f"warning: the heartbeat: {error}")
