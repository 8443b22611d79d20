"""Options that several commands share."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from nodevet.base.project import Project
from nodevet.cli import completing

# nodevet.model.Severity but shadow, which never fails; importing it costs much
SEVERITIES = ("info", "warning", "critical")
PROJECT_CODE = "nodevet.project_code"  # in the context's meta: whether it was given
Command = TypeVar("Command", bound=Callable[..., Any])


class FolderParam(click.Path):
    """A folder; it may be missing unless it must exist."""

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
    """The folder of a run of fixes. For any other folder or file, the error says what it is."""

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        from nodevet.document.kinds import DocumentKind, wrong_kind_text

        wrong = wrong_kind_text(Path(value), DocumentKind.FIX_RUN)
        if wrong:
            text = f"{value}: {wrong}; name a folder such as runs/7f3a91c2-1"
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
        help="Inventory: YAML, pyinfra's, Ansible's (INI, YAML, JSON, a folder), or names.",
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
        help="Read the kernel parameters and units that this baseline names.  [default: those of "
        "the project's and the shipped baselines]",
    ),
)
"""How commands that learn from nodes read them."""


def _require_text(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An empty text is a variable of a script that is not set, and no wish for the default."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; type a URL, or leave it out", context, param)
    return value


def store_option(help: str) -> Callable[[Command], Command]:
    """`--store URL`."""
    default = "[default: $NODEVET_STORE, nodevet.toml, else a file in ~/.local/state]"
    return click.option("--store", metavar="URL", callback=_require_text, help=f"{help}  {default}")


store = store_option("Where to record runs: sqlite:///PATH, postgresql://USER@HOST/DB, or none.")


def form(names: Sequence[str], help: str) -> Callable[[Command], Command]:
    """`--format NAME`, by default the first."""
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
    help="Settings file. [default: nodevet.toml here or above]",
)
