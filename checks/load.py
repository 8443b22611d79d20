"""The node's load average is at most what the baseline allows for each CPU.

**Why it matters.** More runnable threads than CPUs means that the processes that feed the GPUs
wait for their turn; processes that hang on a file system count as load, too. On a node without a
job a load of more than a few is something that was left behind.

**Read from** `/proc/loadavg`, and the number of CPUs online.

**Verdicts.** The load of the last five minutes, or that of the minutes that the baseline names,
divided by the CPUs. A busy node may rightly be at 1; ask for little on nodes that are drained.

**To fix it** `ps -eLo state,pid,comm | grep '^[RD]'` shows who runs and who hangs; see
`stuck_processes`.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.evidence.core import unread
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    ok,
    unknown,
)

ADVICE = (
    "`ps -eLo state,pid,user,comm | grep '^[RD]'` shows which threads run (R) or hang (D), and "
    "whose they are"
)


class Params(CheckParams):
    """`load: 1.5` or `load: {maximum: 0.1, minutes: 15}`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[float, Meta(gt=0)]
    """For each CPU that is online."""
    minutes: Literal[1, 5, 15] = 5


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section, cpus = evidence[Kernel], evidence[Cpu]
    field = f"load_{params.minutes}"
    if section.data is None:
        yield unknown(why=f"kernel: {section.why}")
    elif cpus.data is None:
        yield unknown(why=f"cpu: {cpus.why}")
    elif (load := getattr(section.data, field)) is None:
        yield unread(NODE, section.data, field)
    elif cpus.data.threads is None:
        yield unread(NODE, cpus.data, "threads")
    elif load < 0 or cpus.data.threads < 1:
        yield unknown(why=f"a load of {load:g} on {cpus.data.threads} CPUs")
    else:
        share = load / cpus.data.threads
        expected = f"at most {params.maximum:g} for each CPU"
        actual = f"{share:.2f} for each CPU"
        if share <= params.maximum:
            yield ok(expected=expected, actual=actual)
        else:
            yield fail(expected=expected, actual=actual, advice=ADVICE)


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=("kernel.load_1", "kernel.load_5", "kernel.load_15", "cpu.threads"),
    judge=judge,
    unasked="a node at work has any load: say load: 1 of idle nodes",
    severity=Severity.WARNING,
)
