"""GPUs that are watched through an NVML that fails, call by call: unknown is never idle."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from nodevet.remote.probe.collectors import gpu_activity
from nodevet.remote.probe.collectors.gpu_activity import WatchedGpu
from nodevet.remote.probe.files import no_note
from nodevet.remote.probe.gpu_nvml import Nvml

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST = 3, 4, 6, 15
DRIVER_AHEAD = 5_000_000_000  # microseconds: the driver's clock is not the node's


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def library(answers: dict[str, Any]) -> Any:
    """A pynvml of one GPU with these answers, errors by number; all else is not supported."""

    def answer(function: str) -> Any:
        def call(*arguments: Any) -> Any:
            found = answers.get(function, NOT_SUPPORTED)
            if isinstance(found, int):
                raise NVMLError(found)
            return found(*arguments)

        return call

    names = (
        "GetUtilizationRates GetSamples GetProcessUtilization GetComputeRunningProcesses "
        "GetFieldValues GetUUID GetName GetPciInfo_v3 GetEnforcedPowerLimit GetMaxClockInfo "
        "GetMemoryInfo GetClockInfo GetPowerUsage GetTemperature GetPcieThroughput "
        "GetCurrentClocksThrottleReasons GetCurrPcieLinkGeneration GetCurrPcieLinkWidth"
    )
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_NOT_SUPPORTED=NOT_SUPPORTED,
        NVML_ERROR_NO_PERMISSION=NO_PERMISSION,
        NVML_ERROR_NOT_FOUND=NOT_FOUND,
        NVML_ERROR_GPU_IS_LOST=LOST,
        NVML_VALUE_TYPE_UNSIGNED_INT=1,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG=3,
        NVML_GPU_UTILIZATION_SAMPLES=1,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        NVML_PCIE_UTIL_RX_BYTES=1,
        NVML_PCIE_UTIL_TX_BYTES=0,
        NVML_FI_DEV_PCIE_COUNT_RX_BYTES=197,
        NVML_FI_DEV_PCIE_COUNT_TX_BYTES=198,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        **{f"nvmlDevice{name}": answer(f"nvmlDevice{name}") for name in names.split()},
    )


def watched(first: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is told of a GPU that answers so at the first look, and so at the last."""
    answers = dict(first)
    gpu = WatchedGpu(Nvml(library(answers), no_note), 0)
    gpu.begin()
    gpu.look(0.0)
    answers.update(last or {})
    gpu.look(1.0)
    gpu.end()
    return gpu.to_record()


def test_nothing_is_counted_before_the_agreed_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def samples(*_: Any) -> Any:
        asked.append(time.time())
        raise NVMLError(NOT_FOUND)

    found = library({"nvmlDeviceGetSamples": samples})
    found.nvmlDeviceGetCount = lambda: 1
    found.nvmlShutdown = lambda: None
    monkeypatch.setattr(gpu_activity, "load", lambda root: found)
    moment = time.time() + 0.5
    wish = {"seconds": 0.1, "interval": 0.1, "at_s": moment}
    told = gpu_activity.collect("/", {"asks": {"gpu_activity": [wish]}})
    assert asked and asked[0] >= moment - 0.01
    assert told["look"]["began_s"] >= moment - 0.01


def sampled(*rows: tuple[int, int]) -> Any:
    def samples(_: Any, __: int, since: int) -> Any:
        found = [
            SimpleNamespace(timeStamp=stamp, sampleValue=SimpleNamespace(uiVal=value))
            for stamp, value in rows
            if stamp > since
        ]
        if not found:
            raise NVMLError(NOT_FOUND)
        return 1, found

    return samples


def running(_: Any) -> Any:
    return [SimpleNamespace(pid=7, usedGpuMemory=5)]


def counters(value: int) -> Any:
    def values(_: Any, fields: list[Any]) -> Any:
        value_of = SimpleNamespace(ullVal=value)
        return [SimpleNamespace(nvmlReturn=0, valueType=3, value=value_of) for _ in fields]

    return values


