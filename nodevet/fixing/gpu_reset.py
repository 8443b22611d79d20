"""What the fixes that reset GPUs share: which GPUs one command must reset, and what stops for it.

From Ampere on, nvidia-smi can reset each GPU alone; on the NVSwitches of Ampere only while the
fabric manager runs. It resets older GPUs on NVLink only together (nvidia-smi's manual at
--gpu-reset).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodevet.base.uuids import GPU_UUID
from nodevet.evidence.across import every_gpu
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import LOST, NO_HANDLE, Gpu, lost_error, subject_of
from nodevet.evidence.pci import Pci
from nodevet.evidence.services import Unit
from nodevet.fixing import reboot as node_reboot
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.gpus import NamedGpu, common_value
from nodevet.fixing.model import (
    FixError,
    PlannedChange,
    Planner,
    Risk,
    join_notes,
    with_refusals,
)
from nodevet.fixing.units import RUNS, STANDS, unit_of
from nodevet.model import Finding
from nodevet.resource import Actions
from nodevet.resource import unit as units
from nodevet.resource.gpu_reset import AwaitFabric, ResetGpu

DAEMON, FABRIC_MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
HOLDERS = ("nvsm.service", "nvidia-imex.service", DAEMON)
"""Services of NVIDIA that hold every GPU, in the order in which they stop."""
SETTINGS = {
    "gpu_clocks": "clocks",
    "power_limit": "power limit",
    "compute_mode": "compute mode",
    "mig_mode": "MIG mode",
    "persistence_mode": "persistence mode",
}
"""Settings of GPUs, in the order in which the units of nodevet that set them stop."""
FORGOTTEN = ("power_limit", "gpu_clocks", "compute_mode")
BOOT = {setting: BootUnit(setting).name for setting in SETTINGS}
OLD = frozenset({"KEPLER", "MAXWELL", "PASCAL", "VOLTA", "TURING"})
NEW = frozenset({"ADA", "HOPPER", "BLACKWELL", "RUBIN"})
AMPERE = "AMPERE"
REQUIRED = "NVML_ERROR_RESET_REQUIRED"


def asks(params: Any) -> Mapping[str, tuple[str, ...]]:
    """The units that may stop for a reset."""
    return {"services": (*HOLDERS, FABRIC_MANAGER, *BOOT.values())}


def planner(obstacle: Callable[[Finding], str]) -> Planner:
    """The planner of a fix that resets GPUs: one change for all that need it, or one reboot of the
    node if the plan reboots it anyway (`reboot=True`). `obstacle`: as of `changes`."""

    def plan(
        evidence: Evidence, failed: Sequence[Finding], params: Any, *, reboot: bool = False
    ) -> Iterator[PlannedChange]:
        yield from _resets_or_reboot(evidence, failed, obstacle, reboot=reboot)

    return plan


def _resets_or_reboot(
    evidence: Evidence,
    failed: Sequence[Finding],
    obstacle: Callable[[Finding], str],
    *,
    reboot: bool,
) -> Iterator[PlannedChange]:
    """As `changes`; with `reboot` one reboot of the node instead. Raises FixError."""
    if not reboot:
        yield from changes(evidence, failed, obstacle)
        return
    reasons = [(finding, obstacle(finding)) for finding in failed]
    repaired = [finding for finding, why in reasons if not why]
    refused = [f"{finding.subject.label}: {why}" for finding, why in reasons if why]
    yield from with_refusals([node_reboot.change(evidence, repaired)] if repaired else [], refused)


def changes(
    evidence: Evidence, failed: Sequence[Finding], obstacle: Callable[[Finding], str]
) -> Iterator[PlannedChange]:
    """One change that resets the GPUs of these findings. `obstacle`: why a reset does not repair a
    finding; empty if it does. Raises FixError."""
    refused: list[str] = []
    chosen: dict[str, NamedGpu] = {}
    findings: list[Finding] = []
    for finding in failed:
        try:
            if why := obstacle(finding):
                raise FixError(why)
            gpu = resettable(gpu_of(evidence, finding))
        except FixError as error:
            refused.append(f"{finding.subject.label}: {error}")
            continue
        chosen.setdefault(gpu.uuid, gpu)
        findings.append(finding)
    change = [_change(evidence, tuple(chosen.values()), findings)] if chosen else []
    yield from with_refusals(change, refused)


def gpu_of(evidence: Evidence, finding: Finding) -> Gpu:
    """The GPU of a finding. Raises FixError."""
    subject = finding.subject
    matches = (gpu for gpu in every_gpu(evidence) if str(gpu.index) == subject.id)
    gpu = next(matches, None) if subject.kind == "gpu" else None
    if gpu is None or gpu.uuid != subject.uuid:
        raise FixError("not among the GPUs that NVML lists")
    return gpu


def resettable(gpu: Gpu) -> NamedGpu:
    """The GPU with its UUID. Raises FixError if a reset does not reach it, or would destroy what
    nodevet does not restore."""
    why = gpu.errors.get("handle")
    if why in NO_HANDLE or lost_error(gpu) in LOST - {REQUIRED}:
        raise FixError(
            f"NVML: {why or lost_error(gpu)}: a reset does not reach it; reboot the node"
        )
    if why or gpu.uuid is None:
        raise FixError(f"NVML: {gpu.why('handle' if why else 'uuid')}")
    if not GPU_UUID.fullmatch(gpu.uuid):
        raise FixError(f"{gpu.uuid[:60]!r} is not the UUID of a GPU")
    if gpu.virtualization_mode in ("VGPU", "HOST_VGPU"):
        raise FixError(f"its virtualization mode is {gpu.virtualization_mode}: reset it by hand")
    if gpu.mig_current and gpu.mig_devices != ():
        raise FixError("it has MIG devices, which a reset deletes: delete them first")
    return NamedGpu(gpu.uuid, gpu)


def _peer(gpu: Gpu) -> NamedGpu:
    """A GPU that is reset because others are. Raises FixError."""
    try:
        return resettable(gpu)
    except FixError as error:
        raise FixError(f"{subject_of(gpu).label}, which is reset too: {error}") from error


def is_reset_alone(evidence: Evidence, gpu: NamedGpu) -> bool:
    """Whether a GPU can be reset without its NVLink peers. Raises FixError if that is unclear."""
    architecture = gpu.gpu.gpu_architecture
    if architecture in NEW or not is_linked(gpu):
        return True
    if architecture in OLD:
        return False
    if architecture != AMPERE:
        why = architecture or gpu.gpu.why("gpu_architecture")
        raise FixError(f"{gpu.label}: cannot tell which GPUs are reset with it: {why[:60]}")
    return not _is_on_switches(evidence, gpu) or is_active(unit_of(evidence, FABRIC_MANAGER))


def is_linked(gpu: NamedGpu) -> bool:
    """Whether NVLink connects the GPU with others. Raises FixError if that was not read."""
    links = gpu.gpu.nvlinks
    if links is None and not unsupported(gpu.gpu, "nvlinks"):
        raise FixError(f"{gpu.label}: nvlinks: {gpu.gpu.why('nvlinks')}")
    if any(link.active for link in links or ()):
        return True
    if unread := next((link for link in links or () if link.active is None), None):
        raise FixError(f"{gpu.label}: NVLink {unread.link}: {unread.why('active')}")
    return False


def _is_on_switches(evidence: Evidence, gpu: NamedGpu) -> bool:
    section = evidence[Pci]
    if section.data is None or section.data.functions is None:
        why = section.data.why("functions") if section.data else section.why
        raise FixError(f"cannot tell whether NVSwitches connect the GPUs: {why}")
    if section.data.of_kind("nvswitch"):
        return True
    if gpu.gpu.virtualization_mode != "NONE":
        mode = gpu.gpu.virtualization_mode or gpu.gpu.why("virtualization_mode")
        raise FixError(f"cannot tell whether the host's NVSwitches connect the GPUs: {mode}")
    return False


def is_active(unit: Unit) -> bool:
    """Whether a unit runs. Raises FixError while it starts or stops."""
    if unit.active_state not in STANDS:
        raise FixError(f"{unit.name} is {unit.active_state}; plan again when it has finished")
    return unit.active_state in RUNS


def _change(
    evidence: Evidence, gpus: Sequence[NamedGpu], findings: Sequence[Finding]
) -> PlannedChange:
    everyone = tuple(gpus)
    with_others = not all(is_reset_alone(evidence, gpu) for gpu in gpus)
    if with_others:
        everyone = tuple(_peer(gpu) for gpu in every_gpu(evidence))
    settings = _set_again(evidence)
    holders = (*HOLDERS, *([FABRIC_MANAGER] if with_others else []))
    around = (
        *(BOOT[setting] for setting in settings),
        *(name for name in holders if is_active(unit_of(evidence, name))),
    )
    if with_others:
        resets: Actions = (_reset_of_all(gpus[0], everyone),)
    else:
        held = every_gpu(evidence) if DAEMON in around else ()  # it releases all GPUs
        resets = tuple(
            ResetGpu(uuid=uuid, persistent=_persistent_uuids(held or (gpu,))) for uuid, gpu in gpus
        )
    registered = [uuid for uuid, gpu in everyone if gpu.fabric.state == "COMPLETED"]
    waits = (AwaitFabric(uuid=uuid) for uuid in registered)
    actions = (*units.stop(around), *resets, *waits, *units.start(around))
    resources = (action.resource for action in actions if action.resource)
    return PlannedChange(
        expected=common_value({finding.subject.label: finding.expected for finding in findings}),
        actual=common_value({finding.subject.label: finding.actual for finding in findings}),
        subjects=tuple(dict.fromkeys(finding.subject.label for finding in findings)),
        actions=actions,
        resources=tuple(dict.fromkeys(resources)),
        risk=Risk.DRAIN,
        gpus=() if with_others else tuple(gpu.uuid for gpu in gpus),
        note=join_notes(_others_note(gpus, everyone), _settings_note(gpus, settings)),
    )


def _set_again(evidence: Evidence) -> tuple[str, ...]:
    """The settings that an enabled or active unit of nodevet sets again."""
    shown = {setting: unit_of(evidence, name) for setting, name in BOOT.items()}
    return tuple(
        setting
        for setting, unit in shown.items()
        if unit.load_state == "loaded" and (is_active(unit) or unit.file_state == "enabled")
    )


def _reset_of_all(first: NamedGpu, everyone: Sequence[NamedGpu]) -> ResetGpu:
    return ResetGpu(
        uuid=first.uuid,
        others=tuple(uuid for uuid, _ in everyone if uuid != first.uuid),
        persistent=_persistent_uuids([gpu for _, gpu in everyone]),
    )


def _persistent_uuids(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """The UUIDs of the GPUs with persistence mode."""
    return tuple(gpu.uuid for gpu in gpus if gpu.persistence_mode and gpu.uuid)


def _others_note(gpus: Sequence[NamedGpu], everyone: Sequence[NamedGpu]) -> str:
    if len(everyone) == len(gpus):
        return ""
    chosen = {gpu.uuid for gpu in gpus}
    labels = [gpu.label for gpu in everyone if gpu.uuid not in chosen]
    return f"NVLink connects these GPUs, so it also resets {', '.join(labels)}"


def _settings_note(gpus: Sequence[NamedGpu], settings: Sequence[str]) -> str:
    names = [*FORGOTTEN, *(["mig_mode"] if any(gpu.mig_current for _, gpu in gpus) else [])]
    lost_settings = [SETTINGS[name] for name in names if name not in settings]
    if not lost_settings:
        return ""
    return (
        f"a reset GPU has the default {', '.join(lost_settings)}: no unit of nodevet sets it again"
    )
