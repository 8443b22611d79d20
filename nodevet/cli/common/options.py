"""Options that several commands share."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from nodevet.base.project import Project
from nodevet.cli.common import completing
from nodevet.cli.common.command import Option, WholeNumber
from nodevet.cli.common.durations import Duration

# nodevet.model.Severity but shadow, which never fails; importing it costs much
SEVERITIES = ("info", "warning", "critical")
PROJECT_CODE = "nodevet.project_code"  # in the context's meta: whether it was given
Command = TypeVar("Command", bound=Callable[..., Any])


class FolderParam(click.Path):
    """A folder; one that is not there yet, too, unless it must exist."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=False, path_type=Path)

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_dir():  # click refuses regular files alone
            self.fail(f"{value} is not a folder", param, ctx)
        return path


class RunFolderParam(FolderParam):
    """The folder of a run of fixes; of a file in its place it says what that is."""

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        from nodevet.document.kinds import DocumentKind, mistaken

        wrong = mistaken(Path(value), DocumentKind.FIX_RUN)
        if wrong:
            text = f"{value}: {wrong}; what is asked for is a folder such as runs/7f3a91c2-1"
            raise click.BadParameter(text, ctx, param)
        return super().convert(value, param, ctx)


RUN_FOLDER = RunFolderParam(exists=True)


def apply(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _accept_code(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[PROJECT_CODE] = value


def _project(context: click.Context, _: click.Parameter, value: Path | None) -> Project:
    code = bool(context.meta.get(PROJECT_CODE))
    if code and value is None and not context.resilient_parsing:
        raise click.UsageError("--project-code goes with --project DIR", context)
    return Project(folder=value or Path(), named=value is not None, code=code)


def project_of(help: str) -> Callable[[Command], Command]:
    """`--project DIR` and `--project-code`, as one Project."""
    return apply(
        click.option(
            "--project",
            type=FolderParam(exists=True),
            callback=_project,
            metavar="DIR",
            help=f"{help} Its data is accepted even if other users may change it.  [default: .]",
        ),
        click.option(
            "--project-code",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_accept_code,
            help="With --project: run its checks and fixes even if other users may change them; "
            "never as root.",
        ),
    )


project = project_of("Folder whose checks/, fixes/ and baselines/ are added to the shipped ones.")
baselines = click.option(
    "-b",
    "--baseline",
    "names",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=completing.baselines,
    help="Baseline to judge by. One: for every host. Several, or none (then all of the project's): "
    "each host gets the one whose `applies` matches it.",
)
narrowing = apply(
    click.option(
        "--only",
        multiple=True,
        metavar="CHECK",
        shell_complete=completing.checks,
        help="Judge this check alone; may be repeated. Such a run is not recorded.",
    ),
    click.option(
        "--skip",
        multiple=True,
        metavar="CHECK",
        shell_complete=completing.checks,
        help="Leave this check out; may be repeated. Such a run is not recorded.",
    ),
)
"""For a look at one thing: the report says what was left out."""
inventory = partial(
    click.option,
    "-i",
    "--inventory",
    "inventories",
    multiple=True,
    metavar="FILE",
    shell_complete=completing.files,
)
"""An inventory, with a `help` that says what for."""
hosts = apply(
    click.argument("targets", nargs=-1, metavar="[HOSTS]...", shell_complete=completing.hosts),
    inventory(
        help="Inventory: a pyinfra file, YAML, or the JSON of `ansible-inventory --list`.",
    ),
    click.option(
        "-l",
        "--limit",
        multiple=True,
        metavar="NODESET",
        shell_complete=completing.hosts,
        help="Only these hosts or groups; !x leaves x out.",
    ),
)
learning = apply(
    click.option(
        "--evidence",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        metavar="PATH",
        help="Use saved evidence, a file or a folder, instead of visiting hosts; with hosts or an "
        "inventory, only theirs.",
    ),
    click.option(
        "-b",
        "--baseline",
        "names",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=completing.baselines,
        help="Read what this baseline asks for by name (kernel parameters, units).  "
        "[default: what any of the project's and the shipped ones asks for]",
    ),
)
"""What commands that learn from nodes are told of how to read them."""
_connection = partial(click.option, cls=Option, heading="Connection")
reach = apply(
    _connection(
        "--parallel",
        type=WholeNumber(),
        default=200,
        show_default=True,
        help="Hosts to visit at the same time.",
    ),
    _connection(
        "--connect-timeout",
        type=Duration(0.1),
        default="10s",
        show_default=True,
        help="SSH connect timeout.",
    ),
    _connection(
        "--deadline",
        type=Duration(1),
        default="2m",
        show_default=True,
        help="Total time limit per host.",
    ),
    _connection(
        "--ssh-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="SSH configuration file to use instead of ~/.ssh/config and /etc/ssh/ssh_config.",
    ),
    _connection(
        "--known-hosts",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Known hosts file to use instead of ~/.ssh/known_hosts.",
    ),
    _connection(
        "--accept-new",
        is_flag=True,
        help="Accept host keys that are not known yet, but never a changed one.",
    ),
    _connection("--sudo", is_flag=True, help="Run the probe through `sudo -n`."),
)
run_limits = apply(
    _connection(
        "--second-try/--no-second-try",
        default=None,
        help="Visit hosts that were unreachable or timed out once more at the end.  "
        "[default: from 100 hosts on]",
    ),
    _connection(
        "--within",
        type=Duration(1, most=30 * 86400),
        help="Deadline of the whole run; what is not done by then is reported as interrupted.",
    ),
)
"""How often hosts are tried, and when all of it ends."""
elsewhere = apply(
    _connection(
        "--launcher",
        "launchers",
        multiple=True,
        metavar="NAME=COMMAND",
        help="Visit hosts from elsewhere: eu='ssh bastion-eu', us='kubectl exec -i POD --'. "
        "nodevet must be installed there.",
    ),
    _connection(
        "--site",
        "sites",
        multiple=True,
        metavar="@GROUP=NAMES",
        help="Launchers that reach a group: @dc1=eu,eu2; *=us: all others.  "
        "[default: each reaches every host]",
    ),
    _connection(
        "--engine",
        metavar="URL",
        help="Visit hosts from a pool of Dask workers: dask://HOST:PORT, tls://HOST:PORT.",
    ),
)
"""From where hosts are visited."""


def _refuse(context: click.Context, _: click.Parameter, value: Any) -> None:
    if value:
        from nodevet.run.engine import why_not

        raise click.UsageError(why_not(), context)


no_engine = apply(
    *(
        click.option(name, multiple=True, hidden=True, expose_value=False, callback=_refuse)
        for name in ("--launcher", "--site", "--engine")
    )
)
"""What no command takes that writes, and why."""
sample = click.option(
    "--sample",
    type=Duration(1, 1800),
    help="Read counters of errors twice, this long apart, and judge what they grew by.",
)
since = click.option(
    "--since",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Evidence of an earlier `check --save`, a file or a folder, or `store`, the last recorded "
    "visit: judge counters of errors and the kernel log by what came since.",
)
expect_hostname = click.option(
    "--no-expect-hostname",
    "expect_hostname",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Accept a node whose hostname differs from its name in the inventory.",
)
formats = click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME[:FILE]",
    shell_complete=completing.formats,
    help="Report format; may be repeated. `nodevet list formats` names them.  [default: table]",
)
everything = click.option(
    "--all",
    "everything",
    is_flag=True,
    help="In a table, show what passed too: every check with its value.",
)
shadow = click.option(
    "--shadow",
    is_flag=True,
    help="In a table and in Markdown, show what checks of severity shadow say, too.",
)


def _gone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--previous is gone: runs are recorded, and reports say by themselves what is new, "
            "fixed, and stands since when; see --store"
        )


