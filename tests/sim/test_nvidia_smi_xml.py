"""What nvidia-smi -q -x wrote, described as a state, comes back from the probe unchanged."""

import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures" / "nvidia-smi-xml"
FILES = sorted(CAPTURES.glob("*.xml"))
DEPRECATED = "Requested functionality has been deprecated"
UNKNOWN = ("", "N/A", "None", "[N/A]", "Unknown Error", DEPRECATED)


def number(text):
    return int(text.split()[0].rstrip("x"))


def milliwatt(text):
    return int(Decimal(text.split()[0]) * 1000)


def mebibyte(text):
    return number(text) << 20


def switch(text):
    return {"Enabled": True, "Yes": True, "Disabled": False, "No": False}[text]


def upper(text):
    return text.upper().replace(" ", "_")


def pci_id(text):
    return f"{text[4:]}:{text[:4]}".lower()


def bus_id(text):
    return text.lower()[4:]


def pstate(text):
    return int(text[1:])


ECC = {"sram_corrected": "sram_correctable", "dram_corrected": "dram_correctable"}
ECC.update(sram_uncorrected="sram_uncorrectable", dram_uncorrected="dram_uncorrectable")
HISTOGRAM = "remapped_rows/row_remapper_histogram/row_remapper_histogram_"
LINK = "pci/pci_gpu_link_info"
STABLE = (  # key, how the XML's text is read, where it is in the XML: the first that is there
    ("uuid", str, "uuid"),
    ("name", str, "product_name"),
    ("brand", upper, "product_brand"),
    ("gpu_architecture", upper, "product_architecture"),
    ("serial", str, "serial"),
    ("board_part_number", str, "board_part_number"),
    ("vbios_version", str, "vbios_version"),
    ("inforom_image_version", str, "inforom_version/img_version"),
    ("gsp_firmware_version", str, "gsp_firmware_version"),
    ("minor_number", number, "minor_number"),
    ("module_id", number, "platformInfo/module_id", "gpu_module_id"),
    ("bus_id", bus_id, "pci/pci_bus_id"),
    ("pci_device", pci_id, "pci/pci_device_id"),
    ("pci_subsystem", pci_id, "pci/pci_sub_system_id"),
    ("persistence_mode", switch, "persistence_mode"),
    ("ecc_current", switch, "ecc_mode/current_ecc"),
    ("ecc_pending", switch, "ecc_mode/pending_ecc"),
    ("mig_current", switch, "mig_mode/current_mig"),
    ("mig_pending", switch, "mig_mode/pending_mig"),
    ("compute_mode", upper, "compute_mode"),
    (
        "power_limit_mw",
        milliwatt,
        "gpu_power_readings/current_power_limit",
        "power_readings/power_limit",
    ),
    *(
        (
            f"power_limit_{kind}_mw",
            milliwatt,
            f"gpu_power_readings/{kind}_power_limit",
            f"power_readings/{kind}_power_limit",
        )
        for kind in ("enforced", "default", "min", "max")
    ),
    *(
        (f"{ours}_{short}{default}_mhz", number, f"{theirs}/{tag}_clock")
        for ours, theirs, default in (
            ("app_clock", "applications_clocks", ""),
            ("app_clock", "default_applications_clocks", "_default"),
            ("max_clock", "max_clocks", ""),
        )
        for short, tag in (("graphics", "graphics"), ("memory", "mem"))
    ),
    ("max_clock_sm_mhz", number, "max_clocks/sm_clock"),
    ("max_clock_video_mhz", number, "max_clocks/video_clock"),
    ("temperature_shutdown_c", number, "temperature/gpu_temp_max_threshold"),
    ("temperature_slowdown_c", number, "temperature/gpu_temp_slow_threshold"),
    ("temperature_gpu_max_c", number, "temperature/gpu_temp_max_gpu_threshold"),
    ("temperature_memory_max_c", number, "temperature/gpu_temp_max_mem_threshold"),
    ("tlimit_shutdown_c", number, "temperature/gpu_temp_max_tlimit_threshold"),
    ("tlimit_slowdown_c", number, "temperature/gpu_temp_slow_tlimit_threshold"),
    ("tlimit_gpu_max_c", number, "temperature/gpu_temp_max_gpu_tlimit_threshold"),
    ("tlimit_memory_max_c", number, "temperature/gpu_temp_max_mem_tlimit_threshold"),
    ("pcie_generation_max", number, f"{LINK}/pcie_gen/max_link_gen"),
    ("pcie_generation_device_max", number, f"{LINK}/pcie_gen/max_device_link_gen"),
    ("pcie_width", number, f"{LINK}/link_widths/current_link_width"),
    ("pcie_width_max", number, f"{LINK}/link_widths/max_link_width"),
    ("memory_total_b", mebibyte, "fb_memory_usage/total"),
    ("bar1_total_b", mebibyte, "bar1_memory_usage/total"),
    *(
        (f"ecc.{life}_{ours}", number, f"ecc_errors/{life}/{theirs}")
        for life in ("volatile", "aggregate")
        for ours, theirs in ECC.items()
    ),
    ("ecc.sram_threshold_exceeded", switch, "ecc_errors/aggregate/sram_threshold_exceeded"),
    ("remapping.corrected", number, "remapped_rows/remapped_row_corr"),
    ("remapping.uncorrected", number, "remapped_rows/remapped_row_unc"),
    ("remapping.pending", switch, "remapped_rows/remapped_row_pending"),
    ("remapping.failure", switch, "remapped_rows/remapped_row_failure"),
    *(
        (f"remapping.banks_{kind}", number, HISTOGRAM + kind)
        for kind in ("max", "high", "partial", "low", "none")
    ),
    (
        "retired_pages.single_bit",
        number,
        "retired_pages/multiple_single_bit_retirement/retired_count",
    ),
    ("retired_pages.double_bit", number, "retired_pages/double_bit_retirement/retired_count"),
    ("retired_pages.pending", switch, "retired_pages/pending_retirement"),
    ("fabric.state", upper, "fabric/state"),
    ("fabric.status", upper, "fabric/status"),
    ("fabric.clique_id", number, "fabric/cliqueId"),
    ("fabric.cluster_uuid", str, "fabric/clusterUuid"),
)
FLEETING = (
    (
        "power_draw_mw",
        milliwatt,
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "gpu_power_readings/instant_power_draw",
        "power_readings/power_draw",
    ),
    ("clock_graphics_mhz", number, "clocks/graphics_clock"),
    ("clock_sm_mhz", number, "clocks/sm_clock"),
    ("clock_memory_mhz", number, "clocks/mem_clock"),
    ("clock_video_mhz", number, "clocks/video_clock"),
    ("pstate", pstate, "performance_state"),
    ("temperature_gpu_c", number, "temperature/gpu_temp"),
    ("temperature_memory_c", number, "temperature/memory_temp"),
    ("temperature_margin_c", number, "temperature/gpu_temp_tlimit"),
    ("pcie_generation", number, f"{LINK}/pcie_gen/current_link_gen"),
    ("pcie_replay_counter", number, "pci/replay_counter"),
    ("memory_used_b", mebibyte, "fb_memory_usage/used"),
    ("memory_reserved_b", mebibyte, "fb_memory_usage/reserved"),
    ("utilization_gpu_percent", number, "utilization/gpu_util"),
    ("utilization_memory_percent", number, "utilization/memory_util"),
)
REASONS = {  # nvmlClocksEventReasons
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}


