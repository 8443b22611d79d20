"""GPUs and NICs have the expected PCIe settings: request and payload size, ordering, ASPM.

**Why it matters.** A NIC that reads 512 bytes at a time sends over GPUDirect at half the rate of
neighbours that read 4096. Without relaxed ordering an AMD host writes to memory at a fraction of
the link's speed, and sleeping links (ASPM) wake up late. The BIOS sets all of this at boot, and an
update or a reset of its settings loses it.

**Read from** the PCI Express capability in the configuration space of each function, as `lspci
-vvv` shows it: MaxReadReq, MaxPayload and RlxdOrd in DevCtl, ASPM in LnkCtl.

**Verdicts.** The check judges only the settings in the baseline, of GPUs and NICs unless `of` names
other kinds. It skips virtual functions, GPUs kept for guests, and virtual machines, which see only
the hypervisor's values. Without root it is unknown: only root may read beyond 64 bytes.

**To fix it** set the value in the BIOS (PCIe settings), or with mlxconfig for NVIDIA NICs
(MAX_ACC_OUT_READ, PCI_WR_ORDERING); `setpci` sets it until the next boot. ASPM: `pcie_aspm=off` on
the kernel's command line, or `pcie_aspm.policy=performance`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import reads_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci_settings import (
    ONE_GIGABIT,
    READS,
    PciSetting,
    each_setting,
    of_metal,
    subject_of,
)
from nodevet.model import Area, Check, CheckParams, Finding, Severity, not_applicable, unknown

ADVICE = (
    "compare the BIOS's PCIe settings with a good node: an update may have reset them; `setpci` "
    "changes a setting until the next boot"
)
Size = Literal[128, 256, 512, 1024, 2048, 4096]
SIZES = get_args(Size)  # a function that no longer answers reads as 16384


class Params(CheckParams):
    """`pcie_settings: {minimum_read_request_b: 4096, aspm: disabled}` or
    `pcie_settings: {minimum_payload_b: 256, relaxed_ordering: true, of: [nic]}`"""

    minimum_read_request_b: Size | None = None
    """The least MaxReadReq in bytes."""
    minimum_payload_b: Size | None = None
    """The least MaxPayload in bytes."""
    relaxed_ordering: bool | None = None
    aspm: Literal["disabled"] | None = None
    of: Annotated[tuple[Literal["gpu", "nic", "nvme"], ...], Meta(min_length=1)] = (
        "gpu",
        "nic",
    )
    ignore: tuple[str, ...] = ONE_GIGABIT
    """Drivers or addresses of functions to skip."""

    def __post_init__(self) -> None:
        settings = (
            self.minimum_read_request_b,
            self.minimum_payload_b,
            self.relaxed_ordering,
            self.aspm,
        )
        if all(setting is None for setting in settings):
            raise ValueError("give at least one setting")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = of_metal(evidence)
    if virtual is None:
        yield unknown(why="host: unknown whether this is a virtual machine")
    elif virtual:
        yield not_applicable(why="a virtual machine sees only its hypervisor's settings")
    else:
        for setting in each_setting(evidence, params.of, params.ignore):
            if isinstance(setting, Finding):
                yield setting
            else:
                yield from judge_function(setting, params)


def judge_function(setting: PciSetting, params: Params) -> Iterator[Finding]:
    details = {"kind": setting.kind or ""}
    aspects = settings_of(setting, params)
    yield from aspect_findings(
        subject_of(setting), aspects, details, advice=lambda bad: ADVICE, listed=True
    )


def settings_of(setting: PciSetting, params: Params) -> Iterator[Aspect]:
    for field, least, name in (
        ("max_read_request_b", params.minimum_read_request_b, "MaxReadReq"),
        ("max_payload_b", params.minimum_payload_b, "MaxPayload"),
    ):
        size = getattr(setting, field)
        if least is not None and size is None:
            yield unread_aspect(setting, field)
        elif least is not None and size not in SIZES:
            yield unknown_aspect(field, f"{field}: {size} is not valid")
        elif least is not None:
            expected = f"{name} at least {least} B"
            yield aspect_if(field, size >= least, expected=expected, actual=f"{name} {size} B")
    if params.relaxed_ordering is not None:
        words = {True: "relaxed ordering", False: "strict ordering"}
        ordering = setting.relaxed_ordering
        if ordering is None:
            yield unread_aspect(setting, "relaxed_ordering")
        else:
            expected_ordering = params.relaxed_ordering
            right = ordering is expected_ordering
            yield aspect_if(
                "relaxed_ordering", right, expected=words[expected_ordering], actual=words[ordering]
            )
    if params.aspm is not None:
        if setting.aspm is None:
            yield unread_aspect(setting, "aspm")
        else:
            right, expected = setting.aspm == params.aspm, f"ASPM {params.aspm}"
            yield aspect_if("aspm", right, expected=expected, actual=f"ASPM {setting.aspm}")


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        *READS,
        *reads_of("pci_settings.functions[]", "driver", "max_read_request_b", "max_payload_b"),
        *reads_of("pci_settings.functions[]", "relaxed_ordering", "aspm"),
        "host.virtualization",
    ),
    judge=judge,
    unasked="only the site knows the settings of its adapters: write pcie_settings: {aspm: "
    "disabled}",
    severity=Severity.WARNING,
    asks=lambda params: {"pci_settings": ("config",)},
)
