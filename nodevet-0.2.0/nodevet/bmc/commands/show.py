"""`nodevet bmc show`: what the management controllers of nodes report."""

from pathlib import Path

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command


@click.command(
    "show",
    cls=Command,
    order=1,
    examples=(
        ("Power, sensors and events of one node", "nodevet bmc show gpu003 -i fleet.yaml"),
        ("Of all nodes, for a program", "nodevet bmc show -i fleet.yaml --format json"),
    ),
)
@options.hosts
@sheets.formats()
@display_options()
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Show what the BMCs of nodes report: power, supplies, fans, leaks and the event log.

    nodevet asks each BMC that the inventory names, by Redfish or IPMI, and visits no node. It
    changes nothing.

    \b
    Exit codes:
      0  all were read
      2  usage or configuration error
      3  a BMC could not be read, or a host has none
    """
    from nodevet.bmc.sheet import bmc_sheet
    from nodevet.bmc.use import BmcAnswer, read_all
    from nodevet.vet.use.targets import Targets

    hosts = Targets(names=targets, inventories=inventories, limit=limit).hosts()
    sections = read_all(hosts)
    sheets.show(BmcAnswer(hosts=sections), bmc_sheet(sections), form, display)
    unread = any(section.data is None for section in sections.values())
    click.get_current_context().exit(3 if unread else 0)
