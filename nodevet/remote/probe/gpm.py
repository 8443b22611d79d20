"""What the parts of a GPU did while it was watched: NVML's GPU performance monitoring (GPM), on
Hopper and later, of each GPU instance in MIG mode.

Two samples, at the first and the last look: NVML computes the means between them. NVML wants at
least 100 ms between two samples. nvmlGpmSetStreamingEnabled changes the GPU and is not called.
"""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_nvml import CallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nodevet.remote.probe.gpu_nvml import Nvml

METRICS = (
    ("sm_percent", "NVML_GPM_METRIC_SM_UTIL"),
    ("tensor_percent", "NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
    ("dram_percent", "NVML_GPM_METRIC_DRAM_BW_UTIL"),
    ("pcie_rx_mib_s", "NVML_GPM_METRIC_PCIE_RX_PER_SEC"),
    ("pcie_tx_mib_s", "NVML_GPM_METRIC_PCIE_TX_PER_SEC"),
    ("nvlink_rx_mib_s", "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC"),
    ("nvlink_tx_mib_s", "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC"),
)


class Gpm(object):
    """The samples of one GPU."""

    def __init__(self, nvml: "Nvml", label: str, handle: "Any") -> None:
        self.nvml = nvml
        self.label = label
        self.handle = handle
        self.supported: "bool | None" = None
        self.why = "it was not read"
        self.samples: "list[tuple[int | None, Any, Any]]" = []  # GPU instance, first, last
        self.allocated: "list[Any]" = []  # samples that are not yet freed

    def call(self, function: str, *arguments: "Any") -> "Any":
        return self.nvml.call(self.label, function, *arguments)

    def begin(self) -> None:
        """Take the first samples, if the GPU has any."""
        try:
            support = self.call("nvmlGpmQueryDeviceSupport", self.handle)
            self.supported = bool(support.isSupportedDevice)
            if not self.supported:
                self.why = "the GPU does not have it: it is older than Hopper"
                return
            self.why = "the GPU is in MIG mode and shows no MIG device"
            for instance in self.instances():
                first, last = self.allocate(), self.allocate()
                self.take(instance, first)
                self.samples.append((instance, first, last))
        except CallError as failure:
            self.why = str(failure)

    def allocate(self) -> "Any":
        """A sample, which `end` frees. Raises CallError."""
        self.allocated.append(self.call("nvmlGpmSampleAlloc"))
        return self.allocated[-1]

    def instances(self) -> "list[int | None]":
        """The ids of its GPU instances; [None] for a whole GPU. Raises CallError."""
        try:
            is_mig = self.call("nvmlDeviceGetMigMode", self.handle)[0] == 1
        except CallError:
            is_mig = False
        if not is_mig:
            return [None]
        ids = set()
        for index in range(self.call("nvmlDeviceGetMaxMigDeviceCount", self.handle)):
            try:
                part = self.call("nvmlDeviceGetMigDeviceHandleByIndex", self.handle, index)
            except CallError:  # no MIG device has this index
                continue
            ids.add(self.call("nvmlDeviceGetGpuInstanceId", part))
        return sorted(ids)

    def take(self, instance: "int | None", sample: "Any") -> None:
        if instance is None:
            self.call("nvmlGpmSampleGet", self.handle, sample)
        else:
            self.call("nvmlGpmMigSampleGet", self.handle, instance, sample)

    def end(self) -> "list[Reading]":
        """The means since `begin`; the JSON form of nodevet.evidence.gpu_activity.GpmActivity.
        Raises CallError."""
        try:
            if not self.samples:
                raise CallError(self.why)
            return [self.means(*each) for each in self.samples]
        finally:
            while self.allocated:
                self.call("nvmlGpmSampleFree", self.allocated.pop())

    def means(self, instance: "int | None", first: "Any", last: "Any") -> "Reading":
        self.take(instance, last)
        query = self.nvml.constant("c_nvmlGpmMetricsGet_t")()
        query.version = self.nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        query.numMetrics = len(METRICS)
        query.sample1, query.sample2 = first, last
        for place, (_, name) in enumerate(METRICS):
            query.metrics[place].metricId = self.nvml.constant(name)
        self.call("nvmlGpmMetricsGet", query)
        record = Reading(instance=instance)
        for place, (field, _) in enumerate(METRICS):
            metric = query.metrics[place]
            is_number = 0 <= metric.value < 1e12  # false for NaN
            if metric.nvmlReturn == 0 and is_number:
                record[field] = round(metric.value, 3)
            else:
                record.fail(field, self.nvml.error_name(metric.nvmlReturn or 999))
        return record
