"""`nodevet preview`: whose verdict changes if baselines change."""

import math
from pathlib import Path

import click

from nodevet.base.project import Project
from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.sheet import FORMATS
from nodevet.vet import options as vetting


@click.command(
    "preview",
    cls=Command,
    group="Baselines",
    order=3,
    examples=(
        (
            "Compare this branch with main, on last night's evidence",
            "nodevet preview evidence/ --base ../base",
        ),
        (
            "In CI: write a comment for the pull request",
            "nodevet preview evidence/ --base ../base --format markdown:preview.md",
        ),
    ),
)
@click.argument(
    "evidence",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--base",
    type=options.FolderParam(exists=True),
    required=True,
    metavar="DIR",
    help="Folder of the old version of the project; nodevet accepts its data even if other users "
    "may change it.",
)
@options.baselines
@vetting.fail_on
@click.option(
    "--max-age",
    type=Duration(most=math.inf, bare=False, endless=True),
    help="Count older evidence as unknown; none: judge evidence of any age.  [default: 7d]",
)
@sheets.formats((*FORMATS, "junit"))
@display_options()
@options.project
def command(
    evidence: tuple[Path, ...],
    base: Path,
    names: tuple[str, ...],
    fail_on: str,
    max_age: float | None,
    form: tuple[str, Path | None],
    display: Display,
    project: Project,
) -> None:
    """Show whose verdict changes if baselines change. It visits no node.

    EVIDENCE is what `check --save` wrote. nodevet judges it twice: by the baselines in --base, and
    by those of this project. Without -b, each version chooses a baseline for each host. The output
    lists what newly fails, is newly unknown, is no longer judged, is newly waived, or newly passes.

    \b
    Exit codes:
      0  nothing newly fails
      1  something newly fails, at or above --fail-on
      2  usage or configuration error
      3  something is newly unknown, or no host is judged (1 wins over 3)
    """
    from nodevet.author.preview_sheet import preview_junit, preview_sheet
    from nodevet.author.use.preview import preview_saved
    from nodevet.model import Severity
    from nodevet.vet.terminal.replayed import tell_doubts
    from nodevet.vet.use.targets import Targets

    tell_doubts("EVIDENCE", evidence)
    found = preview_saved(
        evidence,
        names,
        Project(folder=base, named=True, code=project.code),
        project,
        Targets(),
        max_age=max_age,
        fail_on=Severity(fail_on),
    )
    if form[0] == "junit":
        sheets.write(preview_junit(found), form)
    else:
        sheets.show(found, preview_sheet(found), form, display)
    click.get_current_context().exit(found.exit_code)
