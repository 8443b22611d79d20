"""`nodevet list`: what there is."""

from pathlib import Path

import click

from nodevet.cli.common import options

KINDS = ("checks", "fixes", "baselines", "formats", "hosts")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@options.hosts
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    project: Path,
) -> None:
    """Name the checks, fixes, baselines, report formats, or the hosts of an inventory."""
    from nodevet.run.context import open_project
    from nodevet.run.targets import Targets

    if kind == "checks":
        catalog, _ = open_project(project)
        for check in catalog.ids:
            click.echo(f"{check:18} {catalog.title(check)}")
    elif kind == "fixes":
        catalog, _ = open_project(project)
        for check in catalog.fixes:
            click.echo(f"{check:22} {catalog.fix_title(check)}")
    elif kind == "baselines":
        from nodevet.baseline import available

        _, folders = open_project(project)
        for name, path in available(folders):
            click.echo(f"{name:28} {path}")
    elif kind == "formats":
        from nodevet.report import formats

        click.echo("\n".join(formats()))
    else:
        chosen = Targets(names=targets, inventories=inventories, limit=limit)
        for host in chosen.hosts():
            groups = ",".join(sorted(host.groups))
            click.echo(f"{host.name:28} {groups}".rstrip())
