"""`nodevet check`: vet hosts against their baselines."""

import math
from pathlib import Path
from typing import Any

import click

from nodevet.cli import options
from nodevet.cli.display import ADVICE, QUIET, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command, WholeNumber
from nodevet.vet import options as vetting


@click.command(
    "check",
    cls=Command,
    group="Vet",
    order=1,
    examples=(
        ("This machine, by the baseline for any GPU", "nodevet check @local -b generic"),
        (
            "One rack of an inventory; each host gets the baseline that fits",
            "nodevet check -i fleet.yaml --limit @rack1",
        ),
        (
            "Last night's fleet by tomorrow's baseline, without a visit",
            "nodevet check --from-run last -b tomorrow.yaml",
        ),
        (
            "Fail only if something began to fail since the last recorded visit",
            "nodevet check -i fleet.yaml --fail-on new --format html:report.html",
        ),
    ),
)
@options.hosts
@options.baselines
@vetting.narrowing
@vetting.formats
@vetting.everything
@vetting.shadow
@vetting.previous
@vetting.fail_on_new
@options.store
@click.option(
    "--resume",
    is_flag=False,
    flag_value="last",
    metavar="[RUN]",
    help="Finish a recorded run that was killed: visit the remaining hosts, report all.",
)
@click.option(
    "--from-run",
    metavar="RUN",
    help="Judge the evidence of a recorded run instead of visiting hosts: its id, last, last~2 or "
    "a day.",
)
@click.option(
    "--evidence",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Judge saved evidence, a file or a folder, instead of visiting hosts; with hosts or an "
    "inventory, only theirs.",
)
@click.option(
    "--max-age",
    type=Duration(most=math.inf, bare=False, endless=True),
    help="With --evidence or --from-run: report older evidence as unknown; none: judge it at any "
    "age  [default: 7d].  With only @local: if a pass of this boot is younger than this, print it "
    "again and read nothing.",
)
@click.option(
    "--looks",
    type=WholeNumber(),
    metavar="N",
    help="With only @local, for health checks: exit with 75 (look again) while something is "
    "unknown in fewer than N looks in a row, while everything unknown passes by itself (the "
    "package manager is at work), and after a failure in the first 5 minutes after boot.",
)
@click.option(
    "--save",
    type=options.FolderParam(),
    metavar="DIR",
    help="Save each host's evidence in DIR, for --evidence.",
)
@vetting.since
@vetting.sample
@vetting.expect_hostname
@vetting.reach
@vetting.verbose
@vetting.run_limits
@display_options(QUIET, ADVICE)
@options.project
def command(**options: Any) -> None:
    """Vet hosts against their baselines. Changes nothing on a host.

    HOSTS are nodesets (gpu[001-128]), groups of an inventory (@rack1), @local for this
    machine, or - to read them from standard input.

    \b
    Exit codes:
      0  every host was vetted, and nothing fails at or above --fail-on
      1  something fails, at or above --fail-on
      2  usage or configuration error; or a report could not be written, or the
         run not recorded in the store that was named
      3  something could not be judged: unreachable, timed out, unknown
         (1 wins over 3)
      75 with --looks: look again
    With --format nagios on standard output, those of a Nagios plug-in:
    0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. With --format npd, those of
    node-problem-detector: 0 no problem, 1 a problem, 2 unknown. With
    --format nico, 0 whatever the verdict is: its reader takes the verdict
    from the text.
    """
    from nodevet.vet.terminal.check import check

    click.get_current_context().exit(check(**options))
