"""What nvidia-smi -q -x wrote, described as a node, comes back from the probe unchanged.

The tables here read the XML by themselves; the product's converter has its own.
"""

import copy
import json
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pynvml
import pytest

from nodevet.evidence.document import decode
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.pci import Pci
from nodevet.remote.probe.collectors import host, pci
from nodevet_sim import tree
from nodevet_sim.nvidia_smi_xml import read
from nodevet_sim.state import StateError

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures" / "nvidia-smi-xml"
FILES = sorted(CAPTURES.glob("*.xml"))
DEPRECATED = "Requested functionality has been deprecated"
ERRORS = {DEPRECATED: "NVML_ERROR_DEPRECATED", "Unknown Error": "NVML_ERROR_UNKNOWN"}
NOTHING = ("", "N/A", "None", "[N/A]")
LOST = "NVML_ERROR_GPU_IS_LOST"


def number(text):
    return int(text.split()[0].rstrip("x"))


def milliwatt(text):
    return int(Decimal(text.split()[0]) * 1000)


def mebibyte(text):
    return number(text) << 20


def nanoseconds(text):
    return number(text) * 1000


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


HISTOGRAM = "remapped_rows/row_remapper_histogram/row_remapper_histogram_"
LINK = "pci/pci_gpu_link_info"
COUNTERS = "clocks_event_reasons_counters"
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
        "gpu_power_readings/requested_power_limit",
        "power_readings/power_limit",
    ),
    (
        "power_limit_enforced_mw",
        milliwatt,
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
    ),
    *(
        (
            f"power_limit_{kind}_mw",
            milliwatt,
            f"gpu_power_readings/{kind}_power_limit",
            f"power_readings/{kind}_power_limit",
        )
        for kind in ("default", "min", "max")
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
    ("ecc.sram_threshold_exceeded", switch, "ecc_errors/aggregate/sram_threshold_exceeded"),
    ("repair.channel_pending", switch, "ecc_errors/channel_repair_pending"),
    ("repair.tpc_pending", switch, "ecc_errors/tpc_repair_pending"),
    ("repair.unrepairable_memory", switch, "ecc_errors/unrepairable_memory"),
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
    ("throttled_sw_thermal_ns", nanoseconds, f"{COUNTERS}/{COUNTERS}_sw_therm_slowdown"),
    ("throttled_hw_thermal_ns", nanoseconds, f"{COUNTERS}/{COUNTERS}_hw_therm_slowdown"),
    ("throttled_power_cap_ns", nanoseconds, f"{COUNTERS}/{COUNTERS}_sw_power_cap"),
    ("throttled_power_brake_ns", nanoseconds, f"{COUNTERS}/{COUNTERS}_hw_power_brake"),
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


def texts(element, paths):
    return [(element.findtext(path) or "").strip() for path in paths]


def values_of(element, rows):
    """The values of one <gpu>, by key; None where nvidia-smi had none."""
    values = {}
    for key, convert, *paths in rows:
        found = [text for text in texts(element, paths) if text not in (*NOTHING, *ERRORS)]
        values[key] = convert(found[0]) if found else None
    return values


def errors_of(element, rows):
    """The NVML errors that nvidia-smi printed, by key."""
    errors = {}
    for key, _, *paths in rows:
        found = [text for text in texts(element, paths) if text not in NOTHING]
        if found and set(found) <= set(ERRORS):
            errors[key] = ERRORS[found[0]]
    return errors


def ecc_of(element):
    """The ECC counters of NVML from what each driver shows of them."""
    counts = {}
    for life in ("volatile", "aggregate"):
        part = element.find(f"ecc_errors/{life}")
        shown = {} if part is None else {item.tag: item.text for item in part}
        old = {} if part is None else {bits.tag: bits for bits in part if len(bits)}
        known = {tag: int(text) for tag, text in shown.items() if (text or "").isdigit()}
        parity, secded = (known.get(f"sram_uncorrectable_{kind}") for kind in ("parity", "secded"))
        sram = known.get("sram_uncorrectable") if parity is None else parity + secded
        places = {
            "sram_corrected": known.get("sram_correctable"),
            "sram_uncorrected": sram,
            "dram_corrected": known.get("dram_correctable"),
            "dram_uncorrected": known.get("dram_uncorrectable"),
        }
        for severity, bits in (("corrected", "single_bit"), ("uncorrected", "double_bit")):
            parts = [places[f"{place}_{severity}"] for place in ("sram", "dram")]
            places[severity] = None if None in parts else sum(parts)
            if bits in old:
                total, memory = (old[bits].findtext(tag) for tag in ("total", "device_memory"))
                places[severity] = int(total) if total.isdigit() else None
                places[f"dram_{severity}"] = int(memory) if memory.isdigit() else None
        counts.update({f"{life}_{place}": count for place, count in places.items()})
    return counts


def event_reasons(element):
    """The bit mask; the tags were renamed with driver 535."""
    mask = 0
    for kind in ("throttle", "event"):
        for name, bit in REASONS.items():
            path = f"clocks_{kind}_reasons/clocks_{kind}_reason_{name}"
            mask |= bit if element.findtext(path) == "Active" else 0
    return mask


def health_mask(element):
    """NVML's mask of what <health> says; None in no fabric."""
    words = {
        "bandwidth": ("DEGRADED_BW", {"Full": 2, "Degraded": 1}),
        "route_recovery_in_progress": ("ROUTE_RECOVERY", {"False": 2, "True": 1}),
        "route_unhealthy": ("ROUTE_UNHEALTHY", {"False": 2, "True": 1}),
        "access_timeout_recovery": ("ACCESS_TIMEOUT_RECOVERY", {"False": 2, "True": 1}),
        "incorrect_configuration": ("INCORRECT_CONFIGURATION", {"None": 1}),
    }
    if element.findtext("fabric/state") != "Completed" or element.find("fabric/health") is None:
        return None
    return sum(
        numbers.get(element.findtext(f"fabric/health/{tag}"), 0)
        << getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_{name}")
        for tag, (name, numbers) in words.items()
    )


def processes_of(element):
    """(pid, bytes or None) of the compute processes."""
    found = []
    for process in element.findall("processes/process_info"):
        if "C" in process.findtext("type"):
            memory = process.findtext("used_memory")
            bytes_used = None if memory in NOTHING else mebibyte(memory)
            found.append((int(process.findtext("pid")), bytes_used))
    return found


def at(gpu, key):
    for part in key.split("."):
        gpu = getattr(gpu, part)
    return gpu


def assert_equal(gpu, element):
    """One GPU of the evidence is what the XML's <gpu> says."""
    values = values_of(element, STABLE + FLEETING)
    assert {key: at(gpu, key) for key in values} == values
    assert {key: at(gpu.ecc, key) for key in ecc_of(element)} == ecc_of(element)
    for key, error in errors_of(element, STABLE + FLEETING).items():
        assert gpu.errors[key] == error
    said = element.findtext("gpu_recovery_action")
    assert gpu.recovery_action == ("NONE" if said == "None" else None)
    assert gpu.event_reasons == event_reasons(element)
    assert gpu.fabric.health_mask == health_mask(element)
    summary = element.findtext("fabric/health/summary") or "N/A"
    assert (gpu.fabric.health_summary or "NOT_SUPPORTED") == (
        "NOT_SUPPORTED" if summary == "N/A" else summary.upper()
    )
    assert [(item.pid, item.memory_used_b) for item in gpu.processes] == processes_of(element)


@pytest.mark.skipif(not FILES, reason=f"no captures in {CAPTURES}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_capture_read_back_by_the_probe_is_unchanged(gpus_of, path):
    root = ElementTree.parse(path).getroot()
    found = gpus_of(read(path).state())
    assert found.driver_version == root.findtext("driver_version")
    assert found.cuda_version == root.findtext("cuda_version")
    assert found.nvml_version.endswith(f".{found.driver_version}")
    for gpu, element in zip(found.gpus, root.findall("gpu"), strict=True):
        assert_equal(gpu, element)
        values = values_of(element, STABLE + FLEETING)
        assert sum(value is not None for value in values.values()) > 25


def capture(name):
    path = CAPTURES / f"{name}.xml"
    if not path.exists():
        pytest.skip(f"no capture {path}")
    return path


@pytest.fixture
def written(tmp_path):
    """Writes an XML text or tree; returns its path."""

    def write(content, name="node.xml"):
        path = tmp_path / name
        if isinstance(content, ElementTree.Element):
            content = ElementTree.tostring(content, encoding="unicode")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_what_the_manifest_says_of_an_h100_node(gpus_of):
    gpus = gpus_of(read(capture("k8s-h100")).state()).gpus
    assert len(gpus) == 8
    assert gpus[0].bus_id == "0000:53:00.0"
    assert {gpu.pci_subsystem for gpu in gpus} == {"10de:16c1"}
    assert {gpu.pcie_replay_counter for gpu in gpus} == {106, 144, 145, 150, 158, 162, 172, 174}
    assert {(gpu.pcie_generation, gpu.pcie_width) for gpu in gpus} == {(5, 16)}
    assert {gpu.fabric.state for gpu in gpus} == {"COMPLETED"}
    assert {gpu.event_reasons for gpu in gpus} == {1}


def test_what_the_manifest_says_of_others(gpus_of):
    def of(name):
        return gpus_of(read(capture(name)).state()).gpus

    assert {gpu.persistence_mode for gpu in of("k8s-b200")} == {False}
    (board,) = of("telegraf-a100-sxm4-v12")
    assert (board.pci_device, board.pci_subsystem) == ("10de:20b2", "10de:147f")
    assert (board.power_limit_max_mw, board.mig_current) == (500000, True)
    (idle,) = of("telegraf-a10g")
    assert (idle.pcie_generation, idle.pcie_generation_max, idle.pcie_width) == (1, 4, 8)
    (worn,) = of("k8s-t4")
    assert (worn.ecc.aggregate_dram_corrected, worn.ecc.volatile_dram_corrected) == (1, 0)
    assert worn.ecc.aggregate_corrected == 1
    unhealthy = of("k8s-mock-qx-gb200-fabric-degraded")[1]
    shift = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY
    assert unhealthy.fabric.health_mask >> shift & 3 == 1


def test_more_gpus_attached_than_in_the_file_is_reported():
    node = read(capture("telegraf-a100-sxm4-v12"))
    assert (node.attached_gpus, len(node.gpus)) == (4, 1)
    assert node.machine().device_nodes[0] == "/dev/nvidia1"


OTHER_WORDS = {
    "brand": "Quadro",
    "gpu_architecture": "Ampere",
    "compute_mode": "Prohibited",
    "fabric.status": "Timeout",
    "fabric.cluster_uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f",
    "fabric.state": "Completed",
    "pci_device": "233510DE",
    "pci_subsystem": "16C210DE",
    "bus_id": "00000000:F7:00.0",
    "pstate": "P8",
    "uuid": "GPU-00000000-5e7d-4e7d-8e7d-000000000001",
}


def other(key, convert, text):
    """Another text of the same kind."""
    if key in OTHER_WORDS:
        return OTHER_WORDS[key]
    if convert is switch:
        pairs = (("Enabled", "Disabled"), ("Yes", "No"))
        return next(one if text == two else two for one, two in pairs if text in (one, two))
    if convert is str:
        return f"x{text[1:]}"
    return re.sub(r"[0-9]+", lambda match: str(int(match[0]) + 3), text, count=1)


def test_every_value_that_changes_in_the_file_changes_in_the_evidence(gpus_of, written):
    root = ElementTree.parse(capture("k8s-h100")).getroot()
    before = values_of(root.findall("gpu")[3], STABLE + FLEETING)
    ecc_before = ecc_of(root.findall("gpu")[3])
    changed = root.findall("gpu")[3]
    for key, convert, *paths in STABLE + FLEETING:
        for part in (changed.find(path) for path in paths):
            if part is not None and part.text not in NOTHING:
                part.text = other(key, convert, part.text)
    # in MIG mode NVML tells nothing of remapped rows
    changed.find("mig_mode/current_mig").text = "Disabled"
    for count in range(1, 9):
        parts = ("volatile/sram_correctable", "volatile/sram_uncorrectable_parity")
        parts += ("volatile/sram_uncorrectable_secded", "volatile/dram_correctable")
        parts += ("volatile/dram_uncorrectable", "aggregate/dram_uncorrectable")
        parts += ("aggregate/sram_correctable", "aggregate/sram_uncorrectable_secded")
        changed.find(f"ecc_errors/{parts[count - 1]}").text = str(count)
    changed.find("ecc_errors/aggregate/dram_correctable").text = "9"
    changed.find("clocks_event_reasons/clocks_event_reason_hw_slowdown").text = "Active"
    changed.find("gpu_recovery_action").text = "None"
    after = values_of(changed, STABLE + FLEETING)
    same = {key for key in after if after[key] == before[key] and after[key] is not None}
    assert same == {"fabric.state", "mig_current"}
    assert [key for key in ecc_before if ecc_before[key] == ecc_of(changed)[key]] == []
    gpus = gpus_of(read(written(root)).state()).gpus
    for gpu, element in zip(gpus, root.findall("gpu"), strict=True):
        assert_equal(gpu, element)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("Reset", "GPU_RESET"),
        ("Reboot", "NODE_REBOOT"),
        ("Drain P2P", "DRAIN_P2P"),
        ("Drain and Reset", "DRAIN_AND_RESET"),
    ],
)
def test_recovery_actions(gpus_of, written, said, action):
    (gpu,) = gpus_of(
        read(written(log(f"<gpu_recovery_action>{said}</gpu_recovery_action>"))).state()
    ).gpus
    assert gpu.recovery_action == action