previous = click.option("--previous", hidden=True, expose_value=False, callback=_gone)


def _given(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An empty text is a variable of a script that is not set, and no wish for the default."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; type a URL, or leave it out", context, param)
    return value


def store_option(help: str) -> Callable[[Command], Command]:
    """`--store URL`."""
    default = "[default: $NODEVET_STORE, nodevet.toml, else a file in ~/.local/state]"
    return click.option("--store", metavar="URL", callback=_given, help=f"{help}  {default}")


store = store_option("Where runs are recorded: sqlite:///PATH, postgresql://USER@HOST/DB, or none.")


def form(names: Sequence[str], help: str) -> Callable[[Command], Command]:
    """`--format NAME`, the first if none is named."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help=help,
    )


config = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings.  [default: nodevet.toml here or above]",
)
fail_on = click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    default="warning",
    show_default=True,
    help="Lowest severity at which a failure makes the exit code 1.",
)
fail_on_new = click.option(
    "--fail-on",
    type=click.Choice([*SEVERITIES, "new", *(f"new:{severity}" for severity in SEVERITIES)]),
    default="warning",
    show_default=True,
    metavar="SEVERITY|new[:SEVERITY]",
    help="Lowest severity at which a failure makes the exit code 1: info, warning, critical. "
    "new: only one that began since the last recorded visit.",
)
