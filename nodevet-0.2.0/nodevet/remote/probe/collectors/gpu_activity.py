"""What the GPUs do while nodevet watches them, by NVML calls that only read.

The driver takes 6 to 60 samples a second (nvmlDeviceGetSamples), so a look every second misses
nothing. nvmlDeviceGetPcieThroughput takes 20 ms a call, and is used only if the driver does not
count the bytes (NVML_FI_DEV_PCIE_COUNT_*).
"""

from nodevet.remote.probe.files import Reading, attempt, no_note, reason
from nodevet.remote.probe.gpu_nvml import MEMBERS, CallError, Nvml, load, number, text
from nodevet.remote.probe.gpu_values import bus_id
from nodevet.remote.probe.watch import SHORTEST, Series, Watch, put_counts

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
IDENTITY = (
    ("uuid", text, None, "nvmlDeviceGetUUID"),
    ("name", text, None, "nvmlDeviceGetName"),
    ("bus_id", bus_id, "busId", "nvmlDeviceGetPciInfo_v3"),
    ("power_limit_mw", number, None, "nvmlDeviceGetEnforcedPowerLimit"),
    ("max_clock_sm_mhz", number, None, "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    ("memory_total_b", number, "total", "nvmlDeviceGetMemoryInfo"),
)
# at each look
SAMPLED = (
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
COUNTED_BYTES = {"pcie_rx_b": "pcie_rx_kb_s", "pcie_tx_b": "pcie_tx_kb_s"}
COUNTER_FIELDS = tuple(field for field, _, _ in COUNTERS)
SERIES = tuple(row[0] for row in SAMPLED + THROUGHPUT)


class WatchedGpu(object):
    """A watched GPU."""

    def __init__(self, nvml: "Nvml", index: int) -> None:
        self.nvml = nvml
        self.label = "GPU {}".format(index)
        self.record = Reading(index=index)
        self.series = Series(SERIES)
        self.first: "dict[str, Any]" = {}
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}
        self.counts_bytes = False
        self.last_count_s = 0.0
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
        values = [self.nvml.constant(item) if isinstance(item, str) else item for item in arguments]
        return self.nvml.call(self.label, function, self.handle, *values)

    def values(self, rows: "Iterable[tuple[Any, ...]]") -> "tuple[dict[str, Any], dict[str, str]]":
        """({field: value}, {field: why not}) of rows; each call is made once."""
        values, why, answers = {}, {}, {}
        for row in rows:
            field, kind, part = row[:3]
            try:
                if row[3:] not in answers:
                    answers[row[3:]] = self.ask(*row[3:])
                answer = answers[row[3:]]
                values[field] = kind(answer if part is None else getattr(answer, part))
            except CallError as failure:
                why[field] = str(failure)
            except (ValueError, LookupError) as error:
                why[field] = reason(error)
        return values, why

    def begin(self) -> None:
        """Read the constants and counters, and skip the driver's earlier samples."""
        values, why = self.values(IDENTITY)
        self.record.update({row[0]: values.get(row[0]) for row in IDENTITY})
        self.record["errors"].update(why)
        self.count()
        self.first = dict(self.last)
        self.counts_bytes = "pcie_rx_b" in self.first
        self.take_samples(0.0)
        self.samples = []  # before the watch

    def look(self, seconds: float) -> None:
        """One look, `seconds` after the first."""
        values, why = self.values(SAMPLED)
        if self.counts_bytes:
            values.update(self.counted_rates(seconds))
        else:
            throughput, throughput_why = self.values(THROUGHPUT)
            values.update(throughput)
            why.update(throughput_why)
        self.series.take(values, why)
        link, why = self.values(LINK)
        self.record["errors"].update({field: why[field] for field in why if field not in self.link})
        for field, value in link.items():
            self.link[field] = max(value, self.link.get(field, 0))
            self.record["errors"].pop(field, None)
        self.take_samples(seconds)

    def counted_rates(self, seconds: float) -> "dict[str, int]":
        """kB/s over the link since the look before, by the driver's counters."""
        before, self.last_count_s = self.last_count_s, seconds
        earlier = dict(self.last)
        self.count()
        if seconds - before < SHORTEST:
            return {}
        grown = {field: self.last.get(field, 0) - earlier.get(field, 0) for field in COUNTED_BYTES}
        return {
            COUNTED_BYTES[field]: int(by / (seconds - before) / 1000)
            for field, by in grown.items()
            if field in earlier and field in self.last and by >= 0
        }

    def take_samples(self, seconds: float) -> None:
        """Take the driver's samples of utilization since the last look."""
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
        rows = [(sample.timeStamp, getattr(sample.sampleValue, member)) for sample in samples]
        rows = sorted(row for row in rows if row[0] > (self.stamp or 0))
        if not rows:
            return
        if self.zero is None:
            self.zero = rows[-1][0] - seconds / MICRO  # the driver's clock at the first look
        self.stamp = rows[-1][0]
        self.samples += [
            (round((stamp - self.zero) * MICRO, 4), min(100, max(0, int(value))))
            for stamp, value in rows
        ]

    def count(self) -> None:
        """Read the counters; a missing one is not taken as unchanged."""
        self.last = {}
        calls = []
        for field, name, scope in COUNTERS:
            try:
                calls.append((field, self.nvml.constant(name), scope))
            except CallError as failure:
                self.why[field] = str(failure)
        try:
            replies = self.nvml.call(
                self.label,
                "nvmlDeviceGetFieldValues",
                self.handle,
                [(field_id, scope) for _, field_id, scope in calls],
            )
        except CallError as failure:
            self.why.update({field: str(failure) for field, _, _ in calls})
            return
        for (field, _, _), reply in zip(calls, replies):
            if reply.nvmlReturn != 0:
                self.why[field] = self.nvml.error_name(reply.nvmlReturn)
            else:
                self.last[field], self.why[field] = attempt(self.value_of, reply)

    def value_of(self, reply: "Any") -> int:
        """The number of a reply. Raises ValueError for an unknown type."""
        return int(getattr(reply.value, self.member(reply.valueType)))

    def member(self, kind: int) -> str:
        """The field of nvmlValue_t for a type. Raises ValueError."""
        try:
            return MEMBERS[self.nvml.name("NVML_VALUE_TYPE_", kind)]
        except (CallError, LookupError) as error:
            raise ValueError("a value of an unknown type: {}".format(error))

    def end(self) -> None:
        """Read the counters at the last look, and the processes."""
        self.count()
        memory_by_pid, why = self.processes()
        self.used = memory_by_pid
        if why:
            self.why["processes"] = why
        if self.zero is None:  # earlier samples would count, too
            self.why["shares"] = "the driver took no samples to tell its clock by"
            return
        try:
            for sample in self.ask("nvmlDeviceGetProcessUtilization", int(self.zero)):
                self.shares.setdefault(int(sample.pid), []).append((sample.smUtil, sample.memUtil))
        except CallError as failure:
            if str(failure) != NONE_FOUND:
                self.why["shares"] = str(failure)
            elif any(value for seconds, value in self.samples if seconds >= 0):
                self.why["shares"] = "the driver has no sample of a process, and the GPU was busy"
            # else no process did anything

    def processes(self) -> "tuple[dict[int, int | None], str | None]":
        """({pid: bytes of memory or None}, why not)."""
        try:
            running = self.ask("nvmlDeviceGetComputeRunningProcesses")
        except CallError as failure:
            return {}, str(failure)
        memory_by_pid: "dict[int, int | None]" = {}
        for process in running:  # in MIG mode once for each device that it uses
            amounts = [memory_by_pid.get(int(process.pid), 0), process.usedGpuMemory]
            memory_by_pid[int(process.pid)] = None if None in amounts else sum(amounts)
        return memory_by_pid, None

    def to_record(self) -> "Reading":
        """The JSON form of nodevet.evidence.gpu_activity.GpuActivity."""
        record = self.record
        if self.handle is None:
            return record
        self.series.into(record)
        record.update(self.link)
        put_counts(record, COUNTER_FIELDS, self.first, self.last)
        for field in COUNTER_FIELDS:
            if record[field] is None and self.why.get(field):
                record["errors"][field] = self.why[field]
        if "samples" in self.why:
            record.fail("samples", self.why["samples"])
        else:
            record["samples"] = [sample for sample in self.samples if sample[0] >= 0][:SAMPLES]
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
        for field, index in (("sm_percent", 0), ("memory_percent", 1)):
            values = [min(100, int(share[index])) for share in shares]
            record[field] = round(sum(values) / float(len(values)), 1) if values else 0.0
        return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """The JSON form of nodevet.evidence.gpu_activity.GpuActivities.

    Raises Absent without the library or for the tree of another machine, SectionError if the
    library does not load or start.
    """
    watch = Watch("gpu_activity", root, request)
    nvml = Nvml(load(root), request.get("note", no_note))
    try:
        gpus = [WatchedGpu(nvml, index) for index in range(nvml.call("", "nvmlDeviceGetCount"))]
        reachable = [gpu for gpu in gpus if gpu.handle is not None]
        watch.wait()
        for gpu in reachable:
            gpu.begin()
        for seconds in watch.looks():
            for gpu in reachable:
                gpu.look(seconds)
                if watch.is_last:
                    gpu.end()
        section = Reading(look=watch.look(), times_s=watch.times)
        section["gpus"] = [gpu.to_record() for gpu in gpus]
        return section
    finally:
        nvml.close()
