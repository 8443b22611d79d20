"""What `nvidia-smi -q` printed as text, as the XML that `nvidia-smi -q -x` would have printed."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, tostring

HEAD = "==============NVSMI LOG=============="
ROW = re.compile(r"( *)([^:\n]+?)\s*(?:: (.*))?$")
GPU = re.compile(r"GPU ([0-9A-Fa-f:]+\.[0-7])\s*$")
POWER = {
    "power draw": "power_draw",
    "average power draw": "average_power_draw",
    "instantaneous power draw": "instant_power_draw",
    "power limit": "power_limit",
    "current power limit": "current_power_limit",
    "requested power limit": "requested_power_limit",
    "enforced power limit": "enforced_power_limit",
    "default power limit": "default_power_limit",
    "min power limit": "min_power_limit",
    "max power limit": "max_power_limit",
}
CLOCKS = {name: f"{name}_clock" for name in ("graphics", "sm", "video")} | {"memory": "mem_clock"}
REASONS = {
    "idle": "gpu_idle",
    "applications clocks setting": "applications_clocks_setting",
    "sw power cap": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw slowdown/hw thermal slowdown": "hw_thermal_slowdown",
    "hw slowdown/hw power brake slowdown": "hw_power_brake_slowdown",
    "hw slowdown/hw power braking": "hw_power_brake_slowdown",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "display clock setting": "display_clocks_setting",
}
COUNTERS = {
    "sw thermal slowdown": "sw_therm_slowdown",
    "hw thermal slowdown": "hw_therm_slowdown",
    "hw power braking": "hw_power_brake",
}
TEMPERATURES = {
    "gpu current temp": "gpu_temp",
    "gpu t.limit temp": "gpu_temp_tlimit",
    "gpu shutdown temp": "gpu_temp_max_threshold",
    "gpu slowdown temp": "gpu_temp_slow_threshold",
    "gpu max operating temp": "gpu_temp_max_gpu_threshold",
    "memory current temp": "memory_temp",
    "memory max operating temp": "gpu_temp_max_mem_threshold",
    "gpu shutdown t.limit temp": "gpu_temp_max_tlimit_threshold",
    "gpu slowdown t.limit temp": "gpu_temp_slow_tlimit_threshold",
    "gpu max operating t.limit temp": "gpu_temp_max_gpu_tlimit_threshold",
    "memory max operating t.limit temp": "gpu_temp_max_mem_tlimit_threshold",
}
LINK = "pci/gpu link info/pcie generation"
TAGS = {
    "gpu uuid": "uuid",
    "serial number": "serial",
    "gpu part number": "gpu_part_number",
    "mig mode/current": "mig_mode/current_mig",
    "mig mode/pending": "mig_mode/pending_mig",
    "inforom version/image version": "inforom_version/img_version",
    "platform info/module id": "platformInfo/module_id",
    "pci/base classcode": "pci/pci_base_class",
    "pci/sub classcode": "pci/pci_sub_class",
    "pci/device id": "pci/pci_device_id",
    "pci/bus id": "pci/pci_bus_id",
    "pci/sub system id": "pci/pci_sub_system_id",
    "pci/replays since reset": "pci/replay_counter",
    f"{LINK}/max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    f"{LINK}/current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    f"{LINK}/device max": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    f"{LINK}/host max": "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    "pci/gpu link info/link width/max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "pci/gpu link info/link width/current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "ecc mode/current": "ecc_mode/current_ecc",
    "ecc mode/pending": "ecc_mode/pending_ecc",
    "ecc errors/channel repair pending": "ecc_errors/channel_repair_pending",
    "ecc errors/tpc repair pending": "ecc_errors/tpc_repair_pending",
    "ecc errors/unrepairable memory": "ecc_errors/unrepairable_memory",
    "retired pages/single bit ecc": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired pages/double bit ecc": "retired_pages/double_bit_retirement/retired_count",
    "retired pages/pending": "retired_pages/pending_retirement",
    "retired pages/pending page blacklist": "retired_pages/pending_blacklist",
    "remapped rows/correctable error": "remapped_rows/remapped_row_corr",
    "remapped rows/uncorrectable error": "remapped_rows/remapped_row_unc",
    "remapped rows/pending": "remapped_rows/remapped_row_pending",
    "remapped rows/remapping failure occurred": "remapped_rows/remapped_row_failure",
    "utilization/gpu": "utilization/gpu_util",
    "utilization/memory": "utilization/memory_util",
    "fabric/cliqueid": "fabric/cliqueId",
    "fabric/clusteruuid": "fabric/clusterUuid",
    **{
        f"remapped rows/bank remap availability histogram/{kind}": "remapped_rows/"
        f"row_remapper_histogram/row_remapper_histogram_{kind}"
        for kind in ("max", "high", "partial", "low", "none")
    },
    **{f"temperature/{label}": f"temperature/{tag}" for label, tag in TEMPERATURES.items()},
    **{
        f"{group}/{label}": f"{group.replace(' ', '_')}/{tag}"
        for group in ("power readings", "gpu power readings")
        for label, tag in POWER.items()
    },
    **{
        f"{group}/{label}": f"{group.replace(' ', '_')}/{tag}"
        for group in ("clocks", "applications clocks", "default applications clocks", "max clocks")
        for label, tag in CLOCKS.items()
    },
    **{
        f"clocks {word} reasons/{label}": f"clocks_{word}_reasons/clocks_{word}_reason_{tag}"
        for word in ("throttle", "event")
        for label, tag in REASONS.items()
    },
    **{
        f"clocks event reasons counters/{label}": "clocks_event_reasons_counters/"
        f"clocks_event_reasons_counters_{tag}"
        for label, tag in COUNTERS.items()
    },
}
"""Labels whose elements have another name than the label in lower case with underscores."""


def to_xml(text: str) -> str:
    """The first log of a text, as XML. Raises ValueError if there is none."""
    _, found, log = text.partition(HEAD)
    if not found:
        raise ValueError("not what nvidia-smi -q prints")
    log = log.partition("\n####")[0]
    root = Element("nvidia_smi_log")
    head, *gpus = re.split(r"^(?=GPU [0-9A-Fa-f:]+\.[0-7]\s*$)", log, flags=re.MULTILINE)
    for path, value in _rows(head):
        _put(root, path, value)
    for block in gpus:
        address, _, rest = block.partition("\n")
        gpu = SubElement(root, "gpu", id=address.removeprefix("GPU ").strip())
        for path, value in _rows(rest):
            _put(gpu, path, value)
        if gpu.find("pci/pci_bus_id") is None:
            _put(gpu, "pci/bus id", gpu.get("id", ""))
    return tostring(root, encoding="unicode")


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """Label with those above it, in lower case, and value of each row; of processes none."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        row = ROW.match(line.rstrip())
        if row is None or not line.strip():
            continue
        indent, label, value = len(row[1]), row[2].strip().lower(), row[3]
        above = [each for each in above if each[0] < indent]
        if value is not None:
            yield "/".join([name for _, name in above] + [label]), value.strip()
        above.append((indent, label))


