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

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci_settings import (
    ONE_GIGABIT,
    READS,
    PciSetting,
    each_setting,
    of_metal,
    subject_of,
)
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

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
        given = (
            self.minimum_read_request_b,
            self.minimum_payload_b,
            self.relaxed_ordering,
            self.aspm,
        )
        if all(each is None for each in given):
            raise ValueError("give at least one setting")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = of_metal(evidence)
    if virtual is None:
        yield unknown(why="host: not known whether this is a virtual machine")
    elif virtual:
        yield not_applicable(why="a virtual machine sees the settings that its hypervisor shows")
    else:
        for setting in each_setting(evidence, params.of, params.ignore):
            yield setting if isinstance(setting, Finding) else judge_function(setting, params)


def judge_function(setting: PciSetting, params: Params) -> Finding:
    """One finding: what differs, else what was not read, else all that is right."""
    answers: list[tuple[str, str, str, bool | None]] = []  # field, wanted, actual, right
    for field, least, name in (
        ("max_read_request_b", params.minimum_read_request_b, "MaxReadReq"),
        ("max_payload_b", params.minimum_payload_b, "MaxPayload"),
    ):
        if least is not None:
            size = getattr(setting, field)
            right = None if size is None else size >= least
            answers.append((field, f"{name} at least {least} B", f"{name} {size} B", right))
    if params.relaxed_ordering is not None:
        words = {True: "relaxed ordering", False: "strict ordering", None: ""}
        found = setting.relaxed_ordering
        right = None if found is None else found is params.relaxed_ordering
        wanted = words[params.relaxed_ordering]
        answers.append(("relaxed_ordering", wanted, words[found], right))
    if params.aspm is not None:
        right = None if setting.aspm is None else setting.aspm == params.aspm
        answers.append(("aspm", f"ASPM {params.aspm}", f"ASPM {setting.aspm}", right))
    subject = subject_of(setting)
    bad = [answer for answer in answers if answer[3] is False]
    doubtful = [answer for answer in answers if answer[3] is None]
    if doubtful and not bad:
        return unread(subject, setting, doubtful[0][0])
    told = bad or answers
    return (fail if bad else ok)(
        subject,
        expected=", ".join(wanted for _, wanted, _, _ in told),
        actual=", ".join(actual for _, _, actual, _ in told),
        advice=ADVICE if bad else "",
        details={"kind": setting.kind or ""},
    )


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        *READS,
        "pci_settings.functions[].driver",
        "pci_settings.functions[].max_read_request_b",
        "pci_settings.functions[].max_payload_b",
        "pci_settings.functions[].relaxed_ordering",
        "pci_settings.functions[].aspm",
        "host.virtualization",
    ),
    judge=judge,
    severity=Severity.WARNING,
    asks=lambda params: {"pci_settings": ("config",)},
)
