"""`nodevet lint`: every problem of baselines, at once."""

from datetime import date
from pathlib import Path

import click

from nodevet.cli import USAGE
from nodevet.cli.common import completing, options
from nodevet.cli.common.command import Command


@click.command(
    "lint",
    cls=Command,
    group="Baselines",
    order=2,
    examples=(
        ("All baselines of this folder", "nodevet lint"),
        ("One file, for CI: a warning is an error", "nodevet lint --strict site.yaml"),
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=completing.baselines)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@options.project
def command(names: tuple[str, ...], strict: bool, project: Path) -> None:
    """Check baselines for mistakes.

    Every problem is printed as file:line:column, with what to do.

    Without a NAME: all baselines of the project, or the shipped ones if it has none.

    \b
    Exit codes:
      0  no errors
      2  errors, or with --strict warnings
    """
    from nodevet.baseline import lint
    from nodevet.report.parts.text import count
    from nodevet.run.context import candidates, open_project

    catalog, folders = open_project(project)
    asked = list(names) or candidates(folders)
    problems = lint(asked, folders=folders, catalog=catalog, today=date.today())
    for problem in problems:
        click.echo(str(problem))
    errors = sum(not problem.warning for problem in problems)
    found = count(errors, "error"), count(len(problems) - errors, "warning")
    click.echo(f"{count(len(asked), 'baseline')}: {', '.join(found)}", err=True)
    click.get_current_context().exit(USAGE if errors or (strict and problems) else 0)
