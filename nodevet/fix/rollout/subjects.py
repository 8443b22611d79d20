"""Whether the subjects of a step still exist. If not, the step neither holds nor fails. Pure."""

import re
from collections.abc import Iterator, Sequence

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fix.model import Step
from nodevet.model import Finding, Subject, Verdict
from nodevet.resource import kind_of

_RANGES = re.compile(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", re.ASCII)
_LARGEST = 1 << 16  # CPUs; the kernel's NR_CPUS is at most 8192


def gone_subjects_text(step: Step, findings: Sequence[Finding], evidence: Evidence) -> str:
    """Which of a step's subjects no longer exist, in words; empty if all do.

    A GPU exists if NVML lists its UUID and the check names it; its number may be another GPU's by
    now. CPUs exist if any policy that the check names has them. Services are judged by their
    processes, which may end. If the check is unknown for the whole node, nothing counts as gone.
    """
    if any(f.verdict is Verdict.UNKNOWN and f.subject.kind == "node" for f in findings):
        return ""
    missing = [] if step.services else [*_unnamed_subjects(step, [f.subject for f in findings])]
    missing += _unlisted_gpus(step, evidence)
    if not missing:
        return ""
    verb = "exists" if len(missing) == 1 else "exist"
    return f"{', '.join(missing)} no longer {verb}: what is set there is not known"


def is_about(step: Step, subject: Subject) -> bool:
    """Whether a subject is one of the step's. A GPU is the one with the planned UUID, whatever its
    number is now; its number counts only if its UUID could not be read."""
    if subject.kind == "gpu" and step.subject_uuids and subject.uuid:
        return subject.uuid in step.subject_uuids
    return subject.label in step.subjects


def moved_gpus_text(step: Step, subjects: Sequence[Subject]) -> str:
    """Which of a step's GPUs have another number than in the plan, in words."""
    current = {subject.uuid: subject.label for subject in subjects if subject.kind == "gpu"}
    moves = (
        f"{label} of the plan is {current[uuid]} now"
        for label, uuid in step.uuid_by_label.items()
        if current.get(uuid, label) != label
    )
    return "; ".join(moves)


def _unnamed_subjects(step: Step, subjects: Sequence[Subject]) -> Iterator[str]:
    about = [subject for subject in subjects if is_about(step, subject)]
    names = {name for subject in about for name in (subject.label, subject.uuid)}
    unread = {subject.label for subject in about if not subject.uuid}
    uuid_by_label = step.uuid_by_label
    for label in step.subjects:
        kind, _, id = label.partition(" ")
        uuid = uuid_by_label.get(label)
        exists = (uuid in names or label in unread) if uuid else label in names
        if not label or exists or kind == "process":
            continue
        numbers = _numbers(id) if kind == "cpufreq" else frozenset()
        existing = frozenset[int]().union(*(_numbers(s.id) for s in subjects if s.kind == kind))
        if not (numbers and numbers <= existing):
            yield f"{label} ({uuid})" if uuid else label


def _unlisted_gpus(step: Step, evidence: Evidence) -> Iterator[str]:
    """UUIDs of other GPUs that a step names and that NVML does not list, if NVML answers."""
    gpus = data.gpus if (data := evidence[Gpus].data) else None
    if gpus is None:
        return
    listed = {gpu.uuid for gpu in gpus}
    changed = (kind_of(resource).gpu_of(resource) for resource in step.resources)
    for uuid in dict.fromkeys(filter(None, (*step.gpus, *changed))):
        if uuid not in listed and (step.services or uuid not in step.subject_uuids):
            yield uuid


def _numbers(text: str) -> frozenset[int]:
    """0-3,7; empty for anything else."""
    if not _RANGES.fullmatch(text):
        return frozenset()
    numbers: set[int] = set()
    for part in text.split(","):
        start, _, end = part.partition("-")
        if int(end or start) < _LARGEST:
            numbers |= set(range(int(start), int(end or start) + 1))
    return frozenset(numbers)
