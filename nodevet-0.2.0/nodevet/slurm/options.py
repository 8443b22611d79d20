"""What the hooks of Slurm have in common: their options, and that a mistake drains no node."""

from typing import Any, NoReturn

import click

from nodevet.base.errors import UserError
from nodevet.cli import options, sheets
from nodevet.cli.display import display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command

max_age = click.option(
    "--max-age",
    type=Duration(most=86400.0, bare=False),
    default="10m",
    show_default=True,
    help="If a pass of this boot is younger than this, it is the answer, and nothing is read.",
)
hook = options.apply(options.baselines, max_age)


class JobHook(Command):
    """A command that Slurm runs around a job. Slurm drains a node whose prolog or epilog ends with
    an exit code other than 0, so a mistake in the command ends with 0, and says so."""

    def make_context(self, *words: Any, **extra: Any) -> click.Context:
        """As click does."""
        try:
            return super().make_context(*words, **extra)
        except click.UsageError as error:
            self._forgive(error.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        """As click does."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            self._forgive(error.format_message())
        except Exception as error:  # a broken nodevet must not take every node out
            named = "" if isinstance(error, (UserError, OSError)) else f"{type(error).__name__}: "
            self._forgive(f"{named}{error}")

    def _forgive(self, mistake: str) -> NoReturn:
        from nodevet.cli.speech import say

        say(f"{mistake.rstrip('.')}; nothing was vetted, and the job goes on")
        raise SystemExit(0)


from_run = options.apply(
    click.option(
        "--from",
        "source",
        required=True,
        metavar="RUN",
        help="A recorded run (its id, last, last~2 or a day), or a file that check --format json "
        "wrote.",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
    click.option(
        "--max-age",
        type=Duration(bare=False),
        default="24h",
        show_default=True,
        help="Refuse an older run.",
    ),
    options.store_option("Where the run is recorded: sqlite:///PATH or postgresql://USER@HOST/DB."),
    sheets.formats(),
    display_options(),
)
"""The run to go by, and how the answer is shown."""
