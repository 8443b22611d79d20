"""Which of several baselines fits a node. Pure; never a guess."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import Applies, Baseline, GpuMatch, Host

NAME_ONE = "name one with -b"
ANY = "-b generic judges any GPU"
FEW = 3  # baselines that are named if none of them fits; more are counted
CHECK = "baseline"
"""What a finding stands under, in the place of a check, if none can be chosen."""

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
"""What `nodevet explain` says of it."""

_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
MOST_KINDS = 8  # of GPUs, in a sentence
LONGEST_ID = 40  # characters of what a node says that its GPU is


class SeenGpu(msgspec.Struct, frozen=True, kw_only=True):
    """What PCI and NVML together say a GPU is."""

    name: str | None = None  # NVIDIA H100 80GB HBM3, by NVML
    device: str | None = None  # 10de:2330
    subsystem: str | None = None  # 10de:16c1
    vgpu: bool = False  # a virtual machine's share of a GPU, which has the device id of all of it
    why: str = ""  # what is not known


class Unknown(msgspec.Struct, frozen=True):
    """The evidence does not say; `why` is a clause."""

    why: str


def choose(baselines: Sequence[Baseline], evidence: Evidence, host: Host) -> Baseline | str:
    """The baseline for this node, or a sentence that says why none can be chosen.

    The most specific of those that fit wins: hosts, groups, GPU device with subsystem,
    GPU device. A GPU count never rules a baseline out, or a node that lost a GPU would
    lose its baseline too; it decides only between baselines that fit equally well.
    """
    candidates = [one for one in baselines if one.applies is not None]
    if not candidates:
        return f"none of {_names(baselines)} says which nodes it is for (applies); {NAME_ONE}"
    gpus = seen_gpus(evidence)
    fits = {one.path: _fits(one, gpus, host) for one in candidates}
    fitting = [one for one in candidates if fits[one.path] is True]
    best = max(map(_rank, fitting), default=None)
    for one in candidates:
        fit = fits[one.path]
        if isinstance(fit, Unknown) and (best is None or _rank(one) >= best):
            return f"cannot tell whether {one.name} fits: {fit.why}; {NAME_ONE}"
    if best is None:
        return f"{_nothing_fits(candidates, gpus)}; {NAME_ONE} ({ANY}), or {_write_one(gpus)}"
    tied = [one for one in fitting if _rank(one) == best]
    count = len(gpus) if not isinstance(gpus, Unknown) else None
    left = _by_count(_most_derived(tied), count)
    if len(left) == 1:
        return left[0]
    return _tied(left, count)


def none_fits(baselines: Sequence[Baseline], evidence: Evidence, host: Host) -> bool:
    """Whether it is certain that none of these is for the node, so that another may stand in."""
    gpus = seen_gpus(evidence)
    candidates = [one for one in baselines if one.applies is not None]
    return all(_fits(one, gpus, host) is False for one in candidates)


def may_fit(baseline: Baseline, host: Host) -> bool:
    """Whether a baseline may be chosen for a host, by all that is known before it is visited: its
    name and its groups."""
    applies = baseline.applies or Applies()
    named = applies.hosts is None or host.name in applies.hosts
    return named and (applies.groups is None or bool(applies.groups & host.groups))


def seen_gpus(evidence: Evidence) -> tuple[SeenGpu, ...] | Unknown:
    """Every GPU that PCI or NVML lists; one that only one of them sees counts too."""
    bus, nvml = evidence[Pci].data, evidence[Gpus].data
    functions = bus.functions if bus else None
    listed = nvml.gpus if nvml else None
    if functions is None and listed is None:
        return Unknown(f"the GPUs could not be read (PCI: {_pci_why(evidence)})")
    seen: dict[str, SeenGpu] = {}
    gpus = frozenset(each.address for each in bus.of_kind("gpu")) if bus else ()
    for function in functions or ():
        if function.address in gpus or _nameless(function):
            seen[function.address] = SeenGpu(
                device=pci_id(function.vendor, function.device),
                subsystem=pci_id(function.subsystem_vendor, function.subsystem_device),
                why=f"PCI function {function.address} does not say what it is",
            )
    named = bool(seen) or any(gpu.pci_device for gpu in listed or ())
    for gpu in listed or ():
        if named and _is_lost(gpu):
            continue
        key = gpu.bus_id or f"GPU {gpu.index}"
        before = seen.get(key, SeenGpu())
        reason = gpu.errors.get("handle") or gpu.why("pci_device")
        device = gpu.pci_device.lower() if gpu.pci_device else None
        if before.device and device and device != before.device:
            return Unknown(f"{key} is {before.device} on the bus and {device} to NVML")
        seen[key] = SeenGpu(
            name=gpu.name,
            device=before.device or device,
            subsystem=before.subsystem or (gpu.pci_subsystem or "").lower() or None,
            vgpu=gpu.virtualization_mode == "VGPU",
            why=f"GPU {gpu.index} does not say what it is ({reason})",
        )
    if functions is None and not seen:
        return Unknown(f"NVML lists no GPU and the bus could not be read ({_pci_why(evidence)})")
    return tuple(seen.values())


def _is_lost(gpu: Gpu) -> bool:
    """NVML counts it and can say no more: its neighbours tell what the node is, and every
    check of it will be unknown."""
    return "handle" in gpu.errors and gpu.bus_id is None and gpu.pci_device is None


def _pci_why(evidence: Evidence) -> str:
    data = evidence[Pci].data
    return data.why("functions") if data else evidence[Pci].why


def _nameless(function: PciFunction) -> bool:
    """It may be a GPU for all we know."""
    return function.class_code is None or function.vendor is None


def pci_id(vendor: str | None, device: str | None) -> str | None:
    """`10de:2330`, or None if a half of it was not read."""
    return f"{vendor}:{device}".lower() if vendor and device else None


def _fits(baseline: Baseline, gpus: tuple[SeenGpu, ...] | Unknown, host: Host) -> bool | Unknown:
    """Whether every part of `applies` that is given matches."""
    if not may_fit(baseline, host):
        return False
    wanted = baseline.applies.gpu if baseline.applies else None
    return wanted is None or _gpus_fit(wanted, gpus)


def _gpus_fit(match: GpuMatch, gpus: tuple[SeenGpu, ...] | Unknown) -> bool | Unknown:
    """Whether the node has GPUs and every one of them is of a kind that the baseline names."""
    if isinstance(gpus, Unknown):
        return gpus
    found: bool | Unknown = bool(gpus)
    for gpu in gpus:
        fits = _one_fits(match, gpu)
        if fits is False:
            return False
        found = fits if found is True else found
    return found


def _one_fits(match: GpuMatch, gpu: SeenGpu) -> bool | Unknown:
    """A vGPU is not a board: only its subsystem id, which tells its profile, can fit."""
    if gpu.vgpu and not match.subsystems:
        return False
    for expected, actual in ((match.devices, gpu.device), (match.subsystems, gpu.subsystem)):
        if expected and actual is not None and actual not in expected:
            return False
    if match.devices and gpu.device is None:
        return Unknown(gpu.why)
    if match.subsystems and gpu.subsystem is None:
        return Unknown(f"a {gpu.device or 'GPU'} does not say its subsystem id")
    return True


def _rank(baseline: Baseline) -> tuple[bool, bool, bool, bool]:
    """How specific a baseline is, to be compared."""
    applies = baseline.applies or Applies()
    gpu = applies.gpu or GpuMatch()
    return (
        applies.hosts is not None,
        applies.groups is not None,
        bool(gpu.subsystems),
        bool(gpu.devices),
    )


def _most_derived(baselines: Sequence[Baseline]) -> list[Baseline]:
    """Without those that another one here extends, unless both state a count and differ."""
    return [
        one
        for one in baselines
        if not any(
            one.path in other.lineage and _count(other) in (None, _count(one))
            for other in baselines
        )
    ]


def _by_count(baselines: Sequence[Baseline], seen: int | None) -> Sequence[Baseline]:
    """Without those for fewer GPUs than are seen: a node may lose GPUs, it gains none."""
    if seen is None:
        return baselines
    able = [one for one in baselines if (_count(one) or seen) >= seen]
    return [one for one in able if _count(one)] or able or baselines


def _tied(baselines: Sequence[Baseline], seen: int | None) -> str:
    lost = ""
    if seen is not None and len({_count(one) for one in baselines}) > 1:
        lost = f", for a node that shows {seen} GPUs may have lost some"
    return (
        f"{_names(baselines)} fit equally well{lost}; {NAME_ONE}, "
        "or tell the nodes apart by inventory group (applies: {groups: ...})"
    )


def _count(baseline: Baseline) -> int | None:
    gpu = baseline.applies.gpu if baseline.applies else None
    return gpu.count if gpu else None


def _nothing_fits(candidates: Sequence[Baseline], gpus: tuple[SeenGpu, ...] | Unknown) -> str:
    many = len(candidates) > FEW
    none = f"none of {f'{len(candidates)} baselines' if many else _names(candidates)} fits"
    if len(candidates) == 1:
        none = f"{candidates[0].name} does not fit"
    if isinstance(gpus, Unknown):
        return none
    if not gpus:
        return f"{none}: the node shows no NVIDIA GPU"
    kinds = Counter(map(_kind, gpus))
    shown = sorted(kinds.items())[:MOST_KINDS]
    found = ", ".join(f"{number} × {kind}" for kind, number in shown)
    if len(kinds) > MOST_KINDS:
        found += f" and {len(kinds) - MOST_KINDS} other kinds"
    mixed = " (mixed)" if len(kinds) > 1 else ""
    return f"{none}: the GPUs are {found}{mixed}"


def _kind(gpu: SeenGpu) -> str:
    """`NVIDIA GeForce RTX 3090 (10de:2204)`, or what of it is known."""
    device = (gpu.device or "unknown")[:LONGEST_ID] + " (vGPU)" * gpu.vgpu
    return f"{gpu.name[:LONGEST_ID]} ({device})" if gpu.name else device


def _write_one(gpus: tuple[SeenGpu, ...] | Unknown) -> str:
    """What to write into a baseline that fits, if the GPUs are of one kind with an id."""
    devices = set() if isinstance(gpus, Unknown) else {(gpu.device, gpu.vgpu) for gpu in gpus}
    device, vgpu = next(iter(devices)) if len(devices) == 1 else (None, False)
    if device is None or vgpu or not _ID.fullmatch(device):
        return "write one that does"
    return f'write one with `applies: {{gpu: {{device: "{device}"}}}}`'


def _names(baselines: Sequence[Baseline]) -> str:
    return ", ".join(_each_name(baselines))


def _each_name(baselines: Sequence[Baseline]) -> Iterator[str]:
    for number, one in enumerate(baselines):
        if number == 8 and len(baselines) > 9:
            yield f"{len(baselines) - 8} more"
            return
        yield one.name
