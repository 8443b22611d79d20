"""Faults that NVML reports about GPUs, beyond their settings: links, fabric, firmware, heat,
memory. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.change import gpu_values, link_values
from nodevet_sim.faults.params import ClearedGpu, FaultParams, NoParams, OneGpu, SomeGpus
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.state import count_of

FABRIC_MANAGER = "nvidia-fabricmanager.service"
ROUTE_UNHEALTHY, NO_FAULT = 0x10, 0x1AA  # NVML_GPU_FABRIC_HEALTH_MASK_*
NVSWITCH = "/drivers/nvidia-nvswitch"
MIB = 1 << 20


class LinksDown(OneGpu):
    links: Annotated[int, Field(ge=1, le=64)] = 2


def nvlink_down(healthy: Healthy, want: LinksDown) -> Patch:
    """NVLinks of a GPU are down.

    `gpu`; `links`, how many, the last ones: 2.
    """
    gpu = healthy.gpu(want.gpu)
    there = healthy.number(gpu, "nvlinks")
    if want.links > there:
        raise FaultError(f"GPU {gpu} has {there} NVLinks")
    down = range(there - want.links, there)
    return Patch(state={f"gpu.{gpu}.nvlinks.{link}.active": "0" for link in down}, gpu=gpu)


class LinkErrors(OneGpu):
    count: Annotated[int, Field(ge=1)] = 5000


def nvlink_errors(healthy: Healthy, want: LinkErrors) -> Patch:
    """An NVLink of a GPU has CRC errors and replays.

    `gpu`; `count`, of each: 5000.
    """
    return link_values(healthy, want.gpu, crc_flit_errors=want.count, replay_errors=want.count)


def nvlink_slow(healthy: Healthy, want: OneGpu) -> Patch:
    """An NVLink of a GPU runs at half of its speed.

    `gpu`.
    """
    gpu = healthy.gpu(want.gpu)
    speed = healthy.number(gpu, "nvlinks.*.speed_mbps")
    return link_values(healthy, gpu, speed_mbps=speed // 2)


def fabric_down(healthy: Healthy, want: NoParams) -> Patch:
    """The fabric manager does not run, and no GPU is registered with its fabric."""
    state = {}
    for gpu in healthy.gpus("all"):
        if healthy.text(gpu, "fabric.state") != "COMPLETED":
            raise FaultError(f"GPU {gpu} belongs to no fabric")
        state[f"gpu.{gpu}.fabric.state"] = "NOT_STARTED"
    return Patch(state=state, services={FABRIC_MANAGER: False})


def fabric_degraded(healthy: Healthy, want: OneGpu) -> Patch:
    """The fabric has an unhealthy route for a GPU.

    `gpu`.
    """
    gpu = healthy.gpu(want.gpu)
    mask = hex(NO_FAULT & ~0x30 | ROUTE_UNHEALTHY)
    patch = gpu_values(healthy, gpu, fabric__health_mask=mask)
    return Patch(state={**patch.state, f"gpu.{gpu}.fabric.health_summary": "UNHEALTHY"}, gpu=gpu)


class Margin(OneGpu):
    margin: Annotated[int, Field(ge=-20, le=50)] = 2


def gpu_hot(healthy: Healthy, want: Margin) -> Patch:
    """A GPU is close to its maximum operating temperature, but not throttled.

    `gpu`; `margin`, degrees below it, 2.
    """
    gpu = healthy.gpu(want.gpu)
    if healthy.text(gpu, "temperature_margin_c") is not None:
        return gpu_values(healthy, gpu, temperature_margin_c=want.margin)
    limit = healthy.number(gpu, "temperature_gpu_max_c")
    return gpu_values(healthy, gpu, temperature_gpu_c=limit - want.margin)


class Seconds(OneGpu):
    seconds: Annotated[int, Field(ge=1, le=10**8)] = 600


def throttled_earlier(healthy: Healthy, want: Seconds) -> Patch:
    """A GPU was in hardware thermal slowdown earlier, but is cool now.

    `gpu`; `seconds`, in all: 600.
    """
    time_ns = want.seconds * 10**9
    return gpu_values(healthy, want.gpu, throttled_hw_thermal_ns=time_ns)


class Version(OneGpu):
    version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.]{1,32}$")] | None = None


def vbios_other(healthy: Healthy, want: Version) -> Patch:
    """A GPU has another VBIOS than the others.

    `gpu`; `version`, 90.00.00.00.01.
    """
    return gpu_values(
        healthy, healthy.gpu(want.gpu), vbios_version=want.version or "90.00.00.00.01"
    )


def inforom_corrupted(healthy: Healthy, want: OneGpu) -> Patch:
    """The InfoROM of a GPU is corrupted, which only its checksums show.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, inforom_valid=0)


def gsp_mismatch(healthy: Healthy, want: Version) -> Patch:
    """A GPU runs the GSP firmware of another driver.

    `gpu`; `version`, 535.54.03.
    """
    return gpu_values(
        healthy, healthy.gpu(want.gpu), gsp_firmware_version=want.version or "535.54.03"
    )


