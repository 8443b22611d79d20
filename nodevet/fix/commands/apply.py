"""`nodevet apply`: apply an approved plan, or fix this machine."""

from pathlib import Path
from typing import Any

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.fix.terminal import fix_local, fix_run
from nodevet.fix.terminal.rollout import override, rollout_options, split
from nodevet.vet import options as vetting


@click.command(
    "apply",
    cls=Command,
    group="Fix",
    order=3,
    examples=(
        ("Apply an approved plan", "nodevet apply plan.json -i fleet.yaml"),
        ("Go on with a run that was interrupted", "nodevet apply --resume runs/7f3a91c2-1"),
        (
            "Fix this machine: plan, show, ask at the terminal, apply",
            "sudo nodevet apply @local -b site.yaml",
        ),
    ),
)
@click.argument(
    "file",
    metavar="[PLAN|@local]",
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
    help="Go on with a run that was interrupted; hosts that it left midway come first.",
)
@click.option(
    "--host",
    "only",
    multiple=True,
    metavar="NODESET",
    shell_complete=completing.hosts,
    help="Only these hosts of the plan.",
)
@click.option(
    "--fix",
    "fixes",
    multiple=True,
    metavar="ID",
    shell_complete=completing.fixes,
    help="With @local: only this fix; may be repeated.  [default: what the baseline allows]",
)
@click.option(
    "--again",
    is_flag=True,
    help="With @local: also plan fixes that failed within the last 24 hours.",
)
@options.baselines
@rollout_options(planned=False)
@override
@click.option(
    "--run",
    "folder",
    type=options.FolderParam(),
    metavar="DIR",
    help="Store the run in DIR.  [default: runs/<plan>-<n> in the project]",
)
@fix_run.shown
@options.store
@vetting.reach
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
    fixes: tuple[str, ...],
    again: bool,
    form: str,
    store: str | None,
    project: Project,
    display: Display,
    **given: Any,
) -> None:
    """Apply an approved PLAN: the canary first, then batches. Or fix this machine.

    It stops when more nodes fail than --max-fail allows.

    nodevet locks and probes each node, and compares it with what the plan was made on. If the check
    does not pass right after a step, nodevet rolls the step back at once. After Ctrl-C it begins no
    more nodes. Limits, times, reboots and the drain hook come from the plan; a resumed run keeps
    its own.

    With @local nodevet plans for this machine, shows the plan, asks at the terminal, and applies
    it. Only root can do so, and only with fixes of risk live (jobs may run). No signature is
    needed; if the project has an approval.yaml, it must say `local: true`. The run is recorded if
    you name a --store.

    \b
    Exit codes:
      0  every node of the plan, or of --host, is as expected, or pending a
         reboot that the plan names; with @local also: there was nothing to do
      1  something failed and was rolled back, was refused, or not attempted;
         with @local also: not confirmed
      2  usage or configuration error, or the plan is not approved
      3  a rollback failed or an outcome is unknown: look at the node; with
         @local also: nothing is planned, but not everything could be judged
    """
    from nodevet.fix.terminal.watch import FixWatcher
    from nodevet.fix.use.apply import apply, earlier_application, new_application
    from nodevet.vet.use.context import open_context, require_accepted

    fix_local.check_options(local=str(file) == fix_local.LOCAL)
    rollout, reach = split(given)
    if str(file) == fix_local.LOCAL:
        fix_local.fix_local(
            inventories,
            names,
            fixes,
            again=again,
            deadline=reach["deadline"],
            form=form,
            store=store,
            display=display,
            project=project,
        )
        return
    require_accepted(project, keeps_runs=not (folder or resume))
    context = open_context(project, names)
    if resume and not file:
        what = earlier_application(resume)
        reached = fix_run.reached_before(what.run, inventories, reach)
    elif file and not resume:
        what = new_application(file, project.folder, folder)
        reached = fix_run.reached_now(what.plan, inventories, reach)
    else:
        raise UserError("name a PLAN, @local, or a run to --resume")
    with fix_run.record_fix_run(what.run, reached, store) as recording:
        with FixWatcher(display) as watcher:
            result = apply(
                what,
                reached,
                context,
                project,
                rollout,
                only=only,
                named=names,
                override=override,
                listener=recording(watcher),
            )
        fix_run.finish(what.run, result, form, display, inventories)
