"""Plans, and what is not in them, as a terminal shows them."""

from collections.abc import Iterable

from nodevet.fix.model import Plan
from nodevet.fix.plan.render import View
from nodevet.fix.plan_sheet import plan_blocks
from nodevet.sheet import terminal
from nodevet.sheet.model import AnyBlock, Sheet


def unknown(sha256: str) -> None:
    """What files held: not known."""


def drawn(blocks: Iterable[AnyBlock], *, colour: bool = False) -> str:
    return terminal.render(Sheet(title="", kind="plan", blocks=tuple(blocks)), colour=colour)


def shown_plan(plan: Plan, view: View) -> str:
    return drawn(plan_blocks(plan, view, unknown))
