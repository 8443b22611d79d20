"""The GPU collector: the real payload and pynvml, over the simulated NVML library."""

import ctypes
import doctest
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from slow_machine import slowness

import nodevet_sim
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import Record
from nodevet.evidence.document import decode
from nodevet.evidence.gpu import Gpu, Gpus, NvLink
from nodevet.fleet.protocol.exchange import unframe
from nodevet.fleet.protocol.payload import BOOT, payload
from nodevet.remote.probe import gpu_health, gpu_nvml, gpu_values
from nodevet.remote.probe.collectors import gpu as collector
from nodevet.remote.probe.files import BOOT_ID, Absent, is_this_machine
from nodevet_sim.library import build, environment
from nodevet_sim.state import state

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
NOT_SUPPORTED = "NVML_ERROR_NOT_SUPPORTED"
LOST = "NVML_ERROR_GPU_IS_LOST"
NO_GETTER = "NVML has no call that reads it"
UNASKED = ("inforom_valid",)
LOCKED = [name for name in Gpu.__struct_fields__ if name.startswith("locked_clock_")]

PYENV = Path.home() / ".pyenv/versions"
PYTHONS = [  # this one, and where pyenv has them the oldest and the newest that the probe is for
    Path(sys.executable),
    *(
        path
        for version in ("3.6.15", "3.13.0")
        if (path := PYENV / version / "bin/python3").exists()
    ),
]

TEXTS = {
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "name": "NVIDIA Test <b>",
    "brand": "NVIDIA",
    "gpu_architecture": "HOPPER",
    "serial": "1650",
    "board_part_number": "692-2G520",
    "vbios_version": "96.00",
    "inforom_image_version": "G520.0200",
    "gsp_firmware_version": "550.90.07",
    "bus_id": "0001:3b:00.0",
    "pci_device": "10de:2330",
    "pci_subsystem": "15d9:16c1",
    "compute_mode": "EXCLUSIVE_PROCESS",
    "virtualization_mode": "VGPU",
    "recovery_action": "DRAIN_AND_RESET",
    "fabric.state": "COMPLETED",
    "fabric.status": "NOT_READY",
    "fabric.health_summary": "LIMITED_CAPACITY",
    "fabric.cluster_uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f",
    "nvlinks.remote_bus_id": "0000:0f:00.0",
}
NEGATIVE = ("tlimit_shutdown_c", "tlimit_slowdown_c", "tlimit_gpu_max_c", "tlimit_memory_max_c")
TOGETHER = (  # values that one NVML call gives, so that they fail as one
    ("ecc_current", "ecc_pending"),
    ("mig_current", "mig_pending"),
    ("power_limit_min_mw", "power_limit_max_mw"),
    ("utilization_gpu_percent", "utilization_memory_percent"),
    ("bus_id", "pci_device", "pci_subsystem"),
    ("memory_total_b", "memory_used_b", "memory_reserved_b"),
    ("remapping.corrected", "remapping.uncorrected", "remapping.pending", "remapping.failure"),
    ("repair.channel_pending", "repair.tpc_pending"),
    tuple(f"remapping.banks_{kind}" for kind in ("max", "high", "partial", "low", "none")),
    ("fabric.clique_id", "fabric.health_mask", *(key for key in TEXTS if key[:7] == "fabric.")),
)


# what NVML answers, mantissa << 8 | exponent, and the rate that it stands for
RATES = {"nvlinks.effective_ber": (0x10C, 1e-12), "nvlinks.symbol_ber": (0x9FE, 9e-254)}


def kind_of(field):
    kinds = {bool: bool, int: int, float: Real, str: Text}
    return next(kind for kind, spelled in kinds.items() if field.type == spelled | None)


def values_of(record, prefix=""):
    """A distinct value for every field of a record, by key; see TEXTS for the strings."""
    values = {}
    for number, field in enumerate(msgspec.structs.fields(record)):
        key = prefix + field.name
        if field.name in (
            "errors",
            "index",
            "inforom_valid",
            "link",
            "mig_devices",
            "nvlinks",
            "peers",
            "processes",
            *LOCKED,
        ):
            continue
        if isinstance(field.type, type) and issubclass(field.type, Record):
            values.update(values_of(field.type, field.name + "."))
        elif kind_of(field) is bool:
            values[key] = number % 2 == 0
        elif kind_of(field) is str:
            values[key] = TEXTS[key]
        elif kind_of(field) is float:
            _, values[key] = RATES[key]
        else:
            values[key] = -number if key in NEGATIVE else 1000 + number
    return values