def test_a_gpu_that_supports_no_counter_is_unknown() -> None:
    told = watched({})
    for field in ("utilization_percent", "samples", "processes", "power_mw", "pcie_rx_b"):
        assert told[field] is None, field
        assert told["errors"][field] == "NVML_ERROR_NOT_SUPPORTED", field


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
def test_an_unreported_gpu_share_of_a_process_is_not_zero(error: int) -> None:
    told = watched(
        {
            "nvmlDeviceGetSamples": sampled((DRIVER_AHEAD, 50)),
            "nvmlDeviceGetComputeRunningProcesses": running,
            "nvmlDeviceGetProcessUtilization": error,
        }
    )
    (process,) = told["processes"]
    assert (process["sm_percent"], process["memory_used_b"]) == (None, 5)


@pytest.mark.parametrize(("busy", "share"), [(0, 0.0), (40, None)])
def test_a_process_without_samples_is_idle_only_on_an_idle_gpu(
    busy: int, share: float | None
) -> None:
    first = {
        "nvmlDeviceGetSamples": sampled((DRIVER_AHEAD, 0)),
        "nvmlDeviceGetComputeRunningProcesses": running,
        "nvmlDeviceGetProcessUtilization": NOT_FOUND,
    }
    later = {"nvmlDeviceGetSamples": sampled((DRIVER_AHEAD + 500_000, busy))}
    assert watched(first, later)["processes"][0]["sm_percent"] == share


def test_shares_are_known_without_a_clock() -> None:
    """As of a GPU in MIG mode: none of its samples, and an answer of before the watch."""
    told = watched(
        {
            "nvmlDeviceGetComputeRunningProcesses": running,
            "nvmlDeviceGetProcessUtilization": lambda *_: [],
        }
    )
    assert told["processes"][0]["sm_percent"] is None


def test_processes_of_mig_devices_are_reported_and_their_share_is_not_known() -> None:
    """A GPU in MIG mode has no utilization; a process stands there once for each of its devices."""

    def of_devices(_: Any) -> Any:
        return [
            SimpleNamespace(pid=7, usedGpuMemory=5, gpuInstanceId=1),
            SimpleNamespace(pid=7, usedGpuMemory=6, gpuInstanceId=2),
            SimpleNamespace(pid=8, usedGpuMemory=9, gpuInstanceId=3),
            SimpleNamespace(pid=9, usedGpuMemory=None, gpuInstanceId=4),
        ]

    told = watched({"nvmlDeviceGetComputeRunningProcesses": of_devices})
    used = {each["pid"]: each["memory_used_b"] for each in told["processes"]}
    assert used == {7: 11, 8: 9, 9: None}
    assert {each["sm_percent"] for each in told["processes"]} == {None}
    for field in ("utilization_percent", "samples"):
        assert (told[field], told["errors"][field]) == (None, "NVML_ERROR_NOT_SUPPORTED")


def test_only_samples_from_the_watch_by_the_drivers_clock_count() -> None:
    first = {"nvmlDeviceGetSamples": sampled((DRIVER_AHEAD - 10, 99), (DRIVER_AHEAD, 99))}
    later = sampled((DRIVER_AHEAD, 99), (DRIVER_AHEAD + 500_000, 40))
    assert watched(first, {"nvmlDeviceGetSamples": later})["samples"] == [(0.5, 40)]


def test_pcie_bytes_of_a_gpu_lost_during_the_watch_are_unknown() -> None:
    told = watched({"nvmlDeviceGetFieldValues": counters(9)}, {"nvmlDeviceGetFieldValues": LOST})
    assert told["pcie_rx_b"] is None
    assert told["errors"]["pcie_rx_b"] == "NVML_ERROR_GPU_IS_LOST"


def test_counters_are_reported_by_name() -> None:
    told = watched(
        {"nvmlDeviceGetFieldValues": counters(9)}, {"nvmlDeviceGetFieldValues": counters(12)}
    )
    assert told["pcie_rx_b"] == [9, 12]


def test_counted_bytes_are_a_rate_at_each_look_but_the_first() -> None:
    told = watched(
        {"nvmlDeviceGetFieldValues": counters(9)},
        {"nvmlDeviceGetFieldValues": counters(27_000_000_009)},
    )
    assert told["pcie_rx_kb_s"] == [None, 27_000_000]
    lost = watched({"nvmlDeviceGetFieldValues": counters(9)}, {"nvmlDeviceGetFieldValues": LOST})
    assert lost["pcie_rx_kb_s"] is None
