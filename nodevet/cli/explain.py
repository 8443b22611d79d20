"""`nodevet explain`: what a check is about, and what is expected of a host and why."""

import shutil
import textwrap
from pathlib import Path
from typing import Any

import click

from nodevet.cli.common import completing, options
from nodevet.cli.common.command import Command
from nodevet.cli.common.speech import say
from nodevet.run.errors import UserError

WRITTEN = 100  # columns of the pages, and of what is not a terminal


@click.command(
    "explain",
    cls=Command,
    group="Vet",
    order=4,
    examples=(
        ("What the check is about", "nodevet explain pcie_link"),
        (
            "What is expected of gpu001, and which line of which file says so",
            "nodevet explain pcie_link --host gpu001 -i fleet.yaml",
        ),
    ),
)
@click.argument("check", shell_complete=completing.checks)
@click.option(
    "--host",
    metavar="HOST",
    shell_complete=completing.hosts,
    help="Say what is expected of this host, and why.",
)
@click.option(
    "-i",
    "--inventory",
    "inventories",
    multiple=True,
    metavar="FILE",
    shell_complete=completing.files,
    help="Inventory that names the host.",
)
@options.baselines
@options.reach
@options.project
def command(
    check: str,
    host: str | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    project: Path,
    **reach: Any,
) -> None:
    """Explain a CHECK and its fix.

    With --host or -b: also what is expected, and which line of which file says so.

    A host is only visited if its baseline depends on what it is: with -b, nothing is read from
    it.

    CHECK may also be what every run checks, whether or not a baseline asks for it:
    host_identity, hostname, evidence_age, baseline.
    """
    from nodevet.run.context import open_project
    from nodevet.run.explain import PAGES, expected, fitting, page, resolve
    from nodevet.run.reach import fleet_options
    from nodevet.run.targets import Targets

    catalog, folders = open_project(project)
    click.echo(_fitted(page(check, catalog)))
    if (check in PAGES and check not in catalog.ids) or not (host or names):
        return
    resolved = resolve(names, folders, catalog)
    if host and len(names) != 1:
        hosts = Targets(names=(host,), inventories=inventories).hosts()
        if len(hosts) > 1:
            raise UserError(f"--host: {host} stands for {len(hosts):,} hosts; name one")
        found = fitting(resolved, hosts[0], fleet_options(**reach))
        resolved = (found.resolved,)
        if found.doubt:
            say(found.doubt)
    for one in resolved:
        click.echo()
        click.echo("\n".join(expected(one, check, catalog)))


def _fitted(page: str) -> str:
    """A page whose paragraphs fit the terminal's columns; as it was written if they do.

    Lines that are indented are to be typed, and stay.
    """
    columns = shutil.get_terminal_size((WRITTEN, 24)).columns
    return "\n\n".join(_filled(paragraph, columns) for paragraph in page.split("\n\n"))


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
