"""`nodevet capture`: a baseline from good nodes."""

from pathlib import Path
from typing import Any

import click

from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.cli.display import QUIET, Display, display_options
from nodevet.cli.help import Command
from nodevet.vet import options as vetting


@click.command(
    "capture",
    cls=Command,
    group="Baselines",
    order=1,
    examples=(
        ("This machine as it is now", "nodevet capture @local -o baselines/workstation.yaml"),
        (
            "What eight good nodes agree on",
            "nodevet capture -i fleet.yaml --limit gpu[001-008] -o baselines/h100.yaml",
        ),
    ),
)
@options.hosts
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the baseline to FILE.  [default: standard output]",
)
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@click.option("--title", default="", help="One line that names the kind of node.")
@options.learning
@vetting.reach
@vetting.verbose
@display_options(QUIET)
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    output: Path | None,
    force: bool,
    title: str,
    evidence: tuple[Path, ...],
    names: tuple[str, ...],
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Write a baseline from good nodes.

    From several nodes: the values that all of them share, with a comment for those that differ, so
    that every node passes. Serials, counters and temperatures are left out. Faults of a node become
    part of the baseline too: read the file before you trust it.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, or the hosts are of several kinds
      3  a host could not be read; nothing is written
    """
    from nodevet.base.outputs import file_errors, replace
    from nodevet.cli.speech import say
    from nodevet.learn.terminal import read_nodes
    from nodevet.learn.use.capture import capture, try_out
    from nodevet.sheet.text import count
    from nodevet.vet.use.targets import Targets

    if output:
        try_out(output, replace=force)
    chosen = Targets(names=targets, inventories=inventories, limit=limit)
    catalog, nodes = read_nodes(chosen, evidence, project, names, reach, display)
    if nodes.lost:
        for host, why in nodes.lost.items():
            say(f"{host}: {why}")
        say("nothing is written: leave these hosts out, or read them again")
        click.get_current_context().exit(3)
    captured = capture(nodes.evidence, catalog, title=title)
    if output is None:
        click.echo(captured.text, nl=False)
        return
    with file_errors(output):
        replace(output, captured.text)
    if not display.quiet:
        expected = count(len(captured.agreement.expected), "check")
        say(f"{output}: {expected} from {count(len(nodes.evidence), 'host')}; next:")
        say(f"  nodevet check {_targets_text(targets, inventories, limit)} -b {output}")


def _targets_text(
    targets: tuple[str, ...], inventories: tuple[str, ...], limit: tuple[str, ...]
) -> str:
    import shlex

    options = [("-i", file) for file in inventories] + [("--limit", nodes) for nodes in limit]
    return shlex.join([*targets, *(word for pair in options for word in pair)])
