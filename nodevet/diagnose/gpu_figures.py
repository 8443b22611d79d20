"""The figures of a GPU: utilization, clocks, power, throttling, memory, its link."""

from collections.abc import Iterator

from nodevet.base.durations import elapsed
from nodevet.diagnose.gpm import gpm_figures
from nodevet.diagnose.job_figures import users
from nodevet.diagnose.link_figures import idle_link, settings_of
from nodevet.diagnose.model import Figure
from nodevet.diagnose.rules import HELD_LOW, POLLING, QUIET_MEMORY
from nodevet.diagnose.series import counter_growth, known_values, mean, percent, rate
from nodevet.evidence.across import off_the_bus
from nodevet.evidence.activity import Counted, Numbers
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import LOST, NO_HANDLE, Gpu
from nodevet.evidence.gpu_activity import GpuActivities, GpuActivity
from nodevet.evidence.host import HostInfo
from nodevet.evidence.process_activity import ProcessActivities

# bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h
POWER_CAP = 0x4
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
LOCKED = "locked at"
APPLICATION = "application clock"
SYNC_BOOST = "sync boost: limited to the slowest GPU of its group"
SETTINGS = {
    0x2: "the driver names application clocks as the reason",
    0x10: SYNC_BOOST,
    0x100: "the driver names display clocks as the reason",
}
QUIET = 5  # percent: a sample in which the GPU did next to nothing
NEAR = 0.05  # of the maximum: a clock so near to a setting is held by it
LINE_B_S = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
"""Bytes a second that one PCIe lane carries one way, by generation, with its encoding: PCIe base
specification; packet headers reduce it further.
"""


def gpu_figures(evidence: Evidence, gpu: GpuActivity) -> Iterator[Figure]:
    section = evidence[GpuActivities]
    look = section.data.look if section.data else None
    seconds = look.seconds if look else None
    busy = samples_of(gpu)
    yield _lost_figure(evidence, gpu)
    yield Figure(
        "sm_busy",
        mean(busy),
        "%",
        "SM busy",
        _missing_reason(gpu, "samples", "utilization_percent"),
    )
    yield Figure(
        "quiet",
        _share(busy, QUIET),
        "%",
        "time in which it did nothing",
        _missing_reason(gpu, "samples"),
    )
    memory_busy = mean(gpu.memory_utilization_percent)
    why = gpu.why("memory_utilization_percent")
    yield Figure("memory_busy", memory_busy, "%", "memory busy", why)
    yield _clock(evidence, gpu)
    yield _held_clock(evidence, gpu)
    power = percent(mean(gpu.power_mw), gpu.power_limit_mw)
    why = _missing_reason(gpu, "power_mw", "power_limit_mw")
    yield Figure("power", power, "%", "power draw (of its limit)", why)
    yield _at_work(evidence, gpu, memory_busy)
    yield _polling(evidence, gpu)
    yield from gpm_figures(gpu)
    yield _limit(evidence, gpu)
    since = _uptime(evidence)
    yield _slowed_figure(gpu, seconds, since)
    yield _power_capped(gpu, seconds, since)
    used = percent(max(known_values(gpu.memory_used_b), default=None), gpu.memory_total_b)
    why = _missing_reason(gpu, "memory_used_b", "memory_total_b")
    yield Figure("memory_used", used, "%", "GPU memory in use", why)
    running = None if gpu.processes is None else float(len(users(evidence, gpu)))
    yield Figure("processes", running, "", "processes on the GPU", gpu.why("processes"))
    has_none = used is None and why == "NVML_ERROR_NOT_SUPPORTED"  # it shares that of the CPUs
    unowned = 0.0 if running or has_none else used
    yield Figure("unowned", unowned, "%", "GPU memory in use by no process", why)
    yield from _link(gpu, seconds)
    yield idle_link(gpu, (section.data.times_s if section.data else None) or (), link_capacity(gpu))


def samples_of(gpu: GpuActivity) -> list[float]:
    """Percent busy: the driver's samples, else what each look found."""
    if gpu.samples:
        return [float(value) for _, value in gpu.samples]
    return known_values(gpu.utilization_percent)


def _missing_reason(gpu: GpuActivity, *fields: str) -> str:
    """Why the first of these that is missing is."""
    return next((gpu.why(field) for field in fields if getattr(gpu, field) is None), "")


def _share(values: list[float], most: float) -> float | None:
    """The percentage of the values that are not above `most`."""
    return percent(sum(value <= most for value in values), len(values)) if values else None


def _while_busy(gpu: GpuActivity, values: Numbers | None) -> list[int | None]:
    """The values of the looks at which the GPU was busy; of all if none was."""
    listed = list(values or ())
    busy = gpu.utilization_percent or ()
    while_busy = [
        value
        for value, percent_busy in zip(listed, busy, strict=False)
        if percent_busy and percent_busy > QUIET
    ]
    return while_busy or listed


