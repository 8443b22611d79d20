"""`--since`: what counters and the kernel log are compared with, and what is said of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.cli.speech import say
from nodevet.sheet.text import count, nodeset
from nodevet.vet.terminal.replayed import tell_doubts
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.last_look import LastLook

SINCE_STORE = "store"  # the word in place of a folder
MOST = 10  # reasons
LONGEST = 400  # characters of one


def with_since(context: VetContext, paths: Sequence[Path], sample: Any) -> VetContext:
    """The context of a run that compares with what is recorded there. Raises UserError and
    SavedEvidenceError. What the store says is added once it is open: see `asks_store`."""
    if not paths:
        return context
    if sample:
        raise UserError(
            "--sample cannot be used with --since: counters are judged by their growth during the "
            "sample, or since the recorded evidence, not both"
        )
    if asks_store(paths):
        return context
    tell_doubts("--since", paths)
    return structs.replace(context, since=LastLook(paths))


def asks_store(paths: Sequence[Path]) -> bool:
    """Whether the last recorded visit is meant. Raises UserError if a file is, too."""
    named = Path(SINCE_STORE) in paths
    if named and len(paths) > 1:
        raise UserError(f"--since {SINCE_STORE}: name it alone, or files and folders")
    return named


def tell_not_compared(context: VetContext, *, quiet: bool) -> None:
    """For which hosts --since was ignored, one line for each reason."""
    if context.since is None or quiet:
        return
    told = context.since.ignored.items()
    reasons = [each for each in told if each[0].why != context.since.expected]
    reasons.sort(key=lambda each: -len(each[1]))
    for (why, part), hosts in reasons[:MOST]:
        of_part = f" for {part}" if part else ""
        named = f"{count(len(hosts), 'host')}, {nodeset(hosts)}"
        say(f"--since ignored{of_part}: {brief(why, LONGEST)} ({named})")
    if len(reasons) > MOST:
        say(f"--since ignored: {len(reasons) - MOST} more reasons are not listed")
