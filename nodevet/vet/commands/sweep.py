"""`nodevet sweep`: vet, record and report a fleet as nodevet.toml says."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nodevet.base.durations import duration_text
from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.cli.display import ADVICE, QUIET, Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.vet import completing
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.vet.use.sweep_order import SweepOrder

LONGEST = 86400.0  # seconds
SETTINGS = {"inventories": "inventory", "names": "baseline"}  # of options with another name
TIMES = ("connect_timeout", "deadline", "jitter", "sample", "within")
SETTABLE = (
    *SETTINGS.values(),
    *TIMES,
    "limit",
    "fail_on",
    "heartbeat",
    "parallel",
    "ssh_config",
    "known_hosts",
    "accept_new",
    "sudo",
    "user",
)


@click.command(
    "sweep",
    cls=Command,
    group="Vet",
    order=3,
    examples=(
        ("The only sweep of nodevet.toml", "nodevet sweep"),
        (
            "A systemd service and timer for the sweep `nightly`",
            "nodevet sweep nightly --install",
        ),
        ("Without nodevet.toml", "nodevet sweep -i fleet.yaml --format html:report.html"),
    ),
)
@click.argument("name", required=False, shell_complete=completing.sweeps)
@options.config
@options.inventory(help="Inventory, instead of those in nodevet.toml.")
@click.option("-l", "--limit", multiple=True, metavar="NODESET", help="Only these hosts or groups.")
@options.baselines
@vetting.formats
@vetting.everything
@vetting.fail_on_new
@options.store
@click.option(
    "--jitter",
    type=Duration(0, LONGEST),
    help="Start after a random delay of at most this long.",
)
@click.option(
    "--within",
    type=Duration(10, LONGEST),
    help="Time limit of the whole sweep; the report names hosts that were not reached by then.",
)
@click.option(
    "--heartbeat",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write when the sweep began and ended, for node_exporter's textfile collector.",
)
@click.option("--no-notify", is_flag=True, help="Notify nobody.")
@click.option("--no-lock", is_flag=True, help="Run even if another sweep visits the inventory.")
@click.option(
    "--install",
    is_flag=True,
    help="Print a systemd service and timer, and how to install them; visit nothing.",
)
@vetting.sample
@vetting.reach
@vetting.verbose
@display_options(QUIET, ADVICE)
@options.project
def command(
    name: str | None,
    config: Path | None,
    formats: tuple[str, ...],
    everything: bool,
    store: str | None,
    no_notify: bool,
    no_lock: bool,
    install: bool,
    display: Display,
    project: Project,
    on_steps: Any,
    **_: Any,
) -> None:
    """Vet, record and report a fleet as nodevet.toml says.

    Judges counters and the kernel log by what came since the last reported sweep of the same name,
    marks what is new and fixed, and says since when the rest stands. NAME is needed if the file
    has several sweeps. Options override the file.

    \b
    Exit codes: as of `nodevet check`, and
      2   also: the run could not be recorded, or a report not written
      75  another sweep visits the inventory
    """
    from nodevet.cli.speech import say
    from nodevet.settings import settings
    from nodevet.store.errors import StoreHeldError
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.progress import Watcher
    from nodevet.vet.use.sweep import sweep
    from nodevet.vet.use.sweep_lock import HELD, HeldError
    from nodevet.vet.use.sweep_order import choose_sweep

    context = click.get_current_context()
    instead = _typed(context)
    if no_notify:
        instead["notify"] = False
    site = settings(config)
    if site.doubt:
        say(f"warning: {site.doubt}, and {site.file} can name commands")
    order = choose_sweep(
        site, name, instead, store=store, project=project if project.named else None
    )
    if install:
        _print_units(order)
        return
    reports = formats or ("table", *order.outputs)
    sinks = Sinks(reports, order.save, display, everything=everything)
    try:
        with Watcher(sinks) as watcher:
            swept = sweep(order, watcher, reports=sinks, lock=not no_lock, on_steps=on_steps)
    except (HeldError, StoreHeldError) as error:
        say(str(error))
        context.exit(HELD)
    context.exit(swept.exit_code)


def _typed(context: click.Context) -> dict[str, Any]:
    """The fields of the sweep's settings that the command line gives. A time of 0 means none."""
    fields = {}
    for option, value in context.params.items():
        typed = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        field = SETTINGS.get(option, option)
        if typed and field in SETTABLE:
            fields[field] = duration_text(value) if field in TIMES and value else value or None
    if "sample" in fields:
        fields["since"] = False
    return fields


def _print_units(order: "SweepOrder") -> None:
    """Print a service and a timer for systemd, and the commands that install them."""
    import getpass

    from nodevet.base.files import state_folder
    from nodevet.vet.terminal.program import own_program
    from nodevet.vet.use.units import service, timer

    if order.site.file is None:
        raise UserError("--install needs a nodevet.toml, which the service reads")
    settings = order.settings
    texts = (
        service(
            order.name,
            own_program(),
            order.site.file.resolve(),
            user=getpass.getuser(),
            within=settings.within,
            state=str(state_folder().parent),
        ),
        timer(order.name, at=settings.at, jitter=settings.jitter),
    )
    unit = f"nodevet-sweep-{order.name}"
    click.echo("\n".join(texts), nl=False)
    click.echo(
        f"\n# Each part above is a file in /etc/systemd/system; then:\n"
        f"#   systemctl daemon-reload && systemctl enable --now {unit}.timer\n"
        f"# To see what it did: journalctl -u {unit}"
    )
