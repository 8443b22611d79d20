"""A captured tree over generated files: it replaces everything that it describes. Pure."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet_sim import cpu_files
from nodevet_sim.captured import CapturedTree, area_of, areas
from nodevet_sim.description import Content
from nodevet_sim.machine import SimulatedMachine

CPUS, NODES = "sys/devices/system/cpu", "sys/devices/system/node"
TOPOLOGY = re.compile(r"sys/(devices/system|bus)/(cpu|node)/")
HARDWARE = re.compile(
    r"sys/(devices|bus|class|module|block|dev|firmware|hypervisor|kernel/mm)/."
    r"|proc/(cpuinfo|meminfo|cmdline|modules|swaps|iomem|ioports|interrupts|version|buddyinfo|zoneinfo)$"
    r"|proc/(driver|bus)/."
    r"|proc/sys/(kernel/numa_balancing$|vm/.)"
)
LOCALITY = re.compile(r"(sys/devices/pci.*)/(numa_node|local_cpulist|local_cpus)")
LINKS = 40  # in one path, as the kernel counts them


@dataclass(frozen=True)
class Overlay:
    """Files and links, and the areas of them that are captured."""

    files: dict[str, Content]
    links: dict[str, str]
    areas: frozenset[str] = frozenset()


def lay(
    machine: SimulatedMachine,
    below: Overlay,
    captured: CapturedTree,
    only: tuple[str, ...] | None = None,
) -> Overlay:
    """The captured tree laid over the generated one; `only` these areas, by default all.

    Of what a capture has not, the kernel's own lists are made to fit it: /proc/cpuinfo,
    /proc/meminfo and the NUMA nodes of generated PCI functions.
    """
    described = areas(captured)
    taken = described if only is None else described & frozenset(only)

    def wanted(path: str) -> bool:
        return bool(HARDWARE.match(path)) and (only is None or area_of(path) in only)

    def stays(path: str) -> bool:
        return area_of(path) not in taken and not (CPUS in taken and TOPOLOGY.match(path))

    files = {path: content for path, content in below.files.items() if stays(path)}
    kept: set[str] = set()  # captured, so not to be fitted
    links = {path: target for path, target in below.links.items() if stays(path)}
    for path, target in captured.links.items():
        if wanted(path) and not any(other.startswith(f"{path}/") for other in files):
            links[path] = target
    for path, content in captured.files.items():
        if wanted(path):
            place = resolved(path, links)
            files[place] = content
            kept.add(place)
    if CPUS in taken:
        fitted = _fitted(machine, files, captured, taken)
        files.update({path: text for path, text in fitted.items() if path not in kept})
    return Overlay(files, links, taken)


def resolved(path: str, links: Mapping[str, str]) -> str:
    """The path after following the links in its folders, so that a file is written to its real
    place.

    Raises ValueError if they lead in circles or out of the tree.
    """
    done, ahead, count = "", path.split("/"), 0
    while ahead:
        done = posixpath.normpath(f"{done}/{ahead.pop(0)}").lstrip("/")
        if done.startswith(".."):
            raise ValueError(f"the symbolic links in {path} lead out of the tree")
        if done in links:
            count += 1
            if count > LINKS:
                raise ValueError(f"the symbolic links in {path} form a loop")
            target = links[done]
            base = "" if target.startswith("/") else posixpath.dirname(done)
            rest = posixpath.normpath(f"/{base}/{target}").lstrip("/")
            done, ahead = "", [*rest.split("/"), *ahead]
    return done


def _fitted(
    machine: SimulatedMachine,
    files: Mapping[str, Content],
    captured: CapturedTree,
    taken: frozenset[str],
) -> dict[str, Content]:
    """What is generated still, and would contradict the captured CPUs."""
    fitted: dict[str, Content] = {}
    cpus = _captured_cpus(captured)
    if "proc/cpuinfo" not in taken:
        fitted["proc/cpuinfo"] = cpu_files.cpuinfo(machine, cpus)
    nodes = {
        match[1]: text
        for path, text in captured.files.items()
        if (match := re.fullmatch(rf"{NODES}/node(\d+)/cpulist", path))
    }
    memory = [
        int(total[1])
        for path, text in captured.files.items()
        if re.fullmatch(rf"{NODES}/node\d+/meminfo", path)
        and (total := re.search(rb"MemTotal: +(\d+) kB", text))
    ]
    if "proc/meminfo" not in taken and memory:
        fitted["proc/meminfo"] = cpu_files.meminfo(sum(memory))
    if "sys/bus/pci" not in taken:
        for path in files:
            match = LOCALITY.fullmatch(path)
            if match:
                node = _text(files.get(f"{match[1]}/numa_node", "-1"))
                fitted[path] = _locality(match[2], node, nodes, cpus)
    return fitted


def _text(content: Content) -> str:
    return (content.decode("ascii", "replace") if isinstance(content, bytes) else content).strip()


def _locality(name: str, node: str, nodes: Mapping[str, bytes], cpus: list[int]) -> Content:
    if name == "numa_node":
        return f"{node if node in nodes else -1}\n"
    text = nodes.get(node, b"").decode("ascii", "replace").strip()
    local = parse_cpulist(text) if node in nodes else cpus
    if name == "local_cpulist":
        return f"{format_cpulist(local)}\n"
    return f"{cpu_files.mask(local, max(cpus, default=0) + 1)}\n"


def _captured_cpus(captured: CapturedTree) -> list[int]:
    """Those online, or else those with a directory."""
    online = captured.files.get(f"{CPUS}/online", b"").decode("ascii", "replace")
    try:
        listed = parse_cpulist(online)
    except ValueError:
        listed = []
    matches = (re.match(rf"{CPUS}/cpu(\d+)/topology/", path) for path in captured.files)
    return list(listed) or sorted({int(match[1]) for match in matches if match})
