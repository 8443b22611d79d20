"""What a failed finding needs: by its advice, else by the fix of its check, else a person. Pure but
for the file of a fix."""

from collections.abc import Mapping

from nodevet.checking.catalog import Catalog
from nodevet.model import Finding, NeededAction

BY_RISK = {
    "live": NeededAction.LIVE_FIX,
    "idle": NeededAction.DRAIN_FIX,
    "drain": NeededAction.DRAIN_FIX,
    "reboot": NeededAction.REBOOT,
    "": NeededAction.SITE,
}
"""By the highest risk of a check's fix; without a fix, a person."""


def needed_action(
    finding: Finding, check: str, actions: Mapping[str, NeededAction], catalog: Catalog
) -> NeededAction:
    """What a failure of this check needs. `actions`: of the check."""
    for text, action in actions.items():
        if text in finding.advice:
            return action
    return usual_action(check, catalog)


def usual_action(check: str, catalog: Catalog) -> NeededAction:
    """What a failure needs if its advice does not decide it."""
    try:
        return BY_RISK[catalog.fix_risk(check)]
    except (Exception, SystemExit):  # a broken fix repairs nothing; `nodevet plan` says why
        return NeededAction.SITE


def advised_actions(check: str, catalog: Catalog) -> tuple[NeededAction, ...]:
    """What the advice of a check may decide, in the order of NeededAction. Raises CatalogError."""
    advised = frozenset(catalog.check(check).actions.values())
    return tuple(action for action in NeededAction if action in advised)
