"""What other features do after a sweep whose reports are written: a feature that has `after_run.py`
takes part.

`after_run.act(order)` acts on the store of a sweep that is recorded, and returns why it could not,
or "". The sweep only warns of that: its exit code is about the hosts.
"""

from collections.abc import Callable

from nodevet.base.features import feature_modules
from nodevet.vet.use.sweep_order import SweepOrder


def act_all(order: SweepOrder, warned: Callable[[str], None]) -> None:
    """Let every feature act."""
    for module in feature_modules("after_run"):
        if failure := module.act(order):
            warned(f"warning: {failure}")
