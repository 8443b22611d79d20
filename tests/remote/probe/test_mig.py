"""What the devices of a GPU in MIG mode tell by their own handles."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from nodevet.evidence.gpu import Gpu
from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_health import mig_devices
from nodevet.remote.probe.gpu_nvml import Device, Nvml

NOT_SUPPORTED, NOT_FOUND, UNKNOWN = 3, 6, 999


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def library(parts: dict[int, Any], most: int = 7) -> Any:
    """A pynvml of one GPU; `parts`: {index: {(function, *arguments): answer}, or an error}."""

    def answer(function: str) -> Any:
        def call(handle: Any, *arguments: Any) -> Any:
            known = {} if handle == "whole" else parts[handle]
            found = known.get((function, *arguments), NVMLError(NOT_SUPPORTED))
            if isinstance(found, NVMLError):
                raise found
            return found

        return call

    def part_of(handle: Any, index: int) -> int:
        found = parts.get(index, NVMLError(NOT_FOUND))
        if isinstance(found, NVMLError):
            raise found
        return index

    def none() -> None:
        return None

    functions = ("GetTotalEccErrors", "GetMemoryErrorCounter", "GetRemappedRows", "GetUUID")
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_NOT_SUPPORTED=NOT_SUPPORTED,
        NVML_ERROR_NOT_FOUND=NOT_FOUND,
        NVML_ERROR_UNKNOWN=UNKNOWN,
        NVML_MEMORY_ERROR_TYPE_CORRECTED=0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        NVML_AGGREGATE_ECC=1,
        NVML_MEMORY_LOCATION_SRAM=7,
        NVML_MEMORY_LOCATION_DRAM=2,
        nvmlInit=none,
        nvmlShutdown=none,
        nvmlDeviceGetHandleByIndex=lambda index: "whole",
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: most,
        nvmlDeviceGetMigDeviceHandleByIndex=part_of,
        **{f"nvmlDevice{name}": answer(f"nvmlDevice{name}") for name in functions},
    )


def read(parts: dict[int, Any], mig: bool | None = True) -> Gpu:
    gpu = Reading(index=0, mig_current=mig)
    notes: list[str] = []
    mig_devices(gpu, Device(Nvml(library(parts), notes.append), 0))
    return msgspec.json.decode(msgspec.json.encode(gpu), type=Gpu)


UNCORRECTED = ("nvmlDeviceGetMemoryErrorCounter", 1, 0, 7)  # volatile, of the SRAM


def test_t7_the_counters_of_mig_devices_are_read() -> None:
    gpu = read({0: {UNCORRECTED: 2, ("nvmlDeviceGetUUID",): "MIG-1"}, 3: {UNCORRECTED: 0}})
    assert gpu.mig_devices is not None
    assert [(each.index, each.uuid) for each in gpu.mig_devices] == [(0, "MIG-1"), (3, None)]
    assert [each.ecc.volatile_sram_uncorrected for each in gpu.mig_devices] == [2, 0]
    first = gpu.mig_devices[0]
    assert first.ecc.errors["volatile_uncorrected"] == "NVML_ERROR_NOT_SUPPORTED"
    assert first.remapping.errors["pending"] == "NVML_ERROR_NOT_SUPPORTED"


@pytest.mark.parametrize("mig", [False, None])
def test_t7_a_whole_gpu_has_no_mig_devices(mig: bool | None) -> None:
    assert read({0: {UNCORRECTED: 2}}, mig).mig_devices == ()


def test_t7_a_mig_device_without_a_handle_says_why() -> None:
    gpu = read({1: NVMLError(UNKNOWN)})
    assert gpu.mig_devices is not None
    (part,) = gpu.mig_devices
    assert (part.index, part.errors["handle"]) == (1, "NVML_ERROR_UNKNOWN")