VERSION = "<driver_version>550.54.15</driver_version><cuda_version>12.4</cuda_version>"


def log(*gpus, root=VERSION):
    """A document of GPUs, each the XML inside its <gpu>."""
    blocks = (
        f'<gpu id="00000000:{0x10 + at:02X}:00.0">{content}</gpu>'
        for at, content in enumerate(gpus)
    )
    return f"<nvidia_smi_log>{root}{''.join(blocks)}</nvidia_smi_log>"


V10 = """
<product_name>Tesla P100-SXM2-16GB</product_name><product_brand>Tesla</product_brand>
<persistence_mode>Enabled</persistence_mode><minor_number>0</minor_number>
<serial>0321118000001</serial><uuid>GPU-c0ffee00-0000-0000-0000-000000000001</uuid>
<pci><pci_bus_id>00000000:10:00.0</pci_bus_id><pci_device_id>15F910DE</pci_device_id>
<pci_sub_system_id>116B10DE</pci_sub_system_id><pci_gpu_link_info>
<pcie_gen><max_link_gen>3</max_link_gen><current_link_gen>3</current_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width>
</link_widths></pci_gpu_link_info><replay_counter>2</replay_counter></pci>
<clocks_throttle_reasons>
<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
<clocks_throttle_reason_user_defined_clocks>Active</clocks_throttle_reason_user_defined_clocks>
</clocks_throttle_reasons>
<fb_memory_usage><total>16280 MiB</total><used>10 MiB</used><free>16270 MiB</free></fb_memory_usage>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Disabled</pending_ecc></ecc_mode>
<ecc_errors>
<volatile><single_bit><device_memory>1</device_memory><total>3</total></single_bit>
<double_bit><device_memory>0</device_memory><total>0</total></double_bit></volatile>
<aggregate><single_bit><device_memory>7</device_memory><total>9</total></single_bit>
<double_bit><device_memory>2</device_memory><total>2</total></double_bit></aggregate>
</ecc_errors>
<retired_pages>
<multiple_single_bit_retirement><retired_count>1</retired_count></multiple_single_bit_retirement>
<double_bit_retirement><retired_count>2</retired_count></double_bit_retirement>
<pending_retirement>Yes</pending_retirement></retired_pages>
<power_readings><power_draw>31.27 W</power_draw><power_limit>250.00 W</power_limit>
<enforced_power_limit>200.00 W</enforced_power_limit><max_power_limit>300.00 W</max_power_limit>
<min_power_limit>150.00 W</min_power_limit></power_readings>
<processes><process_info><pid>77</pid><type>C+G</type><used_memory>N/A</used_memory></process_info>
</processes>
"""


