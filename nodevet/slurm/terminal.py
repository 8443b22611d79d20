"""What `drain` and `resume` share: how they read the run, and what they show."""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import click

from nodevet.base.age import run_refusal
from nodevet.base.errors import UserError
from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.model.run import Run
from nodevet.slurm.answer import answer
from nodevet.slurm.decide import NodePlan
from nodevet.slurm.sheet import nodes_sheet

Machines = Mapping[tuple[str, str], str | None]


def run_of(
    source: str, store: str | None, max_age: float, own: Collection[tuple[str, str]] = ()
) -> tuple[Run, Machines]:
    """A saved or recorded run, and the machine ids, by run and host, of the nodes that nodevet
    drained (`own`). Raises UserError if the run is too old, or visited no node."""
    from nodevet.slurm.use.recorded import machines, recorded_run
    from nodevet.vet.terminal.saved_reports import read_run
    from nodevet.vet.use.stores import open_history

    if Path(source).is_file():
        run, known = read_run(Path(source), most=max_age), {}
        if run.replayed:
            raise UserError(f"--from {source}: the run judged saved evidence; vet the nodes again")
    else:
        with open_history(store) as history:
            run = recorded_run(history, source, [name for _, name in own])
            known = dict(machines(history, own))
    if why := run_refusal(run.started, now=time.time(), most=max_age):
        raise UserError(f"--from {source}: {why}; vet the nodes again, or see --max-age")
    return run, known


def finish(
    done: Sequence[NodePlan],
    verb: str,
    run: str,
    dry: bool,
    form: tuple[str, Path | None],
    display: Display,
) -> NoReturn:
    """Show the result, and exit."""
    sheet = nodes_sheet(done, verb, run, dry=dry)
    sheets.show(answer(done, verb, run, dry=dry), sheet, form, display)
    click.get_current_context().exit(int(any(plan.is_short for plan in done)))
