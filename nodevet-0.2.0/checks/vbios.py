"""Every GPU runs a VBIOS version of the baseline, or the same version as equal boards.

**Why it matters.** The VBIOS sets power tables, clocks, fan curves and memory timings. If a board
was replaced or missed an update, it behaves differently from its neighbours although all settings
are the same, and some driver branches refuse an old VBIOS.

**Read from** NVML: nvmlDeviceGetVbiosVersion, and for the board nvmlDeviceGetBoardPartNumber and
the PCI ids.

**Verdicts.** With `one_of`, a GPU with any other version fails. Without it, the check compares the
GPUs of one node that have the same PCI ids and board part number: a GPU that differs from most of
them fails; if most of them do not share one version, all of them fail. A GPU that is alone with its
part number is then not applicable. A GPU that does not report its VBIOS (a vGPU) is not applicable,
too.

**To fix it** drain the node and update the board with the server vendor's firmware package, which
has the VBIOS together with the rest of the baseboard's firmware. With NVIDIA's tool, run
`nvfwupd -c FILE update_fw` (FILE names the BMC, its login and the package), then power the node off
and on. `nvfwupd -c FILE show_version` shows the result. For a replaced board, ask the vendor for
the bundle that matches the other boards.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.alike import BOARD, each_version, learn_versions
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, Finding, Severity, one_or_more

ADVICE = (
    "drain the node and bring all boards to one version with the server vendor's firmware bundle "
    "(nvfwupd or the vendor's tool; it needs a power cycle); ask the vendor if the board was "
    "replaced"
)


class Params(CheckParams):
    """`vbios: {}`, `vbios: 96.00.99.00.01` or `vbios: [96.00.99.00.01, 96.00.A5.00.01]`"""

    bare: ClassVar[str] = "one_of"

    one_of: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """The allowed versions, as NVML spells them; if not set, the versions must be equal."""

    def __post_init__(self) -> None:
        one_or_more(self, "one_of")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    lacking = "this GPU does not report its VBIOS version"
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