def test_the_schema_v10(gpus_of, written):
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">\n'
    node = read(written(head + log(V10)))
    (gpu,) = gpus_of(node.state()).gpus
    assert (gpu.pcie_width, gpu.pcie_width_max, gpu.pcie_replay_counter) == (8, 16, 2)
    assert (gpu.power_limit_mw, gpu.power_limit_enforced_mw) == (250000, 200000)
    assert (gpu.power_draw_mw, gpu.power_limit_default_mw) == (31270, None)
    assert (gpu.ecc_current, gpu.ecc_pending, gpu.event_reasons) == (True, False, 0x6)
    assert (gpu.ecc.volatile_corrected, gpu.ecc.aggregate_uncorrected) == (3, 2)
    assert (gpu.ecc.aggregate_dram_corrected, gpu.ecc.volatile_sram_corrected) == (7, None)
    assert gpu.ecc.errors["volatile_sram_corrected"] == "NVML_ERROR_NOT_SUPPORTED"
    pages = gpu.retired_pages
    assert (pages.single_bit, pages.double_bit, pages.pending) == (1, 2, True)
    assert [(item.pid, item.memory_used_b) for item in gpu.processes] == [(77, None)]
    assert (gpu.memory_total_b, gpu.memory_used_b) == (16280 << 20, 10 << 20)
    assert node.gpus[0].class_code == "030200"


