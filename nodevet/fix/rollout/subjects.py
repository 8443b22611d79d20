"""Whether what a step is about is still there. What is gone is neither right nor wrong. Pure."""

import re
from collections.abc import Iterator, Sequence

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fix.model import Step
from nodevet.model import Finding, Subject, Verdict
from nodevet.resource import kind_of

_RANGES = re.compile(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", re.ASCII)
_LARGEST = 1 << 16  # CPUs; the kernel's NR_CPUS is at most 8192


def gone(step: Step, findings: Sequence[Finding], evidence: Evidence) -> str:
    """Which of a step's subjects no longer exist, in words; empty if all do.

    A GPU is there where NVML lists its UUID and the check names it; a number alone may be
    another GPU's by now. CPUs are there where any policy that the check names has them. Services
    are judged by the processes that they have, and a process may end. Where the check cannot say
    anything of the node, nothing is known to be gone.
    """
    if any(f.verdict is Verdict.UNKNOWN and f.subject.kind == "node" for f in findings):
        return ""
    missing = [] if step.services else [*_unnamed(step, [f.subject for f in findings])]
    missing += _unlisted(step, evidence)
    if not missing:
        return ""
    verb = "exists" if len(missing) == 1 else "exist"
    return f"{', '.join(missing)} no longer {verb}: what is set there is not known"


def _unnamed(step: Step, subjects: Sequence[Subject]) -> Iterator[str]:
    labels = {subject.label for subject in subjects}
    for label in step.subjects:
        kind, _, id = label.partition(" ")
        if not label or label in labels or kind == "process":
            continue
        numbers = _numbers(id) if kind == "cpufreq" else frozenset()
        here = frozenset[int]().union(*(_numbers(s.id) for s in subjects if s.kind == kind))
        if not (numbers and numbers <= here):
            yield label


def _unlisted(step: Step, evidence: Evidence) -> Iterator[str]:
    """UUIDs of GPUs that a step names, and NVML, which answers, does not list."""
    gpus = data.gpus if (data := evidence[Gpus].data) else None
    if gpus is None:
        return
    listed = {gpu.uuid for gpu in gpus}
    changed = (kind_of(each).gpu_of(each) for each in step.resources)
    for uuid in dict.fromkeys(filter(None, (*step.gpus, *changed))):
        if uuid not in listed:
            yield uuid


def _numbers(text: str) -> frozenset[int]:
    """0-3,7; empty for anything else."""
    if not _RANGES.fullmatch(text):
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < _LARGEST:
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)