def _clock(evidence: Evidence, gpu: GpuActivity) -> Figure:
    """The SM clock while the GPU is busy; if it is far below the maximum, with what sets it."""
    value = percent(mean(_while_busy(gpu, gpu.clock_sm_mhz)), gpu.max_clock_sm_mhz)
    why = _missing_reason(gpu, "clock_sm_mhz", "max_clock_sm_mhz")
    is_low = value is not None and value <= HELD_LOW and not _held_down(gpu)
    note = _what_sets(settings_of(evidence, gpu), gpu) if is_low else ""
    return Figure("clock", value, "%", "SM clock (of its maximum)", why, note)


def _held_clock(evidence: Evidence, gpu: GpuActivity) -> Figure:
    """The SM clock of a GPU whose clock a setting holds; 100 % if none does."""
    what = "SM clock that a setting holds (of its maximum)"
    clock, own = _clock(evidence, gpu), settings_of(evidence, gpu)
    if clock.value is None or clock.value > HELD_LOW or clock.note:
        return Figure("held_clock", clock.value, "%", what, clock.why, clock.note)
    if gpu.event_reasons is None and own is None:
        return Figure("held_clock", None, "%", what, gpu.why("event_reasons"))
    return Figure("held_clock", 100.0, "%", what)


def _held_down(gpu: GpuActivity) -> bool:
    """Whether heat or power was the reason at any look."""
    bits = sum(SLOWDOWNS) | POWER_CAP
    return any(int(mask) & bits for mask in known_values(gpu.event_reasons))


def _what_sets(own: Gpu | None, gpu: GpuActivity) -> str:
    """The known reason for the low clock; empty if there is none."""
    highest, clock = gpu.max_clock_sm_mhz or 0, mean(_while_busy(gpu, gpu.clock_sm_mhz)) or 0.0
    locked = own.locked_clock_graphics_max_mhz if own else None
    application = own.app_clock_graphics_mhz if own else None
    if locked and abs(locked - clock) <= NEAR * highest:
        return f"{LOCKED} {locked} MHz"
    if application and abs(application - clock) <= NEAR * highest:
        return f"{APPLICATION} {application} MHz"
    masks = [int(mask) for mask in known_values(_while_busy(gpu, gpu.event_reasons))]
    for bit, name in SETTINGS.items():
        if masks and 2 * sum(bool(mask & bit) for mask in masks) >= len(masks):
            return name
    return ""


def _at_work(evidence: Evidence, gpu: GpuActivity, memory: float | None) -> Figure:
    """How much more power, or memory activity, it has than a GPU whose kernels only poll; one of
    them is enough to show that it works. A limit that was lowered does not lower what polling
    draws."""
    what = "power or memory activity (relative to a GPU that only polls)"
    power = percent(mean(gpu.power_mw), _full_limit(evidence, gpu))
    signs = known_values((_ratio(power, POLLING), _ratio(memory, QUIET_MEMORY)))
    most = max(signs, default=0.0)
    if len(signs) < 2 and most < 1:
        why = _missing_reason(gpu, "power_mw", "power_limit_mw", "memory_utilization_percent")
        return Figure("at_work", None, "", what, why)
    return Figure("at_work", most, "", what)


def _full_limit(evidence: Evidence, gpu: GpuActivity) -> int | None:
    """The power limit in mW, or the board's default if that is higher."""
    own, limit = settings_of(evidence, gpu), gpu.power_limit_mw
    return limit and max(limit, (own.power_limit_default_mw if own else None) or 0)


def _polling(evidence: Evidence, gpu: GpuActivity) -> Figure:
    """A GPU that works and polls in turn has the means of one that works."""
    looks = zip(gpu.power_mw or (), gpu.memory_utilization_percent or (), strict=False)
    limit = _full_limit(evidence, gpu)
    polls = [
        power < POLLING / 100 * limit and memory < QUIET_MEMORY
        for power, memory in looks
        if power is not None and memory is not None and limit
    ]
    what = "looks at which its power and memory activity were those of a GPU that only polls"
    return Figure("polling", percent(sum(polls), len(polls)) or 0.0, "%", what)


def _ratio(value: float | None, whole: float) -> float | None:
    return None if value is None else value / whole


def _lost_figure(evidence: Evidence, gpu: GpuActivity) -> Figure:
    """Whether an NVML call answered that the GPU is lost, or it left the PCI bus."""
    error = next(
        (name for name in sorted(LOST) if any(name in why for why in gpu.errors.values())), ""
    )
    if (handle := gpu.errors.get("handle")) in NO_HANDLE:
        error = error or handle
    note = f"NVML answers {error}" if error else ""
    if gpu.bus_id in off_the_bus(evidence):
        note = note or "it no longer answers on the PCI bus"
    return Figure("lost", 100.0 if note else 0.0, "%", "it is lost", note=note)


