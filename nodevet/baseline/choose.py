"""Choose the baseline that fits a node. Pure; never a guess."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import Host
from nodevet.model.baseline import Applies, Baseline, GpuMatch

NAME_ONE = "name one with -b"
ANY = "-b generic judges any GPU"
FEW = 3  # baselines that are named if none of them fits; more are counted
CHECK = "baseline"
"""The name of a finding about the choice, instead of a check's name."""

PAGE = """Exactly one baseline fits the node, which is judged by it.

**Why it matters.** By another baseline, or by a guess, a broken node may pass. Without a baseline
nothing of the node is judged, so this is its only finding; but this machine, `@local`, is shown
what `generic` says of it, and stays unknown.

**Read from** `applies` of each baseline that may be chosen, the host's name and its groups, and
the ids of its GPUs on the PCI bus and in NVML.

**Verdicts.** Unknown if none fits, if several fit equally well, or if what would decide was not
read. If a project's own baselines do not fit and a shipped one does, the node is judged by that
one too, so that its faults are seen; it stays unknown whether that is all that is expected of it,
so it is never ok. With `-b` only what is named is used, and with one `-b` there is nothing to
choose, and no such finding.

**To fix it** the finding names the baselines and the GPUs. Name the baseline with `-b`, or
write one whose `applies` fits these nodes and no others: `extends: nvidia-a100-sxm-80` is enough,
if that fits them; docs/baselines.md has the order in which they win. If a node shows no GPU, look
at its driver and its PCI bus first: `-b generic` judges both."""
"""What `nodevet explain baseline` shows."""

_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
MOST_KINDS = 8  # of GPUs, in a sentence
LONGEST_ID = 40  # characters of a node's name or id of a GPU


class DetectedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU by PCI and NVML together."""

    name: str | None = None  # NVIDIA H100 80GB HBM3, by NVML
    device: str | None = None  # 10de:2330
    subsystem: str | None = None  # 10de:16c1
    vgpu: bool = False  # a virtual machine's share of a GPU, with the device id of the whole GPU
    why: str = ""  # why its ids are not known


class CannotTell(msgspec.Struct, frozen=True):
    """The evidence does not tell; `why` is a clause."""

    why: str


def choose(baselines: Sequence[Baseline], evidence: Evidence, host: Host) -> Baseline | str:
    """The baseline for this node, or a sentence that says why none can be chosen.

    The most specific fitting baseline wins: hosts, groups, GPU device with subsystem, GPU device. A
    GPU count never rules a baseline out, or a node that lost a GPU would lose its baseline too; it
    decides only between baselines that fit equally well.
    """
    candidates = [baseline for baseline in baselines if baseline.applies is not None]
    if not candidates:
        return f"none of {_names(baselines)} says which nodes it is for (applies); {NAME_ONE}"
    gpus = detected_gpus(evidence)
    fits = {baseline.path: _fits(baseline, gpus, host) for baseline in candidates}
    fitting = [baseline for baseline in candidates if fits[baseline.path] is True]
    best = max(map(_rank, fitting), default=None)
    for candidate in candidates:
        fit = fits[candidate.path]
        if isinstance(fit, CannotTell) and (best is None or _rank(candidate) >= best):
            return f"cannot tell whether {candidate.name} fits: {fit.why}; {NAME_ONE}"
    if best is None:
        return f"{_no_fit_text(candidates, gpus)}; {NAME_ONE} ({ANY}), or {_advice_to_write(gpus)}"
    tied = [baseline for baseline in fitting if _rank(baseline) == best]
    count = len(gpus) if not isinstance(gpus, CannotTell) else None
    winners = _by_count(_most_derived(tied), count)
    if len(winners) == 1:
        return winners[0]
    return _tie_text(winners, count)


def none_fits(baselines: Sequence[Baseline], evidence: Evidence, host: Host) -> bool:
    """Whether certainly none of these baselines fits the node, so that another may replace them."""
    gpus = detected_gpus(evidence)
    candidates = [baseline for baseline in baselines if baseline.applies is not None]
    return all(_fits(baseline, gpus, host) is False for baseline in candidates)


def may_fit(baseline: Baseline, host: Host) -> bool:
    """Whether a baseline may fit a host, judged by the host's name and groups before a visit."""
    applies = baseline.applies or Applies()
    named = applies.hosts is None or host.name in applies.hosts
    return named and (applies.groups is None or bool(applies.groups & host.groups))