MIG = """
<uuid>GPU-c0ffee00-0000-0000-0000-000000000002</uuid>
<mig_mode><current_mig>Enabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
<mig_devices><mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id>
<compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>40192 MiB</total><used>12 MiB</used></fb_memory_usage>
<bar1_memory_usage><total>32767 MiB</total></bar1_memory_usage></mig_device></mig_devices>
<fb_memory_usage><total>81559 MiB</total><reserved>480 MiB</reserved><used>25 MiB</used>
</fb_memory_usage><bar1_memory_usage><total>131072 MiB</total></bar1_memory_usage>
<utilization><gpu_util>N/A</gpu_util><memory_util>N/A</memory_util></utilization>
<processes><process_info><gpu_instance_id>1</gpu_instance_id><pid>5</pid><type>C</type>
<used_memory>9 MiB</used_memory></process_info></processes>
"""


def test_a_gpu_split_by_mig_is_read_whole(gpus_of, written):
    (gpu,) = gpus_of(read(written(log(MIG))).state()).gpus
    assert (gpu.mig_current, gpu.mig_pending) == (True, False)
    assert (gpu.memory_total_b, gpu.memory_used_b) == (81559 << 20, 25 << 20)
    assert gpu.bar1_total_b == 131072 << 20
    assert gpu.errors["utilization_gpu_percent"] == "NVML_ERROR_NOT_SUPPORTED"
    assert [(item.pid, item.memory_used_b) for item in gpu.processes] == [(5, 9 << 20)]


