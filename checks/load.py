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

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if, values_at
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.model import Area, Check, CheckParams, Finding, Severity, unknown

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
    found = values_at(evidence, (Kernel, f"load_{params.minutes}"), (Cpu, "threads"))
    yield found if isinstance(found, Finding) else judge_load(params, *found)


def judge_load(params: Params, load: float, cpus: int) -> Finding:
    if load < 0 or cpus < 1:
        return unknown(why=f"a load of {load:g} on {cpus} CPUs")
    return ok_if(
        load / cpus <= params.maximum,
        expected=f"at most {params.maximum:g} for each CPU",
        actual=f"{load / cpus:.2f} for each CPU",
        advice=ADVICE,
    )


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(*reads_of("kernel", "load_1", "load_5", "load_15"), "cpu.threads"),
    judge=judge,
    unasked="a node at work has any load: say load: 1 of idle nodes",
    severity=Severity.WARNING,
)
