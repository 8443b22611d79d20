"""Section irqbalance."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import SectionRecord


class Irqbalance(SectionRecord, frozen=True, kw_only=True):
    """How irqbalance starts. `absent` if its package's unit does not exist."""

    exec_start: Text | None = None  # ExecStart= of its package's unit; "" if that has none
    # file:line of each other ExecStart=, and of each policy script, that nodevet did not write
    others: Annotated[tuple[Text, ...], bounds.ASKED] | None = None
    selinux_enforcing: bool | None = None  # /sys/fs/selinux/enforce; false without SELinux
