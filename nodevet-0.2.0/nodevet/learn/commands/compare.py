"""`nodevet compare`: compares hosts with similar hardware."""

from pathlib import Path
from typing import Any

import click

from nodevet.base.project import Project
from nodevet.cli import options, sheets
from nodevet.cli.display import QUIET, Display, display_options
from nodevet.cli.help import Command
from nodevet.sheet import FORMATS
from nodevet.vet import options as vetting


@click.command(
    "compare",
    cls=Command,
    group="Vet",
    order=4,
    examples=(
        ("Two servers that should be the same", "nodevet compare gpu001 gpu002"),
        (
            "The hosts that differ from the fleet, as a list for srun --exclude",
            "nodevet compare -i fleet.yaml --format nodeset",
        ),
    ),
)
@options.hosts
@options.learning
@sheets.formats((*FORMATS, "nodeset"))
@vetting.reach
@vetting.verbose
@display_options(QUIET)
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    evidence: tuple[Path, ...],
    form: tuple[str, Path | None],
    names: tuple[str, ...],
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Find hosts that differ from like hosts, without a baseline.

    nodevet groups hosts by make and GPUs. For each check, the value of more than half of a group is
    expected of the others, and hosts that differ are outliers. Two hosts have no majority: every
    difference is shown.

    \b
    Exit codes:
      0  all hosts of a group are alike
      1  some differ
      2  usage or configuration error
      3  a host could not be read, or there is nothing to compare (1 wins over 3)
    """
    from nodevet.cli.speech import say
    from nodevet.learn.compare import as_document, as_nodeset, compare
    from nodevet.learn.sheet import comparison_sheet
    from nodevet.learn.terminal import read_nodes
    from nodevet.vet.use.targets import Targets

    chosen = Targets(names=targets, inventories=inventories, limit=limit)
    catalog, nodes = read_nodes(chosen, evidence, project, names, reach, display)
    comparison = compare(nodes.evidence, catalog, nodes.lost)
    if form[0] == "nodeset":
        sheets.write(as_nodeset(comparison) + "\n", form)
        for host, why in comparison.lost.items():
            say(f"{host}: not compared: {why}")
    else:
        sheets.show(as_document(comparison), comparison_sheet(comparison), form, display)
    click.get_current_context().exit(comparison.exit_code)
