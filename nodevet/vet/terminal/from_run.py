"""`check --from-run`: a recorded run under other baselines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from nodevet.base.errors import UserError
from nodevet.base.processes import KilledProcess
from nodevet.cli.speech import say
from nodevet.model import Severity
from nodevet.model.run import Run
from nodevet.sheet.text import nodeset
from nodevet.vet.terminal.progress import watched
from nodevet.vet.terminal.replayed import tell_left_out, tell_not_asked
from nodevet.vet.use import saved
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.from_run import RecordedLook, Rejudge, recorded_hosts, rejudge
from nodevet.vet.use.stores import open_history, read_from
from nodevet.vet.use.targets import Targets

if TYPE_CHECKING:
    from nodevet.vet.terminal.output import Sinks

STORE = "store"  # what --since says here: no folder, but what was recorded before
SINCE = (
    "--from-run with --since takes only the word `store`: it judges counters and the kernel log "
    "by what came since the last recorded visit before that run"
)


def judged_again(
    ref: str,
    store: str | None,
    context: VetContext,
    chosen: Targets,
    sinks: "Sinks",
    *,
    since: Sequence[Path],
    max_age: float | None,
    fail_on: Severity,
) -> tuple[Run, VetContext]:
    """A recorded run under these baselines, and what it was judged by. Raises UserError and
    StoreError."""
    if since and [str(path) for path in since] != [STORE]:
        raise UserError(SINCE)
    with open_history(store) as opened:
        hosts = recorded_hosts(opened, ref, chosen)
    if chosen.inventories and not sinks.display.quiet:
        tell_left_out("--from-run", hosts.left_out, chosen.inventories)
    if hosts.lost:
        say(
            f"run {hosts.run.id} did not reach {hosts.lost:,} of its {hosts.run.hosts:,} hosts, "
            f"so they are not vetted; -i lists them"
        )
    look = RecordedLook(None, hosts.run.id) if since else None
    context = structs.replace(context, age=saved.limit_of(max_age), since=look)
    how = Rejudge(store=read_from(store), context=context)
    with watched(len(hosts.hosts), sinks) as listener:
        run = rejudge(hosts, how, fail_on=fail_on, killed=tell_killed, listener=listener)
    tell_not_asked("--from-run", *saved.not_asked(run))
    return run, context


def tell_killed(killed: KilledProcess, hosts: Sequence[str]) -> None:
    """Say that a process was killed, and what happens to its hosts."""
    outcome = "another one judges them" if killed.again else "they are not judged"
    say(f"process {killed.pid}, which judged {nodeset(hosts)}, was {killed.why}: {outcome}")
