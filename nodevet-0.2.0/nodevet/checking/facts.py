"""Facts about a host in a few words, from its evidence. Pure: no fact is judged or guessed.

Values that were not read are left out. Texts come from the node: this module limits their length,
and the code that prints them makes them printable.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.memory import Memory
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import HostFacts

LONGEST = 80  # characters of one text; a GPU's name has at most 96 bytes, and mostly 30
MOST_KINDS = 8  # of GPUs, links, limits; if there are more, the rarest are left out


def facts_of(evidence: Evidence) -> HostFacts:
    """The facts of one node."""
    host = evidence[HostInfo].data or HostInfo()
    nvml = evidence[Gpus].data or Gpus()
    memory = evidence[Memory].data or Memory()
    gpus = nvml.gpus or ()
    return HostFacts(
        machine=_text(" ".join(filter(None, (host.dmi_vendor, host.dmi_product)))),
        os=_text(host.os_name or " ".join(filter(None, (host.os_id, host.os_version)))),
        kernel=_text(host.kernel),
        architecture=_text(host.architecture),
        uptime_s=None if host.uptime_s is None else round(host.uptime_s),
        memory_kb=memory.total_kb,
        driver=_text(nvml.driver_version),
        cuda=_text(nvml.cuda_version),
        gpus=_counted((*map(_model, gpus), *_outside_nvml(gpus, evidence[Pci].data))),
        links=_counted(map(_link, gpus)),
        power_limits_mw=_counted(gpu.power_limit_mw for gpu in gpus),
    )


def _text(text: str | None) -> str | None:
    return text.strip()[:LONGEST] or None if text else None


def _counted(values: Iterable[object]) -> Mapping[str, int]:
    """How often each value was read, the most frequent first."""
    counts = Counter(str(value)[:LONGEST] for value in values if value is not None)
    return dict(counts.most_common(MOST_KINDS))


def _model(gpu: Gpu) -> str:
    return gpu.name or gpu.pci_device or "GPU of unknown model"


def _outside_nvml(gpus: Iterable[Gpu], pci: Pci | None) -> Iterator[str]:
    """The ids of GPUs that are on the PCI bus and not in NVML, if NVML says which GPUs it has."""
    buses = {gpu.bus_id for gpu in gpus}
    if None in buses:
        return
    for function in pci.of_kind("gpu") if pci else ():
        if function.address not in buses:
            yield _id(function)


def _id(function: PciFunction) -> str:
    return f"PCI {function.id}" if function.device else "GPU of unknown model"


def _link(gpu: Gpu) -> str | None:
    """`Gen5 x16`; for a link that is slower now, such as an idle one, `Gen1 x16 now, up to Gen5
    x16`.

    >>> _link(Gpu(index=0, pcie_generation=1, pcie_generation_max=5, pcie_width=16))
    'Gen1 x16 now, up to Gen5'
    """
    now = _words(gpu.pcie_generation, gpu.pcie_width)
    most = _words(gpu.pcie_generation_max, gpu.pcie_width_max)
    if not now or not most or now == most:
        return now or (f"up to {most}" if most else None)
    return f"{now} now, up to {most}"


def _words(generation: int | None, width: int | None) -> str:
    words = (f"Gen{generation}" if generation else "", f"x{width}" if width else "")
    return " ".join(filter(None, words))