def detected_gpus(evidence: Evidence) -> tuple[DetectedGpu, ...] | CannotTell:
    """Every GPU that PCI or NVML lists, also those that only one of them lists."""
    bus, nvml = evidence[Pci].data, evidence[Gpus].data
    functions = bus.functions if bus else None
    nvml_gpus = nvml.gpus if nvml else None
    if functions is None and nvml_gpus is None:
        return CannotTell(f"the GPUs could not be read (PCI: {_pci_why(evidence)})")
    detected: dict[str, DetectedGpu] = {}
    gpus = frozenset(function.address for function in bus.of_kind("gpu")) if bus else ()
    for function in functions or ():
        if function.address in gpus or _nameless(function):
            detected[function.address] = DetectedGpu(
                device=pci_id(function.vendor, function.device),
                subsystem=pci_id(function.subsystem_vendor, function.subsystem_device),
                why=f"PCI function {function.address} shows no id",
            )
    named = bool(detected) or any(gpu.pci_device for gpu in nvml_gpus or ())
    for gpu in nvml_gpus or ():
        if named and _is_lost(gpu):
            continue
        key = gpu.bus_id or f"GPU {gpu.index}"
        known = detected.get(key, DetectedGpu())
        reason = gpu.errors.get("handle") or gpu.why("pci_device")
        device = gpu.pci_device.lower() if gpu.pci_device else None
        if known.device and device and device != known.device:
            return CannotTell(f"{key} is {known.device} on the bus and {device} to NVML")
        detected[key] = DetectedGpu(
            name=gpu.name,
            device=known.device or device,
            subsystem=known.subsystem or (gpu.pci_subsystem or "").lower() or None,
            vgpu=gpu.virtualization_mode == "VGPU",
            why=f"GPU {gpu.index} shows no id ({reason})",
        )
    if functions is None and not detected:
        return CannotTell(f"NVML lists no GPU and the bus could not be read ({_pci_why(evidence)})")
    return tuple(detected.values())


def _is_lost(gpu: Gpu) -> bool:
    """Whether NVML counts the GPU and knows nothing else of it: its neighbours show what the node
    is, and every check of this GPU will be unknown.
    """
    return "handle" in gpu.errors and gpu.bus_id is None and gpu.pci_device is None


def _pci_why(evidence: Evidence) -> str:
    data = evidence[Pci].data
    return data.why("functions") if data else evidence[Pci].why


def _nameless(function: PciFunction) -> bool:
    """Whether the function's kind was not read, so that it may be a GPU."""
    return function.class_code is None or function.vendor is None


def pci_id(vendor: str | None, device: str | None) -> str | None:
    """`10de:2330`, or None if one half was not read."""
    return f"{vendor}:{device}".lower() if vendor and device else None


def _fits(
    baseline: Baseline, gpus: tuple[DetectedGpu, ...] | CannotTell, host: Host
) -> bool | CannotTell:
    """Whether every part of the baseline's `applies` matches."""
    if not may_fit(baseline, host):
        return False
    match = baseline.applies.gpu if baseline.applies else None
    return match is None or _gpus_fit(match, gpus)


def _gpus_fit(match: GpuMatch, gpus: tuple[DetectedGpu, ...] | CannotTell) -> bool | CannotTell:
    """Whether the node has GPUs, and the baseline names the kind of each."""
    if isinstance(gpus, CannotTell):
        return gpus
    result: bool | CannotTell = bool(gpus)
    for gpu in gpus:
        fits = _one_fits(match, gpu)
        if fits is False:
            return False
        result = fits if result is True else result
    return result


