"""The BMC calls no power supply, fan, temperature or leak detector critical.

**Why it matters.** A node that loses one of two power supplies keeps running, and goes down when it
loses the second. A stopped fan slows GPUs hours later. A leak can destroy the node.

**Read from** the BMC that the inventory names for the host. The machine that runs nodevet asks the
BMC by Redfish or IPMI; it does not ask the node.

**Verdicts.** A part fails if the BMC itself calls it critical. Over IPMI, a part also fails
if a discrete sensor asserts a failure (`Power Supply AC lost`). nodevet compares no reading with a
limit of its own. A part passes if the BMC reports a warning for it, or does not report its health.
If the inventory names no BMC for a host, the check is not applicable there. If a BMC does not
answer, or reports the health of no part, the check is unknown.

**To fix it** repair the part. If a supply is unplugged on purpose, name it in `ignore`. If the BMC
reports a leak, do not switch the power on again before someone has looked at the node.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from nodevet.checking.bmc import bmc_with
from nodevet.checking.named import reads_of
from nodevet.evidence.bmc import BmcPart
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

REPAIR = "repair or reseat it; `nodevet bmc show` prints the BMC's other readings"
LEAK = "drain the node, switch it off and look for the leak before the power is on again"


class Params(CheckParams):
    """`bmc_sensors: {}` or `bmc_sensors: {ignore: ["PSU2*"]}`"""

    ignore: tuple[Annotated[str, Meta(min_length=1, title="the name of a part")], ...] = ()
    """Parts that do not count: patterns for their names."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    bmc = bmc_with(evidence, "parts", "parts")
    if isinstance(bmc, Finding):
        yield bmc
        return
    parts = bmc.parts or ()
    if not any(part.health for part in parts):
        yield unknown(why="the BMC reports the health of no part")
    else:
        yield from [*map(_critical, _judged(parts, params))] or [ok()]


def _judged(parts: tuple[BmcPart, ...], params: Params) -> Iterator[BmcPart]:
    for part in parts:
        is_ignored = any(fnmatchcase(part.name, pattern) for pattern in params.ignore)
        if part.health == "critical" and not is_ignored:
            yield part


def _critical(part: BmcPart) -> Finding:
    subject = Subject(kind=f"bmc_{part.kind}", id=part.name)
    actual = f"critical, {part.state}" if part.state else "critical"
    return fail(
        subject, expected="ok", actual=actual, advice=LEAK if part.kind == "leak" else REPAIR
    )


CHECK = Check(
    params=Params,
    area=Area.CHASSIS,
    reads=(*reads_of("bmc.parts[]", "health", "kind", "name"), "bmc.parts_found"),
    explains=("bmc",),
    judge=judge,
    unasked="only for nodes whose BMC the inventory names: write bmc_sensors: {}",
)