# in MIG mode NVML tells nothing of remapped rows
FULL = {**values_of(Gpu), "pstate": 5, "mig_current": False, "mig_pending": True}
CACHES = {key: FULL.pop(key) for key in list(FULL) if "_cache_" in key}  # where SRAM is not told
LINK = values_of(NvLink, "nvlinks.")


def full_state(count=1, **overrides):
    """A state in which every value of Gpu is there, the same for all GPUs but for
    uuid and bus_id."""
    lines = ["driver_version = 550.90.07", "nvml_version = 12.550", "cuda_version = 12.4"]
    lines += [f"count = {count}", "gpu.*.nvlinks = 2", "gpu.*.processes = 4711:1048576 99"]
    for key, value in FULL.items():
        lines.append(f"gpu.*.{key} = {int(value) if isinstance(value, bool) else value}")
    for key, read in LINK.items():
        value, _ = RATES.get(key, (read, read))
        name = key.replace("nvlinks.", "nvlinks.*.")
        lines.append(f"gpu.*.{name} = {int(value) if isinstance(value, bool) else value}")
    for index in range(1, count):  # no two GPUs share these
        lines.append(f"gpu.{index}.uuid = GPU-{index:08x}-2222-3333-4444-555555555555")
        lines.append(f"gpu.{index}.bus_id = {index + 1:04x}:3b:00.0")
    lines += [f"{key} = {value}" for key, value in overrides.items()]
    return "\n".join(lines) + "\n"


PROBE = """
import json, sys
from nodevet.remote.probe.main import probe
from nodevet.remote.request import checked_request
print(json.dumps(probe(checked_request(json.load(sys.stdin)))))
"""


class Node:
    """Runs the probe as if this machine had the GPUs of a state."""

    def __init__(self, library, folder):
        self.library = library
        self.state = folder / "node.state"
        self.variables = environment(library, self.state)

    def run(self, text, *, python=None, sections=("gpu",), deadline=60, asks=None):
        """The document's sections, as JSON. With a `python` it runs the payload, as a node does."""
        self.state.write_bytes(text if isinstance(text, bytes) else text.encode())
        request = {"do": "probe", "nonce": "n", "deadline": deadline, "sections": sections}
        request["asks"] = asks or {}
        body = json.dumps(request).encode() + b"\n"
        done = subprocess.run(
            [python, "-I", "-c", BOOT] if python else [sys.executable, "-c", PROBE],
            input=payload() + body if python else body,
            capture_output=True,
            env={**os.environ, **self.variables},
            timeout=deadline + 30,
        )
        self.document = unframe(done.stdout, "n") if python else done.stdout
        return json.loads(self.document)["sections"]

    def gpus(self, text, **options):
        """The typed GPUs; the section must be ok."""
        section = self.run(text, **options)["gpu"]
        assert section["status"] == "ok", section
        data = decode(self.document)[Gpus].data
        assert data is not None, decode(self.document)[Gpus].why
        return data

    def left_over(self):
        """The processes that this node's probe left, by the state file in their environment."""
        mark = f"NODEVET_SIM_STATE={self.state}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes():
                    found.append(process.name)
            except OSError:  # ended meanwhile
                continue
        return found


@pytest.fixture
def node(nvml, tmp_path):
    return Node(nvml, tmp_path)


def flat(gpu):
    """A Gpu's values by key, without the lists."""
    values = {}
    for name in gpu.__struct_fields__:
        value = getattr(gpu, name)
        if isinstance(value, Record):
            values.update(
                {f"{name}.{part}": getattr(value, part) for part in value.__struct_fields__}
            )
        elif not isinstance(value, tuple):
            values[name] = value
    return {key: value for key, value in values.items() if key.split(".")[-1] != "errors"}


def why(gpu, key):
    record, _, field = key.rpartition(".")
    return (getattr(gpu, record) if record else gpu).why(field)


