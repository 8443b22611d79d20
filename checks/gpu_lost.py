"""Every GPU responds and needs no reset.

**Why it matters.** If a GPU fell off the bus, or the driver gave up on it, every job that gets it
fails, and the node keeps attracting jobs. A GPU that needs a reset may go on computing, with
errors.

**Read from** NVML (a handle for each GPU, the error that any call about it gives, the field
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, the performance state and the memory in use) and the PCI
function of the GPU, whose revision reads ff once it is gone.

**Verdicts.** Fails if NVML gives no handle because of a fault of the GPU, if any call answers that
the GPU is lost or needs a reset, if the driver asks for a recovery action, or if the PCI revision
is ff. RECOVER_IMEX_DOMAIN does not concern the GPU itself: `imex` fails then. Unknown if one of
these was not read, or if nothing shows that the GPU responds. Drivers before 570 have no recovery
action: that part is not applicable. The check `gpu_count` finds a GPU that is missing altogether.

**To fix it** drain the node; for a reset, run `nvidia-smi --gpu-reset -i BUS_ID` while nothing
uses the GPU, otherwise reboot. Off the bus: power the node off and on. If it comes back lost,
reseat or replace it; the kernel log has the reason (Xid 79, 119, 154).
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set

from msgspec import UNSET

from nodevet.checking.named import reads_of
from nodevet.checking.recovery import ACTIONS, BY_NAME, IMEX_DOMAIN, NONE, Remedy
from nodevet.evidence.across import (
    IN_HAND,
    each_gpu,
    located_gpus,
    losses,
    off_the_bus,
    pci_of,
    unlisted_gpus_finding,
)
from nodevet.evidence.core import NOT_SUPPORTED
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)

NO_SUCH_FIELD = (*NOT_SUPPORTED, "NVML_ERROR_INVALID_ARGUMENT", "NVML_ERROR_FUNCTION_NOT_FOUND")
"""The errors that drivers before 570 return for the recovery action."""

FIRST = "drain the node and run nvidia-bug-report.sh"  # a reset deletes this information
OFF_THE_BUS = f"{FIRST}, then power it off and on: no reset reaches the GPU, and a reboot may not"
LOST = f"{FIRST}, then reboot; if it stays lost, power the node off and on"
SEVERAL = "More than one GPU is lost: first check what they share: power, and riser or switch board"
AGAIN = (
    "If it comes back, reseat the GPU or swap its slot; attach the report and the Xid lines of the "
    "kernel log (79, 119, 154) to the RMA"
)
WANTS_RESET = "NVML_ERROR_RESET_REQUIRED"
REMEDIES = {**BY_NAME, WANTS_RESET: Remedy.RESET}


class Params(CheckParams):
    """`gpu_lost: {}`"""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    off = off_the_bus(evidence)
    gpus = located_gpus(evidence)
    if not gpus:
        yield from (entry for entry in each_gpu(evidence) if isinstance(entry, Finding))
    pairs = tuple(zip(gpus, losses(evidence), strict=True))
    lost_addresses = [gpu.bus_id for gpu, why in pairs if why not in (None, WANTS_RESET)]
    several = shared_loss(evidence, lost_addresses, off)
    for gpu, why in pairs:
        yield from judge_gpu(evidence, gpu, why, several)
    for address in sorted(off - {gpu.bus_id for gpu in gpus}):
        subject = Subject(kind="pci", id=address, bus_id=address)
        advice = advice_for("off the bus", several)
        details = {"bus id": address, **several}
        yield fail(subject, expected="usable", actual="off the bus", advice=advice, details=details)
    unlisted_finding = unlisted_gpus_finding(evidence, off)
    if unlisted_finding is not None:
        yield unlisted_finding


def judge_gpu(
    evidence: Evidence, gpu: Gpu, nvml_error: str | None, several: dict[str, str]
) -> Iterator[Finding]:
    """`nvml_error`: the NVML error that says that the GPU is lost."""
    subject, action, function = subject_of(gpu), gpu.recovery_action, pci_of(evidence, gpu)
    off = isinstance(function, PciFunction) and function.revision == "ff"
    signs = [why for why in ("off the bus" if off else None, nvml_error) if why]
    if action not in (None, NONE, IMEX_DOMAIN):
        signs.append(action)
    if signs:
        yield fail(
            subject,
            expected="usable",
            actual=", ".join(signs),
            advice=advice_for(signs[0], several),
            details={**board(gpu), **several},
            cause="row_remapping" if signs == ["GPU_RESET"] and gpu.remapping.pending else UNSET,
        )
    unclear = [] if off or nvml_error else why_unsure(gpu, function)
    if unclear:
        yield unknown(subject, why="; ".join(unclear))
    if signs or unclear:
        return
    why = f"the driver asks for {action}: see imex" if action == IMEX_DOMAIN else ""
    yield ok(subject, expected="usable", actual="usable", why=why)
    if action is None:
        yield not_applicable(
            subject, why="the driver does not report whether the GPU needs a reset"
        )


def advice_for(sign: str, several: dict[str, str]) -> str:
    """What to do about a GPU that is lost. `several`: see `together`."""
    if sign in REMEDIES:
        return REMEDIES[sign].value
    first = OFF_THE_BUS if sign == "off the bus" else LOST
    return f"{first}. {SEVERAL if several else AGAIN}"


def shared_loss(evidence: Evidence, lost: Sequence[str | None], off: Set[str]) -> dict[str, str]:
    """How many GPUs are lost and what they share; empty if fewer than two are. `lost`: the
    addresses of GPUs that NVML reports lost."""
    addresses = [*lost, *sorted(off - set(lost))]
    if len(addresses) < 2:
        return {}
    port = shared_port(evidence, addresses)
    return {"lost here": f"{len(addresses)} GPUs{f', all behind port {port}' if port else ''}"}


def shared_port(evidence: Evidence, addresses: Sequence[str | None]) -> str:
    """The nearest port above all these GPUs and above no other GPU; empty without such a port."""
    functions = (data.functions if (data := evidence[Pci].data) else None) or ()
    gpus = {
        function.address: function.upstream or ()
        for function in functions
        if function.kind == "gpu"
    }
    above = [gpus[address] for address in addresses if address in gpus]
    if len(above) < len(addresses):
        return ""
    all_lost = set(addresses)
    others = {port for address, ports in gpus.items() if address not in all_lost for port in ports}
    times = Counter(port for ports in above for port in set(ports))
    common = (port for port in above[0] if times[port] == len(above))
    return next((port for port in common if port not in others), "")


def why_unsure(gpu: Gpu, function: PciFunction | Finding) -> list[str]:
    """Why a GPU without a sign of loss may still be lost; empty if it is usable."""
    if "handle" in gpu.errors:
        return [f"NVML: {gpu.why('handle')}"]
    reasons = []
    if gpu.recovery_action is None and gpu.errors.get("recovery_action") not in NO_SUCH_FIELD:
        reasons.append(f"recovery_action: {gpu.why('recovery_action')}")
    if not answers(gpu):
        reasons.append(f"pstate: {gpu.why('pstate')}, memory_used_b: {gpu.why('memory_used_b')}")
    if isinstance(function, Finding):
        reasons.append(function.why)
    elif function.revision is None:
        reasons.append(f"revision: {function.why('revision')}")
    return reasons


def answers(gpu: Gpu) -> bool:
    """Whether a value came back that the driver cannot know without asking the GPU."""
    used, pstate = gpu.memory_used_b, gpu.pstate
    return (used is not None and used >= 0) or (pstate is not None and 0 <= pstate < 16)


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "bus_id", "recovery_action", "pstate", "memory_used_b"),
        *reads_of("pci.functions[]", "address", "revision"),
    ),
    judge=judge,
    actions={**ACTIONS, OFF_THE_BUS: NeededAction.POWER_CYCLE, LOST: NeededAction.REBOOT},
)
