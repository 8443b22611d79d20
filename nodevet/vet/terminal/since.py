"""`--since`: evidence that counters and the kernel log are compared with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from nodevet.base.errors import UserError
from nodevet.cli.speech import say
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.visited import SINCE_STORE


def with_since(context: VetContext, paths: Sequence[Path], sample: Any) -> VetContext:
    """The context of a run that compares with evidence in these paths; for `store`, see
    `asks_store`. Raises UserError and SavedEvidenceError."""
    if not paths:
        return context
    if sample:
        raise UserError(
            "--sample cannot be used with --since: counters are judged by their growth during the "
            "sample, or since the recorded evidence, not both"
        )
    if asks_store(paths):
        return context
    from nodevet.vet.terminal.replayed import tell_doubts
    from nodevet.vet.use.last_look import LastLook

    tell_doubts("--since", paths)
    return structs.replace(context, since=LastLook(paths))


def asks_store(paths: Sequence[Path]) -> bool:
    """Whether the last recorded visit is meant. Raises UserError if a file is also given."""
    named = Path(SINCE_STORE) in paths
    if named and len(paths) > 1:
        raise UserError(f"--since {SINCE_STORE}: name it alone, or files and folders")
    return named


def tell_not_compared(context: VetContext, *, quiet: bool) -> None:
    """For which hosts --since was ignored, one line for each reason."""
    if context.since is not None and not quiet:
        for line in context.since.not_compared():
            say(line)
