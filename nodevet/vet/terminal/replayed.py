"""`check --evidence`: judge saved evidence, and warn about it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from nodevet.base.printable import brief
from nodevet.base.trust import distrust
from nodevet.cli.speech import say
from nodevet.model import Severity
from nodevet.model.run import Run
from nodevet.sheet.text import count, nodeset
from nodevet.vet.terminal.progress import watched
from nodevet.vet.use import saved
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import vet_saved

if TYPE_CHECKING:
    from nodevet.vet.terminal.output import Sinks

SOME = 5  # names in a sentence


def judged_saved(
    evidence: Sequence[Path],
    context: VetContext,
    chosen: Targets,
    sinks: "Sinks",
    *,
    max_age: float | None,
    fail_on: Severity,
) -> Run:
    """Judge evidence that `check --save` wrote. Raises SavedEvidenceError."""
    replay = saved.read_saved(evidence, chosen)
    tell_doubts("--evidence", evidence)
    if not sinks.display.quiet:
        tell_left_out("--evidence", replay.left_out, chosen.inventories)
    context = structs.replace(context, age=saved.limit_of(max_age))
    with watched(len(replay.hosts), sinks) as listener:
        run = vet_saved(replay.hosts, replay.visits, context, fail_on=fail_on, listener=listener)
    tell_not_asked("--evidence", *saved.not_asked(run))
    return run


def tell_doubts(option: str, paths: Sequence[Path]) -> None:
    """Warn if other users may change the evidence."""
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else []
        if doubt := next(filter(None, map(distrust, (path, *inside))), ""):
            say(f"{option}: {doubt}: others may have changed its contents")


def tell_left_out(option: str, names: Sequence[str], inventories: Sequence[str]) -> None:
    """Name hosts that have evidence and are not asked for."""
    if names:
        where = "not in the inventory" if inventories else "not among the hosts that are named"
        say(f"{option}: left out, since {where}: {nodeset(names)}")


def tell_not_asked(option: str, hosts: frozenset[str], names: frozenset[str]) -> None:
    """Warn about hosts whose evidence lacks things that the baselines name now."""
    if hosts:
        few = ", ".join(map(brief, sorted(names)[:SOME]))
        more = f" and {len(names) - SOME} more" if len(names) > SOME else ""
        save = ", and --save" if option == "--evidence" else ""
        say(
            f"{option}: the evidence of {count(len(hosts), 'host')} was read before these "
            f"baselines named {few}{more}: visit them again with the same -b{save}"
        )
