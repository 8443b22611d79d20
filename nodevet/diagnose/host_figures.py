"""The figures of the host: iowait, pressure, disks, NFS, paging."""

from collections.abc import Iterator

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import counter_growth, known_values, percent, span, total
from nodevet.evidence.document import Evidence
from nodevet.evidence.host_activity import CpuTotals, DiskActivity, HostActivity, NfsOperation

TIMES = ("user", "system", "idle", "iowait", "irq", "steal")
DATA = ("READ", "WRITE")
SHORT_MS = 0.1  # of a request, below which its time says nothing
OF_FILE = "disk of its file"
LEAST = 10  # requests of a disk, or operations of a mount, below which a mean says nothing


def host_figures(evidence: Evidence) -> Iterator[Figure]:
    section = evidence[HostActivity]
    data = section.data or HostActivity(errors={"total": section.why, "pressure": section.why})
    seconds = data.look.seconds if data.look else None
    why = section.why
    yield _share_of_cpu(data.total, "iowait", "CPU time in which a CPU waited for I/O", why)
    yield _share_of_cpu(data.total, "steal", "CPU time taken by the hypervisor", why)
    for name, field, what in (
        ("io_stalled", "io_full_us", "time in which all waited for I/O (PSI)"),
        ("memory_stalled", "memory_full_us", "time in which all waited for memory (PSI)"),
    ):
        part = span(getattr(data.pressure, field, None)) if data.pressure else None
        problem = data.pressure.why(field) if data.pressure else why
        share = percent(part / 1e6 if part is not None else None, seconds)
        yield Figure(f"host_{name}", share, "%", what, "" if share is not None else problem)
    yield from _paging(data, seconds, why)
    yield _disk(data, seconds, why)
    yield from _nfs(data, why)


def _share_of_cpu(totals: CpuTotals | None, field: str, what: str, why: str) -> Figure:
    all_time = total(span(getattr(totals, name)) for name in TIMES) if totals else None
    share = percent(span(getattr(totals, field)) if totals else None, all_time)
    return Figure(field, share, "%", what, "" if share is not None else why or "it was not read")


def _paging(data: HostActivity, seconds: float | None, why: str) -> Iterator[Figure]:
    for name, field, what in (
        ("swapped_in", "swapped_in_pages", "pages swapped in"),
        ("major_faults", "major_faults", "pages read in by faults"),
    ):
        by = span(getattr(data.memory, field)) if data.memory else None
        value = by / seconds if by is not None and seconds else None
        problem = data.memory.why(field) if data.memory else why
        yield Figure(name, value, "/s", what, "" if value is not None else problem)


def _disk(data: HostActivity, seconds: float | None, why: str) -> Figure:
    """The busiest disk: the share of the time in which a request was in progress."""
    what = "busiest disk"
    if data.disks is None or not seconds:
        return Figure("disk_busy", None, "%", what, why if why else data.why("disks"))
    busy = {disk.name: percent(counter_growth(disk.busy_ms), seconds * 1000) for disk in data.disks}
    known_shares = {name: share for name, share in busy.items() if share is not None}
    if not known_shares and busy:
        return Figure("disk_busy", None, "%", what, data.disks[0].why("busy_ms"))
    if not known_shares:
        return Figure("disk_busy", 0.0, "%", what)
    worst = max(known_shares, key=lambda name: known_shares[name])
    return busy_disk(data, worst, "", what)


def busy_disk(data: HostActivity, name: str | None, why: str, what: str = OF_FILE) -> Figure:
    """One disk: the share of the time in which a request was in progress. `why`: why there
    is no disk."""
    disk = next((disk for disk in data.disks or () if disk.name == name), None)
    seconds = data.look.seconds if data.look else None
    share = percent(counter_growth(disk.busy_ms), seconds * 1000) if disk and seconds else None
    if disk is None or share is None:
        return Figure("disk_busy", None, "%", what, why or "its disk was not read")
    wait = latency_ms(disk)
    note = disk.name + (f", {_wait_text(wait)} a request" if wait is not None else "")
    return Figure("disk_busy", min(100.0, share), "%", what, note=note)


def _wait_text(wait_ms: float) -> str:
    return f"{wait_ms:.1f} ms" if wait_ms >= SHORT_MS else f"under {SHORT_MS:g} ms"


def nfs_mount(data: HostActivity, point: str) -> Figure:
    """The mount of a file: the time of one of its requests for data."""
    mount = next((mount for mount in data.nfs or () if mount.point == point), None)
    times = [
        _operation_ms(operation)
        for operation in (mount.operations if mount else None) or ()
        if operation.name in DATA
    ]
    slowest = max(known_values(times), default=None)
    why = "" if slowest is not None else "its file is on no NFS mount"
    return Figure("nfs_latency", slowest, "ms", "NFS mount of its file", why, point)


def latency_ms(disk: DiskActivity) -> float | None:
    """The mean time of a request, queue included: `await` of iostat; None for next to none."""
    requests = total((counter_growth(disk.reads), counter_growth(disk.writes)))
    spent = total((counter_growth(disk.read_ms), counter_growth(disk.write_ms)))
    if requests is None or spent is None or requests < LEAST:
        return None
    return spent / requests


def _nfs(data: HostActivity, why: str) -> Iterator[Figure]:
    """The slowest mount that is read or written: the time of an operation, and what was sent
    again."""
    if data.nfs is None:
        problem = why or data.why("nfs")
        yield Figure("nfs_latency", None, "ms", "slowest NFS mount", problem)
        yield Figure("nfs_retransmitted", None, "%", "NFS requests retransmitted", problem)
        return
    slow: tuple[float | None, str] = (None, "")
    operations = repeated = 0
    for mount in data.nfs:
        for operation in mount.operations or ():
            number, sent = (
                counter_growth(operation.operations),
                counter_growth(operation.transmissions),
            )
            if number is not None and sent is not None:
                operations += number
                repeated += max(0, sent - number)
            time = _operation_ms(operation)
            if operation.name in DATA and time is not None and time > (slow[0] or 0.0):
                slow = (time, mount.point)
    unused = "no NFS mount was read or written"
    why = "" if slow[0] is not None else unused
    yield Figure("nfs_latency", slow[0], "ms", "slowest NFS mount", why, slow[1])
    share = percent(repeated, operations)
    why = "" if share is not None else unused
    yield Figure("nfs_retransmitted", share, "%", "NFS requests retransmitted", why)


def _operation_ms(operation: NfsOperation) -> float | None:
    number, spent = counter_growth(operation.operations), counter_growth(operation.execute_ms)
    return spent / number if number and spent is not None and number >= LEAST else None