def _limit(evidence: Evidence, gpu: GpuActivity) -> Figure:
    """The power limit of the board's default."""
    what = "power limit (of the board's default)"
    own = settings_of(evidence, gpu)
    default = own.power_limit_default_mw if own else None
    value = percent(gpu.power_limit_mw, default)
    why = "the default limit was not read" if default is None else gpu.why("power_limit_mw")
    watts = [f"{limit / 1000:.0f} W" for limit in known_values((gpu.power_limit_mw, default))]
    note = " of ".join(watts) if value is not None else ""
    return Figure("limit", value, "%", what, "" if value is not None else why, note)


def _uptime(evidence: Evidence) -> float | None:
    """Seconds since boot, when it was watched."""
    watched = evidence[ProcessActivities].data
    if watched is not None and watched.uptime_s is not None:
        return watched.uptime_s + (watched.look.seconds if watched.look else 0.0)
    host = evidence[HostInfo].data
    return host.uptime_s if host else None


def _since_boot(counted: Counted | None, uptime: float | None) -> str:
    """How much of the time since boot a reason held. The driver has counted since it was loaded, at
    an unknown time, so the true value may be higher.
    """
    if counted is None or uptime is None or not 0 < counted[1] / 1e9 <= uptime:
        return ""
    held = counted[1] / 1e9
    return (
        f"at least {elapsed(held)} of the {elapsed(uptime)} since boot: {100 * held / uptime:.0f} %"
    )


def _slowed_figure(gpu: GpuActivity, seconds: float | None, uptime: float | None) -> Figure:
    """The share of the time in which heat or the power supply lowered the clocks."""
    what = "time slowed by heat or the power brake"
    counters = {
        "software thermal slowdown": gpu.sw_thermal_ns,
        "hardware thermal slowdown": gpu.hw_thermal_ns,
        "power brake": gpu.power_brake_ns,
    }
    shares = {name: _of_time(mask, seconds) for name, mask in counters.items()}
    counted = {name: share for name, share in shares.items() if share is not None}
    reasons = known_values(gpu.event_reasons)
    for bit, name in SLOWDOWNS.items():
        if reasons:
            share = 100.0 * sum(bool(int(reason) & bit) for reason in reasons) / len(reasons)
            counted[name] = max(share, counted.get(name, 0.0))
    if not reasons and not any(counted.values()) and len(counted) < len(counters):
        return Figure("slowed", None, "%", what, gpu.why("event_reasons"))
    worst = max(counted, key=lambda name: counted[name])
    since = _since_boot(counters.get(worst), uptime)
    note = "; ".join(filter(None, (worst, since))) if counted[worst] else ""
    return Figure("slowed", counted[worst], "%", what, note=note)


def _power_capped(gpu: GpuActivity, seconds: float | None, uptime: float | None) -> Figure:
    what = "time at the power limit"
    reasons = known_values(gpu.event_reasons)
    since = _since_boot(gpu.power_cap_ns, uptime)
    if reasons:
        share = 100.0 * sum(bool(int(reason) & POWER_CAP) for reason in reasons) / len(reasons)
        return Figure("power_capped", share, "%", what, note=since if share else "")
    share_or_none = _of_time(gpu.power_cap_ns, seconds)
    why = "" if share_or_none is not None else gpu.why("event_reasons")
    return Figure("power_capped", share_or_none, "%", what, why, since if share_or_none else "")


def _of_time(counted: Counted | None, seconds: float | None) -> float | None:
    by = counter_growth(counted)
    return percent(by / 1e9 if by is not None else None, seconds)


def link_capacity(gpu: GpuActivity) -> float | None:
    """Bytes a second that the link can carry one way."""
    lane = LINE_B_S.get(gpu.pcie_generation or 0)
    return None if lane is None or not gpu.pcie_width else lane * gpu.pcie_width


def _link(gpu: GpuActivity, seconds: float | None) -> Iterator[Figure]:
    """The busier direction of the PCIe link, also as a share of what the negotiated link can
    carry."""
    what = "PCIe traffic (of the link's capacity)"
    moved = [
        _bytes_per_second(rate(gpu.pcie_rx_b, seconds), mean(gpu.pcie_rx_kb_s)),
        _bytes_per_second(rate(gpu.pcie_tx_b, seconds), mean(gpu.pcie_tx_kb_s)),
    ]
    most = None if None in moved else max(known_values(moved))
    why = _missing_reason(gpu, "pcie_rx_kb_s", "pcie_tx_kb_s") if most is None else ""
    yield Figure("link_rate", None if most is None else most / 1e9, "GB/s", "PCIe", why)
    capacity = link_capacity(gpu)
    if capacity is None:
        why = _missing_reason(gpu, "pcie_generation", "pcie_width")
    if most is None or capacity is None:
        yield Figure("link", None, "%", what, why)
        return
    note = f"{most / 1e9:.1f} GB/s on gen {gpu.pcie_generation} x{gpu.pcie_width}"
    yield Figure("link", percent(most, capacity), "%", what, note=note)


def _bytes_per_second(bytes_s: float | None, kb_s: float | None) -> float | None:
    if bytes_s is not None:
        return bytes_s
    return None if kb_s is None else kb_s * 1000
