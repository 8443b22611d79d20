"""Which nodes are of like hardware."""

from collections.abc import Mapping

import msgspec

from nodevet.baseline.choose import CannotTell, detected_gpus
from nodevet.checking.facts import facts_of
from nodevet.evidence.document import Evidence


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of one make with the same kinds of GPUs, however many of these each still shows."""

    what: str  # Supermicro SYS-821GE, NVIDIA H100 80GB HBM3
    hosts: tuple[str, ...]


def alike(nodes: Mapping[str, Evidence]) -> tuple[Alike, ...]:
    """The groups, the largest first; every host is in one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    words: dict[tuple[str, ...], str] = {}
    for host, evidence in nodes.items():
        key, what = _kind(evidence)
        groups.setdefault(key, []).append(host)
        words.setdefault(key, what)
    found = [Alike(what=words[key], hosts=tuple(hosts)) for key, hosts in groups.items()]
    return tuple(sorted(found, key=lambda group: (-len(group.hosts), group.what)))


def _kind(evidence: Evidence) -> tuple[tuple[str, ...], str]:
    facts = facts_of(evidence)
    gpus = detected_gpus(evidence)
    seen = () if isinstance(gpus, CannotTell) else gpus
    ids = sorted({f"{gpu.device} {gpu.subsystem or ''}" for gpu in seen})
    machine = facts.machine or ""
    names = sorted({gpu.name or gpu.device or "GPU" for gpu in seen})
    what = ", ".join(filter(None, (machine, *names))) or "hardware that does not say what it is"
    return (machine, facts.architecture or "", *ids), what
