"""What the fixes of GPU settings share: the GPUs of a node, and the GPUs that fail."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.ranges import in_ranges
from nodevet.base.uuids import GPU_UUID
from nodevet.evidence.across import each_gpu
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, lost_error, subject_of
from nodevet.fixing.boot_unit import BootUnit, Setting, Words
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.model import Finding, Value
from nodevet.resource import Actions, Resource, RunCommand
from nodevet.resource.gpu import nvidia_smi, setting


class NamedGpu(NamedTuple):
    """A GPU with its UUID, which names it in commands."""

    uuid: str
    gpu: Gpu

    @property
    def label(self) -> str:
        return subject_of(self.gpu).label

    def read(self, field: str) -> int:
        """A number of the evidence. Raises FixError if it was not read."""
        value: int | None = getattr(self.gpu, field)
        if value is None:
            raise FixError(f"{self.label}: {field}: {self.gpu.why(field)}")
        return value

    def has(self, field: str) -> bool:
        """Whether the GPU has a setting. Raises FixError if it was not read although a GPU of this
        model may have it."""
        if unsupported(self.gpu, field):
            return False
        if getattr(self.gpu, field) is None:
            raise FixError(f"{self.label}: {field}: {self.gpu.why(field)}: repair this first")
        return True

    def run(self, *words: str) -> RunCommand:
        return nvidia_smi(self.uuid, *words)

    def resource(self, field: str) -> Resource:
        return setting(self.uuid, field)


class FailedGpu(NamedTuple):
    named: NamedGpu
    finding: Finding


def all_gpus(evidence: Evidence) -> tuple[NamedGpu, ...]:
    """Every GPU of the node: the unit of a fix sets all of them, or nodevet does not write it.

    Raises FixError if one of them does not answer or has no UUID.
    """
    named_gpus = []
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            raise FixError(f"{gpu.subject.label or 'the GPUs'}: {gpu.why}")
        label = subject_of(gpu).label
        if why := lost_error(gpu):
            raise FixError(f"{label}: NVML: {why}: repair this first")
        if gpu.uuid is None:
            raise FixError(f"{label}: uuid: {gpu.why('uuid')}")
        if not GPU_UUID.fullmatch(gpu.uuid):
            raise FixError(f"{label}: {gpu.uuid[:60]!r} is not the UUID of a GPU")
        named_gpus.append(NamedGpu(gpu.uuid, gpu))
    return tuple(named_gpus)


def all_and_failed(
    evidence: Evidence, findings: Sequence[Finding]
) -> tuple[tuple[NamedGpu, ...], tuple[FailedGpu, ...]]:
    """Every GPU of the node, and each GPU that one of these failed findings names, once.

    Raises FixError as `all_gpus` does, and for a finding about anything but a listed GPU.
    """
    every_gpu = all_gpus(evidence)
    by_subject = {(gpu.uuid, str(gpu.gpu.index)): gpu for gpu in every_gpu}
    failures: dict[str, FailedGpu] = {}
    for finding in findings:
        subject = finding.subject
        gpu = by_subject.get((subject.uuid or "", subject.id))
        if gpu is None:
            raise FixError(f"{subject.label or 'the node'}: not among the GPUs that NVML lists")
        failures.setdefault(gpu.uuid, FailedGpu(gpu, finding))
    return every_gpu, tuple(failures.values())


def as_modes(failures: Iterable[FailedGpu], enabled: bool) -> tuple[FailedGpu, ...]:
    """The failures with a mode as true or false, whether it is wrong now or after a reset."""
    return tuple(
        failure._replace(finding=replace(failure.finding, expected=enabled, actual=not enabled))
        for failure in failures
    )


def having_setting(gpus: Iterable[NamedGpu], field: str) -> tuple[NamedGpu, ...]:
    """The GPUs that have a setting. Raises FixError if it was not read on one of them."""
    return tuple(gpu for gpu in gpus if gpu.has(field))


def obstacle_without(field: str, obstacle: str) -> Callable[[NamedGpu], str]:
    """A function for `fixable`: `obstacle` (`it has no ECC`) for a GPU without the setting."""
    return lambda gpu: obstacle if unsupported(gpu.gpu, field) else ""


def fixable(
    failures: Sequence[FailedGpu], obstacle: Callable[[NamedGpu], str]
) -> tuple[tuple[FailedGpu, ...], str]:
    """The failures without an obstacle, and a note about the others.

    Raises FixError if every GPU has an obstacle.
    """
    obstacles = {failure.named.label: obstacle(failure.named) for failure in failures}
    note = "; ".join(f"{label}: {reason}" for label, reason in obstacles.items() if reason)
    remaining = tuple(failure for failure in failures if not obstacles[failure.named.label])
    if failures and not remaining:
        raise FixError(note)
    return remaining, note


def change(
    failures: Sequence[FailedGpu],
    *,
    options: Callable[[NamedGpu], Iterable[Words]],
    fields: Callable[[NamedGpu], Iterable[str]],
    risk: Risk,
    owner: BootUnit | None = None,
    boot: Iterable[Setting] = (),
    actions: Actions = (),
    resources: tuple[Resource, ...] = (),
    effective: str = "now",
    note: str = "",
) -> PlannedChange:
    """The change of these GPUs.

    `options` returns the options of nvidia-smi for a GPU, `fields` the settings that they change.
    `owner` is the unit that sets `boot` at every boot, if there is one. `actions` run before all
    others, and change `resources`.
    """
    gpus = [failure.named for failure in failures]
    changed = (
        *resources,
        *(owner.resources if owner else ()),
        *(gpu.resource(field) for gpu in gpus for field in fields(gpu)),
    )
    return PlannedChange(
        expected=common_value({gpu.label: finding.expected for gpu, finding in failures}),
        actual=common_value({gpu.label: finding.actual for gpu, finding in failures}),
        unit=failures[0].finding.unit,
        subjects=tuple(gpu.label for gpu in gpus),
        actions=(
            *actions,
            *(owner.actions(boot) if owner else ()),
            *(gpu.run(*words) for gpu in gpus for words in options(gpu)),
        ),
        resources=tuple(dict.fromkeys(changed)),
        risk=risk,
        gpus=tuple(gpu.uuid for gpu in gpus) if risk is Risk.IDLE else (),
        effective=effective,
        note=note,
    )


def common_value(values: Mapping[str, Value]) -> Value:
    """The one value of all labels; a mapping by label if the values differ."""
    first, *others = values.values()
    is_common = all(value == first and type(value) is type(first) for value in others)
    return first if is_common else dict(values)


def forgetting_note(failures: Sequence[FailedGpu], setting_name: str) -> str:
    """A note if persistence mode is off on some GPUs: their driver may forget a setting.

    The same plan may turn it on, before the settings that the driver would forget."""
    off = [gpu.label for gpu, _ in failures if gpu.gpu.persistence_mode is not True]
    if not off:
        return ""
    return (
        f"persistence mode was not on ({in_ranges(off)}): without it the driver forgets the "
        f"{setting_name} when the GPU's last client leaves"
    )
