"""`nodevet explain`: a check, what is expected by it and why; a baseline; or a host, in full."""

import shutil
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.cli.speech import say
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.baseline import Resolved
    from nodevet.checking.catalog import Catalog
    from nodevet.model import Host

WRITTEN = 100  # columns of the pages, and of what is not a terminal


@click.command(
    "explain",
    cls=Command,
    group="Vet",
    order=4,
    examples=(
        ("What the check is about", "nodevet explain pcie_link"),
        ("All that a baseline expects, and why", "nodevet explain nvidia-h100-sxm"),
        (
            "What is expected of gpu001, and which line of which file says so",
            "nodevet explain pcie_link --host gpu001 -i fleet.yaml",
        ),
        ("All that a run found on gpu004", "nodevet explain gpu004 --from last.json"),
    ),
)
@click.argument(
    "what",
    metavar="[CHECK|BASELINE|HOST]",
    required=False,
    shell_complete=completing.checks_and_baselines,
)
@click.option(
    "--host",
    metavar="HOST",
    shell_complete=completing.hosts,
    help="Say what is expected of this host, and why.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="RUN|EVIDENCE",
    help="Show a host of a saved run, or of saved evidence, which is judged again.",
)
@options.inventory(
    help="Inventory that names the host.",
)
@options.baselines
@display_options()
@vetting.reach
@vetting.elsewhere
@options.project
def command(
    what: str | None,
    host: str | None,
    source: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Explain a CHECK and its fix, or a BASELINE; or show a HOST.

    A CHECK: why it matters, what a baseline may say about it, its fix. With --host or -b: also
    what is expected, and which line of which file says so; with --from, what it said there. A
    host is only visited if its baseline depends on what it is: with -b, nothing is read from it.

    CHECK may also be what every run checks, whether or not a baseline asks for it:
    host_identity, hostname, evidence_age, baseline.

    A BASELINE, a name or a file: the hosts that it is for, what it extends, and all that it expects
    by check: the values, the line that says each, and what the file remarks there. Without a word,
    it is that of -b, or of --host.

    A HOST: what it is, and each of its findings with all that is known of it: values, reasons,
    advice, parts, and the line of the baseline. It is that of a saved run or of saved evidence
    (--from), or it is visited (-i). A word that names a check is always the check, and one that
    names a baseline is that, unless --from or -i says where a host is.
    """
    from nodevet.author.use.explain import expected, is_baseline, is_check, not_known, page
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    apart = host or names or source or inventories
    if what and not apart and not is_check(what, catalog) and is_baseline(what, folders):
        names, what = (what,), None
    if what is None:
        if source or not (host or names):
            raise UserError("name a check, a baseline or a host: `nodevet explain --help`")
        _show_baselines(_resolved(catalog, folders, host, inventories, names, reach), catalog)
        return
    if not is_check(what, catalog):
        if host or not (source or inventories):
            raise not_known(what, catalog)
        _show_host(what, "", source, inventories, names, project, display, reach)
        return
    asked = (host or names) and what in catalog.ids and not source
    resolved = _resolved(catalog, folders, host, inventories, names, reach) if asked else ()
    click.echo(_fitted(page(what, catalog)))
    if source and host:
        click.echo()
        _show_host(host, what, source, inventories, names, project, display, reach)
    elif source:
        say(f"{what} is a check; for a host of {source}: --host NAME")
    for one in resolved:
        click.echo()
        click.echo("\n".join(expected(one, what, catalog)))


def _show_baselines(found: "Sequence[Resolved]", catalog: "Catalog") -> None:
    from nodevet.author.use.explain_baseline import page_of

    for number, one in enumerate(found):
        if number:
            click.echo()
        click.echo(page_of(one, catalog, _columns()))


def _resolved(
    catalog: "Catalog",
    folders: list[Path],
    host: str | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    reach: dict[str, Any],
) -> "Sequence[Resolved]":
    """The baselines; only that of the host, if one is named."""
    from nodevet.author.use.explain import fitting, resolve, stand_ins
    from nodevet.vet.use.reach import fleet_options

    resolved = resolve(names, folders, catalog)
    if host and len(names) != 1:
        target = _one_host(host, inventories)
        others = partial(stand_ins, names, folders, catalog)
        found = fitting(resolved, target, fleet_options(**reach), others)
        resolved = (found.resolved,)
        if found.doubt:
            say(found.doubt)
    return resolved


def _one_host(host: str, inventories: tuple[str, ...]) -> "Host":
    from nodevet.vet.use.targets import Targets

    hosts = Targets(names=(host,), inventories=inventories).hosts()
    if len(hosts) > 1:
        raise UserError(f"{host} stands for {len(hosts):,} hosts; name one")
    return hosts[0]


def _show_host(
    host: str,
    check: str,
    source: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    project: Project,
    display: Display,
    reach: dict[str, Any],
) -> None:
    """A host of a saved run, or as it is now; of one check if that is named."""
    from nodevet.author.host_sheet import render
    from nodevet.author.use.explain import host_of, saved_host
    from nodevet.model import Severity
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.vet import vet

    if source:
        run, note = saved_host(source, host, project, names)
        if note:
            say(note)
        found = host_of(run, host, source)
    else:
        target = _one_host(host, inventories)
        context = open_context(project, names)
        reached = fleet_options(context=context, choosing=True, **reach)
        run = vet([target], context, reached, fail_on=Severity.WARNING)
        (found,) = run.hosts
    click.echo(
        render(run, found, check=check, colour=display.colour, width=display.width), nl=False
    )


def _fitted(page: str) -> str:
    """A page whose paragraphs fit the terminal's columns; as it was written if they do.

    Lines that are indented are to be typed, and stay.
    """
    columns = _columns()
    return "\n\n".join(_filled(paragraph, columns) for paragraph in page.split("\n\n"))


def _columns() -> int:
    return shutil.get_terminal_size((WRITTEN, 24)).columns


def _filled(paragraph: str, columns: int) -> str:
    lines = paragraph.split("\n")
    if max(map(len, lines)) <= columns or paragraph.startswith(" "):
        return paragraph
    parts = lines if paragraph.startswith("- ") else [paragraph]
    indent = "  " if paragraph.startswith("- ") else ""
    return "\n".join(
        textwrap.fill(
            part,
            columns,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts
    )
