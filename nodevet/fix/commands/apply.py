"""`nodevet apply`: carry out an approved plan, and prove it."""

from pathlib import Path
from typing import Any

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.fix.terminal import fix_run
from nodevet.fix.terminal.rollout import override, rollout_options, split
from nodevet.vet import options as vetting


@click.command(
    "apply",
    cls=Command,
    group="Fix",
    order=3,
    examples=(
        ("Carry out an approved plan", "nodevet apply plan.json -i fleet.yaml"),
        ("Go on with a run that was interrupted", "nodevet apply --resume runs/7f3a91c2-1"),
    ),
)
@click.argument(
    "file",
    metavar="[PLAN]",
    shell_complete=completing.plans,
    required=False,
    type=click.Path(dir_okay=False, path_type=Path),
)
@fix_run.inventories
@click.option(
    "--resume",
    type=options.RUN_FOLDER,
    metavar="RUN",
    shell_complete=completing.runs,
    help="Go on with a run that was interrupted: hosts that it left in the middle are read first.",
)
@click.option(
    "--host",
    "only",
    multiple=True,
    metavar="NODESET",
    shell_complete=completing.hosts,
    help="Only these hosts of the plan; the others are not attempted.",
)
@options.baselines
@rollout_options(planned=False)
@override
@click.option(
    "--run",
    "folder",
    type=options.FolderParam(),
    metavar="DIR",
    help="Keep the run in DIR.  [default: runs/<plan>-<n> in the project]",
)
@fix_run.shown
@options.store
@vetting.reach
@vetting.no_engine
@display_options()
@options.project
def command(
    file: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    override: bool,
    folder: Path | None,
    resume: Path | None,
    only: tuple[str, ...],
    form: str,
    store: str | None,
    project: Project,
    display: Display,
    **given: Any,
) -> None:
    """Carry out an approved PLAN: the canary first, then batches.

    It stops when more nodes fail than --max-fail allows.

    Each node is locked, probed and compared with what the plan was made on; if the check does not
    pass right after a step, the step is rolled back at once. After Ctrl-C no
    further node is begun.

    Limits, times, reboots and the drain hook come from the plan; a resumed run keeps its own.

    \b
    Exit codes:
      0  every node of the plan, or of --host, is as expected, or pending a
         reboot that the plan names
      1  something failed and was rolled back, was refused, or not attempted
      2  usage or configuration error, or the plan is not approved
      3  a rollback failed or an outcome is unknown: look at the node
    """
    from nodevet.fix.terminal.watch import FixWatcher
    from nodevet.fix.use.apply import apply, earlier_application, new_application
    from nodevet.vet.use.context import open_context, require_accepted

    rollout, reach = split(given)
    require_accepted(project, keeps_runs=not (folder or resume))
    context = open_context(project, names)
    if resume and not file:
        what = earlier_application(resume)
        reached = fix_run.reached_before(what.run, inventories, reach)
    elif file and not resume:
        what = new_application(file, project.folder, folder)
        reached = fix_run.reached_now(what.plan, inventories, reach)
    else:
        raise UserError("name either a PLAN, or a run to --resume")
    with fix_run.recorded(what.run, reached, store) as recording:
        with FixWatcher(display) as watcher:
            result = apply(
                what,
                reached,
                context,
                project.folder,
                rollout,
                only=only,
                named=names,
                override=override,
                listener=recording(watcher),
            )
        fix_run.finish(what.run, result, form, display, inventories)
