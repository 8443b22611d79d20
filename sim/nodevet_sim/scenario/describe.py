"""Build the complete node from its scenario."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet_sim import (
    captured,
    imex_files,
    network_files,
    software_files,
    storage_files,
    torch_files,
    tree,
)
from nodevet_sim.description import Content, GpuLoad, LogLine, SimulatedNode, SwapArea
from nodevet_sim.faults import FAULTS, Healthy, Patch, combine
from nodevet_sim.faults.node import governors
from nodevet_sim.faults.patch import is_below
from nodevet_sim.host_files import ROOT_FILES
from nodevet_sim.machine import SimulatedMachine
from nodevet_sim.modules import described
from nodevet_sim.scenario.format import LEVELS, LogPart
from nodevet_sim.scenario.hardware import hardware
from nodevet_sim.scenario.overlay import CPUS, HARDWARE, Overlay, lay, resolved
from nodevet_sim.scenario.spec import NodeSpec
from nodevet_sim.state import count_of, for_each, of_gpu, text_of, without_gpus

PERSISTENCED, FABRIC_MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
NVSWITCH = "10de:22a3", "10de:1af1"
GENERATED = {  # keys that a captured area leaves nothing to say for
    CPUS: ("sockets", "cores", "smt", "numa", "cpufreq"),
    "sys/bus/pci": ("nics", "nic_kind", "nvme"),
}


def describe(spec: NodeSpec) -> SimulatedNode:
    """The node. Reads the files that the scenario names. Raises ScenarioError."""
    machine, known = hardware(spec)
    laid = _captured_overlay(spec, machine, Overlay(tree.files(machine), tree.links(machine)))
    root_files = _root_files(spec, machine, known or {})
    found = {**laid.files, **_nfs(spec, machine)}
    healthy = Healthy(found, laid.links, known or {}, spec.part.disk_mb, root_files, machine.nodes)
    if spec.part.governor is not None:
        with spec.blame("governor"):
            chosen = governors(healthy, spec.part.governor)
        governed = dict.fromkeys(chosen, f"{spec.part.governor}\n")
        healthy = replace(healthy, files={**found, **governed})
    patches = tuple(_patches(spec, healthy))
    with spec.blame("faults"):
        patch = combine(patches)
    state = _state(spec, healthy, patch) if known is not None else None
    files, links = _remaining_files(healthy, patch)
    if state is not None and "proc/driver/nvidia" not in laid.areas:
        known_to_it = replace(patch, unlisted=frozenset())  # NVML asks for more than its list
        files.update(_driver_files(_state(spec, healthy, known_to_it)))
    files.update(_own_files(spec, files, links))
    removed_nodes = {machine.nodes[gpu] for gpu in patch.gone}
    removed_nodes.update(path for path, mode in patch.devices.items() if mode is None)
    channels = () if spec.part.nvlink_domain is None else (imex_files.CHANNEL,)
    devices = tuple(path for path in (*machine.nodes, *channels) if path not in removed_nodes)
    swap = tuple(_swap(spec, patch.swap))
    present = {path: content for path, content in files.items() if content is not None}
    present, modules = described(present, {**patch.modules, **spec.part.modules})
    node = SimulatedNode(
        name=spec.name,
        files=present,
        links=links,
        state=text_of(state) if state is not None else None,
        device_nodes=devices,
        device_modes={path: mode for path, mode in patch.devices.items() if mode is not None},
        kernel_log=(*network_files.logged(machine), *_log(spec, [patch for _, patch in patches])),
        load=(*_loads(spec, files, devices), *patch.load),
        modules=modules,
        swap=swap,
        root_files={**root_files, **_fstab(swap), **patch.root_files},
        services=_services(spec, machine, state, patch),
        boot=patch.boot,
        restored=_restored_files(patch),
        disk_mb=spec.part.disk_mb,
        sources=_sources(spec, laid),
    )
    return replace(node, **patch.node)  # type: ignore[arg-type]


def _restored_files(patch: Patch) -> dict[str, dict[str, Content]]:
    """The files that a boot restores, by what ends their faults."""
    files: dict[str, dict[str, Content]] = {}
    for path, (cleared_by, content) in patch.restored.items():
        files.setdefault(cleared_by, {})[path] = content
    return files


def _captured_overlay(spec: NodeSpec, machine: SimulatedMachine, generated: Overlay) -> Overlay:
    tree = spec.part.tree
    if tree is None:
        return generated
    with spec.blame("tree"):
        capture = captured.read(spec.path(tree.path))
        try:
            laid = lay(machine, generated, capture, tree.only)
        except ValueError as error:
            raise spec.error("tree", f"{spec.path(tree.path)}: {error}") from error
    for area, keys in GENERATED.items():
        for key in keys:
            if area in laid.areas and getattr(spec.part, key) is not None:
                raise spec.error(key, f"{area} comes from the captured tree; remove {key}")
    return laid


def _root_files(
    spec: NodeSpec, machine: SimulatedMachine, state: Mapping[str, str]
) -> dict[str, Content]:
    """What is on the disk of the healthy node."""
    nodes = spec.part.nvlink_domain
    return {
        **ROOT_FILES,
        **software_files.root_files(state),
        **(torch_files.root_files() if count_of(state) else {}),
        **(imex_files.root_files(nodes) if nodes is not None else {}),
        **dict(storage_files.logs(machine)),
        **dict(network_files.links_told(machine)),
    }


def _nfs(spec: NodeSpec, machine: SimulatedMachine) -> dict[str, Content]:
    point = spec.part.nfs
    if point is None:
        return {}
    return {storage_files.MOUNTSTATS: storage_files.mountstats(machine.uptime_s, point=point)}


def _patches(spec: NodeSpec, healthy: Healthy) -> Iterator[tuple[str, Patch]]:
    for place, fault in enumerate(spec.part.faults):
        for name, params in fault.items():
            with spec.blame(f"faults[{place}]"):
                yield name, FAULTS[name].apply(healthy, FAULTS[name].params(**params))


def _state(spec: NodeSpec, healthy: Healthy, patch: Patch) -> dict[str, str]:
    """The NVML state with the faults, and last what the node says itself."""
    state = for_each(healthy.state, patch.state)
    if patch.gone | patch.unlisted:
        state = without_gpus(state, sorted(patch.gone | patch.unlisted))
    with spec.blame("nvml"):
        return for_each(state, spec.part.nvml)


def _remaining_files(
    healthy: Healthy, patch: Patch
) -> tuple[dict[str, Content | None], dict[str, str]]:
    """Files and links of the patch, without removed ones."""
    addresses = (*(healthy.address(gpu) for gpu in patch.gone), *patch.gone_slots)
    slots = tuple(f"/{address[:-1]}" for address in addresses)  # a GPU's sound is gone, too

    def is_kept(path: str) -> bool:
        return not any(slot in path for slot in slots)

    def is_left(path: str) -> bool:
        return not patch.gone_paths or not is_below(path, patch.gone_paths)

    files = {path: content for path, content in healthy.files.items() if is_left(path)}
    links = {path: target for path, target in healthy.links.items() if is_left(path)}
    return (
        {path: content for path, content in {**files, **patch.files}.items() if is_kept(path)},
        {
            path: target
            for path, target in {**links, **patch.links}.items()
            if is_kept(path) and not (path.startswith("sys/class/") and not is_kept(target))
        },
    )


def _driver_files(state: Mapping[str, str]) -> dict[str, Content | None]:
    """/proc/driver/nvidia of each GPU, as nvidia.ko prints it."""
    files: dict[str, Content | None] = {"proc/driver/nvidia/params": PARAMS}
    for gpu in range(count_of(state)):
        address = of_gpu(state, gpu, "bus_id")
        if address is None or address.startswith("NVML_ERROR_"):
            continue
        rows = {
            "Model: \t\t": "name",
            "GPU UUID: \t": "uuid",
            "Video BIOS: \t": "vbios_version",
            "Device Minor: \t": "minor_number",
            "GPU Firmware: \t": "gsp_firmware_version",
        }
        told = [(label, of_gpu(state, gpu, key)) for label, key in rows.items()]
        text = "".join(
            f"{label} {value}\n" for label, value in told if value and "NVML_" not in value
        )
        files[f"proc/driver/nvidia/gpus/{address}/information"] = (
            f"{text}Bus Type: \t PCIe\nBus Location: \t {address}\nGPU Excluded:\t No\n"
        )
    return files


PARAMS = """\
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
"""


def _own_files(
    spec: NodeSpec, files: Mapping[str, Content | None], links: Mapping[str, str]
) -> dict[str, Content | None]:
    """The node's own contents of single files; None removes a file."""
    contents: dict[str, Content | None] = {}
    folders = {path.rpartition("/")[0] for path in files}
    for name, text in spec.part.files.items():
        path = posixpath.normpath(name).lstrip("/")
        if not path.startswith(("sys/", "proc/")) or not path.isprintable():
            raise spec.error("files", f"{name[:80]!r} is not below /sys or /proc; correct the path")
        if not (HARDWARE.match(path) or path.startswith(("proc/sys/", "sys/kernel/"))):
            raise spec.error(
                "files", f"{name[:80]} belongs to the real kernel and cannot be simulated"
            )
        try:
            path = resolved(path, links)
        except ValueError as error:
            raise spec.error("files", str(error)) from error
        if path in folders or any(part in files for part in _parents(path)):
            raise spec.error("files", f"{name[:80]} is a directory, or lies below a file")
        contents[path] = text if text is None or not text or text.endswith("\n") else f"{text}\n"
    return contents


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _log(spec: NodeSpec, patches: list[Patch]) -> tuple[LogLine, ...]:
    """The lines of boot, then what came since, in its order."""
    since = [event for event in spec.events if isinstance(event, int)]
    boot = [log_line(part) for part in spec.part.kernel_log]
    for place, patch in enumerate(patches):
        boot += () if place in since else patch.log
    for event in spec.events:
        if isinstance(event, LogLine):
            boot.append(event)
        else:
            boot += [replace(line, seconds=None) for line in patches[event].log]
    return tuple(boot)


