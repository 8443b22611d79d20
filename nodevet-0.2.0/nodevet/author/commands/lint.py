"""`nodevet lint`: every problem of a project's files, at once."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet.base.project import Project
from nodevet.cli import USAGE, completing, options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.sheet import FORMATS

if TYPE_CHECKING:
    from nodevet.author.use.lint import Linted

SHOWN = 6  # names of files in a line


@click.command(
    "lint",
    cls=Command,
    group="Baselines",
    order=2,
    examples=(
        ("All files of this folder's project", "nodevet lint"),
        ("In CI: a warning is an error", "nodevet lint --strict --format github"),
        ("Checks that other baselines for these GPUs have", "nodevet lint --suggest"),
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=completing.baselines)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@sheets.formats((*FORMATS, "github", "sarif"))
@click.option(
    "--suggest",
    is_flag=True,
    help="Also name the checks that the shipped baseline for the same GPUs has and yours lacks.",
)
@display_options()
@options.project
def command(
    names: tuple[str, ...],
    strict: bool,
    form: tuple[str, Path | None],
    suggest: bool,
    project: Project,
    display: Display,
) -> None:
    """Check baselines and the project's other files for mistakes.

    Every problem is one line: file:line:column, and what to do.

    Without a NAME: the project's baselines, inventories, workloads, approval.yaml, checks and
    fixes; if it has none of them, the shipped baselines. Other files are skipped.

    \b
    Exit codes:
      0  no errors
      2  errors, or with --strict warnings
    """
    if suggest and form != ("table", None):
        raise click.UsageError("--suggest is for people: leave out --format")
    from nodevet.author import lint_formats
    from nodevet.author.lint_formats import lint_sheet
    from nodevet.author.use.lint import lint

    linted = lint(names, project, date.today())
    own = {"github": lint_formats.github, "sarif": lint_formats.sarif}.get(form[0])
    if own:
        sheets.write(own(linted.found), form)
    else:
        document = lint_formats.document(linted.found, linted.files)
        sheets.show_bare(document, lambda: lint_sheet(linted), form, display)
    _tell(linted, named=bool(names))
    if suggest:
        _suggest(names, project)
    failed = linted.errors or (strict and linted.warnings)
    click.get_current_context().exit(USAGE if failed else 0)


def _tell(linted: "Linted", *, named: bool) -> None:
    """What was looked at, and how much was found."""
    from nodevet.base.printable import brief
    from nodevet.sheet.text import count, plural

    for name, why in linted.skipped.items():
        click.echo(f"{brief(name)}: skipped: {why}", err=True)
    if linted.shipped:
        click.echo("the project has no files of its own, so these are the shipped ones", err=True)
    heads = {
        kind: plural(kind) if len(some) > 1 and kind != "approval" else kind
        for kind, some in linted.files.items()
    }
    width = max(map(len, heads.values()), default=0)
    for kind, files in () if named else linted.files.items():
        some = ", ".join(map(brief, files[:SHOWN]))
        more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
        click.echo(f"{heads[kind]:{width}}  {some}{more}", err=True)
    number = sum(map(len, linted.files.values()))
    kind_counts = [count(len(files), kind) for kind, files in linted.files.items()]
    total = kind_counts[0] if len(kind_counts) == 1 else count(number, "file")
    problem_counts = count(linted.errors, "error"), count(linted.warnings, "warning")
    click.echo(f"{total}: {', '.join(problem_counts)}", err=True)


def _suggest(names: tuple[str, ...], project: Project) -> None:
    """Lines that could stand under `expect`."""
    from nodevet.author.use.suggest import suggest
    from nodevet.base.printable import plain
    from nodevet.sheet.text import columns, count

    for one in suggest(names, project):
        if not one.missing:
            click.echo(f"{plain(one.baseline)}: asks for all that {one.like} does")
            continue
        checks = count(len(one.missing), "check")
        click.echo(f"{plain(one.baseline)}: {checks} that {one.like} asks for, and it does not:")
        for line in columns([[f"  {plain(check.line)}", check.title] for check in one.missing]):
            click.echo(line)