def _one_fits(match: GpuMatch, gpu: DetectedGpu) -> bool | CannotTell:
    """Whether one GPU fits. A vGPU is not a board: only its subsystem id, its profile, can fit."""
    if gpu.vgpu and not match.subsystems:
        return False
    for expected, actual in ((match.devices, gpu.device), (match.subsystems, gpu.subsystem)):
        if expected and actual is not None and actual not in expected:
            return False
    if match.devices and gpu.device is None:
        return CannotTell(gpu.why)
    if match.subsystems and gpu.subsystem is None:
        return CannotTell(f"a {gpu.device or 'GPU'} shows no subsystem id")
    return True


def _rank(baseline: Baseline) -> tuple[bool, bool, bool, bool]:
    """How specific a baseline is, for comparison."""
    applies = baseline.applies or Applies()
    gpu = applies.gpu or GpuMatch()
    return (
        applies.hosts is not None,
        applies.groups is not None,
        bool(gpu.subsystems),
        bool(gpu.devices),
    )


def _most_derived(baselines: Sequence[Baseline]) -> list[Baseline]:
    """The baselines that no other one here extends, or only one with a different count."""
    return [
        base
        for base in baselines
        if not any(
            base.path in baseline.lineage and _count(baseline) in (None, _count(base))
            for baseline in baselines
        )
    ]


def _by_count(baselines: Sequence[Baseline], count: int | None) -> Sequence[Baseline]:
    """The baselines for at least `count` GPUs: a node may lose GPUs, but does not gain any."""
    if count is None:
        return baselines
    possible = [baseline for baseline in baselines if (_count(baseline) or count) >= count]
    return [baseline for baseline in possible if _count(baseline)] or possible or baselines


def _tie_text(baselines: Sequence[Baseline], count: int | None) -> str:
    loss = ""
    if count is not None and len({_count(baseline) for baseline in baselines}) > 1:
        loss = f", for a node that shows {count} GPUs may have lost some"
    return (
        f"{_names(baselines)} fit equally well{loss}; {NAME_ONE}, "
        "or tell the nodes apart by inventory group (applies: {groups: ...})"
    )


def _count(baseline: Baseline) -> int | None:
    gpu = baseline.applies.gpu if baseline.applies else None
    return gpu.count if gpu else None


def _no_fit_text(candidates: Sequence[Baseline], gpus: tuple[DetectedGpu, ...] | CannotTell) -> str:
    is_long = len(candidates) > FEW
    text = f"none of {f'{len(candidates)} baselines' if is_long else _names(candidates)} fits"
    if len(candidates) == 1:
        text = f"{candidates[0].name} does not fit"
    if isinstance(gpus, CannotTell):
        return text
    if not gpus:
        return f"{text}: the node shows no NVIDIA GPU"
    kinds = Counter(map(_kind, gpus))
    first_kinds = sorted(kinds.items())[:MOST_KINDS]
    kinds_text = ", ".join(f"{number} × {kind}" for kind, number in first_kinds)
    if len(kinds) > MOST_KINDS:
        kinds_text += f" and {len(kinds) - MOST_KINDS} other kinds"
    mixed = " (mixed)" if len(kinds) > 1 else ""
    return f"{text}: the GPUs are {kinds_text}{mixed}"


def _kind(gpu: DetectedGpu) -> str:
    """`NVIDIA GeForce RTX 3090 (10de:2204)`, or the known part of it."""
    device = (gpu.device or "unknown")[:LONGEST_ID] + " (vGPU)" * gpu.vgpu
    return f"{gpu.name[:LONGEST_ID]} ({device})" if gpu.name else device


def _advice_to_write(gpus: tuple[DetectedGpu, ...] | CannotTell) -> str:
    """Advice to write a fitting baseline, with the id if all GPUs have the same one."""
    devices = set() if isinstance(gpus, CannotTell) else {(gpu.device, gpu.vgpu) for gpu in gpus}
    device, vgpu = next(iter(devices)) if len(devices) == 1 else (None, False)
    if device is None or vgpu or not _ID.fullmatch(device):
        return "write one that does"
    return f'write one with `applies: {{gpu: {{device: "{device}"}}}}`'


def _names(baselines: Sequence[Baseline]) -> str:
    names = [baseline.name for baseline in baselines]
    if len(names) > 9:
        names[8:] = [f"{len(names) - 8} more"]
    return ", ".join(names)
