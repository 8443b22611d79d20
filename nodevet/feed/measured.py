"""What a data loader was measured to do, as the `measured` block of a workload file. Pure."""

import json
from collections.abc import Iterator

from nodevet.evidence.loader import LoaderRun
from nodevet.feed.units import written
from nodevet.printable import brief, plain

BUSY = 0.8  # of a core for each worker: less, and they waited for their reads
LEAST_READ = 1_000_000  # bytes from storage: less is what starting a program reads
COLD = 0.5  # of what was asked for came from storage: less, and most of it was cached


def measured_block(run: LoaderRun, host: str, when: str, workers: int | None) -> str:
    """YAML, with what could not be told as comments. `workers`: how many the loader had."""
    lines = ["measured:", *(f"  {line}" for line in _lines(run, host, when, workers))]
    return "\n".join(lines) + "\n"


def _lines(run: LoaderRun, host: str, when: str, workers: int | None) -> Iterator[str]:
    yield f"when: {json.dumps(when)}"
    yield f"host: {json.dumps(plain(host))}"
    yield f"command: {json.dumps(brief(run.name, 500))}"
    seconds, cpu_s = run.seconds or 0.0, run.cpu_s or 0.0
    used = f"{cpu_s:.1f} s of CPU time in {seconds:.1f} s"
    if run.samples and cpu_s > 0:
        rate = _number(run.samples / cpu_s)
        yield f"worker_rate: {rate} samples/s # {run.samples:,} samples, {used}"
    elif not run.samples:
        yield f"# worker_rate is not known: no line said `samples N`; {used}"
    else:
        yield f"# worker_rate is not known: {used}"
    yield from _of_reads(run, seconds, cpu_s, workers)


def _of_reads(run: LoaderRun, seconds: float, cpu_s: float, workers: int | None) -> Iterator[str]:
    if run.read_b is None or run.asked_b is None:
        yield "# sample_size and storage_read are not known: the kernel keeps no account of reads"
        return
    told = f"{written(run.read_b, 'B')} from storage, {written(run.asked_b, 'B')} by read(2)"
    if not run.read_b or run.read_b < COLD * run.asked_b:
        yield f"# sample_size and storage_read are not known: most came from the page cache: {told}"
        return
    if run.read_b < LEAST_READ:
        yield f"# sample_size and storage_read are not known: hardly anything was read: {told}"
        return
    if run.samples:
        yield f"sample_size: {written(run.read_b / run.samples, 'B')} # {told}"
    if seconds <= 0:
        return
    rate = written(run.read_b / seconds, "B/s")
    busy = cpu_s / seconds
    if workers is None:
        yield f"# storage_read: {rate} # if the workers waited for it: --workers N tells"
    elif busy < BUSY * workers:
        yield f"storage_read: {rate} # {busy:.1f} of {workers} workers were busy, the others waited"
    else:
        yield f"# storage_read is at least {rate}: the workers were busy and did not wait for it"


def _number(amount: float) -> str:
    """Without an exponent, which YAML readers do not agree on."""
    return (
        f"{amount:.0f}" if amount >= 1000 else f"{amount:.1f}" if amount >= 1 else f"{amount:.4f}"
    )
