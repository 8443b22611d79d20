"""The measurement of a data loader, as the `measured` block of a workload file. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from nodevet import __version__
from nodevet.base.printable import brief, plain
from nodevet.checking.feeding.interval import Interval
from nodevet.checking.feeding.units import amount_text
from nodevet.evidence.loader import LoaderRun
from nodevet.feed.series import Points, ceiling, latency_s, rate, read_rate

MEASURED_SCHEMA = 1
STATED = ("when", "host", "command")
BUSY = 0.8  # of a core for each worker; below this they waited for reads
LEAST_READ = 1_000_000  # bytes from storage; the start of a program alone reads less
COLD = 0.5  # of the requested bytes came from storage; below this most were cached


class MeasuredPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A loader with so many workers."""

    workers: int
    run: LoaderRun


class MeasuredLoader(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a loader on one host, and the values that a workload file takes from them."""

    schema: int = MEASURED_SCHEMA
    nodevet: str = __version__
    measured: Mapping[str, str]  # the block of a workload file: `worker_rate: 500.0 samples/s`
    remarks: Mapping[str, str]  # the source of each value
    unknown: tuple[str, ...]  # values that are not known, with the reason
    workers: int | None  # that the loader had, by its user
    run: LoaderRun
    series: tuple[MeasuredPoint, ...] = ()  # with {workers} in the command, each number of them


class MeasuredRow(NamedTuple):
    """A value of the block and a remark on it; without a name, a value that is not known."""

    name: str
    value: str
    remark: str = ""


def measured_loader(run: LoaderRun, host: str, when: str, workers: int | None) -> MeasuredLoader:
    """`workers`: how many the loader had."""
    head = dict(zip(STATED, (when, plain(host), brief(run.name, 500)), strict=True))
    rows = tuple(_rows(run, workers))
    return MeasuredLoader(
        measured=head | {row.name: row.value for row in rows if row.name},
        remarks={row.name: row.remark for row in rows if row.name and row.remark},
        unknown=tuple(row.remark for row in rows if not row.name),
        workers=workers,
        run=run,
    )


def measured_series(points: Points, host: str, when: str) -> MeasuredLoader:
    """The run with the fastest number of workers, and the ceiling of the storage. `points`: by
    workers, ascending."""
    workers, fastest = max(points, key=lambda point: rate(point[1]))
    loader = measured_loader(fastest, host, when, workers)
    rows = {row.name: row for row in _of_storage(points) if "storage_read" in loader.measured}
    return msgspec.structs.replace(
        loader,
        measured={**loader.measured} | {name: row.value for name, row in rows.items()},
        remarks={**loader.remarks} | {name: row.remark for name, row in rows.items() if row.remark},
        series=tuple(MeasuredPoint(workers=workers, run=run) for workers, run in points),
    )


def _of_storage(points: Points) -> Iterator[MeasuredRow]:
    read, enough = ceiling(points)
    tried = ", ".join(f"{workers}: {amount_text(read_rate(run), 'B/s')}" for workers, run in points)
    yield MeasuredRow("storage_read", _rate_text(read), f"by workers, {tried}")
    waited = latency_s(*points[0])
    if waited:
        yield MeasuredRow("storage_latency", f"{1e3 * waited:.3g} ms", "of one worker alone")
    if enough is not None:
        yield MeasuredRow("storage_concurrency", f"{enough}", "more workers read no faster")


def _rate_text(read: Interval) -> str:
    low = amount_text(read.low, "B/s")
    return f"at least {low}" if read.high is None else f"{low} to {amount_text(read.high, 'B/s')}"


def block(loader: MeasuredLoader) -> str:
    """YAML for a workload file; values that are not known are comments."""
    lines = [
        *(_line(name, value, loader.remarks.get(name)) for name, value in loader.measured.items()),
        *(f"# {why}" for why in loader.unknown),
    ]
    return "\n".join(["measured:", *(f"  {line}" for line in lines)]) + "\n"


def _line(name: str, value: str, remark: str | None) -> str:
    text = json.dumps(value) if name in STATED else value
    return f"{name}: {text}" + (f" # {remark}" if remark else "")


def _rows(run: LoaderRun, workers: int | None) -> Iterator[MeasuredRow]:
    seconds, cpu_s = run.seconds or 0.0, run.cpu_s or 0.0
    used = f"{cpu_s:.1f} s of CPU time in {seconds:.1f} s"
    if run.samples and cpu_s > 0:
        rate = _number(run.samples / cpu_s)
        yield MeasuredRow("worker_rate", f"{rate} samples/s", f"{run.samples:,} samples, {used}")
    elif not run.samples:
        yield _unknown(f"worker_rate is not known: the loader printed no line `samples N`; {used}")
    else:
        yield _unknown(f"worker_rate is not known: {used}")
    yield from _of_reads(run, seconds, cpu_s, workers)


def _unknown(why: str) -> MeasuredRow:
    return MeasuredRow("", "", why)


def _of_reads(
    run: LoaderRun, seconds: float, cpu_s: float, workers: int | None
) -> Iterator[MeasuredRow]:
    names = "sample_size and storage_read are not known"
    if run.read_b is None or run.asked_b is None:
        yield _unknown(f"{names}: the kernel does not count reads")
        return
    amounts = (
        f"{amount_text(run.read_b, 'B')} from storage, {amount_text(run.asked_b, 'B')} by read(2)"
    )
    if not run.read_b or run.read_b < COLD * run.asked_b:
        yield _unknown(f"{names}: most came from the page cache: {amounts}")
        return
    if run.read_b < LEAST_READ:
        yield _unknown(f"{names}: the loader read hardly anything: {amounts}")
        return
    if run.samples:
        yield MeasuredRow("sample_size", amount_text(run.read_b / run.samples, "B"), amounts)
    if seconds <= 0:
        return
    read = amount_text(run.read_b / seconds, "B/s")
    busy = cpu_s / seconds
    if workers is None:
        yield _unknown(
            f"storage_read: at least {read} # if the workers waited for it; --workers N shows that"
        )
    elif busy < BUSY * workers:
        waited = f"{busy:.1f} of {workers} workers were busy, the others waited"
        hint = "more workers may read more: {workers} in the command tries several numbers"
        yield MeasuredRow("storage_read", f"at least {read}", f"{waited}; {hint}")
        if seconds_each := latency_s(workers, run):
            yield MeasuredRow("storage_latency", f"{1e3 * seconds_each:.3g} ms", "of one worker")
    else:
        yield _unknown(
            f"storage_read is at least {read}: the workers were busy and did not wait for it"
        )


def _number(amount: float) -> str:
    """A number without exponent, since YAML readers parse exponents differently."""
    return (
        f"{amount:.0f}" if amount >= 1000 else f"{amount:.1f}" if amount >= 1 else f"{amount:.4f}"
    )