@needs_gcc
def test_t3_before_turing_the_caches_are_counted(node):
    rows = [row for row in full_state().splitlines() if "_sram_" not in row]
    assert (
        flat(node.gpus("\n".join(rows)).gpus[0])["ecc.volatile_cache_uncorrected"],
        len(rows),
    ) == (None, len(full_state().splitlines()) - len(CACHES))
    rows += [f"gpu.*.{key} = {value}" for key, value in CACHES.items()]
    gpu = node.gpus("\n".join(rows)).gpus[0]
    found = flat(gpu)
    assert {key: found[key] for key in CACHES} == CACHES
    assert found["ecc.volatile_sram_uncorrected"] is None


OF_LINKS = {"gpu": ["nvlink_ber", "nvlink_capabilities"]}


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_every_field_of_a_gpu_is_read(node, python):
    found = node.gpus(full_state(), python=str(python), asks=OF_LINKS)
    assert (found.driver_version, found.nvml_version) == ("550.90.07", "12.550")
    assert (found.cuda_version, found.count, found.errors) == ("12.4", 1, {})
    gpu = found.gpus[0]
    unread = dict.fromkeys((*CACHES, *LOCKED, *UNASKED))
    assert flat(gpu) == {**FULL, "index": 0, **unread}
    assert gpu.errors == dict.fromkeys(LOCKED, NO_GETTER)
    for record in (gpu.ecc, gpu.remapping, gpu.retired_pages, gpu.fabric):
        assert record.errors == {}
    link = {key.partition(".")[2]: value for key, value in LINK.items()}
    assert gpu.nvlinks == tuple(NvLink(link=number, **link) for number in (0, 1))
    assert [(process.pid, process.memory_used_b) for process in gpu.processes] == [
        (4711, 1048576),
        (99, None),
    ]
    assert gpu.processes[1].why("memory_used_b") == "NVML_VALUE_NOT_AVAILABLE"


def test_mig_devices_report_their_own_error_counts(node):
    gpu = node.gpus(
        full_state(
            **{
                "gpu.0.mig_current": 1,
                "gpu.0.mig.1.gpu_instance": 7,
                "gpu.0.mig.1.uuid": "MIG-1",
                "gpu.0.mig.1.ecc.volatile_sram_uncorrected": 2,
                "gpu.0.mig.3.gpu_instance": "NVML_ERROR_UNKNOWN",
            }
        )
    ).gpus[0]
    first, second = gpu.mig_devices
    assert (first.index, first.uuid, first.ecc.volatile_sram_uncorrected) == (1, "MIG-1", 2)
    assert first.remapping.why("pending") == "NVML_ERROR_NOT_SUPPORTED"
    assert (second.index, second.why("handle")) == (3, "NVML_ERROR_UNKNOWN")
    assert gpu.remapping.why("pending") == "NVML_ERROR_NOT_SUPPORTED"


def test_a_value_that_fails_does_not_affect_other_values(node):
    """One GPU for each value, which answers an error there and is whole elsewhere."""
    keys = [key for key in FULL if key != "event_reasons_supported"]
    errors = (NOT_SUPPORTED, LOST, "NVML_ERROR_UNKNOWN", "NVML_ERROR_NO_PERMISSION")
    chosen = {key: errors[number % len(errors)] for number, key in enumerate(keys)}
    for key in keys:  # after other errors an older call is tried for these
        if key.startswith(("memory_", "fabric.")):
            chosen[key] = "NVML_ERROR_UNKNOWN"
    overrides = {f"gpu.{index}.{key}": chosen[key] for index, key in enumerate(keys)}
    found = node.gpus(full_state(len(keys), **overrides), asks=OF_LINKS)
    for gpu, key in zip(found.gpus, keys, strict=True):
        failed = next((group for group in TOGETHER if key in group), (key,))
        unread = {name for name, value in flat(gpu).items() if value is None} - CACHES.keys()
        assert unread == {*LOCKED, *UNASKED, "peers", *failed}, (
            key
        )  # of so many GPUs it is not asked
        told = why(gpu, key).partition(", but ")[0]  # others of its model have it
        assert told == chosen[key], key
        assert "handle" not in gpu.errors, key