def values_of(element, rows):
    """The values of one <gpu>, by key; None where nvidia-smi had none."""
    values = {}
    for key, read, *paths in rows:
        texts = [(element.findtext(path) or "").strip() for path in paths]
        text = next((text for text in texts if text not in UNKNOWN), None)
        values[key] = None if text is None else read(text)
    if element.findtext("gpu_recovery_action") == "None":
        values["recovery_action"] = "NONE"
    return values


def event_reasons(element):
    """The bit mask; the tags were renamed with driver 535."""
    mask = 0
    for kind in ("throttle", "event"):
        for name, bit in REASONS.items():
            path = f"clocks_{kind}_reasons/clocks_{kind}_reason_{name}"
            mask |= bit if element.findtext(path) == "Active" else 0
    return mask


def processes_of(element):
    """(pid, bytes or None) of the compute processes."""
    found = []
    for process in element.findall("processes/process_info"):
        if "C" in process.findtext("type"):
            memory = process.findtext("used_memory")
            bytes_used = None if memory in UNKNOWN else mebibyte(memory)
            found.append((int(process.findtext("pid")), bytes_used))
    return found


def state_of(root):
    """An nvidia-smi log as a state."""
    elements = root.findall("gpu")
    lines = [
        f"driver_version = {root.findtext('driver_version')}",
        f"cuda_version = {root.findtext('cuda_version')}",
        f"count = {len(elements)}",
    ]
    for index, element in enumerate(elements):
        values = values_of(element, STABLE + FLEETING)
        values["event_reasons"] = event_reasons(element)
        for key, value in values.items():
            if value is not None:
                shown = int(value) if isinstance(value, bool) else value
                lines.append(f"gpu.{index}.{key} = {shown}")
        items = [f"{pid}:{used}" if used else str(pid) for pid, used in processes_of(element)]
        lines.append(f"gpu.{index}.processes = {' '.join(items)}")
        lines.append(f"gpu.{index}.fabric.health_mask = 0")
    return "\n".join(lines) + "\n"


