"""Faults of CPUs, memory and the kernel's version. A function's docstring is the documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet_sim.cpu_files import CPUS, NODES, mask
from nodevet_sim.description import Content
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch

NODE = re.compile(rf"{NODES}/node(\d+)/meminfo")
SIBLINGS = re.compile(rf"{CPUS}/cpu(\d+)/topology/(core_cpus|thread_siblings)_list")
LINKED = "sys/bus/node/devices/node"
TOTAL = re.compile(r"(MemTotal: *)(\d+)")
SWITCHES = {f"{CPUS}/intel_pstate/no_turbo": "1\n", f"{CPUS}/cpufreq/boost": "0\n"}


class DeadDimm(FaultParams):
    node: Annotated[int, Field(ge=0, le=1023)] | None = None
    dimms: Annotated[int, Field(ge=2, le=64)] = 8


def dimm_dead(healthy: Healthy, want: DeadDimm) -> Patch:
    """The firmware left out a DIMM at boot: its NUMA node has less memory.

    `node`, its NUMA node, the last; `dimms`, of a NUMA node, 8.
    """
    nodes = {int(match[1]): path for path in healthy.files if (match := NODE.fullmatch(path))}
    if not nodes:
        raise FaultError("the node has no NUMA nodes")
    chosen = max(nodes) if want.node is None else want.node
    if chosen not in nodes:
        raise FaultError(f"the node has no NUMA node {chosen}")
    own = healthy.read(nodes[chosen])
    lost = int(TOTAL.search(own)[2]) // want.dimms  # type: ignore[index]
    return Patch(
        {
            nodes[chosen]: _reduce_total(own, lost),
            "proc/meminfo": _reduce_total(healthy.read("proc/meminfo"), lost),
        }
    )


def _reduce_total(text: str, kb: int) -> str:
    return TOTAL.sub(lambda found: f"{found[1]}{int(found[2]) - kb}", text, count=1)


def numa_interleaved(healthy: Healthy, want: NoParams) -> Patch:
    """The BIOS interleaves the memory of the sockets: the kernel has one NUMA node."""
    nodes = sorted(int(match[1]) for path in healthy.files if (match := NODE.fullmatch(path)))
    if len(nodes) < 2:
        raise FaultError("the node has one NUMA node, or none")
    own = f"{NODES}/node0"
    online = healthy.read(f"{CPUS}/online")
    cpus = parse_cpulist(online)
    total = int(TOTAL.search(healthy.read("proc/meminfo"))[2])  # type: ignore[index]
    files: dict[str, Content] = {
        f"{own}/cpulist": f"{online}\n",
        f"{own}/cpumap": f"{mask(cpus, len(cpus))}\n",
        f"{own}/distance": "10\n",
        f"{own}/meminfo": TOTAL.sub(rf"\g<1>{total}", healthy.read(f"{own}/meminfo")) + "\n",
    }
    lists = ("online", "possible", "has_cpu", "has_memory", "has_normal_memory")
    files.update(dict.fromkeys((f"{NODES}/{name}" for name in lists), "0\n"))
    for path in healthy.files:  # of devices
        if path.endswith("/numa_node"):
            files[path] = "0\n"
        elif path.endswith("/local_cpulist"):
            files[path] = f"{online}\n"
            files[f"{path.removesuffix('list')}s"] = f"{mask(cpus, len(cpus))}\n"
    removed = (path for node in nodes[1:] for path in (f"{NODES}/node{node}", f"{LINKED}{node}"))
    return Patch(healthy.present(files), gone_paths=frozenset(removed))


def smt_off(healthy: Healthy, want: NoParams) -> Patch:
    """SMT was switched off: the second thread of every core is offline."""
    matches = {path: match for path in healthy.files if (match := SIBLINGS.fullmatch(path))}
    second = {
        int(match[1])
        for path, match in matches.items()
        if int(match[1]) != parse_cpulist(healthy.read(path))[0]
    }
    if not second:
        raise FaultError("the node's cores have one thread each")
    online = set(parse_cpulist(healthy.read(f"{CPUS}/online")))
    files = {
        f"{CPUS}/online": f"{format_cpulist(online - second)}\n",
        f"{CPUS}/offline": f"{format_cpulist(second)}\n",
        f"{CPUS}/smt/active": "0\n",
        f"{CPUS}/smt/control": "off\n",
    }
    for cpu in second:
        files[f"{CPUS}/cpu{cpu}/online"] = "0\n"
    for path, match in matches.items():
        cpu = int(match[1])
        files[path] = f"{cpu}\n"
        files[path.removesuffix("_list")] = f"{mask((cpu,), len(online))}\n"
    for path in (path for path in healthy.files if NODE.fullmatch(path)):
        folder = path.removesuffix("/meminfo")
        remaining = set(parse_cpulist(healthy.read(f"{folder}/cpulist"))) - second
        files[f"{folder}/cpulist"] = f"{format_cpulist(remaining)}\n"
        files[f"{folder}/cpumap"] = f"{mask(remaining, len(online))}\n"
    for path in healthy.files:  # of devices: the CPUs near them that are online
        if path.endswith("/local_cpulist"):
            remaining = set(parse_cpulist(healthy.read(path))) - second
            files[path] = f"{format_cpulist(remaining)}\n"
            files[path.removesuffix("list") + "s"] = f"{mask(remaining, len(online))}\n"
    return Patch(healthy.present(files))


def turbo_off(healthy: Healthy, want: NoParams) -> Patch:
    """Turbo is switched off."""
    files = healthy.present(SWITCHES)
    if not files:
        raise FaultError("the node has no switch for turbo")
    return Patch(files)


class OtherKernel(FaultParams):
    release: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9._+-]{1,63}$")] = "5.4.0-42-generic"


def kernel_differs(healthy: Healthy, want: OtherKernel) -> Patch:
    """The node runs another kernel.

    `release`, as `uname -r` has it, 5.4.0-42-generic.
    """
    return Patch({"proc/sys/kernel/osrelease": f"{want.release}\n"})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "dimm-dead": (DeadDimm, dimm_dead),
    "kernel-differs": (OtherKernel, kernel_differs),
    "numa-interleaved": (NoParams, numa_interleaved),
    "smt-off": (NoParams, smt_off),
    "turbo-off": (NoParams, turbo_off),
}
