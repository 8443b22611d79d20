"""The kernel has enough free file handles and process ids.

**Why it matters.** Once all are in use, no process on the node can open a file or start a thread: a
data loader dies with "Too many open files in system" or "Resource temporarily unavailable", and so
does the shell of anyone who logs in to look.

**Read from** `/proc/sys/fs/file-nr`, the number of threads in `/proc/loadavg`, and
`/proc/sys/kernel/pid_max` and `threads-max`, whose lower value counts: every thread has a pid.

**Verdicts.** Fails if more than the baseline's share is in use; without one, the limit is 80 %.

**To fix it** find the processes that hold them: `lsof -n | awk '{print $1}' | sort | uniq -c | sort
-n`, or `ps -eo nlwp,pid,comm --sort nlwp`. `fs.file-max`, `kernel.pid_max` and `kernel.threads-max`
are kernel parameters: see `sysctl`.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import ok_if, values_at
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, unknown

FILES = Subject(kind="limit", id="open files")
THREADS = Subject(kind="limit", id="threads")
ADVICE = {
    FILES: "`for p in /proc/[0-9]*; do echo $(ls $p/fd | wc -l) $p; done | sort -n` shows which "
    "processes hold them; raise fs.file-max only if this use is intended",
    THREADS: "`ps -eo nlwp,pid,user,comm --sort nlwp` shows which processes have them; raise "
    "kernel.pid_max and kernel.threads-max only if this use is intended",
}


class Params(CheckParams):
    """`file_handles: {}` or `file_handles: 50`"""

    bare: ClassVar[str] = "maximum_percent"

    maximum_percent: Annotated[float, Meta(gt=0, le=100)] = 80


@of_section(Kernel, "kernel")
def judge(kernel: Kernel, evidence: Evidence, params: Params) -> Iterator[Finding]:
    for subject, used, limits in (
        (FILES, "files", ("files_max",)),
        (THREADS, "threads", ("pid_max", "threads_max")),
    ):
        places = [(Kernel, field) for field in (used, *limits)]
        values = values_at(evidence, *places, subject=subject)
        if isinstance(values, Finding):
            yield values
        else:
            yield judge_use(subject, values[0], min(values[1:]), params.maximum_percent)


def judge_use(subject: Subject, count: int, limit: int, most: float) -> Finding:
    if count < 0 or limit < 1:
        return unknown(subject, why=f"{count} of {limit}")
    return ok_if(
        100 * count <= most * limit,
        subject,
        expected=f"at most {most:g} %",
        actual=f"{100 * count / limit:.1f} %",
        details={"in use": str(count), "limit": str(limit)},
        advice=ADVICE[subject],
    )


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=reads_of("kernel", "files", "files_max", "threads", "threads_max", "pid_max"),
    judge=judge,
    severity=Severity.WARNING,
)
