"""Every GPU's PCIe link has the expected generation and width, all the way to the CPU.

**Why it matters.** A link that trained at half its width, or three generations down, still works.
But loading data, checkpoints and GPU-to-NIC traffic take two to sixteen times as long, and nothing
reports an error.

**Read from** NVML: nvmlDeviceGetCurrPcieLinkGeneration, ...CurrPcieLinkWidth, their maxima,
nvmlDeviceGetPerformanceState, ...CurrentClocksEventReasons. From
`/sys/bus/pci/devices/*/{current,max}_link_{speed,width}`: every port between the GPU and the CPU,
except in virtual machines, whose ports are not real.

**Verdicts.** A better link than expected is ok. The width always counts. The generation counts with
one exception: an idle GPU lowers its link to Gen1 or Gen2 and raises it under load. In P-state P5
or above such a link is not applicable, because it shows nothing; check again under load. In P0 to
P4 it is unknown if NVML reports the GPU as idle, and fails otherwise. The exception never covers
Gen3 and above, or a GPU or port that does not support the expected link. A link further up fails if
it carries less than the expected link. A GPU is unknown if NVML, the kernel and the port above it
report different widths. `max` is the best link that GPU and ports support together. If NVML reports
neither for a vGPU, it has no link of its own and is not applicable: judge the GPU on its host.

**To fix it** reseat the GPU, then its riser or cable; check the slot's lanes, its bifurcation and a
fixed link speed in the BIOS; compare with the same slot of a healthy node. If the finding names a
port as the limit, the slot or the platform is the cause.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import usual
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu, pci_of
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.evidence.pci import RATES, WIDTHS, Pci, PciFunction, generation_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    not_applicable,
)

GPU_IDLE = 0x1
IDLE_GENERATIONS = 2  # the highest generation of an idle link
IDLE_PSTATE = 5  # the first P-state in which the driver lowers the link
RETRAIN = (
    "reboot once, which retrains the link; if it stays slow, power the node off and reseat the "
    "GPU, then its riser, cable or retimer"
)
SWAP = (
    "Swap it with a known-good GPU: if the fault follows the card, RMA the card; if it stays, "
    "suspect the slot, riser or retimer"
)
ANOTHER_BOARD = (
    "the board itself supports no more: see gpu_model, and check that the baseline is for it"
)
NARROW = (
    "that port supports no more: check its bifurcation and link speed in the BIOS, and the riser "
    "or switch board behind it"
)
ALL = (
    "all GPUs here are too slow: first check what they share: BIOS (link speed, bifurcation, "
    "ASPM), riser or switch board, or a baseline for another platform"
)
VIRTUAL = (
    "in a virtual machine the slot belongs to the host: check slot, riser and BIOS there, and "
    "the GPU's virtual port"
)


class Params(CheckParams):
    """`pcie_link: {generation: 5, width: 16}` or `pcie_link: {generation: max, width: max}`"""

    generation: Literal[1, 2, 3, 4, 5, 6, "max"]
    width: Literal[1, 2, 4, 8, 16, 32, "max"]


class LinkPart(NamedTuple):
    """The finding about one part: the width, the generation, or the ports above."""

    verdict: Verdict
    expected: str = ""
    actual: str = ""
    why: str = ""
    advice: str = ""


WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE, Verdict.OK)
Ports = tuple[PciFunction, ...] | str  # nearest first; or why they were not read


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    judged: list[Finding | tuple[Gpu, Finding]] = []
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            judged.append(gpu)
        elif has_no_link(gpu):
            judged.append(not_applicable(subject_of(gpu), why="a vGPU has no PCIe link of its own"))
        else:
            own, ports = pci_of(evidence, gpu), ports_above(evidence, gpu)
            finding, *unread = judge_gpu(gpu, own, ports, params)
            judged += [(gpu, finding), *unread]
    verdicts = Counter(entry[1].verdict for entry in judged if not isinstance(entry, Finding))
    for entry in judged:
        if isinstance(entry, Finding) or entry[1].verdict is not Verdict.FAIL:
            yield entry if isinstance(entry, Finding) else entry[1]
        else:
            yield with_advice(evidence, *entry, verdicts)


def has_no_link(gpu: Gpu) -> bool:
    """Whether it is a vGPU, which has no link that could be slow."""
    fields = ("pcie_generation", "pcie_width")
    return gpu.virtualization_mode == "VGPU" and all(unsupported(gpu, field) for field in fields)


def with_advice(
    evidence: Evidence, gpu: Gpu, finding: Finding, verdicts: Counter[Verdict]
) -> Finding:
    """The failure with advice from the other GPUs of the node. `verdicts`: those of all GPUs."""
    host, retrain = evidence[HostInfo].data, RETRAIN in finding.advice
    fine, others = verdicts[Verdict.OK], verdicts.total() - 1
    steps = [finding.advice]
    if host and host.virtualization not in (None, "none", "container"):
        steps = [VIRTUAL]
    elif others and verdicts[Verdict.FAIL] == others + 1:
        steps = [*([] if retrain else steps), ALL]
    elif retrain:
        steps += [SWAP, "For an RMA: nvidia-bug-report.sh, `lspci -vvv` of both ends"]
    else:
        steps.append("Compare its slot with that of a known-good GPU")
    details = {**board(gpu), **errors(evidence, gpu)}
    if others:
        details["other GPUs here"] = f"{fine} of {others} ok"
    return msgspec.structs.replace(finding, advice=". ".join(steps), details=details)


def errors(evidence: Evidence, gpu: Gpu) -> dict[str, str]:
    """The counted errors of a GPU's link, if there are any."""
    function = pci_of(evidence, gpu)
    aer = None if isinstance(function, Finding) else function.aer.correctable
    counted = {"corrected AER errors": aer, "replays": gpu.pcie_replay_counter}
    return {what: str(count) for what, count in counted.items() if count}


