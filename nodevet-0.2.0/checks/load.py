"""The node's load average per CPU is at most the baseline's maximum.

**Why it matters.** If there are more runnable threads than CPUs, the processes that feed the GPUs
wait for their turn. Processes that hang on a file system count as load, too. On a node without a
job, a load of more than a few means that something was left behind.

**Read from** `/proc/loadavg`, and the number of CPUs online.

**Verdicts.** The check divides the load of the last five minutes, or of the minutes that the
baseline names, by the number of CPUs. A busy node may well be at 1; set a low maximum for drained
nodes.

**To fix it** `ps -eLo state,pid,comm | grep '^[RD]'` shows which threads run and which hang; see
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
    """The highest load per online CPU."""
    minutes: Literal[1, 5, 15] = 5


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    found = values_at(evidence, (Kernel, f"load_{params.minutes}"), (Cpu, "threads"))
    yield found if isinstance(found, Finding) else judge_load(params, *found)


def judge_load(params: Params, load: float, cpus: int) -> Finding:
    if load < 0 or cpus < 1:
        return unknown(why=f"implausible: a load of {load:g} on {cpus} CPUs")
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
    unasked="a busy node may have any load: write load: 1 for idle nodes",
    severity=Severity.WARNING,
)
