"""Every GPU runs a VBIOS version that the baseline lists, or the same as the others of its board.

**Why it matters.** The VBIOS sets power tables, clocks, fan curves and memory timings. A board
that was replaced, or that missed an update, behaves differently from its neighbours with every
setting the same, and some driver branches refuse an old VBIOS.

**Read from** NVML: nvmlDeviceGetVbiosVersion, and of the board nvmlDeviceGetBoardPartNumber and
the PCI ids.

**Verdicts.** With `one_of`, a GPU that has another version fails. Without it, the GPUs of one node
that have the same PCI ids and board part number are compared: one that differs from most of them
fails; if no version is that of most, all of them fail. A GPU that is alone with its part number is
then not applicable, as is one that does not tell its VBIOS (a vGPU).

**To fix it** drain the node and update the board with the server vendor's firmware package, which
brings the VBIOS together with the rest of the baseboard's firmware. For a replaced board, ask the
vendor for the bundle that matches the others.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.alike import BOARD, each_version, learn_versions
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, Finding, Severity, one_or_more

ADVICE = (
    "drain the node and bring it to one level with the server vendor's firmware bundle (nvfwupd "
    "or the vendor's tool; it needs a power cycle); ask the vendor if the board was replaced"
)


class Params(CheckParams):
    """`vbios: {}`, `vbios: 96.00.99.00.01` or `vbios: [96.00.99.00.01, 96.00.A5.00.01]`"""

    bare: ClassVar[str] = "one_of"

    one_of: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """The versions that are allowed, as NVML spells them; without it the GPUs must be alike."""

    def __post_init__(self) -> None:
        one_or_more(self, "one_of")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    lacking = "this GPU does not tell its VBIOS version"
    yield from each_version(
        evidence, "vbios_version", params.one_of, lacking=lacking, advice=ADVICE
    )


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*BOARD, "gpu.gpus[].vbios_version"),
    judge=judge,
    unasked="for data center GPUs: boards of other makers differ",
    learn=lambda evidence: learn_versions(evidence, "vbios_version"),
    severity=Severity.WARNING,
)
