"""The parts of <gpu> that are more than one value each: reasons, fabric, processes."""

from xml.etree.ElementTree import Element

from nodevet_sim.xml.document import XmlDocument
from nodevet_sim.xml.text import (
    ERRORS,
    convert,
    element_text,
    mebibytes,
    plain,
    plainly,
    recovery,
    text,
    virtualization,
    word,
)

REASONS = {  # nvmlClocksEventReasons
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "user_defined_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
YES_NO = {"n/a": 0, "true": 1, "false": 2}
HEALTH = {  # element -> shift and numbers, NVML_GPU_FABRIC_HEALTH_MASK_*
    "bandwidth": (0, {"n/a": 0, "degraded": 1, "full": 2}),
    "route_recovery_in_progress": (2, YES_NO),
    "route_unhealthy": (4, YES_NO),
    "access_timeout_recovery": (6, YES_NO),
    "incorrect_configuration": (
        8,
        {
            "n/a": 0,
            "none": 1,
            "incorrect sysguid": 2,
            "incorrect system guid": 2,
            "incorrect chassis sn": 3,
            "incorrect chassis serial number": 3,
            "no partition": 4,
            "insufficient nvlinks": 5,
            "incompatible gpu fw": 6,
            "incompatible gpu firmware": 6,
            "invalid location": 7,
            "gpu state invalid": 8,
        },
    ),
    "partition_assigned": (12, YES_NO),
}


def event_reasons(gpu: Element) -> dict[str, str]:
    """The bit mask, if nvidia-smi prints any reason; driver 535 renamed the tags."""
    has_reason = False
    mask = 0
    for kind in ("throttle", "event"):
        for name, bit in REASONS.items():
            active = plainly(
                element_text(gpu.find(f"clocks_{kind}_reasons/clocks_{kind}_reason_{name}"))
            )
            has_reason |= active in ("active", "not active")
            mask |= bit if active == "active" else 0
    return {"event_reasons": hex(mask)} if has_reason else {}


def virtualization_mode(document: XmlDocument, gpu: Element) -> dict[str, str]:
    """`None` is a value of this one."""
    element = gpu.find("gpu_virtualization_mode/virtualization_mode")
    if plainly(element_text(element)) == "none":
        return {"virtualization_mode": "NONE"}
    value = convert(document, element, virtualization)
    return {} if value is None else {"virtualization_mode": value}


def recovery_action(document: XmlDocument, gpu: Element) -> dict[str, str]:
    """`None` is a value of this one."""
    element = gpu.find("gpu_recovery_action")
    if plainly(element_text(element)) == "none":
        return {"recovery_action": "NONE"}
    value = convert(document, element, recovery)
    return {} if value is None else {"recovery_action": value}


def fabric(document: XmlDocument, gpu: Element) -> dict[str, str]:
    """Drivers before 555 show no clique and no cluster: 0 and zeros, as an HGX board has.
    A driver that shows no health has no health_mask."""
    state = convert(document, gpu.find("fabric/state"), word)
    if state is None:
        return {}
    fields = {
        "state": state,
        "status": fabric_status(element_text(gpu.find("fabric/status"))),
        "clique_id": convert(document, gpu.find("fabric/cliqueId"), plain) or "0",
        "cluster_uuid": convert(document, gpu.find("fabric/clusterUuid"), text)
        or "00000000-0000-0000-0000-000000000000",
    }
    if gpu.find("fabric/health") is not None:
        mask = 0
        for name, (shift, numbers) in HEALTH.items():
            element = gpu.find(f"fabric/health/{name}")
            said = plainly(element_text(element)) or "n/a"
            if element is not None and said not in numbers:
                raise document.error(
                    element, f"<{name}> is {said[:80]!r}; one of: {', '.join(numbers)}"
                )
            mask |= numbers[said] << shift
        fields["health_mask"] = hex(mask)
        summary = convert(document, gpu.find("fabric/health/summary"), word)
        fields |= {} if summary is None else {"health_summary": summary}
    return {f"fabric.{key}": value for key, value in fields.items()}


def fabric_status(text: str) -> str:
    """The return code's name without its prefix, as the state has it."""
    if plainly(text) in ("", "n/a", "success"):
        return "SUCCESS"
    return ERRORS.get(plainly(text), "NVML_ERROR_UNKNOWN").removeprefix("NVML_ERROR_")


def processes(document: XmlDocument, gpu: Element) -> dict[str, str]:
    """`PID:BYTES` of the compute processes. Raises StateError if they do not fit."""
    parent = gpu.find("processes")
    if parent is None or element_text(parent):
        return {}
    items = []
    for process in parent.findall("process_info"):
        if "C" not in element_text(process.find("type")):
            continue
        pid = convert(document, process.find("pid"), plain)
        memory = convert(document, process.find("used_memory"), mebibytes)
        known = memory is not None and not memory.startswith("NVML_ERROR_")
        if pid is not None and pid.startswith("NVML_ERROR_"):
            return {"processes": pid}
        if pid is None:
            raise document.error(process, "a process has no <pid>; remove the process")
        items.append(f"{pid}:{memory}" if known else pid)
    value = " ".join(items)
    if len(value) > 255:
        raise document.error(
            parent, f"{len(items)} compute processes, but a state holds fewer; keep the first ten"
        )
    return {"processes": value}