@pytest.mark.parametrize(
    ("told", "valid", "reason"),
    [
        ("1", True, None),
        ("0", False, None),
        (NOT_SUPPORTED, None, NOT_SUPPORTED),
        ("NVML_ERROR_UNKNOWN", None, "NVML_ERROR_UNKNOWN"),
    ],
)
def test_the_inforom_is_verified_if_asked_for(node, told, valid, reason):
    state = full_state() + f"gpu.*.inforom_valid = {told}\n"
    gpu = node.gpus(state, asks={"gpu": ["inforom_valid"]}).gpus[0]
    assert (gpu.inforom_valid, gpu.errors.get("inforom_valid")) == (valid, reason)
    assert node.gpus(state).gpus[0].inforom_valid is None


PEERS = """\
gpu.*.peers.read = OK
gpu.*.peers.nvlink = OK
gpu.2.peers.nvlink = NOT_SUPPORTED
gpu.1.peers.read = CHIPSET_NOT_SUPPORTED
"""


def test_peer_access_of_gpus_is_read(node):
    gpus = node.gpus(full_state(3) + PEERS).gpus
    told = {(gpu.index, peer.index): (peer.read, peer.nvlink) for gpu in gpus for peer in gpu.peers}
    chipset, no_link = ("CHIPSET_NOT_SUPPORTED", "OK"), ("OK", "NOT_SUPPORTED")
    both = (chipset[0], no_link[1])
    ways = {(0, 1): chipset, (0, 2): no_link, (1, 2): both}
    assert told == {**ways, **{(one, other): way for (other, one), way in ways.items()}}


def test_a_pair_of_gpus_that_does_not_answer_does_not_affect_others(node):
    gpus = node.gpus(full_state(3) + PEERS + "gpu.2.handle = NVML_ERROR_UNKNOWN\n").gpus
    assert gpus[2].peers is None and gpus[2].errors["handle"] == "NVML_ERROR_UNKNOWN"
    assert [peer.index for peer in gpus[0].peers] == [1]
    (peer,) = node.gpus(full_state(2)).gpus[0].peers
    assert (peer.read, peer.why("read")) == (None, NOT_SUPPORTED)


def test_pairs_of_too_many_gpus_are_not_read(node):
    gpus = node.gpus(full_state(17) + PEERS).gpus
    assert {gpu.why("peers") for gpu in gpus} == {"more than 16 GPUs: not asked"}


def test_every_error_keeps_its_name(node):
    names = [
        line.split('"')[1]
        for line in (Path(nodevet_sim.__file__).parent / "nvml/state.c").read_text().splitlines()
        if line.strip().startswith('{"NVML_ERROR_')
    ]
    assert len(names) > 25
    overrides = {f"gpu.{index}.power_draw_mw": name for index, name in enumerate(names)}
    gpus = node.gpus(state("t4", len(names), **overrides)).gpus
    assert [gpu.why("power_draw_mw") for gpu in gpus] == names
    assert {gpu.power_limit_mw for gpu in gpus} == {70000}


def test_a_lost_gpu_leaves_the_others_readable(node):
    healthy = node.gpus(state("h100-sxm", 4)).gpus
    found = node.gpus(state("h100-sxm", 4, **{"gpu.1.handle": LOST, "gpu.2.lost": True}))
    assert found.count == 4
    without, lost = found.gpus[1:3]
    assert (without.index, without.errors, without.uuid) == (1, {"handle": LOST}, None)
    assert (lost.index, lost.why("handle"), lost.why("power_limit_mw")) == (2, LOST, LOST)
    assert lost.nvlinks is None
    assert lost.why("nvlinks") == LOST
    for index in (0, 3):
        assert {peer.index for peer in found.gpus[index].peers} == {0, 3} - {index}
        alone = msgspec.structs.replace(found.gpus[index], peers=healthy[index].peers)
        assert alone == healthy[index]


def test_a_lost_gpu_keeps_the_identity_that_the_driver_still_knows(node):
    keys = {row[0] for row in gpu_values.VALUES} - {"uuid", *gpu_values.IDENTITY}
    dead = {f"gpu.1.{key}": LOST for key in keys}
    gpu = node.gpus(state("t4", 2, **dead)).gpus[1]
    assert gpu.bus_id == "0000:02:00.0"
    assert gpu.why("handle") == LOST


