"""What the GPUs do while they are watched: NVML, and only calls that read what the driver has.

The driver takes samples of its own (nvmlDeviceGetSamples), 6 to 60 a second, so that a look every
second sees what came between. nvmlDeviceGetPcieThroughput waits for 20 ms in each call, and is
asked only of a driver that does not count the bytes (NVML_FI_DEV_PCIE_COUNT_*).
"""

from nodevet.remote.probe.files import Reading, attempt, reason, silent
from nodevet.remote.probe.gpu_nvml import MEMBERS, CallError, Nvml, load, number, text
from nodevet.remote.probe.gpu_values import bus_id
from nodevet.remote.probe.watch import Series, Watch, counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")
NONE_FOUND = "NVML_ERROR_NOT_FOUND"
MICRO = 1e-6  # NVML's time stamps
SAMPLES = 1 << 15  # of one GPU
ALL_LINKS = 0xFFFFFFFF  # scope of a field: every NVLink together

# once for each GPU: field, kind, part, function, arguments (a string names a constant)
KNOWN = (
    ("uuid", text, None, "nvmlDeviceGetUUID"),
    ("name", text, None, "nvmlDeviceGetName"),
    ("bus_id", bus_id, "busId", "nvmlDeviceGetPciInfo_v3"),
    ("power_limit_mw", number, None, "nvmlDeviceGetEnforcedPowerLimit"),
    ("max_clock_sm_mhz", number, None, "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    ("memory_total_b", number, "total", "nvmlDeviceGetMemoryInfo"),
)
# at each look
EACH = (
    ("utilization_percent", number, "gpu", "nvmlDeviceGetUtilizationRates"),
    ("memory_utilization_percent", number, "memory", "nvmlDeviceGetUtilizationRates"),
    ("clock_sm_mhz", number, None, "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    ("clock_memory_mhz", number, None, "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    ("power_mw", number, None, "nvmlDeviceGetPowerUsage"),
    ("temperature_c", number, None, "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ("event_reasons", int, None, "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ("memory_used_b", number, "used", "nvmlDeviceGetMemoryInfo"),
)
LINK = (
    ("pcie_generation", number, None, "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_width", number, None, "nvmlDeviceGetCurrPcieLinkWidth"),
)
THROUGHPUT = (
    ("pcie_rx_kb_s", number, None, "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"),
    ("pcie_tx_kb_s", number, None, "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"),
)
COUNTERS = (  # field, constant, scope
    ("pcie_rx_b", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0),
    ("pcie_tx_b", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0),
    ("nvlink_rx_kib", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS),
    ("nvlink_tx_kib", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS),
    ("power_cap_ns", "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP", 0),
    ("sw_thermal_ns", "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", 0),
    ("hw_thermal_ns", "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", 0),
    ("power_brake_ns", "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", 0),
)
COUNTED = tuple(field for field, _, _ in COUNTERS)
SERIES = tuple(row[0] for row in EACH + THROUGHPUT)


class WatchedGpu(object):
    """One GPU while it is watched."""

    def __init__(self, nvml: "Nvml", index: int) -> None:
        self.nvml = nvml
        self.label = "GPU {}".format(index)
        self.record = Reading(index=index)
        self.series = Series(SERIES)
        self.first: "dict[str, Any]" = {}
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}
        self.counts_bytes = False
        # pid: [(sm, memory)] of the driver's samples
        self.shares: "dict[int, list[tuple[int, int]]]" = {}
        self.used: "dict[int, int | None]" = {}  # pid: bytes
        self.samples: "list[tuple[float, int]]" = []
        self.stamp: "int | None" = None
        self.zero: "float | None" = None
        self.link: "dict[str, Any]" = {}
        try:
            self.handle = nvml.call(self.label, "nvmlDeviceGetHandleByIndex", index)
        except CallError as failure:
            self.handle = None
            self.record["errors"]["handle"] = str(failure)

    def ask(self, function: str, *arguments: "Any") -> "Any":
        known = [self.nvml.constant(each) if isinstance(each, str) else each for each in arguments]
        return self.nvml.call(self.label, function, self.handle, *known)

    def values(self, rows: "Iterable[tuple[Any, ...]]") -> "tuple[dict[str, Any], dict[str, str]]":
        """({field: value}, {field: why not}) of such rows; a call is made once for several."""
        found, why, answers = {}, {}, {}
        for row in rows:
            field, kind, part = row[:3]
            try:
                if row[3:] not in answers:
                    answers[row[3:]] = self.ask(*row[3:])
                answer = answers[row[3:]]
                found[field] = kind(answer if part is None else getattr(answer, part))
            except CallError as failure:
                why[field] = str(failure)
            except (ValueError, LookupError) as error:
                why[field] = reason(error)
        return found, why

    def begin(self) -> None:
        """What does not change, the counters, and what the driver has sampled before."""
        found, why = self.values(KNOWN)
        self.record.update({row[0]: found.get(row[0]) for row in KNOWN})
        self.record["errors"].update(why)
        self.count()
        self.first = dict(self.last)
        self.counts_bytes = "pcie_rx_b" in self.first
        self.take_samples(0.0)
        self.samples = []  # of the time before

    def look(self, at: float) -> None:
        """One look, so many seconds after the first."""
        found, why = self.values(EACH)
        if not self.counts_bytes:
            more, problems = self.values(THROUGHPUT)
            found.update(more)
            why.update(problems)
        self.series.take(found, why)
        link, why = self.values(LINK)
        self.record["errors"].update({field: why[field] for field in why if field not in self.link})
        for field, value in link.items():
            self.link[field] = max(value, self.link.get(field, 0))
            self.record["errors"].pop(field, None)
        self.take_samples(at)

    def take_samples(self, at: float) -> None:
        """The driver's samples of utilization since the last time; they begin with the first."""
        try:
            kind, samples = self.ask(
                "nvmlDeviceGetSamples", "NVML_GPU_UTILIZATION_SAMPLES", self.stamp or 0
            )
        except CallError as failure:
            if str(failure) != NONE_FOUND:  # none since
                self.why["samples"] = str(failure)
            return
        member, why = attempt(self.member, kind)
        if member is None:
            self.why["samples"] = why
            return
        self.why.pop("samples", None)
        rows = [(each.timeStamp, getattr(each.sampleValue, member)) for each in samples]
        rows = sorted(row for row in rows if row[0] > (self.stamp or 0))
        if not rows:
            return
        if self.zero is None:
            self.zero = rows[-1][0] - at / MICRO  # the driver's clock at the first look
        self.stamp = rows[-1][0]
        self.samples += [
            (round((stamp - self.zero) * MICRO, 4), min(100, max(0, int(value))))
            for stamp, value in rows
        ]

    def count(self) -> None:
        """The counters now; one that is not told again is not taken for one that stands still."""
        self.last = {}
        wanted = []
        for field, name, scope in COUNTERS:
            try:
                wanted.append((field, self.nvml.constant(name), scope))
            except CallError as failure:
                self.why[field] = str(failure)
        try:
            replies = self.nvml.call(
                self.label,
                "nvmlDeviceGetFieldValues",
                self.handle,
                [(field_id, scope) for _, field_id, scope in wanted],
            )
        except CallError as failure:
            self.why.update({field: str(failure) for field, _, _ in wanted})
            return
        for (field, _, _), reply in zip(wanted, replies):
            if reply.nvmlReturn != 0:
                self.why[field] = self.nvml.error_name(reply.nvmlReturn)
            else:
                self.last[field], self.why[field] = attempt(self.value_of, reply)

    def value_of(self, reply: "Any") -> int:
        """The number of one reply. Raises ValueError for a type that pynvml does not know."""
        return int(getattr(reply.value, self.member(reply.valueType)))

    def member(self, kind: int) -> str:
        """The field of nvmlValue_t that a type is in. Raises ValueError."""
        try:
            return MEMBERS[self.nvml.name("NVML_VALUE_TYPE_", kind)]
        except (CallError, LookupError) as problem:
            raise ValueError("a value of an unknown type: {}".format(problem))

    def end(self) -> None:
        """The counters at the last look, and who used it meanwhile."""
        self.count()
        found, why = self.processes()
        self.used = found
        if why:
            self.why["processes"] = why
        if self.zero is None:  # its samples of before would be taken for those of now
            self.why["shares"] = "the driver took no samples to tell its clock by"
            return
        try:
            for each in self.ask("nvmlDeviceGetProcessUtilization", int(self.zero)):
                self.shares.setdefault(int(each.pid), []).append((each.smUtil, each.memUtil))
        except CallError as failure:
            if str(failure) != NONE_FOUND:
                self.why["shares"] = str(failure)
            elif any(value for at, value in self.samples if at >= 0):
                self.why["shares"] = "the driver has no sample of a process, and the GPU was busy"
            # else no process did anything

    def processes(self) -> "tuple[dict[int, int | None], str | None]":
        """({pid: bytes of memory, null if not told}, why not)."""
        try:
            running = self.ask("nvmlDeviceGetComputeRunningProcesses")
        except CallError as failure:
            return {}, str(failure)
        used: "dict[int, int | None]" = {}
        for each in running:  # in MIG mode once for each device that it uses
            known = [used.get(int(each.pid), 0), each.usedGpuMemory]
            used[int(each.pid)] = None if None in known else sum(known)
        return used, None

    def told(self) -> "Reading":
        """The JSON form of nodevet.evidence.gpu_activity.GpuActivity."""
        record = self.record
        if self.handle is None:
            return record
        self.series.into(record)
        record.update(self.link)
        counted(record, COUNTED, self.first, self.last)
        for field in COUNTED:
            if record[field] is None and self.why.get(field):
                record["errors"][field] = self.why[field]
        if "samples" in self.why:
            record.fail("samples", self.why["samples"])
        else:
            record["samples"] = [each for each in self.samples if each[0] >= 0][:SAMPLES]
        if "processes" in self.why:
            record.fail("processes", self.why["processes"])
        else:
            record["processes"] = [self.process(pid) for pid in sorted(self.used)]
        return record

    def process(self, pid: int) -> "Reading":
        record = Reading(pid=pid, memory_used_b=self.used[pid])
        if "shares" in self.why:
            record.fail_all(("sm_percent", "memory_percent"), self.why["shares"])
            return record
        shares = self.shares.get(pid, [])
        for field, place in (("sm_percent", 0), ("memory_percent", 1)):
            values = [min(100, int(share[place])) for share in shares]
            record[field] = round(sum(values) / float(len(values)), 1) if values else 0.0
        return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """The JSON form of nodevet.evidence.gpu_activity.GpuActivities.

    Raises Absent without the library or for the tree of another machine, SectionError if the
    library does not load or start.
    """
    watch = Watch("gpu_activity", root, request)
    nvml = Nvml(load(), request.get("note", silent))
    try:
        gpus = [WatchedGpu(nvml, index) for index in range(nvml.call("", "nvmlDeviceGetCount"))]
        there = [gpu for gpu in gpus if gpu.handle is not None]
        watch.wait()  # what is counted from here on is of the watch
        for gpu in there:
            gpu.begin()
        for at in watch.looks():
            for gpu in there:
                gpu.look(at)
                if watch.is_last:
                    gpu.end()
        found = Reading(look=watch.look(), times_s=watch.times)
        found["gpus"] = [gpu.told() for gpu in gpus]
        return found
    finally:
        nvml.close()
