"""What is wrong with a project's files, as a sheet. Pure."""

from nodevet.author.use.lint import Linted, LintProblem
from nodevet.base.printable import brief
from nodevet.sheet.model import Excerpt, ExcerptBlock, FactBlock, Medium, Sheet
from nodevet.sheet.text import count


def lint_sheet(linted: Linted) -> Sheet:
    """Every problem with its line, then the files that were looked at."""
    found = count(linted.errors, "error"), count(linted.warnings, "warning")
    files = tuple((kind, ", ".join(map(brief, some))) for kind, some in linted.files.items())
    return Sheet(
        title=", ".join(found),
        kind="lint",
        media=Medium.DOCUMENT,
        blocks=(
            ExcerptBlock(rows=tuple(map(_excerpt, linted.found))),
            FactBlock(title="Files", rows=files, media=Medium.DOCUMENT),
        ),
    )


def _excerpt(found: LintProblem) -> Excerpt:
    problem = found.problem
    return Excerpt(
        place=str(problem.where),
        mark="warning" if problem.warning else "",
        text=": ".join(filter(None, (problem.path, problem.message))),
        note=problem.advice,
        number=problem.place.line,
        column=problem.place.column,
        line=found.line,
    )