def test_no_library(node, tmp_path):
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        pytest.skip("this machine has a driver")
    except OSError:
        node.variables["LD_LIBRARY_PATH"] = str(tmp_path)
    section = node.run("")["gpu"]
    assert section["status"] == "absent"
    assert section["why"] == "NVML_ERROR_LIBRARY_NOT_FOUND: libnvidia-ml.so.1 is not installed"


def test_pynvml_is_not_imported_without_the_nvml_library(tmp_path):
    program = """
import sys
from nodevet.remote.probe import files, gpu_nvml
gpu_nvml.LIBRARY = "libnodevet-none.so.1"
try:
    gpu_nvml.load()
except files.Absent:
    print("pynvml" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_library_that_does_not_load(node, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("truncated")
    node.variables["LD_LIBRARY_PATH"] = str(tmp_path)
    section = node.run("")["gpu"]
    assert section["status"] == "error"
    assert section["why"].startswith("NVML_ERROR_LIBRARY_NOT_FOUND: it cannot be loaded: ")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("NVML_ERROR_DRIVER_NOT_LOADED", "the NVIDIA kernel driver is not loaded"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "of different versions"),
        ("NVML_ERROR_NO_PERMISSION", "may not open"),
        ("NVML_ERROR_UNKNOWN", "nvmlInit failed"),
    ],
)
def test_nvml_that_does_not_start(node, error, words):
    section = node.run(state("t4", 1, init=error))["gpu"]
    assert section["status"] == "error"
    assert section["why"].startswith(error + ": ")
    assert words in section["why"]


def test_no_gpu_and_no_count(node):
    found = node.gpus(state("t4", 0))
    assert (found.count, found.gpus) == (0, ())
    found = node.gpus(state("t4", 1, count="NVML_ERROR_UNKNOWN"))
    assert (found.count, found.gpus) == (None, None)
    assert found.why("gpus") == "NVML_ERROR_UNKNOWN"
    assert found.driver_version == "515.105.01"


def test_an_nvml_call_that_hangs_does_not_affect_other_sections(node):
    text, deadline = state("h100-sxm", 8, **{"gpu.6.power_draw_mw": "hang"}), 5 * slowness()
    started = time.monotonic()
    sections = node.run(text, python=sys.executable, sections=("host", "gpu"), deadline=deadline)
    assert time.monotonic() - started < deadline + 60
    assert sections["gpu"]["status"] == "timeout"
    assert sections["gpu"]["why"].endswith("GPU 6 nvmlDeviceGetPowerUsage")
    assert sections["host"]["status"] == "ok"
    assert node.left_over() == []


OLD = (  # what a driver of the 450 branch lacks
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
)
NEW = (  # what NVIDIA announces to remove
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetSupportedClocksThrottleReasons",
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetDefaultApplicationsClock",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetNvLinkErrorCounter",
)
GONE = "NVML_ERROR_FUNCTION_NOT_FOUND"


@needs_gcc
def test_a_driver_too_old_for_some_functions(tmp_path):
    node = Node(build(tmp_path / "old", without=OLD), tmp_path)
    gpu = node.gpus(full_state()).gpus[0]
    reserved = {"memory_used_b": FULL["memory_used_b"] + FULL["memory_reserved_b"]}
    missing = [
        "temperature_margin_c",
        "gsp_firmware_version",
        "gsp_firmware_enabled",
        "module_id",
        "pcie_generation_device_max",
        "ecc.sram_threshold_exceeded",
        "memory_reserved_b",
        *(key for key in FULL if key.startswith(("fabric.", "remapping.banks_"))),
    ]
    nothing = dict.fromkeys((*missing, *CACHES, *LOCKED, *UNASKED))
    expected = {**FULL, **reserved, **nothing, "index": 0}
    assert flat(gpu) == expected
    assert {key: why(gpu, key) for key in missing} == dict.fromkeys(missing, GONE)
    assert [process.pid for process in gpu.processes] == [4711, 99]


@needs_gcc
def test_a_driver_that_has_dropped_the_deprecated_functions(tmp_path):
    node = Node(build(tmp_path / "new", without=NEW), tmp_path)
    gpu = node.gpus(full_state()).gpus[0]
    assert flat(gpu) == {**FULL, **dict.fromkeys((*CACHES, *LOCKED, *UNASKED)), "index": 0}
    assert gpu.nvlinks[0].replay_errors == LINK["nvlinks.replay_errors"]
    assert gpu.nvlinks[0].why("crc_flit_errors") == GONE


def test_a_fabric_of_an_older_version_and_one_not_complete(node):
    gpu = node.gpus(full_state(**{"gpu.0.fabric.version": 2})).gpus[0]
    assert gpu.fabric.health_mask == FULL["fabric.health_mask"]
    fabric = node.gpus(full_state(**{"gpu.0.fabric.state": "IN_PROGRESS"})).gpus[0].fabric
    assert (fabric.state, fabric.status, fabric.clique_id) == ("IN_PROGRESS", None, None)
    assert fabric.why("cluster_uuid") == "the fabric state is IN_PROGRESS"


def test_a_deprecated_name_is_reported(node):
    gpu = node.gpus(state("h200-sxm", 1)).gpus[0]
    assert gpu.why("app_clock_graphics_mhz") == "NVML_ERROR_DEPRECATED"


def test_nvml_marks_for_not_available_are_unread_values(node):
    keys = ("power_draw_mw", "pcie_width", "event_reasons", "memory_total_b", "pci_device")
    marks = {f"gpu.0.{key}": "unavailable" for key in keys[:-1]}
    marks.update({"gpu.0.pstate": 32, "gpu.0.temperature_memory_c": 0, "gpu.0.uuid": ""})
    gpu = node.gpus(full_state(**marks)).gpus[0]
    for key in (*keys[:-1], "uuid"):
        assert (key, getattr(gpu, key)) == (key, None)
        assert gpu.why(key) == "NVML_VALUE_NOT_AVAILABLE"
    assert (gpu.pstate, gpu.why("pstate")) == (None, "NVML_PSTATE_UNKNOWN")
    assert gpu.why("temperature_memory_c") == "NVML returned 0: no sensor"
    assert gpu.power_limit_mw == FULL["power_limit_mw"]


def test_numbers_without_a_name_are_not_guessed(node):
    odd = {"gpu.0.compute_mode": 77, "gpu.0.recovery_action": 99, "gpu.0.gpu_architecture": 250}
    gpu = node.gpus(full_state(**odd)).gpus[0]
    assert (gpu.compute_mode, gpu.recovery_action, gpu.gpu_architecture) == (None, None, None)
    assert gpu.why("recovery_action") == "NVML returned 99, an unknown value"


def test_text_that_is_not_utf_8_makes_only_its_value_unread(node):
    text = full_state().encode() + b"gpu.0.name = \xff\xfe\x1b[2J\n"
    gpu = node.gpus(text).gpus[0]
    assert (gpu.name, gpu.serial) == (None, "1650")
    assert "codec can't decode" in gpu.why("name")


def test_links_are_counted_where_the_driver_does_not_say(node):
    gpu = node.gpus(full_state(**{"gpu.0.nvlinks.1.active": int(not LINK["nvlinks.active"])})).gpus[
        0
    ]
    active = LINK["nvlinks.active"]
    assert [link.active for link in gpu.nvlinks] == [active, not active]
    assert node.gpus(state("t4", 1)).gpus[0].why("nvlinks") == NOT_SUPPORTED


@pytest.mark.parametrize("module", [gpu_values, gpu_health, gpu_nvml], ids=lambda m: m.__name__)
def test_examples(module):
    result = doctest.testmod(module)
    assert (result.attempted > 0, result.failed) == (True, 0)


def test_nvml_is_not_read_for_the_tree_of_another_machine(tmp_path):
    boot_id = tmp_path / BOOT_ID[1:]
    boot_id.parent.mkdir(parents=True)
    assert is_this_machine("/")
    assert not is_this_machine(str(tmp_path))
    boot_id.write_text("6f1c2a34-0000-4000-8000-5a1e5a1e5a1e\n")
    assert not is_this_machine(str(tmp_path))
    assert is_this_machine(str(tmp_path), whole_machine=True)
    with pytest.raises(Absent, match="of another machine"):
        collector.collect(str(tmp_path), {})
    boot_id.write_text(Path(BOOT_ID).read_text())
    assert is_this_machine(str(tmp_path))


def test_a_threshold_without_a_value_is_not_available() -> None:
    with pytest.raises(gpu_nvml.CallError, match="NVML_VALUE_NOT_AVAILABLE"):
        gpu_values.limit(None)
