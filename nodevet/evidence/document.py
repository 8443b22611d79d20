"""All sections of one probe run, and their JSON form. Decoding is validation.

A section that does not decode becomes `error` with the decoder's words, and the others live on.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodevet import bounds
from nodevet.bounds import Text
from nodevet.evidence.core import MISSING, SCHEMA, Record, Section
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.cpufreq import Cpufreq
from nodevet.evidence.filesystems import FileSystems
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import Host
from nodevet.evidence.kernel_log import KernelLog
from nodevet.evidence.memory import Memory
from nodevet.evidence.modules import Modules
from nodevet.evidence.numa import Numa
from nodevet.evidence.packages import Packages
from nodevet.evidence.pci import Pci
from nodevet.evidence.processes import Processes
from nodevet.evidence.services import Services
from nodevet.evidence.sysctl import Sysctl


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one probe run read on one node."""

    schema: int
    probe: Text  # nodevet version of the payload
    host: Section[Host]
    gpu: Section[Gpus]
    pci: Section[Pci]
    cpu: Section[Cpu]
    cpufreq: Section[Cpufreq]
    numa: Section[Numa]
    memory: Section[Memory]
    modules: Section[Modules]
    processes: Section[Processes]
    kernel_log: Section[KernelLog]
    filesystems: Section[FileSystems]
    sysctl: Section[Sysctl]
    services: Section[Services]
    packages: Section[Packages]


class EvidenceError(Exception):
    """The document is not evidence at all; the message is one sentence."""


class _Envelope(msgspec.Struct, frozen=True):
    schema: int
    probe: Text
    sections: dict[str, msgspec.Raw]


STATUSES = ("ok", "absent", "denied", "error", "timeout")


_SECTIONS: Mapping[str, Any] = {
    field.name: msgspec.json.Decoder(field.type)
    for field in msgspec.structs.fields(Evidence)
    if field.name not in ("schema", "probe")
}


_ENVELOPE = msgspec.json.Decoder(_Envelope)


_UNIQUE = {  # section: its list, and what tells the items of it apart
    "gpu": ("gpus", ("uuid", "bus_id")),
    "pci": ("functions", ("address",)),
    "numa": ("nodes", ("id",)),
    "processes": ("processes", ("pid",)),
    "filesystems": ("filesystems", ("path",)),
    "sysctl": ("parameters", ("name",)),
    "services": ("units", ("name",)),
    "packages": ("packages", ("name",)),
}


def _section(name: str, raw: msgspec.Raw | None) -> Section[Any]:
    if raw is None:
        return Section(status="error", why=MISSING)
    try:
        section: Section[Any] = _SECTIONS[name].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Section(status="error", why=f"the probe's answer is not valid: {error}")
    if section.status not in STATUSES:
        return Section(status="error", why=f"the probe's answer has no status {section.status!r}")
    if section.status == "ok":
        if section.data is None:
            return Section(status="error", why="the probe's answer says ok and holds no data")
        wrong = _twice(name, section.data) or _longer(section.data)
        if wrong:
            return Section(status="error", why=f"the probe's answer is not valid: {wrong}")
        return section
    if not section.why:
        return Section(status="error", why=f"the probe's answer says {section.status} and not why")
    return Section(status=section.status, why=section.why, seconds=section.seconds)


def _twice(name: str, data: Record) -> str:
    """Two items of a list that say that they are the same; nothing where there are none."""
    listed, keys = _UNIQUE.get(name, ("", ()))
    for key in keys:
        seen = set()
        for item in getattr(data, listed) or ():
            value = getattr(item, key)
            if value in seen:
                return f"two {listed} with the {key} {value}"
            if value is not None:
                seen.add(value)
    return ""


def _longer(data: Record) -> str:
    """Lists that one machine cannot have together, though each by itself; nothing where fine."""
    nodes = (data.nodes if isinstance(data, Numa) else None) or ()
    if sum(len(node.cpulist or "") for node in nodes) > bounds.LONGEST_LIST:
        return "the nodes have more CPUs together than a machine can have"
    return ""


def decode(document: bytes | str) -> Evidence:
    """Evidence from its JSON form.

    Raises EvidenceError where the document as a whole is unusable. A single
    broken section becomes `error`; an unknown section (a newer probe's) is ignored.
    """
    if len(document) > bounds.DOCUMENT:
        raise EvidenceError(f"not an evidence document: more than {bounds.DOCUMENT >> 20} MiB")
    try:
        envelope = _ENVELOPE.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"not an evidence document: {error}") from error
    if envelope.schema != SCHEMA:
        raise EvidenceError(f"evidence schema {envelope.schema}; this nodevet reads {SCHEMA}")
    sections = {name: _section(name, envelope.sections.get(name)) for name in _SECTIONS}
    return Evidence(schema=envelope.schema, probe=envelope.probe, **sections)
