"""`nodevet list`: what there is."""

from pathlib import Path

import click

from nodevet.cli.common import options
from nodevet.cli.common.command import Command
from nodevet.run import listing


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
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    project: Path,
) -> None:
    """List checks, fixes, baselines, formats, hosts and so on.

    \b
    KIND is one of:
      checks     what nodevet can check
      fixes      the checks that have a fix
      baselines  what `-b` may name
      formats    of reports, for --format
      sources    the kinds of inventories, for -i
      sections   the parts of the evidence, for `nodevet probe`
      resources  the kinds of things that a fix can change
      hosts      the hosts that HOSTS, -i and --limit select
    """
    from nodevet.run.targets import Targets

    if kind != "hosts" and (targets or inventories or limit):
        raise click.UsageError("HOSTS, -i and --limit are for `nodevet list hosts` only")
    if kind == "hosts":
        hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
        found = [listing.Listed(host.name, ",".join(sorted(host.groups))) for host in hosts]
    else:
        found = list(listing.KINDS[kind](project))
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        click.echo(f"{one.name:{width}}  {one.about}".rstrip())