def test_a_gpu_that_was_lost_before_nvidia_smi_ran(gpus_of, written):
    root = ElementTree.parse(capture("k8s-h100")).getroot()
    healthy = copy.deepcopy(root)
    lost = root.findall("gpu")[2]
    for part in lost.iter():
        if len(part) == 0:
            part.text = "GPU is lost"
    node = read(written(root))
    assert [gpu.lost for gpu in node.gpus] == [index == 2 for index in range(8)]
    assert node.gpus[2].bus_id == "0000:75:00.0"
    assert node.minors() == tuple(range(8))
    gpus = gpus_of(node.state()).gpus
    assert gpus[2].errors["handle"] == LOST
    assert (gpus[2].power_draw_mw, gpus[2].processes) == (None, None)
    for gpu, element in zip(gpus, healthy.findall("gpu"), strict=True):
        if gpu.index != 2:
            assert_equal(gpu, element)
    function = node.machine().gpus[2]
    assert (function.id, function.revision) == ("10de:2330", "ff")
    assert (function.link.gts, function.link.width_max) == (None, None)


def test_a_gpu_that_is_lost_while_nvidia_smi_reads_it(gpus_of, written):
    path = written(log(V10.replace("31.27 W", "GPU is lost"), MIG))
    lost, other_gpu = gpus_of(read(path).state()).gpus
    assert lost.errors["handle"] == LOST
    assert other_gpu.mig_current is True
    assert read(path).gpus[0].minor_number == 0


def test_one_err_loses_one_value_and_only_errs_mean_a_lost_gpu(gpus_of, written):
    nothing = "<uuid>GPU-1</uuid><performance_state>ERR!</performance_state>"
    path = written(log(V10.replace("31.27 W", "ERR!"), nothing))
    assert [gpu.lost for gpu in read(path).gpus] == [False, True]
    one, _ = gpus_of(read(path).state()).gpus
    assert one.errors["power_draw_mw"] == "NVML_ERROR_UNKNOWN"
    assert one.power_limit_mw == 250000


