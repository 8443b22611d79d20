"""The time for which the kernel itself counted a thread as waiting for block I/O (pure).

Delay accounting is off by default since Linux 5.14 (sysctl kernel.task_delayacct), and a counter of
0 then means nothing. A network file system has no block device, so few of its waits are counted.
"""

from collections.abc import Iterable, Mapping

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import counter_growth
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

WHAT = "time that the kernel counted as the busiest waiter's delay by block I/O"
LEAST = 5.0  # percent: a job that waits for storage at 30 % of the looks has far more
NO_DISK = "is on no local disk"
OFF = "Linux does not count its delays by I/O, which is the default"


def io_delayed(
    processes: Iterable[ProcessActivity], evidence: Evidence
) -> tuple[float | None, str]:
    """(percent of the time, why it is not known)."""
    data = evidence[ProcessActivities].data
    seconds = data.look.seconds if data and data.look else 0.0
    if data is None or not seconds or not data.tick_hz:
        return None, "not in the evidence"
    counters = [
        thread.io_delay_ticks
        for process in processes
        for thread in process.threads or ()
        if thread.io_delay_ticks is not None
    ]
    if not counters:
        return None, "the kernel's count of I/O delays was not read"
    if not any(last for _, last in counters) and not data.delays_counted:
        return None, OFF if data.delays_counted is False else data.why("delays_counted")
    ticks = max(counter_growth(counter) or 0 for counter in counters)
    return min(100.0, 100.0 * ticks / data.tick_hz / seconds), ""


def delay_doubt(figures: Mapping[str, Figure]) -> str:
    """Why the kernel's count does not confirm that the job waits for storage; empty if it does, or
    if the file is on no local disk."""
    if figures["disk_busy"].why.endswith(NO_DISK):
        return ""
    delayed = figures["io_delayed"]
    if delayed.value is None:
        return f"only the states of its threads show this: {delayed.why}"
    if delayed.value < LEAST:
        return "the kernel counted almost no delay of its threads by block I/O"
    return ""
