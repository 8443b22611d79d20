"""The options of `nodevet gate` that sign a pass for each node that passes it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodevet.base.errors import UserError
from nodevet.cli.durations import Duration
from nodevet.cli.options import apply

if TYPE_CHECKING:
    from nodevet.passes.use.issue import Issue

LONGEST = 30 * 86400
USUAL = 12 * 3600.0

options: Callable[[Any], Any] = apply(
    click.option(
        "--pass-key",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Sign a pass with this SSH key for each host that passes, and put it on the node; "
        "remove the pass of a host that fails. A private key, or a public one whose private half "
        "is in the agent.",
    ),
    click.option(
        "--pass-for",
        type=Duration(60, LONGEST),
        help="Let each pass hold this long.  [default: 12h]",
    ),
)


def take_options(values: dict[str, Any]) -> "Issue | None":
    """What signs passes in a gate, by the values of these options; None without --pass-key.
    Raises UserError for --pass-for without --pass-key."""
    key, seconds = values.pop("pass_key"), values.pop("pass_for")
    if key is None and seconds is not None:
        raise UserError("--pass-for needs --pass-key: without a key, nodevet signs no pass")
    if key is None:
        return None
    from nodevet.cli.speech import say
    from nodevet.passes.use.issue import Issue

    return Issue(key, seconds or USUAL, say)
