"""`nodevet list`: what there is."""

from pathlib import Path

import click

from nodevet.author.use import listing
from nodevet.base.project import Project
from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command


@click.command(
    "list",
    cls=Command,
    group="Baselines",
    order=1,
    examples=(
        ("The names for -b", "nodevet list baselines"),
        (
            "The hosts that a command would visit",
            "nodevet list hosts -i fleet.yaml --limit '@rack1!gpu007'",
        ),
    ),
)
@click.argument("kind", type=click.Choice((*listing.KINDS, "hosts")), metavar="KIND")
@options.hosts
@sheets.formats()
@display_options()
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    form: tuple[str, Path | None],
    display: Display,
    project: Project,
) -> None:
    """List checks, fixes, baselines, formats, hosts and so on.

    \b
    KIND is one of:
      checks     severity, area, title
      fixes      highest risk, title
      baselines  title, number of checks, file, and why some checks are missing
      formats    formats of reports, for --format
      sources    kinds of inventories, for -i
      sections   parts of the evidence, for `nodevet probe`
      resources  kinds of settings that a fix can change
      hosts      hosts that HOSTS, -i and --limit select, with their groups
    """
    from nodevet.author.listing_sheet import listing_sheet
    from nodevet.vet.use.targets import Targets

    if kind != "hosts" and (targets or inventories or limit):
        raise click.UsageError("HOSTS, -i and --limit are for `nodevet list hosts` only")
    if kind == "hosts":
        hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
        rows = [{"name": host.name, "groups": ",".join(sorted(host.groups))} for host in hosts]
    else:
        rows = list(listing.KINDS[kind](project))
    unasked = listing.unexpected_checks(project) if kind == "baselines" else {}
    more = [{"left_out": unasked[row["name"]]} if unasked else {} for row in rows]
    document = [row | rest for row, rest in zip(rows, more, strict=True)]
    sheets.show_bare(document, lambda: listing_sheet(kind, rows, unasked), form, display)
