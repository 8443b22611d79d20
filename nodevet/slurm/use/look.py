"""One look at this machine, as Slurm's hooks take it."""

import os
from collections.abc import Mapping, Sequence
from zlib import crc32

from msgspec.structs import replace

from nodevet.model import Host, Severity
from nodevet.model.baseline import Baseline, Expectation
from nodevet.model.run import Run
from nodevet.vet.quick import REACH
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.reach import fleet_options
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import vet

DEADLINE = 45.0  # seconds; slurmd kills a HealthCheckProgram after 60
AFTER_JOB: Mapping[str, Mapping[str, bool]] = {
    "leftover_processes": {"ignore_jobs": True},
    "xid": {},
}
"""The checks of an epilog, with the params they have if the baseline sets none. Other jobs may
run.
"""


def this_machine() -> tuple[Host, ...]:
    """This machine as the only host."""
    return Targets(names=("@local",)).hosts()


def node_name() -> str:
    """The name by which Slurm knows this machine."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]


def share_of(name: str) -> float:
    """A number from 0 to 1, always the same for this name and different for most other names."""
    return crc32(os.fsencode(name)) / 0xFFFFFFFF


def look(hosts: Sequence[Host], context: VetContext, fail_on: Severity) -> Run:
    """Read this machine and judge it."""
    reach = {**REACH, "deadline": DEADLINE, "second_try": False}
    options = fleet_options(**reach, context=context, choosing=True)
    return vet(hosts, context, options, fail_on=fail_on)


def after_job(context: VetContext) -> VetContext:
    """The context with only the checks of an epilog, with the params of the named baseline."""
    named = context.chosen.expectations if context.chosen else ()
    own = {expectation.check: expectation for expectation in named}
    expectations = tuple(
        own.get(check) or _expected(context, check, params) for check, params in AFTER_JOB.items()
    )
    baseline = Baseline(name="epilog", path="", expectations=expectations)
    return replace(context, baselines=(baseline,), chosen=baseline, shipped_baselines=tuple)


def _expected(context: VetContext, name: str, params: Mapping[str, bool]) -> Expectation:
    check = context.catalog.check(name)
    return Expectation(
        check=name,
        params=check.params(**params),
        severity=check.severity,
        origin="nodevet slurm epilog",
    )
