"""`nodevet list`: what there is."""

import json
from collections.abc import Mapping

import click

from nodevet.author.use import listing
from nodevet.base.project import Project
from nodevet.cli import options
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
@options.form(("text", "json"), "A line for each, or a JSON list of objects.")
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    form: str,
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
    from nodevet.base.printable import plain
    from nodevet.sheet.text import columns
    from nodevet.vet.use.targets import Targets

    if kind != "hosts" and (targets or inventories or limit):
        raise click.UsageError("HOSTS, -i and --limit are for `nodevet list hosts` only")
    if kind == "hosts":
        hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
        found = [{"name": host.name, "groups": ",".join(sorted(host.groups))} for host in hosts]
    else:
        found = list(listing.KINDS[kind](project))
    unasked = listing.left_out(project) if kind == "baselines" else {}
    if form == "json":
        more = [{"left_out": unasked[row["name"]]} if unasked else {} for row in found]
        click.echo(
            json.dumps([row | rest for row, rest in zip(found, more, strict=True)], indent=2)
        )
        return
    for line in columns([[plain(cell) for cell in row.values()] for row in found]):
        click.echo(line)
    if unasked:
        _tell_unasked(unasked)


def _tell_unasked(baselines: Mapping[str, Mapping[str, str]]) -> None:
    """The checks that not all of the baselines ask for: which do not, and why."""
    from nodevet.base.printable import plain
    from nodevet.sheet.text import columns, count

    whys = {check: why for left in baselines.values() for check, why in left.items()}
    rows = []
    for check, why in sorted(whys.items()):
        without = [name for name, left in baselines.items() if check in left]
        asking = len(baselines) - len(without)
        rows.append([f"  {check}", f"asked by {asking}" if asking else "", plain(why)])
    if rows:
        click.echo(f"\n{count(len(rows), 'check')} that not all of them ask for:")
        for line in columns(rows):
            click.echo(line)