def judge_gpu(
    gpu: Gpu, own: PciFunction | Finding, ports: Ports, params: Params
) -> tuple[Finding, ...]:
    """One finding; a second one for unknown parts besides a failure, because a waiver must not
    cover values that were not read. `own`: the GPU's PCI function, or why it is not known."""
    width = expected_width_of(gpu, ports, params)
    generation = expected_generation_of(gpu, ports, params)
    near = () if isinstance(ports, str) else ports[:1]
    parts = [judge_generation(gpu, near, generation), judge_width(gpu, near, width)]
    if near and isinstance(own, PciFunction) and gpu.pcie_width in WIDTHS:
        parts.append(judge_ends(gpu, own, near[0]))
    if isinstance(ports, str):
        parts.append(LinkPart(Verdict.UNKNOWN, why=ports))
    elif isinstance(width, int) and isinstance(generation, int):
        parts.append(judge_above(gpu, ports, width, generation))
    verdicts = {part.verdict for part in parts}
    worst = [verdict for verdict in WORST if verdict in verdicts]
    both = worst[:2] == [Verdict.FAIL, Verdict.UNKNOWN]
    return tuple(merged(subject_of(gpu), parts, verdict) for verdict in worst[: 2 if both else 1])


def ports_above(evidence: Evidence, gpu: Gpu) -> Ports:
    """The ports between a GPU and the CPU; none in a virtual machine, where they are not real."""
    host = evidence[HostInfo].data
    if host is None:
        return f"host: {evidence[HostInfo].why}"
    if not host.virtualization:
        return f"virtualization: {host.why('virtualization')}"
    function = pci_of(evidence, gpu)
    if isinstance(function, Finding):
        return function.why
    if host.virtualization not in ("none", "container"):
        return ()
    if function.upstream is None or "upstream" in function.errors:
        return f"upstream: {function.why('upstream')}"
    functions = data.by_address if (data := evidence[Pci].data) else {}
    if any(address not in functions for address in function.upstream):
        return "a port above the GPU is not in the evidence"
    return tuple(functions[address] for address in function.upstream)


def expected_width_of(gpu: Gpu, ports: Ports, params: Params) -> int | str:
    """Lanes, or why `max` is unknown."""
    if params.width != "max":
        return params.width
    if gpu.pcie_width_max not in WIDTHS:
        return why_unusable(gpu, "pcie_width_max")
    if isinstance(ports, str):
        return ports
    if not ports and (gpu.pcie_width or 0) < gpu.pcie_width_max:
        return "no port above the GPU is visible: its slot may have fewer lanes"
    for port in ports:
        if port.link_width_max not in WIDTHS:
            return f"link_width_max: {port.why('link_width_max')}"
    return min([gpu.pcie_width_max, *(port.link_width_max or 0 for port in ports)])


