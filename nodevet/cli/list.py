"""`nodevet list`: what there is."""

from pathlib import Path

import click

from nodevet.cli.common import options
from nodevet.run import listing


@click.command("list")
@click.argument("kind", type=click.Choice((*listing.KINDS, "hosts")))
@options.hosts
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    project: Path,
) -> None:
    """List the checks, fixes, baselines, report formats, sources of inventories, sections of the
    evidence or kinds of resources that there are; or the hosts of an inventory.
    """
    from nodevet.run.targets import Targets

    if kind == "hosts":
        hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
        found = [listing.Listed(host.name, ",".join(sorted(host.groups))) for host in hosts]
    else:
        found = list(listing.KINDS[kind](project))
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        click.echo(f"{one.name:{width}}  {one.about}".rstrip())