@pytest.mark.parametrize("name", ["a = b", "# x", "gpu.0.lost = 1", 'λ [x] &amp; "q"', "x" * 90])
def test_unusual_product_names_are_read_back_unchanged(gpus_of, written, name):
    (gpu,) = gpus_of(read(written(log(f"<product_name>{name}</product_name>"))).state()).gpus
    assert gpu.name == name.replace("&amp;", "&")


HALF = "<fabric><state>Completed</state><health><bandwidth>Half</bandwidth></health></fabric>"
PROCESS = "<process_info><pid>%s</pid><type>C</type></process_info>"


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("<product_name>hang</product_name>", 1, "reserved for the simulated library"),
        ("<serial>NVML_ERROR_UNKNOWN</serial>", 1, "reserved for the simulated library"),
        ("\n<serial>a\nb</serial>", 2, "not one line of at most 255 bytes"),
        (f"<serial>{'x' * 300}</serial>", 1, "not one line of at most 255 bytes"),
        ("<performance_state>fast</performance_state>", 1, "nvidia-smi has no such word"),
        ("\n\n<clocks><sm_clock>5 GHz</sm_clock></clocks>", 3, "not a number of MHz"),
        ("<clocks><sm_clock>-5 MHz</sm_clock></clocks>", 1, "not a number of MHz"),
        ("<power_readings><power_draw>1e9 W</power_draw></power_readings>", 1, "not a number of W"),
        ("<persistence_mode>On</persistence_mode>", 1, "nvidia-smi has no such word"),
        ("<pci><pci_bus_id>1</pci_bus_id></pci>", 1, "not a PCI address"),
        (HALF, 1, "one of: n/a, degraded, full"),
        (f"<processes>{PROCESS % ''}</processes>", 1, "has no <pid>"),
        (f"<processes>{PROCESS % 123456 * 50}</processes>", 1, "50 compute processes, but"),
    ],
)  # fmt: skip
def test_an_invalid_state_is_an_error_with_its_place(written, content, line, message):
    path = written(log(content))
    with pytest.raises(StateError) as caught:
        read(path)
    assert re.match(rf"{re.escape(str(path))}:{line}:[0-9]+: ", str(caught.value))
    assert message in str(caught.value)