def _put(element: Element, path: str, value: str) -> None:
    if path.startswith(("processes", "mig device", "gpu instance")):
        return
    for tag in TAGS.get(path, path.replace(" ", "_").replace("-", "")).split("/"):
        if not re.fullmatch(r"[A-Za-z_]\w*", tag):
            return
        found = element.find(tag)
        element = SubElement(element, tag) if found is None else found
    element.text = re.sub(r"\A0x([0-9a-f])\Z", r"\1", value)


def nvlinks(text: str) -> str:
    """What `nvidia-smi nvlink --status` says in a text, as lines of an NVML state. Links that are
    down it does not print: each GPU has as many as the one with the most."""
    parts = re.split(r"^GPU (\d+): .*\(UUID: .*$", text, flags=re.MULTILINE)
    told: dict[int, list[tuple[int, float]]] = {}
    for number, block in zip(map(int, parts[1::2]), parts[2::2], strict=True):
        links = re.findall(r"^\s+Link (\d+): ([\d.]+) GB/s$", block, re.MULTILINE)
        if links or "links are in" in block.lower():
            told[number] = [(int(link), float(speed)) for link, speed in links]
        elif "not have or support" in block or "not supported" in block:
            told.setdefault(number, [(-1, 0.0)])
    most = max((link for links in told.values() for link, _ in links), default=-1) + 1
    lines = []
    for number, links in told.items():
        if links == [(-1, 0.0)]:
            lines.append(f"gpu.{number}.nvlinks = NVML_ERROR_NOT_SUPPORTED")
            continue
        lines.append(f"gpu.{number}.nvlinks = {most or 1}")
        lines += [f"gpu.{number}.nvlinks.{link}.active = 0" for link in range(most or 1)]
        for link, speed in links:
            lines.append(f"gpu.{number}.nvlinks.{link}.active = 1")
            lines.append(f"gpu.{number}.nvlinks.{link}.speed_mbps = {round(speed * 1000)}")
    return "".join(f"{line}\n" for line in lines)