def expected_generation_of(gpu: Gpu, ports: Ports, params: Params) -> int | str:
    """The generation, or why `max` is unknown."""
    if params.generation != "max":
        return params.generation
    if gpu.pcie_generation_max not in RATES:
        return why_unusable(gpu, "pcie_generation_max")
    if isinstance(ports, str):
        return ports
    for port in ports:
        if not generation_of(port.link_gts_max):
            return f"link_gts_max: {port.why('link_gts_max')}"
    return min([gpu.pcie_generation_max, *(generation_of(port.link_gts_max) for port in ports)])


def why_unusable(gpu: Gpu, field: str) -> str:
    """Why a field cannot be used: it was not read, or its value is not valid."""
    value = getattr(gpu, field)
    return f"{field}: {gpu.why(field) if value is None else f'NVML says {value}'}"


def judge_width(gpu: Gpu, near: tuple[PciFunction, ...], expected_width: int | str) -> LinkPart:
    if gpu.pcie_width not in WIDTHS:
        return LinkPart(Verdict.UNKNOWN, why=why_unusable(gpu, "pcie_width"))
    if isinstance(expected_width, str):
        return LinkPart(Verdict.UNKNOWN, why=expected_width)
    expected, actual = f"x{expected_width}", f"x{gpu.pcie_width}"
    if gpu.pcie_width >= expected_width:
        return LinkPart(Verdict.OK, expected, actual)
    if gpu.pcie_width_max is not None and gpu.pcie_width_max < expected_width:
        why = f"NVML's maximum for this GPU in this slot is x{gpu.pcie_width_max}"
        return LinkPart(Verdict.FAIL, expected, actual, why, lanes(expected_width))
    if near and near[0].link_width_max is not None and near[0].link_width_max < expected_width:
        why = f"limited by port {near[0].address}, whose maximum is x{near[0].link_width_max}"
        return LinkPart(Verdict.FAIL, expected, actual, why, lanes(expected_width))
    return LinkPart(Verdict.FAIL, expected, actual, advice=RETRAIN)


def judge_generation(
    gpu: Gpu, near: tuple[PciFunction, ...], expected_generation: int | str
) -> LinkPart:
    now = gpu.pcie_generation
    if now not in RATES:
        return LinkPart(Verdict.UNKNOWN, why=why_unusable(gpu, "pcie_generation"))
    if isinstance(expected_generation, str):
        return LinkPart(Verdict.UNKNOWN, why=expected_generation)
    expected, actual = f"Gen{expected_generation}", f"Gen{now}"
    if now >= expected_generation:
        return LinkPart(Verdict.OK, expected, actual)
    for name, most, advice in (
        ("the GPU", gpu.pcie_generation_device_max, ANOTHER_BOARD),
        *(
            (
                f"port {port.address}",
                generation_of(port.link_gts_max) or None,
                speed(expected_generation),
            )
            for port in near
        ),
        ("the GPU in this slot", gpu.pcie_generation_max, speed(expected_generation)),
    ):
        if most is not None and most < expected_generation:
            why = f"limited by {name}, whose maximum is Gen{most}"
            return LinkPart(Verdict.FAIL, expected, actual, why, advice)
    if now > IDLE_GENERATIONS:
        return LinkPart(Verdict.FAIL, expected, actual, advice=RETRAIN)
    return lowered_part(gpu, expected, actual)


def lanes(width: int) -> str:
    return (
        f"reseating does not help: use a slot and riser with x{width} lanes, and in the BIOS set "
        f"this slot's bifurcation to x{width}"
    )


def speed(generation: int) -> str:
    return (
        f"in the BIOS set this slot's link speed to Auto or Gen{generation}; a riser or platform "
        "of an older generation cannot reach it"
    )


def judge_ends(gpu: Gpu, own: PciFunction, port: PciFunction) -> LinkPart:
    """Whether NVML, the kernel and the port below which the GPU is report the same width."""
    for function, end in ((own, "the kernel"), (port, "its port")):
        if function.link_width is None:
            why = f"{function.address}: link_width: {function.why('link_width')}"
            return LinkPart(Verdict.UNKNOWN, why=why)
        if function.link_width != gpu.pcie_width:
            ends = f"NVML reports x{gpu.pcie_width}, {end} x{function.link_width}"
            return LinkPart(Verdict.UNKNOWN, why=f"the widths of the link disagree: {ends}")
    return LinkPart(Verdict.OK)


