"""What the fixes of GPU settings have in common: which GPUs there are, and which of them fail."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.evidence.across import each_gpu
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, lost, subject_of
from nodevet.fixing.boot_unit import BootUnit, Setting, Words
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.model import Finding, Value, Verdict
from nodevet.resource import Actions, Resource, RunCommand
from nodevet.resource.gpu import nvidia_smi, setting

UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Named(NamedTuple):
    """A GPU that can be told from all others."""

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
        """Whether it has such a setting. Raises FixError if it was not read, and a GPU of its model
        may have it."""
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
    named: Named
    finding: Finding


def every(evidence: Evidence) -> tuple[Named, ...]:
    """Every GPU of the node: a boot-time owner sets all of them or is not written.

    Raises FixError if one of them does not answer or has no UUID.
    """
    found = []
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            raise FixError(f"{gpu.subject.label or 'the GPUs'}: {gpu.why}")
        label = subject_of(gpu).label
        if why := lost(gpu):
            raise FixError(f"{label}: NVML: {why}: repair this first")
        if gpu.uuid is None:
            raise FixError(f"{label}: uuid: {gpu.why('uuid')}")
        if not UUID.fullmatch(gpu.uuid):
            raise FixError(f"{label}: {gpu.uuid[:60]!r} is not the UUID of a GPU")
        found.append(Named(gpu.uuid, gpu))
    return tuple(found)


def among(
    evidence: Evidence, findings: Sequence[Finding]
) -> tuple[tuple[Named, ...], tuple[FailedGpu, ...]]:
    """Every GPU, and those that fail by these findings, once each; nothing if none does.

    Raises FixError as `every` does, and for a finding about something else.
    """
    failed = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    if not failed:
        return (), ()
    named = every(evidence)
    by_subject = {(each.uuid, str(each.gpu.index)): each for each in named}
    found: dict[str, FailedGpu] = {}
    for finding in failed:
        subject = finding.subject
        gpu = by_subject.get((subject.uuid or "", subject.id))
        if gpu is None:
            raise FixError(f"{subject.label or 'the node'}: not among the GPUs that NVML lists")
        found.setdefault(gpu.uuid, FailedGpu(gpu, finding))
    return named, tuple(found.values())


def modes(failed: Iterable[FailedGpu], enabled: bool) -> tuple[FailedGpu, ...]:
    """The same, as a plan shows a mode: on or off, whether it is wrong now or after a reset."""
    return tuple(
        each._replace(finding=replace(each.finding, expected=enabled, actual=not enabled))
        for each in failed
    )


def having(named: Iterable[Named], field: str) -> tuple[Named, ...]:
    """Those that have such a setting. Raises FixError if that of one of them was not read."""
    return tuple(each for each in named if each.has(field))


def lacking(field: str, what: str) -> Callable[[Named], str]:
    """The obstacle of a GPU that has no such setting: `it has no ECC`."""
    return lambda named: what if unsupported(named.gpu, field) else ""


def fixable(
    failed: Sequence[FailedGpu], obstacle: Callable[[Named], str]
) -> tuple[tuple[FailedGpu, ...], str]:
    """Those without an obstacle, and what is to be said of the others.

    Raises FixError if every one has an obstacle.
    """
    why = {each.named.label: obstacle(each.named) for each in failed}
    said = "; ".join(f"{label}: {words}" for label, words in why.items() if words)
    free = tuple(each for each in failed if not why[each.named.label])
    if failed and not free:
        raise FixError(said)
    return free, said


def change(
    failed: Sequence[FailedGpu],
    *,
    told: Callable[[Named], Iterable[Words]],
    fields: Callable[[Named], Iterable[str]],
    risk: Risk,
    owner: BootUnit | None = None,
    boot: Iterable[Setting] = (),
    actions: Actions = (),
    resources: tuple[Resource, ...] = (),
    effective: str = "now",
    note: str = "",
) -> PlannedChange:
    """The change of these GPUs.

    `told` are the options of nvidia-smi for each, `fields` what they change of it. `owner` is the
    unit that sets `boot` at every boot, if there is one. `actions` come before all others, and
    change `resources`.
    """
    labels = [each.named.label for each in failed]
    values = [(each.finding.expected, each.finding.actual) for each in failed]
    changed = [each.named for each in failed]
    return PlannedChange(
        expected=alike(
            {label: expected for label, (expected, _) in zip(labels, values, strict=True)}
        ),
        actual=alike({label: actual for label, (_, actual) in zip(labels, values, strict=True)}),
        unit=failed[0].finding.unit,
        subjects=tuple(labels),
        actions=(
            *actions,
            *(owner.actions(boot) if owner else ()),
            *(each.run(*words) for each in changed for words in told(each)),
        ),
        resources=tuple(
            dict.fromkeys(
                (
                    *resources,
                    *(owner.resources if owner else ()),
                    *(each.resource(field) for each in changed for field in fields(each)),
                )
            )
        ),
        risk=risk,
        gpus=tuple(each.uuid for each in changed) if risk is Risk.IDLE else (),
        effective=effective,
        note=note,
    )


def alike(values: Mapping[str, Value]) -> Value:
    """The value that all have; if they differ, each by its label."""
    first = next(iter(values.values()))
    same = all(value == first and type(value) is type(first) for value in values.values())
    return first if same else dict(values)


def forgotten(failed: Sequence[FailedGpu], what: str) -> str:
    """What to know if the driver may not keep a setting: persistence mode was not on.

    The same plan may turn it on, before all that it would forget."""
    off = [named.label for named, _ in failed if named.gpu.persistence_mode is not True]
    if not off:
        return ""
    return (
        f"persistence mode was not on ({', '.join(off)}): without it the driver forgets the {what} "
        "when the GPU's last client leaves"
    )


def notes(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
