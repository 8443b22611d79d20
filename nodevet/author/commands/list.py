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
        ("What -b may name", "nodevet list baselines"),
        (
            "Which hosts a command would visit",
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
      checks     what nodevet can check: severity, area, title
      fixes      the checks that have a fix: its highest risk, title
      baselines  what `-b` may name: title, how many checks, file, and why not all
      formats    of reports, for --format
      sources    the kinds of inventories, for -i
      sections   the parts of the evidence, for `nodevet probe`
      resources  the kinds of things that a fix can change
      hosts      the hosts that HOSTS, -i and --limit select: groups
    """
    from nodevet.author.listing_sheet import listing_sheet
    from nodevet.vet.use.targets import Targets

    if kind != "hosts" and (targets or inventories or limit):
        raise click.UsageError("HOSTS, -i and --limit are for `nodevet list hosts` only")
    if kind == "hosts":
        hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
        found = [{"name": host.name, "groups": ",".join(sorted(host.groups))} for host in hosts]
    else:
        found = list(listing.KINDS[kind](project))
    unasked = listing.left_out(project) if kind == "baselines" else {}
    more = [{"left_out": unasked[row["name"]]} if unasked else {} for row in found]
    document = [row | rest for row, rest in zip(found, more, strict=True)]
    sheets.show_bare(document, lambda: listing_sheet(kind, found, unasked), form, display)
