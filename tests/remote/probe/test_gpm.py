"""GPM through the real pynvml, over the simulated NVML library; a lack of memory is made up."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodevet.remote.probe.files import no_note
from nodevet.remote.probe.gpm import METRICS, Gpm
from nodevet.remote.probe.gpu_nvml import CallError, Nvml
from nodevet_sim.library import environment

PROGRAM = """
import json, time, pynvml
from nodevet.remote.probe.gpm import Gpm
from nodevet.remote.probe.gpu_nvml import CallError, Nvml
calls = []
nvml = Nvml(pynvml, calls.append)
gpm = Gpm(nvml, "GPU 0", pynvml.nvmlDeviceGetHandleByIndex(0))
before = time.process_time()
gpm.begin()
try:
    parts, why = gpm.end(), ""
except CallError as failure:
    parts, why = None, str(failure)
print(json.dumps([gpm.supported, parts, why, calls, time.process_time() - before]))
"""
DESCRIBED = """
gpu.*.gpm_supported = 1
gpu.*.gpm_sm_percent = 12
gpu.*.gpm_tensor_percent = 0
gpu.*.gpm_dram_percent = 1
gpu.*.gpm_pcie_rx_mib_s = 300
gpu.*.gpm_nvlink_tx_mib_s = 2500000
"""
MIG_MODE = """
gpu.0.mig_current = 1
gpu.0.mig_pending = 1
"""
IN_PARTS = f"""
{MIG_MODE}
gpu.0.mig.0.gpu_instance = 9
gpu.0.mig.0.gpm_sm_percent = 80
gpu.0.mig.0.gpm_tensor_percent = 40
gpu.0.mig.2.gpu_instance = 7
gpu.0.mig.2.gpm_sm_percent = 3
gpu.0.mig.3.gpu_instance = 7
"""


def read(nvml: Path, tmp_path: Path, described: str) -> list[Any]:
    state = tmp_path / "nvml.state"
    state.write_text(f"driver_version = 550.90.07\ncount = 1\ngpu.0.name = H100\n{described}")
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, env=environment(nvml, state), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_the_means_between_two_samples(nvml: Path, tmp_path: Path) -> None:
    supported, parts, why, calls, _ = read(nvml, tmp_path, DESCRIBED)
    assert (supported, why) == (True, "")
    (part,) = parts
    assert (part["sm_percent"], part["tensor_percent"], part["dram_percent"]) == (12.0, 0.0, 1.0)
    assert (part["pcie_rx_mib_s"], part["nvlink_tx_mib_s"]) == (300.0, 2500000.0)
    assert part["nvlink_rx_mib_s"] is None
    assert part["errors"]["nvlink_rx_mib_s"] == "NVML_ERROR_NOT_SUPPORTED"
    assert not any("SetStreamingEnabled" in call for call in calls)
    assert sum("SampleAlloc" in call for call in calls) == 2
    assert sum("SampleFree" in call for call in calls) == 2


@pytest.mark.parametrize(
    ("described", "supported", "why"),
    [
        ("gpu.*.gpm_supported = 0\n", False, "older than Hopper"),
        ("", None, "NVML_ERROR_NOT_SUPPORTED"),
        ("gpu.*.call.nvmlGpmSampleGet = NVML_ERROR_NO_PERMISSION\n" + DESCRIBED, True, "NO_PERM"),
        ("gpu.*.call.nvmlGpmQueryDeviceSupport = NVML_ERROR_UNKNOWN\n", None, "UNKNOWN"),
        (MIG_MODE + DESCRIBED, True, "in MIG mode and shows no MIG device"),
    ],
)
def test_a_gpu_without_gpm_is_reported_as_such(
    nvml: Path, tmp_path: Path, described: str, supported: bool | None, why: str
) -> None:
    answer = read(nvml, tmp_path, described)
    assert answer[0] is supported and answer[1] is None and why in answer[2]


def test_each_gpu_instance_has_its_own_means(nvml: Path, tmp_path: Path) -> None:
    """Also one of two MIG devices, which is read once; the whole GPU has no sample."""
    supported, parts, why, calls, _ = read(nvml, tmp_path, DESCRIBED + IN_PARTS)
    assert (supported, why) == (True, "")
    figures = [(each["instance"], each["sm_percent"], each["tensor_percent"]) for each in parts]
    assert figures == [(7, 3.0, None), (9, 80.0, 40.0)]
    assert parts[0]["errors"]["tensor_percent"] == "NVML_ERROR_NOT_SUPPORTED"
    for name, times in {"MigSampleGet": 4, "GpmSampleGet": 0, "Alloc": 4, "SampleFree": 4}.items():
        assert sum(name in call for call in calls) == times, name


def test_the_whole_gpu_is_refused_in_mig_mode(nvml: Path, tmp_path: Path) -> None:
    hides_its_mode = "gpu.0.call.nvmlDeviceGetMigMode = NVML_ERROR_UNKNOWN\n"
    supported, parts, why, *_ = read(nvml, tmp_path, DESCRIBED + IN_PARTS + hides_its_mode)
    assert (supported, parts, why) == (True, None, "NVML_ERROR_NOT_SUPPORTED")


def test_a_sample_that_cannot_be_taken_is_freed(nvml: Path, tmp_path: Path) -> None:
    refused = "gpu.0.call.nvmlGpmMigSampleGet = NVML_ERROR_NO_PERMISSION\n"
    *_, parts, why, calls, _ = read(nvml, tmp_path, DESCRIBED + IN_PARTS + refused)
    assert (parts, why) == (None, "NVML_ERROR_NO_PERMISSION")
    assert [sum(name in call for call in calls) for name in ("Alloc", "SampleFree")] == [2, 2]


class NVMLError(Exception):
    value = 6


class MadeUpGpm(SimpleNamespace):
    """pynvml's GPM functions for a GPU in MIG mode. NVML_ERROR_MEMORY from call `full` on."""

    def __init__(self, instances: dict[int, int], full: int = 99) -> None:
        super().__init__(**{name: place for place, (_, name) in enumerate(METRICS)})
        self.instances, self.full = instances, full
        self.allocated: list[int] = []
        self.freed: list[int] = []
        self.nvmlInit = lambda: None
        self.nvmlGpmQueryDeviceSupport = lambda _: SimpleNamespace(isSupportedDevice=1)
        self.nvmlDeviceGetMigMode = lambda _: (1, 1)
        self.nvmlDeviceGetMaxMigDeviceCount = lambda _: 3
        self.nvmlDeviceGetGpuInstanceId = instances.__getitem__
        self.nvmlGpmMigSampleGet = lambda *_: None
        self.nvmlGpmSampleFree = self.freed.append
        self.NVML_GPM_METRICS_GET_VERSION = 1

    NVMLError = NVMLError
    NVML_ERROR_MEMORY = 20

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in METRICS])

    def nvmlGpmSampleAlloc(self) -> int:
        if len(self.allocated) + 1 >= self.full:
            raise NVMLError
        self.allocated.append(len(self.allocated) + 1)
        return self.allocated[-1]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _handle: Any, index: int) -> int:
        if index not in self.instances:
            raise NVMLError
        return index

    def nvmlGpmMetricsGet(self, query: Any) -> None:
        for place in range(query.numMetrics):
            query.metrics[place].nvmlReturn = 0
            query.metrics[place].value = 10.0 + query.sample1


@pytest.mark.parametrize("full", [1, 2, 3, 4])
def test_every_sample_is_freed_if_there_is_no_memory_for_more(full: int) -> None:
    library = MadeUpGpm({0: 7, 2: 9}, full)
    gpm = Gpm(Nvml(library, no_note), "GPU 0", "whole")
    gpm.begin()
    if full > 2:
        assert [part["instance"] for part in gpm.end()] == [7]
    else:
        with pytest.raises(CallError):
            gpm.end()
    assert sorted(library.freed) == library.allocated and len(library.allocated) == full - 1


def test_gpm_values_of_a_gpu_that_was_not_sampled_are_an_error() -> None:
    library = SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None)
    with pytest.raises(CallError, match="it was not read"):
        Gpm(Nvml(library, no_note), "GPU 0", "whole").end()
