"""Section nvme."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord, clear_unknown_words

NVME_CONTROLLERS = at_most(256)  # a server has 36 slots


class NvmeHealthLog(Record, frozen=True, kw_only=True):
    """What a drive reports about itself: its SMART / Health Information log."""

    volatile = (
        "power_on_hours",
        "temperature_c",
        "warning_temperature_min",
        "critical_temperature_min",
    )

    tool: Text | None = None  # nvme, smartctl
    critical_warning: int | None = None  # bits, NVM Express Base Specification
    percentage_used: int | None = None  # of its rated endurance; may be above 100
    spare_percent: int | None = None  # of the spare blocks that are left
    spare_threshold_percent: int | None = None  # below it the drive warns
    media_errors: int | None = None  # data that could not be read back, since it was made
    unsafe_shutdowns: int | None = None
    power_on_hours: int | None = None
    temperature_c: int | None = None  # composite
    warning_temperature_min: int | None = None  # minutes above the warning temperature
    critical_temperature_min: int | None = None


class NvmeController(Record, frozen=True, kw_only=True):
    """/sys/class/nvme/<name>/*."""

    volatile = ("temperature_c",)

    name: Text  # nvme0
    model: Text | None = None
    serial: Text | None = None
    firmware: Text | None = None
    state: Text | None = None  # live, resetting, connecting, dead
    transport: Text | None = None  # pcie, tcp, rdma, fc
    address: Text | None = None  # 0000:1b:00.0 of pcie
    numa_node: int | None = None  # -1: the firmware does not say
    # of its own, read only if a baseline asks for it
    temperature_c: int | None = None
    health: NvmeHealthLog | None = None

    def __post_init__(self) -> None:
        clear_unknown_words(self, "state")


class Nvme(SectionRecord, frozen=True, kw_only=True):
    """NVMe controllers. Their health logs are read only if a baseline asks for them."""

    unique = ("controllers[].name",)
    plural = "NVMe drives"

    controllers: Annotated[tuple[NvmeController, ...], NVME_CONTROLLERS] | None = None
