"""GPM through the real pynvml, over the simulated NVML library; MIG over a made-up pynvml."""

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
    ],
)
def test_a_gpu_without_it(
    nvml: Path, tmp_path: Path, described: str, supported: bool | None, why: str
) -> None:
    answer = read(nvml, tmp_path, described)
    assert answer[0] is supported and answer[1] is None and why in answer[2]


class NVMLError(Exception):
    value = 6


def test_each_gpu_instance_has_its_own_means() -> None:
    taken: list[Any] = []

    def part(handle: Any, index: int) -> Any:
        if index == 1:
            raise NVMLError
        return index

    def means(query: Any) -> None:
        for place in range(query.numMetrics):
            query.metrics[place].nvmlReturn = 0
            query.metrics[place].value = 10.0 + query.sample1

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlGpmQueryDeviceSupport=lambda _: SimpleNamespace(isSupportedDevice=1),
        nvmlDeviceGetMigMode=lambda _: (1, 1),
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 3,
        nvmlDeviceGetMigDeviceHandleByIndex=part,
        nvmlDeviceGetGpuInstanceId=lambda index: {0: 7, 2: 9}[index],
        nvmlGpmSampleAlloc=iter(range(1, 9)).__next__,
        nvmlGpmMigSampleGet=lambda *arguments: taken.append(arguments),
        nvmlGpmSampleFree=lambda _: None,
        nvmlGpmMetricsGet=means,
        NVML_GPM_METRICS_GET_VERSION=1,
        c_nvmlGpmMetricsGet_t=lambda: SimpleNamespace(metrics=[SimpleNamespace() for _ in METRICS]),
        **{name: place for place, (_, name) in enumerate(METRICS)},
    )
    gpm = Gpm(Nvml(library, no_note), "GPU 0", "whole")
    gpm.begin()
    first, second = gpm.end()
    assert (first["instance"], first["sm_percent"]) == (7, 11.0)
    assert (second["instance"], second["sm_percent"]) == (9, 13.0)
    assert taken == [("whole", 7, 1), ("whole", 9, 3), ("whole", 7, 2), ("whole", 9, 4)]


def test_nothing_is_read_of_a_gpu_that_was_not_asked() -> None:
    library = SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None)
    with pytest.raises(CallError, match="it was not read"):
        Gpm(Nvml(library, no_note), "GPU 0", "whole").end()
