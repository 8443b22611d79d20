"""The readings over time, for charts: a value for each moment (pure)."""

from collections.abc import Iterator, Sequence

from nodevet.diagnose.job_figures import ACTIVE, needed_percent, watched_job
from nodevet.diagnose.model import Points, Timeline
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities, GpuActivity
from nodevet.evidence.host_activity import HostActivity
from nodevet.evidence.process_activity import ProcessActivities

THREADS = 8  # of a GPU's job that are drawn, the hottest


def timelines(evidence: Evidence) -> tuple[Timeline, ...]:
    """Every line for which the evidence has at least two points."""
    lines = (*_gpus(evidence), *_host(evidence))
    return tuple(line for line in lines if len(line.points) > 1)


def _gpus(evidence: Evidence) -> Iterator[Timeline]:
    data = evidence[GpuActivities].data
    if data is None:
        return
    times = data.times_s or ()
    for gpu in data.gpus or ():
        busy = gpu.samples or _points(times, gpu.utilization_percent)
        line = {"gpu": gpu.index}
        yield Timeline(name="SM busy", unit="%", most=100.0, points=_floats(busy), **line)
        for name, values in (
            ("memory busy", gpu.memory_utilization_percent),
            ("GPU memory used", _scaled(gpu.memory_used_b, 100, gpu.memory_total_b)),
            ("SM clock", _scaled(gpu.clock_sm_mhz, 100, gpu.max_clock_sm_mhz)),
            ("power", _scaled(gpu.power_mw, 100, gpu.power_limit_mw)),
        ):
            points = _points(times, values)
            yield Timeline(name=name, unit="%", most=100.0, points=points, **line)
        for name, rates in (("PCIe in", gpu.pcie_rx_kb_s), ("PCIe out", gpu.pcie_tx_kb_s)):
            points = _points(times, _scaled(rates, 1e-6, 1))
            yield Timeline(name=name, unit="GB/s", points=points, **line)
        yield from _threads(evidence, gpu)


def _threads(evidence: Evidence, gpu: GpuActivity) -> Iterator[Timeline]:
    """The hottest threads of the job on a GPU."""
    job = watched_job(evidence, gpu)
    data = evidence[ProcessActivities].data
    if isinstance(job, str) or data is None:
        return
    threads = [
        (needed_percent(thread, job) or 0.0, process, thread)
        for process in job.processes
        for thread in process.threads or ()
    ]
    threads.sort(key=lambda entry: -entry[0])
    for share, process, thread in threads[:THREADS]:
        if share >= ACTIVE and thread.ticks:
            name = f"CPU of {process.command or '?'} {thread.tid}"
            points = rates(data.times_s or (), _scaled(thread.ticks, 100, job.hz))
            yield Timeline(name=name, unit="%", most=100.0, gpu=gpu.index, points=points)


def _host(evidence: Evidence) -> Iterator[Timeline]:
    data = evidence[HostActivity].data
    if data is None or data.total is None:
        return
    times = data.times_s or ()
    hz, cpus = data.tick_hz or 100, len(data.cpus or ()) or 1
    for name in ("user", "system", "iowait"):
        values = _scaled(getattr(data.total, name), 100, hz * cpus)
        yield Timeline(name=f"CPU {name}", unit="%", most=100.0, points=rates(times, values))
    for name, field in (("memory", "memory_full_us"), ("I/O", "io_full_us")):
        values = _scaled(getattr(data.pressure, field, None), 1e-4, 1)
        points = rates(times, values)
        yield Timeline(name=f"all waited for {name} (PSI)", unit="%", most=100.0, points=points)


def _scaled(
    values: Sequence[float | None] | None, factor: float, whole: float | None
) -> list[float | None]:
    if not whole:
        return []
    return [None if value is None else value * factor / whole for value in values or ()]


def _points(times: Sequence[float], values: Sequence[float | None] | None) -> Points:
    pairs = zip(times, values or (), strict=False)
    return tuple((at, round(float(value), 3)) for at, value in pairs if value is not None)


def _floats(points: Sequence[tuple[float, float]]) -> Points:
    return tuple((at, float(value)) for at, value in points)


def rates(times: Sequence[float], values: Sequence[float | None]) -> Points:
    """How fast a counter grew from one look to the next.

    >>> rates([0, 1, 2, 4], [10, 30, None, 60])
    ((1.0, 20.0), (4.0, 10.0))
    """
    points = []
    before: tuple[float, float] | None = None
    for at, value in zip(times, values, strict=False):
        if value is None:
            continue
        if before is not None and at > before[0] and value >= before[1]:
            points.append((float(at), round((value - before[1]) / (at - before[0]), 3)))
        before = at, value
    return tuple(points)
