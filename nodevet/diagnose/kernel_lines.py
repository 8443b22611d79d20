"""What the kernel log says of a GPU: its Xids, and since when (pure)."""

from collections.abc import Iterator, Sequence

from nodevet.checking.log_events import last_of
from nodevet.checking.xid_events import by_code, describe, first_s
from nodevet.evidence.across import located_gpus
from nodevet.evidence.core import MISSING
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.host import HostInfo, at_uptime, boot_time
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, coverage

KINDS = ("xid", "off_bus")


def gpu_events(evidence: Evidence) -> tuple[KernelEvent, ...]:
    """The lines about Xids and lost GPUs; none if the log was not read."""
    data = evidence[KernelLog].data
    events = (data.events if data else None) or ()
    return tuple(event for event in events if event.kind in KINDS)


def address_of(evidence: Evidence, gpu: GpuActivity) -> str | None:
    """The PCI address of a watched GPU, also if NVML cannot reach the GPU."""
    if gpu.bus_id is not None:
        return gpu.bus_id
    return next(
        (
            gpu_record.bus_id
            for gpu_record in located_gpus(evidence)
            if gpu_record.index == gpu.index
        ),
        None,
    )


def log_facts(evidence: Evidence, bus_id: str | None) -> Iterator[str]:
    """The Xids of the GPU at this address, each number by itself; or that there is none, or that
    the log was not read."""
    section = evidence[KernelLog]
    if section.why == MISSING:
        return
    if section.data is None or section.data.events is None:
        why = section.data.why("events") if section.data else section.why
        yield f"the kernel log was not read: {why}"
        return
    own = [event for event in gpu_events(evidence) if event.bus_id == bus_id]
    unplaced = [event for event in gpu_events(evidence) if not event.bus_id]
    if not own or bus_id is None:
        yield _none_text(section.data)
    else:
        yield from event_texts(evidence, own)
    yield from (f"{text}; the line names no GPU" for text in event_texts(evidence, unplaced))


def _none_text(log: KernelLog) -> str:
    doubt, since = coverage(log)
    text = f"the kernel log has no Xid of it {since or 'since boot'}, until the watch began"
    return f"{text}; but {doubt}" if doubt else text


def event_texts(evidence: Evidence, events: Sequence[KernelEvent]) -> Iterator[str]:
    """`Xid 79 GPU_HAS_FALLEN_OFF_THE_BUS ×1, first at 2026-11-22T03:12:05+00:00`."""
    booted = boot_time(evidence[HostInfo].data)
    for same in by_code(events).values():
        first, last = at_uptime(booted, first_s(same)), last_of(same, booted)
        times = [f"first at {first}" if first else "", f"last at {last}" if last != first else ""]
        yield ", ".join([f"Xid {describe(same, booted)}", *filter(None, times)])
