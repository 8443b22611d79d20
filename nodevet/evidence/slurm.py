"""Section slurm: what Slurm's controller reports about this node."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord

FLAGS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "!": "powering_down",
    "$": "maint",
    "@": "reboot",
    "^": "reboot",
    "-": "planned",
}


class SlurmNode(Record, frozen=True, kw_only=True):
    """`scontrol show node -o`."""

    volatile = ("state",)

    name: Text  # as it was asked for: self, or a NodeName
    node: Text | None = None  # the NodeName that Slurm was asked for
    state: Text | None = None  # IDLE, MIXED+DRAIN, DOWN*, ...
    reason: Text | None = None  # why it was drained, by whom and when; "" without
    gpus: int | None = None  # gres/gpu of CfgTRES


class Slurm(SectionRecord, frozen=True, kw_only=True):
    """The node under the requested name."""

    unique = ("nodes[].name",)

    nodes: Annotated[tuple[SlurmNode, ...], bounds.ASKED] | None = None


def states_of(text: str) -> tuple[str, ...]:
    """
    >>> states_of("MIXED+DRAIN"), states_of("DOWN*")
    (('mixed', 'drain'), ('down', 'not_responding'))
    """
    names: list[str] = []
    for part in text.lower().split("+"):
        bare = part.rstrip("".join(FLAGS))
        names += [bare, *(FLAGS[mark] for mark in part[len(bare) :])]
    return tuple(dict.fromkeys(names))
