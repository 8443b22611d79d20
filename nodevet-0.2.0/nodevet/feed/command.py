"""`nodevet feed`: whether nodes can feed their GPUs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command, Option, WholeNumber
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.use.nodes import Nodes
    from nodevet.vet.use.targets import Targets


_measuring = partial(click.option, cls=Option, heading="Measuring")


@click.command(
    "feed",
    cls=Command,
    group="Vet",
    order=6,
    examples=(
        ("From the file alone", "nodevet feed workloads/resnet50-a100.yaml"),
        ("With the cores and links of nodes", "nodevet feed job.yaml 'gpu[001-004]' --plot"),
        ("Measure a data loader here", "nodevet feed --measure -- python3 loader.py {workers}"),
    ),
)
@click.argument("workload", shell_complete=completing.files)
@options.hosts
@click.option(
    "--evidence",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Use saved evidence, a file or a folder, instead of visiting hosts.",
)
@click.option(
    "--batch",
    type=WholeNumber(),
    help="Suggest changes for this batch size of the file.  [default: the largest]",
)
@click.option("--plot", is_flag=True, help="In a table, also draw utilization as bars.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME[:FILE]",
    help="table, json, markdown or html; may be repeated; with --measure only json. [default: "
    "table; with --measure YAML]",
)
@_measuring(
    "--measure",
    is_flag=True,
    help="Run the data loader after `--` for a while, and print its rates as the `measured` block "
    "of a workload file.",
)
@_measuring(
    "--on",
    default="@local",
    show_default=True,
    metavar="HOST",
    shell_complete=completing.hosts,
    help="Host to run the data loader on.",
)
@_measuring(
    "--for",
    "seconds",
    type=Duration(2, 1800),
    default="30s",
    show_default=True,
    help="Stop it after this time.",
)
@_measuring(
    "--workers",
    type=WholeNumber(),
    help="Number of workers that it starts; with {workers} in the command, the most to try.  "
    "[default: 64]",
)
@_measuring(
    "--run-as",
    "run_as",
    default="",
    metavar="NAME",
    help="User to run it as, if nodevet is root there.  [default: nobody]",
)
@vetting.reach
@display_options()
def command(
    workload: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    evidence: tuple[Path, ...],
    batch: int | None,
    plot: bool,
    formats: tuple[str, ...],
    measure: bool,
    on: str,
    seconds: float,
    workers: int | None,
    run_as: str,
    display: Display,
    **reach: Any,
) -> None:
    """Compute whether nodes can feed their GPUs.

    The slowest of storage, CPU transforms, link and accelerator sets the pace. WORKLOAD is a YAML
    file with batch sizes, step times and rates; HOSTS add cores, memory and links from the evidence
    that `check` reads. nodevet guesses no missing value: without it, the answer is a bound or not
    known.

    `nodevet feed --measure -- COMMAND...` reads no workload. It runs your data loader and counts
    its lines `samples N` (since the line before) or `{"samples": N}`. With `{workers}` in the
    command, it tries 1, 2, 4 ... workers until more are no faster.

    \b
    Exit codes:
      0  answered, or measured
      2  usage or configuration error
      3  a host could not be read
    """
    from nodevet.feed.sheet import feed_sheet
    from nodevet.feed.use import answer_on_nodes, check_batch
    from nodevet.feed.workload_file import read_workload
    from nodevet.sheet import FORMATS
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.use.targets import Targets

    _refuse_mixed(click.get_current_context(), measure=measure)
    if measure:
        words = (workload, *targets)
        given = Sinks(formats, display=display, known=("json",)) if formats else None
        loader_options = {"seconds": seconds, "user": run_as, "workers": workers}
        _measure(words, on, inventories, reach, given, loader_options)
        return
    sinks = Sinks(formats, display=display, known=FORMATS)
    if workload.startswith("@") and not Path(workload).exists():
        raise click.UsageError(
            f"the workload is missing before {workload}; name its file first: "
            f"nodevet feed workload.yaml {workload}"
        )
    job = read_workload(Path(workload))
    check_batch(job, batch)
    chosen = Targets(names=targets, inventories=inventories, limit=limit)
    answer = answer_on_nodes(job, _nodes(chosen, evidence, reach, display), batch)
    sinks.show(answer, lambda: feed_sheet(answer, plot=plot))
    click.get_current_context().exit(answer.exit_code)


MEASURING = ("on", "seconds", "workers", "run_as")
ANSWERING = ("evidence", "batch", "plot", "limit")


def _refuse_mixed(context: click.Context, *, measure: bool) -> None:
    """Raises click.UsageError for an option of the command's other half."""
    for name in ANSWERING if measure else MEASURING:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param for param in context.command.params if param.name == name).opts[-1]
            if measure:
                raise click.UsageError(f"{option} is for a workload; leave it out with --measure")
            hint = " (the file has a field for it)" if name == "workers" else ""
            raise click.UsageError(f"{option} is for --measure{hint}")


def _measure(
    words: Sequence[str],
    on: str,
    inventories: tuple[str, ...],
    reach: Mapping[str, Any],
    sinks: "Sinks | None",
    loader_options: Mapping[str, Any],
) -> None:
    """Print the rates of a loader on one host: as a block for a workload file, or in the requested
    format.
    """
    from nodevet.cli.speech import needs_output
    from nodevet.feed.measured import block
    from nodevet.feed.use import measure
    from nodevet.sheet.json import indented
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.targets import Targets

    needs_output()
    hosts = Targets(names=(on,), inventories=inventories).hosts()
    measured = measure(words, hosts, fleet_options(**reach), **loader_options)
    if sinks:
        sinks.write(lambda _: indented(measured), sinks.sinks)
    else:
        click.echo(block(measured), nl=False)


def _nodes(
    targets: "Targets", evidence: Sequence[Path], reach: Mapping[str, Any], display: Display
) -> "Nodes":
    """The hosts' evidence; none if none are named."""
    from nodevet.feed.use import NO_NODES

    if not targets and not evidence:
        return NO_NODES
    from nodevet.vet.use import nodes

    if evidence:
        return nodes.saved(evidence, targets)
    from nodevet.vet.terminal.progress import Bar
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options

    hosts = targets.hosts()
    with Bar(len(hosts), display) as bar:
        bar.start()
        return nodes.visited(hosts, fleet_options(engine=engine_for(hosts), **reach), bar.advance)