BOMB = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<topology/>", ":1:1: the root element is <topology>, not <nvidia_smi_log>"),
        ("Unable to determine the device handle", ":1:1: not XML: syntax error"),
        ("<nvidia_smi_log>\n <gpu></nvidia_smi_log>", ":2:9: not XML: mismatched tag"),
        ("", ":1:1: not XML: no element found"),
        ("<nvidia_smi_log/>", ":1:1: no <driver_version>"),
        (BOMB + log(), "declares entities"),
        ('<!DOCTYPE x [<!ATTLIST gpu id CDATA "1">]>' + log(), "declares entities"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd">' + log("&x;"), "the entity &x; is not defined"),
        (log("", "").replace(":11:", ":10:"), "GPU 1 has the bus id of GPU 0, 0000:10:00.0"),
        (log("").replace(" id=", " name="), "a <gpu> without a bus id"),
        (log(root=VERSION + "<gpu/>" * 256), "more than 255 GPUs"),
        ('<?xml version="1.0" encoding="nope"?>' + log(), "unsupported encoding"),
        ("<a>" * 100000 + "</a>" * 100000, "the root element is <a>"),
        ("<a>" + "<b/>" * 500001 + "</a>", "more than 500000 elements"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_nvidia_smi_xml_is_refused(written, content, message):
    with pytest.raises(StateError) as caught:
        read(written(content))
    assert message in str(caught.value)
    assert "; " in str(caught.value)  # what to do


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StateError, match="No such file or directory; give a readable file"):
        read(tmp_path / "none.xml")


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "large.xml"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(StateError, match="larger than 64 MiB"):
        read(path)


def test_encodings_and_an_embedded_dtd(written):
    name = "<product_name>Möbius</product_name>"
    dtd = "<!DOCTYPE x [<!ELEMENT gpu (uuid)><!ATTLIST gpu id CDATA #REQUIRED>]>"
    for content in (
        (dtd + log(name)).encode(),
        log(name).encode("utf-16"),
        ('<?xml version="1.0" encoding="iso-8859-1"?>' + log(name)).encode("latin-1"),
    ):
        assert read(written(content)).gpus[0].values["name"] == "Möbius"


def test_xml_without_a_gpu_makes_a_node_without_gpus(gpus_of, written):
    found = gpus_of(read(written(log())).state())
    assert (found.count, found.gpus) == (0, ())


def test_a_bus_id_in_a_large_domain(written):
    path = written(log("").replace("00000000:10", "00010000:10"))
    assert read(path).gpus[0].bus_id == "10000:10:00.0"
    assert read(path).machine().gpus[0].ports[0].address == "10000:00:01.0"


LINKS = tuple(row for row in STABLE + FLEETING if row[0].startswith("pcie_"))
GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


@pytest.mark.skipif(not FILES, reason=f"no captures in {CAPTURES}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_host_of_a_capture_has_its_gpus_on_the_bus(tmp_path, path):
    node = read(path)
    tree.write(node.machine("gpu-07"), tmp_path / "node")
    found = {item["address"]: item for item in pci.collect(str(tmp_path / "node"), {})["functions"]}
    elements = ElementTree.parse(path).getroot().findall("gpu")
    for element in elements:
        function = found[bus_id(element.get("id"))]
        link = {key: number for key, number in values_of(element, LINKS).items() if number}
        highest = link.get("pcie_generation_device_max", link["pcie_generation_max"])
        assert function["link_gts"] == GTS[link["pcie_generation"]]
        assert function["link_gts_max"] == GTS[highest]
        assert function["link_width"] == link["pcie_width"]
        assert function["link_width_max"] == link["pcie_width_max"]
        shown = pci_id(element.findtext("pci/pci_device_id"))
        known = shown if shown.startswith("10de:") else "10de:0000"  # one file hides its ids
        assert f"{function['vendor']}:{function['device']}" == known
        assert (function["driver"], function["numa_node"]) == ("nvidia", -1)
        sub = element.findtext("pci/pci_sub_class")
        assert sub is None or function["class_code"] == f"030{sub}00"
        assert len(function["upstream"]) == (0 if element.get("id").split(":")[1] == "00" else 1)
    gpus = [item for item in found.values() if item["class_code"][:2] == "03"]
    assert len(gpus) == len(elements)
    assert (tmp_path / "node/sys/module/nvidia/version").read_text() == f"{node.driver_version}\n"


def test_numa_nodes_that_the_caller_knows(written):
    node = read(written(log(V10, MIG)))
    machine = node.machine(numa={"0000:11:00.0": 1})
    assert [gpu.numa_node for gpu in machine.gpus] == [-1, 1]
    assert [gpu.ports[0].numa_node for gpu in machine.gpus] == [-1, 1]
    assert machine.sockets == 2
    with pytest.raises(StateError, match=r"no GPU 0000:99:00\.0; choose one of: 0000:10:00\.0, "):
        node.machine(numa={"0000:99:00.0": 1})


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


@pytest.fixture(scope="module")
def over_ssh(boot):
    """The evidence of a node for each capture: booted, and read over SSH by the real pynvml."""
    nodes = [f"  {path.stem}: {{gpus: {{xml: {path.resolve()}}}, cores: 2}}\n" for path in FILES]
    fleet = boot("xml", "sim: 1\nnodes:\n" + "".join(nodes))
    options = ("-b", "generic", "--deadline", "120", "--save", "evidence")
    fleet.nodevet("check", "-i", fleet.place.inventory, *options)
    fleet.down()
    return fleet.project / "evidence"


@pytest.mark.timeout(1500)
@pytest.mark.skipif(not FILES, reason=f"no captures in {CAPTURES}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_capture_boots_as_a_node_that_answers_the_same(over_ssh, path):
    visit = json.loads((over_ssh / f"{path.stem}.json").read_bytes())
    assert visit["status"] == "vetted", visit["why"]
    found = decode(json.dumps(visit["evidence"]))
    assert found[Gpus].status == "ok", found.gpu
    assert found[HostInfo].data.hostname == path.stem
    root = ElementTree.parse(path).getroot()
    assert found[Gpus].data.driver_version == root.findtext("driver_version")
    assert found[Gpus].data.cuda_version == root.findtext("cuda_version")
    for gpu, element in zip(found[Gpus].data.gpus, root.findall("gpu"), strict=True):
        assert_equal(gpu, element)
    on_bus = {item.address for item in found[Pci].data.functions if item.kind == "gpu"}
    assert on_bus == {bus_id(element.get("id")) for element in root.findall("gpu")}


def guest(mode, root=None):
    part = f"<virtualization_mode>{mode}</virtualization_mode>"
    body = f"<gpu_virtualization_mode>{part}</gpu_virtualization_mode>{V10}"
    return log(body) if root is None else log(body, root=root)


@pytest.mark.parametrize(
    ("mode", "virtual", "told"),
    [
        ("Pass-Through", "qemu", "PASSTHROUGH"),
        ("VGPU", "qemu", "VGPU"),
        ("None", "none", "NONE"),
        ("Host VGPU", "none", "HOST_VGPU"),
        ("N/A", "none", None),
    ],
)
def test_t7_the_virtualization_is_that_of_the_file(gpus_of, written, tmp_path, mode, virtual, told):
    node = read(written(guest(mode)))
    (gpu,) = gpus_of(node.state()).gpus
    assert gpu.virtualization_mode == told
    tree.write(node.machine("gpu-07"), tmp_path / "node")
    assert host.collect(str(tmp_path / "node"), {})["virtualization"] == virtual


def test_t7_a_virtual_port_has_no_invented_maximum(written, tmp_path):
    node = read(written(log(V10)))
    (gpu,) = node.machine().gpus
    assert gpu.link.width_max == 16
    (above,) = gpu.ports
    assert (above.link.width, above.link.width_max, above.link.gts_max) == (8, None, None)
    tree.write(node.machine("gpu-07"), tmp_path / "node")
    functions = pci.collect(str(tmp_path / "node"), {})["functions"]
    (found,) = (item for item in functions if item["address"] == above.address)
    assert found["link_width_max"] is None
    assert "no link" in found["errors"]["link_width_max"]


WITHHELD = """\
<uuid>[REDACTED]</uuid><product_name>NVIDIA A40</product_name><serial>[REDACTED]</serial>
<minor_number>[REDACTED]</minor_number><performance_state>P0</performance_state>
<pci><pci_bus_id>[REDACTED]</pci_bus_id><pci_device_id>[REDACTED]</pci_device_id></pci>
<temperature><gpu_temp>34 C</gpu_temp></temperature>
<processes><process_info><pid>[REDACTED]</pid><type>C</type></process_info></processes>
"""


def test_t7_a_redacted_value_is_unknown_and_the_node_is_still_read(gpus_of, written, tmp_path):
    text = log(WITHHELD, WITHHELD, root="<driver_version>[REDACTED]</driver_version>")
    text = re.sub(r'<gpu id="[^"]*"', '<gpu id="[REDACTED]"', text)
    node = read(written(text))
    assert node.driver_version is None
    assert len({gpu.bus_id for gpu in node.gpus}) == 2
    found = gpus_of(node.state())
    for gpu in found.gpus:
        assert (gpu.name, gpu.pstate, gpu.temperature_gpu_c) == ("NVIDIA A40", 0, 34)
        for field in ("uuid", "minor_number", "pci_device", "processes"):
            assert (getattr(gpu, field), gpu.errors[field]) == (None, "NVML_ERROR_UNKNOWN")
    machine = node.machine("gpu-07")
    assert machine.device_nodes[:2] == ("/dev/nvidia0", "/dev/nvidia1")
    tree.write(machine, tmp_path / "node")
    assert not (tmp_path / "node/sys/module/nvidia/version").exists()


def test_t7_a_file_without_a_driver_version_makes_a_node(gpus_of, written):
    found = gpus_of(read(written(log(V10, root="<cuda_version>12.4</cuda_version>"))).state())
    assert (found.driver_version, found.cuda_version) == (None, "12.4")
    assert found.gpus[0].uuid


def test_t7_a_value_that_windows_does_not_report_is_not_supported(gpus_of, written):
    memory = "<used_memory>Not available in WDDM driver model</used_memory>"
    process = f"<process_info><pid>4711</pid><type>C+G</type>{memory}</process_info>"
    power = "<power_readings><power_draw>Not Available</power_draw></power_readings>"
    text = log(f"<processes>{process}</processes>{power}")
    (gpu,) = gpus_of(read(written(text)).state()).gpus
    assert [(each.pid, each.memory_used_b) for each in gpu.processes] == [(4711, None)]
    assert gpu.errors["power_draw_mw"] == "NVML_ERROR_NOT_SUPPORTED"