def log_line(part: LogPart) -> LogLine:
    return LogLine(part.text, part.after, LEVELS.index(part.level))


def _loads(
    spec: NodeSpec, files: Mapping[str, Content | None], devices: tuple[str, ...]
) -> Iterator[GpuLoad]:
    online = {"cpus": f"{CPUS}/online", "mems": "sys/devices/system/node/online"}
    for place, part in enumerate(spec.part.load):
        key = f"load[{place}]"
        for minor in part.gpus:
            if f"/dev/nvidia{minor}" not in devices:
                raise spec.error(key, f"the node has no /dev/nvidia{minor}")
        for name, path in online.items():
            setting = getattr(part, name)
            text = files.get(path) or ""
            known = text.decode("ascii", "replace") if isinstance(text, bytes) else text
            missing = set(parse_cpulist(setting or "")).difference(parse_cpulist(known))
            if missing:
                has = f"the node has {known.strip() or 'none'}"
                raise spec.error(key, f"no {name} {format_cpulist(missing)}; {has}")
        yield GpuLoad(
            part.gpus, part.command, part.cpus, part.mems, part.utilization, part.memory_mb
        )


def _swap(spec: NodeSpec, more: tuple[SwapArea, ...]) -> Iterator[SwapArea]:
    yield from more
    known = {area.name for area in more}
    for part in spec.part.swap:
        if part.name in known:
            raise spec.error("swap", f"two swap areas are named {part.name}")
        known.add(part.name)
        yield SwapArea(part.name, part.kb, part.used_kb, part.priority)


