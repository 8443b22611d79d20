"""What `apply` and `rollback` share: options, the reach of hosts, and the end of a run."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nodevet.cli import options, speech
from nodevet.cli.display import Display
from nodevet.cli.speech import say
from nodevet.fix import formats

if TYPE_CHECKING:
    from nodevet.fix.events import FixListener
    from nodevet.fix.journal.folder import RunFolder, SavedReach
    from nodevet.fix.model import Plan
    from nodevet.fixing.result import Result

inventories = options.inventory(
    help="Inventory that says how to reach the plan's hosts.  [default: by their names]",
)
shown = click.option(
    "--format",
    "form",
    type=click.Choice(formats.formats()),
    metavar="NAME",
    default="table",
    show_default=True,
    help="Format of the report on standard output; see `nodevet list formats`. The run's folder "
    "has every format.",
)


def reached_now(plan: "Plan", inventories: Sequence[str], reach: Mapping[str, Any]) -> "SavedReach":
    """How the plan's hosts are reached, by the command line."""
    from nodevet.fix.use import saved_reach
    from nodevet.vet.use.targets import Targets

    names = () if inventories else tuple(sorted({step.host for step in plan.steps}))
    hosts = Targets(names=names, inventories=tuple(inventories)).hosts()
    return saved_reach.reached_now(plan, hosts, reach, inventories)


def reached_before(
    run: "RunFolder", inventories: Sequence[str], reach: Mapping[str, Any]
) -> "SavedReach":
    """How a run reached its hosts, with the options of this command line."""
    from nodevet.fix.use import saved_reach

    context = click.get_current_context()
    option_names = [
        name for name in reach if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    _, plan = run.plan()  # one that contradicts itself is refused before anything else is read
    now = reached_now(plan, inventories, reach) if inventories else None
    return saved_reach.reached_before(run, now, reach, option_names)


@contextmanager
def record_fix_run(
    run: "RunFolder", reach: "SavedReach", store: str | None
) -> "Iterator[Callable[[FixListener], FixListener]]":
    """Records a run of fixes while it goes on and at its end. Yields a function that wraps the
    run's listener. Raises StoreError for an invalid --store; any other problem with the store is
    only noted."""
    from nodevet.fix.use.remember_fixes import FixRecording, intended_store

    url = intended_store(store, reaches=any(not host.local for host in reach.hosts), say=say)
    if url is None:
        yield lambda listener: listener
        return
    recording = FixRecording(url, run.path)
    try:
        yield recording.hearing
    finally:
        if why := recording.end(say):
            say(f"this run of fixes is not fully recorded: {why}; it is stored in {run.path}")


def finish(
    run: "RunFolder", result: "Result", form: str, display: Display, inventories: Sequence[str]
) -> None:
    """Show the report and the next steps, and end with the run's exit code. `inventories`: of this
    command line; if it has none, those of the run's folder."""
    from nodevet.fix.next_steps import baselines_of, next_steps
    from nodevet.fix.use.fix_run import inventories_of, render_report

    inventories = inventories or inventories_of(run)
    text = render_report(
        run, form, result, inventories=inventories, colour=display.colour, width=display.width
    )
    speech.tell(text, nl=False)
    folder, is_rollback = shlex.quote(str(run.path)), result.kind == "rollback"
    if form != "table":
        for step in next_steps(result, folder, inventories):
            say(step.text)
    if result.unknown:
        resume = f"nodevet apply --resume {folder}{baselines_of(result)}"
        resume_command = f"nodevet rollback {folder}" if is_rollback else resume
        say(f"{result.unknown}; then go on with: {resume_command}")
    undo = result.is_revertible and not is_rollback
    say(
        f"the run is stored in {folder}" + (f"; undo it: nodevet rollback {folder}" if undo else "")
    )
    click.get_current_context().exit(result.exit_code)