def at(gpu, key):
    for part in key.split("."):
        gpu = getattr(gpu, part)
    return gpu


@pytest.mark.skipif(not FILES, reason=f"no captures in {CAPTURES}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_capture_comes_back(gpus_of, path):
    root = ElementTree.parse(path).getroot()
    found = gpus_of(state_of(root))
    assert found.driver_version == root.findtext("driver_version")
    assert found.cuda_version == root.findtext("cuda_version")
    for gpu, element in zip(found.gpus, root.findall("gpu"), strict=True):
        values = values_of(element, STABLE + FLEETING)
        read = {key: at(gpu, key) for key in values}
        assert read == values
        assert sum(value is not None for value in values.values()) > 25
        assert gpu.event_reasons == event_reasons(element)
        assert [(item.pid, item.memory_used_b) for item in gpu.processes] == processes_of(element)


def capture(name):
    path = CAPTURES / f"{name}.xml"
    if not path.exists():
        pytest.skip(f"no capture {path}")
    return state_of(ElementTree.parse(path).getroot())


def test_what_the_manifest_says_of_an_h100_node(gpus_of):
    gpus = gpus_of(capture("k8s-h100")).gpus
    assert len(gpus) == 8
    assert gpus[0].bus_id == "0000:53:00.0"
    assert {gpu.pci_subsystem for gpu in gpus} == {"10de:16c1"}
    assert {gpu.pcie_replay_counter for gpu in gpus} == {106, 144, 145, 150, 158, 162, 172, 174}
    assert {(gpu.pcie_generation, gpu.pcie_width) for gpu in gpus} == {(5, 16)}
    assert {gpu.fabric.state for gpu in gpus} == {"COMPLETED"}
    assert {gpu.event_reasons for gpu in gpus} == {1}


def test_what_the_manifest_says_of_others(gpus_of):
    assert {gpu.persistence_mode for gpu in gpus_of(capture("k8s-b200")).gpus} == {False}
    (board,) = gpus_of(capture("telegraf-a100-sxm4-v12")).gpus
    assert (board.pci_device, board.pci_subsystem) == ("10de:20b2", "10de:147f")
    assert (board.power_limit_max_mw, board.mig_current) == (500000, True)
    (idle,) = gpus_of(capture("telegraf-a10g")).gpus
    assert (idle.pcie_generation, idle.pcie_generation_max, idle.pcie_width) == (1, 4, 8)
    (worn,) = gpus_of(capture("k8s-t4")).gpus
    assert (worn.ecc.aggregate_dram_corrected, worn.ecc.volatile_dram_corrected) == (1, 0)


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi, so no GPU")
def test_a_real_gpu_reads_as_nvidia_smi_shows_it(gpus_of_this_machine):
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"nvidia-smi: {done.stdout.strip()}")
    root = ElementTree.fromstring(done.stdout)
    found = gpus_of_this_machine()
    assert found.driver_version == root.findtext("driver_version")
    assert found.cuda_version == root.findtext("cuda_version")
    assert found.count == int(root.findtext("attached_gpus"))
    for gpu, element in zip(found.gpus, root.findall("gpu"), strict=True):
        shown = {
            key: value for key, value in values_of(element, STABLE).items() if value is not None
        }
        assert {key: at(gpu, key) for key in shown} == shown