def judge_above(gpu: Gpu, ports: tuple[PciFunction, ...], width: int, generation: int) -> LinkPart:
    """The links above the GPU's own: each must carry as much as the expected link."""
    slowest = None
    for port in ports[1:]:
        if port.link_width is None or port.link_gts is None:
            field = "link_width" if port.link_width is None else "link_gts"
            return LinkPart(Verdict.UNKNOWN, why=f"{field}: {port.why(field)}")
        if port.link_width not in WIDTHS or not generation_of(port.link_gts):
            why = f"not a valid PCIe link: {port.link_gts:g} GT/s x{port.link_width}"
            return LinkPart(Verdict.UNKNOWN, why=f"{port.address}: {why}")
        rate = port.link_width * port.link_gts
        if rate < width * RATES[generation] and (slowest is None or rate < slowest[0]):
            slowest = (rate, port, port.link_width, port.link_gts)
    if slowest is None:
        return LinkPart(Verdict.OK)
    _, port, lanes, gts = slowest
    expected, actual = f"Gen{generation} x{width}", f"Gen{generation_of(gts)} x{lanes}"
    why = f"limited by {port.address} above the GPU"
    at_best = lanes * (port.link_gts_max or 0)
    if gts <= RATES[IDLE_GENERATIONS] and at_best >= width * RATES[generation]:
        return lowered_part(gpu, expected, actual, why)
    if at_best < width * RATES[generation]:
        return LinkPart(Verdict.FAIL, expected, actual, why, NARROW)
    return LinkPart(Verdict.FAIL, expected, actual, why, RETRAIN)


def lowered_part(gpu: Gpu, expected: str, actual: str, limit: str = "") -> LinkPart:
    """A link at an idle speed: whether the GPU is idle."""
    if gpu.pstate is None or gpu.pstate > 15:
        return LinkPart(Verdict.UNKNOWN, expected, actual, f"pstate: {gpu.why('pstate')}")
    if gpu.pstate >= IDLE_PSTATE:
        return LinkPart(
            Verdict.NOT_APPLICABLE, expected, actual, f"idle in P{gpu.pstate}: check it under load"
        )
    if gpu.event_reasons is None:
        return LinkPart(
            Verdict.UNKNOWN, expected, actual, f"event_reasons: {gpu.why('event_reasons')}"
        )
    if gpu.event_reasons & GPU_IDLE:
        why = f"idle, but in P{gpu.pstate}: check again under load"
        return LinkPart(Verdict.UNKNOWN, expected, actual, why)
    return LinkPart(Verdict.FAIL, expected, actual, limit, RETRAIN)


def merged(subject: Subject, parts: list[LinkPart], verdict: Verdict) -> Finding:
    """The parts of this verdict as one finding."""
    same = [part for part in parts if part.verdict is verdict]

    def joined(field: str, between: str) -> str:
        return between.join(dict.fromkeys(filter(None, (getattr(part, field) for part in same))))

    return Finding(
        verdict=verdict,
        subject=subject,
        expected=joined("expected", " ") or None,
        actual=joined("actual", " ") or None,
        why=joined("why", "; "),
        advice=joined("advice", "; "),
    )


def learn(evidence: Evidence) -> Value:
    """The best link that GPU and ports support, which an idle GPU does not show."""
    gpus = [gpu for gpu in answering_gpus(evidence) if not has_no_link(gpu)]
    generation = usual(gpu.pcie_generation_max for gpu in gpus)
    width = usual(gpu.pcie_width for gpu in gpus)
    return {"generation": generation, "width": width} if generation and width else None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "bus_id", "event_reasons", "pcie_generation"),
        *reads_of("gpu.gpus[]", "pcie_generation_device_max", "pcie_generation_max", "pcie_width"),
        *reads_of("gpu.gpus[]", "pcie_width_max", "pstate", "virtualization_mode"),
        "host.virtualization",
        *reads_of("pci.functions[]", "address", "link_gts", "link_gts_max", "link_width"),
        *reads_of("pci.functions[]", "link_width_max", "upstream[]"),
    ),
    judge=judge,
    unasked="each board has its own rate, so a common part sets none",
    learn=learn,
    actions={RETRAIN: NeededAction.REBOOT},
)
