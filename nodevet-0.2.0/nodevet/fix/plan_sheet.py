"""A plan as a sheet: what changes, what is not planned, and the totals. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.fix.model import Plan
from nodevet.fix.plan import render, unplanned
from nodevet.fix.plan.planner import Proposal
from nodevet.fix.plan.render import View
from nodevet.resource import Contents
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    CodeBlock,
    HostRowBlock,
    ListBlock,
    ListItem,
    Medium,
    Sheet,
    TableBlock,
)

RISKS = (("risk reboot", "fail"), ("risk drain", "warning"))
"""Words to highlight, and their tone."""


def proposal_sheet(proposal: Proposal, view: View) -> Sheet:
    """The plan, if it is not empty, then the failures that are not in it."""
    plan = proposal.plan
    planned = plan_blocks(plan, view, proposal.contents.get)
    return Sheet(
        title=render.summary(plan),
        kind="plan",
        media=Medium.DOCUMENT,
        blocks=(
            *(planned if plan.steps or plan.conflicts else ()),
            *unplanned.unplanned_blocks(proposal),
        ),
    )


def approval_sheet(
    plan: Plan, view: View, contents: Contents, heading: str, facts: Iterable[tuple[str, str]]
) -> Sheet:
    """The facts that an approver needs, then the plan."""
    return Sheet(
        title=heading,
        kind="approve",
        blocks=(
            TableBlock(rows=tuple(_fact_row(label, text) for label, text in facts)),
            *_changes(plan, view, contents),
            ListBlock(items=(ListItem(render.summary(plan)),)),
        ),
    )


def _fact_row(label: str, text: str) -> tuple[Cell, Cell]:
    loud = (tone for words, tone in RISKS if f"{label} {text}".startswith(words))
    return Cell(label, "quiet"), Cell(text, next(loud, ""))


def plan_blocks(plan: Plan, view: View, contents: Contents) -> Iterator[AnyBlock]:
    """A plan, its conflicts and its totals. `contents`: of files when the plan was made."""
    yield from _changes(plan, view, contents)
    lines: Sequence[str] = (render.summary(plan), *render.rollout_lines(plan))
    yield ListBlock(items=tuple(map(ListItem, lines)))


def _changes(plan: Plan, view: View, contents: Contents) -> Iterator[AnyBlock]:
    if view is View.FOLD:
        yield HostRowBlock(rows=tuple(render.changes(plan)), loud=RISKS)
    else:
        render_lines = render.actions if view is View.DIFF else render.each_host
        lines = "\n".join(render_lines(plan, contents))
        if lines:
            yield CodeBlock(text=lines, language="diff", loud=RISKS)
    if rows := render.conflicts(plan.conflicts):
        yield HostRowBlock(title="Not planned:", rows=tuple(rows))