class Cuda(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$")] = "11.4"


def cuda_old(healthy: Healthy, want: Cuda) -> Patch:
    """The driver supports no recent CUDA.

    `version`, 11.4.
    """
    if not count_of(healthy.state):
        raise FaultError("the node has no GPU")
    return Patch(state={"cuda_version": want.version})


class Pages(OneGpu):
    count: Annotated[int, Field(ge=1, le=64)] = 62


def pages_retired(healthy: Healthy, want: Pages) -> Patch:
    """A GPU that retires pages (a T4, a V100) has retired nearly as many as it can.

    `gpu`; `count`, because of double-bit errors, 62.
    """
    return gpu_values(healthy, want.gpu, retired_pages__double_bit=want.count)


def pages_retired_single(healthy: Healthy, want: Pages) -> Patch:
    """A GPU that retires pages (a T4, a V100) has retired nearly all after single-bit errors.

    `gpu`; `count`, 62.
    """
    return gpu_values(healthy, want.gpu, retired_pages__single_bit=want.count)


def bar1_small(healthy: Healthy, want: SomeGpus) -> Patch:
    """The firmware left BAR1 at 256 MiB: no Resizable BAR.

    `gpu`, by default all.
    """
    return gpu_values(healthy, want.gpu, bar1_total_b=256 * MIB)


def gpu_odd(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU has half of the memory of the others, as a board of another variant.

    `gpu`.
    """
    gpu = healthy.gpu(want.gpu)
    return gpu_values(healthy, gpu, memory_total_b=healthy.number(gpu, "memory_total_b") // 2)


def nvswitch_narrow(healthy: Healthy, want: NoParams) -> Patch:
    """The PCIe link of an NVSwitch runs on one lane."""
    bound = sorted(path for path, target in healthy.links.items() if target.endswith(NVSWITCH))
    if not bound:
        raise FaultError("the node has no NVSwitch")
    place = bound[0].rpartition("/")[0]
    return Patch(healthy.present({f"{place}/current_link_width": "1\n"}))


class Leaked(OneGpu):
    mib: Annotated[int, Field(ge=1)] = 20_000


def memory_leaked(healthy: Healthy, want: Leaked) -> Patch:
    """Memory of a GPU is in use, but by no process.

    `gpu`; `mib`, 20000.
    """
    return gpu_values(healthy, want.gpu, memory_used_b=want.mib * MIB)


def p2p_off(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU and the others cannot reach one another's memory, as with ACS.

    `gpu`.
    """
    off = {"peers__read": "CHIPSET_NOT_SUPPORTED", "peers__nvlink": "NOT_SUPPORTED"}
    return gpu_values(healthy, want.gpu, **off)


def p2p_over_pcie(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU and the others reach one another's memory over PCIe, and not over NVLink.

    `gpu`. Only a baseline that asks for NVLink detects it.
    """
    return gpu_values(healthy, want.gpu, peers__nvlink="NOT_SUPPORTED")


def modules_swapped(healthy: Healthy, want: NoParams) -> Patch:
    """The first two GPUs are swapped on the baseboard."""
    if count_of(healthy.state) < 2:
        raise FaultError("this fault needs two GPUs")
    first, second = (healthy.number(gpu, "module_id") for gpu in (0, 1))
    return Patch(state={"gpu.0.module_id": str(second), "gpu.1.module_id": str(first)})


def repair_pending(healthy: Healthy, want: ClearedGpu) -> Patch:
    """A memory channel of a GPU waits to be repaired at the next reset.

    `gpu`; `cleared_by`, reset.
    """
    patch = gpu_values(healthy, want.gpu, repair__channel_pending=1)
    return want.until_cleared(patch)


class PowerReading(OneGpu):
    watts: Annotated[int, Field(ge=0, le=10_000)] = 5


def power_sensor(healthy: Healthy, want: PowerReading) -> Patch:
    """A GPU's power sensor reads far too low.

    `gpu`; `watts`, 5.
    """
    return gpu_values(healthy, want.gpu, power_draw_mw=want.watts * 1000)


def nvlink_no_atomics(healthy: Healthy, want: OneGpu) -> Patch:
    """An NVLink of a GPU cannot do atomic operations on its peers' memory.

    `gpu`.
    """
    return link_values(healthy, want.gpu, p2p_atomics=0)


class StuckState(OneGpu):
    state: Annotated[int, Field(ge=0, le=15)] = 8


def pstate_stuck(healthy: Healthy, want: StuckState) -> Patch:
    """A GPU stays in a low performance state.

    `gpu`; `state`, 8.
    """
    return gpu_values(healthy, want.gpu, pstate=want.state)


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "bar1-small": (SomeGpus, bar1_small),
    "cuda-old": (Cuda, cuda_old),
    "fabric-degraded": (OneGpu, fabric_degraded),
    "fabric-down": (NoParams, fabric_down),
    "gpu-hot": (Margin, gpu_hot),
    "gpu-odd": (OneGpu, gpu_odd),
    "gsp-mismatch": (Version, gsp_mismatch),
    "inforom-corrupted": (OneGpu, inforom_corrupted),
    "memory-leaked": (Leaked, memory_leaked),
    "modules-swapped": (NoParams, modules_swapped),
    "nvlink-down": (LinksDown, nvlink_down),
    "nvlink-errors": (LinkErrors, nvlink_errors),
    "nvlink-no-atomics": (OneGpu, nvlink_no_atomics),
    "nvlink-slow": (OneGpu, nvlink_slow),
    "nvswitch-narrow": (NoParams, nvswitch_narrow),
    "p2p-off": (OneGpu, p2p_off),
    "p2p-over-pcie": (OneGpu, p2p_over_pcie),
    "pages-retired": (Pages, pages_retired),
    "pages-retired-single": (Pages, pages_retired_single),
    "power-sensor": (PowerReading, power_sensor),
    "pstate-stuck": (StuckState, pstate_stuck),
    "repair-pending": (ClearedGpu, repair_pending),
    "throttled-earlier": (Seconds, throttled_earlier),
    "vbios-other": (Version, vbios_other),
}
