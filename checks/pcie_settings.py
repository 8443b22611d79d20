"""GPUs and NICs have the expected PCIe settings: request and payload size, ordering, ASPM.

**Why it matters.** A NIC that reads 512 bytes at a time where its neighbours read 4096 sends at
half their rate over GPUDirect. Without relaxed ordering an AMD host writes to memory at a fraction
of the link's speed, and links that fall asleep (ASPM) wake up late. All of it is set by the BIOS
at boot, and lost by an update or a reset of its settings.

**Read from** the PCI Express capability in the configuration space of each function, as
`lspci -vvv` shows it: MaxReadReq, MaxPayload and RlxdOrd in DevCtl, ASPM in LnkCtl.

**Verdicts.** Only what the baseline gives is judged, of GPUs and NICs unless `of` says otherwise.
Virtual functions and GPUs kept for guests are not judged, nor are virtual machines, which see
what the hypervisor shows. Without root it is unknown: only root may read beyond 64 bytes.

**To fix it** set it in the BIOS (PCIe settings), or with mlxconfig for NVIDIA NICs
(MAX_ACC_OUT_READ, PCI_WR_ORDERING); `setpci` until the next boot. ASPM: `pcie_aspm=off` on the
kernel's command line, or `pcie_aspm.policy=performance`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
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
    "compare the BIOS's PCIe settings with a node that is right, an update may have reset them; "
    "`setpci` sets it until the next boot"
)
Size = Literal[128, 256, 512, 1024, 2048, 4096]


class Params(CheckParams):
    """`pcie_settings: {minimum_read_request_b: 4096, aspm: disabled}` or
    `pcie_settings: {minimum_payload_b: 256, relaxed_ordering: true, of: [nic]}`"""

    minimum_read_request_b: Size | None = None
    """MaxReadReq, bytes."""
    minimum_payload_b: Size | None = None
    """MaxPayload, bytes."""
    relaxed_ordering: bool | None = None
    aspm: Literal["disabled"] | None = None
    of: Annotated[tuple[Literal["gpu", "nic", "nvme"], ...], Meta(min_length=1)] = (
        "gpu",
        "nic",
    )
    ignore: tuple[str, ...] = ONE_GIGABIT
    """Drivers or addresses of functions that are not judged."""

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
        yield unknown(why="host: not known whether this is a virtual machine")
    elif virtual:
        yield not_applicable(why="a virtual machine sees the settings that its hypervisor shows")
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
    unasked="only a site knows what its adapters want: say pcie_settings: {aspm: disabled}",
    severity=Severity.WARNING,
    asks=lambda params: {"pci_settings": ("config",)},
)
