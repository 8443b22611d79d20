"""What other features do when a gate has ended: a feature that has `gating.py` takes part.

`gating.options` adds its options to `nodevet gate`; `gating.take_options(values)` removes their
values from the arguments, and returns an `AfterGate`, or None if the user asked for nothing.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from nodevet.fleet import Options, Visit
from nodevet.model import Host
from nodevet.model.run import Run
from nodevet.vet.use.gate import GateVerdict
from nodevet.vet.use.judge_visit import Save


class AfterGate(Protocol):
    """One feature's part in a gate."""

    def keep(self, visit: Visit, host: Host) -> None:
        """Receive a visit whose result counts."""

    def finish(self, run: Run, hosts: Sequence[Host], options: Options) -> bool:
        """Act on the run; False if the gate must not pass for that."""


class AfterGates:
    """The parts of all features."""

    def __init__(self, parts: Sequence[AfterGate]) -> None:
        self._parts = parts

    def saving(self, save: Save | None) -> Save | None:
        """What receives the visits whose results count: `save`, and every part."""
        if not self._parts:
            return save

        def keep(visit: Visit, host: Host) -> None:
            for part in self._parts:
                part.keep(visit, host)
            if save is not None:
                save(visit, host)

        return keep

    def finish(
        self, run: Run, verdict: GateVerdict, hosts: Sequence[Host], options: Options
    ) -> GateVerdict:
        """The verdict after all parts acted."""
        done = [part.finish(run, hosts, options) for part in self._parts]
        return verdict if all(done) else replace(verdict, verdict="fail", exit_code=1)