def _fstab(swap: tuple[SwapArea, ...]) -> dict[str, Content]:
    """The file that turns all of them on at boot."""
    rows = []
    for area in swap:
        options = "sw" if area.priority is None else f"sw,pri={area.priority}"
        rows.append(f"{area.name} none swap {options} 0 0\n")
    return {"/etc/fstab": "".join(rows)}


def _services(
    spec: NodeSpec, machine: SimulatedMachine, state: Mapping[str, str] | None, patch: Patch
) -> tuple[str, ...]:
    enabled = {PERSISTENCED: state is not None and _is_persistent(state)}
    switched = any(function.id in NVSWITCH for function in machine.others)
    fabric = state is not None and of_gpu(state, 0, "fabric.state") == "COMPLETED"
    enabled[FABRIC_MANAGER] = state is not None and (switched or fabric)
    enabled[imex_files.UNIT] = spec.part.nvlink_domain is not None
    return tuple(unit for unit, on in {**enabled, **patch.services}.items() if on)


def _is_persistent(state: Mapping[str, str]) -> bool:
    """Whether nvidia-persistenced can have run: persistence mode is on, or not to be had."""
    modes = {of_gpu(state, gpu, "persistence_mode") for gpu in range(count_of(state))}
    return "0" not in modes


def _sources(spec: NodeSpec, laid: Overlay) -> dict[str, str]:
    """The source of each part of the hardware, for people."""
    gpus, tree = spec.part.gpus, spec.part.tree
    sources = {"generated": "sys, proc"}
    if gpus is not None:
        sources["gpus"] = str(spec.path(gpus.xml)) if gpus.xml else f"profile {gpus.profile}"
    if tree is not None:
        areas = sorted(laid.areas) or ["single files"]
        sources.update(dict.fromkeys(areas, str(spec.path(tree.path))))
    return sources
