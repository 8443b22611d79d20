"""The programs of a simulated node, over the simulated NVML library and a state file."""

import os
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nodevet_sim import library, programs
from nodevet_sim.state import profiles, state

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
BUS = "00000000:01:00.0"
DEADLINE = 120


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The directory with all programs, compiled without a warning."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    into = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "FLAGS", (*programs.FLAGS, "-Werror"))
        paths = programs.build(into)
    assert [path.name for path in paths] == list(programs.SOURCES)
    return into


class Node:
    """A state file and the programs over it."""

    def __init__(self, built, nvml, path):
        self.built, self.path = built, path
        self.variables = {**os.environ, **library.environment(nvml, path), "LC_ALL": "C"}

    def describe(self, profile="h100-sxm", count=2, extra="", **overrides):
        self.path.write_text(state(profile, count, **overrides) + extra)

    def call(self, program, *words):
        return subprocess.run(
            [self.built / program, *words],
            capture_output=True,
            text=True,
            env=self.variables,
            timeout=DEADLINE,
        )

    def smi(self, *words, code=0):
        done = self.call("nvidia-smi", *words)
        assert done.returncode == code, done
        assert code or not done.stderr, done
        return done.stdout

    def query(self, field, *words):
        command = (f"--query-gpu={field}", "--format=csv,noheader", *words)
        return self.smi(*command).splitlines()

    def xml(self, *words):
        return ET.fromstring(self.smi("-q", "-x", *words))


@pytest.fixture
def node(built, nvml, tmp_path):
    node = Node(built, nvml, tmp_path / "nvml.state")
    node.describe()
    return node


# building


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(programs.ProgramError, match="gcc is not installed; install it"):
        programs.build(tmp_path)


def test_a_compiler_that_fails(tmp_path, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    monkeypatch.setattr(programs, "FLAGS", ("-fno-such-thing",))
    with pytest.raises(programs.ProgramError, match=r"could not build .*\n.*no-such-thing"):
        programs.build(tmp_path)


@pytest.mark.parametrize("name", programs.UNITS)
def test_each_unit_starts_a_simulated_program(name):
    started = re.search(r"^ExecStart=/usr/bin/(\S+)", programs.unit(name), re.MULTILINE)
    assert started[1] in programs.SOURCES


# what is shown


def test_the_list(node):
    first = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-5e7d-4e7d-8e7d-000000000001)"
    assert node.smi("-L").splitlines()[0] == first
    assert len(node.smi("--list-gpus").splitlines()) == 2


def test_the_summary(node):
    shown = node.smi()
    assert "| NVIDIA-SMI 580.105.08             Driver Version: 580.105.08" in shown
    assert f"|   0  NVIDIA H100 80GB HBM3          On  |   {BUS} N/A |" in shown
    assert "| N/A   29C    P0             68W /  700W |       0MiB /  81559MiB |" in shown
    assert "No running processes found" in shown
    assert {len(row) for row in shown.splitlines()[1:] if row} == {91}


def test_version_and_help(node):
    assert node.smi("--version").splitlines()[2] == "DRIVER version      : 580.105.08"
    assert "--lock-gpu-clocks=" in node.smi("-h")


def test_a_field_for_every_value(node):
    node.describe(
        **{
            "gpu.0.power_draw_mw": 123456,
            "gpu.0.pcie_width": 8,
            "gpu.0.event_reasons": 0x44,
            "gpu.0.ecc.volatile_sram_uncorrected": 5,
            "gpu.0.remapping.pending": 1,
            "gpu.0.temperature_memory_c": "NVML_ERROR_UNKNOWN",
            "gpu.0.pcie_generation": "unavailable",
        }
    )
    fields = {
        "power.draw": "123.45 W",
        "pcie.link.width.current": "8",
        "pcie.link.gen.current": "[N/A]",
        "clocks_throttle_reasons.active": "0x0000000000000044",
        "clocks_event_reasons.sw_power_cap": "Active",
        "clocks_event_reasons.hw_slowdown": "Not Active",
        "ecc.errors.uncorrected.volatile.sram": "5",
        "ecc.errors.uncorrected.volatile.sram.secded": "5",
        "remapped_rows.pending": "Yes",
        "temperature.memory": "[Unknown Error]",
        "pci.device_id": "0x233010DE",
        "memory.total": "81559 MiB",
        "count": "2",
        "pstate": "P0",
        "compute_cap": "[N/A]",
    }
    assert node.query(",".join(fields), "-i", "0") == [", ".join(fields.values())]


def test_the_form_of_a_query(node):
    shown = node.smi("--query-gpu=index, clocks.gr,power.limit", "--format=csv")
    assert shown.splitlines() == [
        "index, clocks.current.graphics [MHz], power.limit [W]",
        "0, 345 MHz, 700.00 W",
        "1, 345 MHz, 700.00 W",
    ]
    bare = node.smi("--query-gpu", "power.limit", "--format=csv,noheader,nounits", "-i", "1")
    assert bare == "700.00\n"
    assert node.smi("--query-gpu=power.limit", "--format=csv,nounits").startswith("power.limit\n")


def test_the_fields_are_those_of_nvidia_smi(node):
    capture = "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"
    text = CAPTURES / "nvidia-smi-text" / capture
    if not text.exists():
        pytest.skip("no captures")
    headers = [row for row in text.read_text().splitlines() if row.startswith("timestamp, driver")]
    names = [re.sub(r" \[.*?\]$", "", name) for name in headers[0].split(", ")]
    assert len(names) > 180
    shown = node.smi(f"--query-gpu={','.join(names)}", "--format=csv")
    assert shown.splitlines()[0] == headers[0]


@pytest.mark.parametrize(
    ("ids", "indices"),
    [
        ("1", ["1"]),
        ("GPU-00000001-5e7d-4e7d-8e7d-000000000002", ["1"]),
        ("1650000000000", ["0"]),
        ("00000000:02:00.0", ["1"]),
        ("0000:02:00.0", ["1"]),
        ("02:00.0", ["1"]),
        ("1,0", ["0", "1"]),
    ],
)
def test_a_query_selects_gpus_by_index_uuid_serial_or_bus_id(node, ids, indices):
    assert node.query("index", "-i", ids) == indices
    assert node.query("index", f"--id={ids}") == indices


# XML

LEAVES = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "product_architecture": "Hopper",
    "mig_mode/current_mig": "Disabled",
    "serial": "1650000000000",
    "platformInfo/module_id": "1",
    "pci/pci_bus": "01",
    "pci/pci_device_id": "233010DE",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
    "fb_memory_usage/reserved": "480 MiB",
    "ecc_errors/aggregate/dram_uncorrectable": "0",
    "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "2560 bank(s)",
    "temperature/gpu_temp_max_tlimit_threshold": "-8 C",
    "gpu_power_readings/requested_power_limit": "700.00 W",
    "max_clocks/video_clock": "1545 MHz",
    "fabric/state": "Completed",
    "gpu_recovery_action": "None",
    "compute_mode": "Default",
    "fan_speed": "N/A",
}


def test_the_values_of_the_xml(node):
    root = node.xml()
    assert root.findtext("driver_version") == "580.105.08"
    assert root.findtext("cuda_version") == "13.0"
    assert root.findtext("attached_gpus") == "2"
    assert [gpu.get("id") for gpu in root.findall("gpu")] == [BUS, "00000000:02:00.0"]
    gpu = root.find("gpu")
    assert {path: gpu.findtext(path) for path in LEAVES} == LEAVES
    assert node.xml("-i", "1").findtext("gpu/uuid") == "GPU-00000001-5e7d-4e7d-8e7d-000000000002"


def leaves(element, path=""):
    """Path and text of all leaves, in order; lists of any length are left out."""
    for child in element:
        if child.tag in ("mig_devices", "supported_clocks", "processes", "accounted_processes"):
            continue
        if len(child):
            yield from leaves(child, f"{path}{child.tag}/")
        else:
            yield f"{path}{child.tag}", (child.text or "").strip()


@pytest.mark.parametrize(
    ("profile", "capture", "dtd"),
    [
        ("h100-sxm", "k8s-h100.xml", "v13"),
        ("a100-sxm-40", "k8s-a100.xml", "v12"),
        ("a100-sxm-80", "telegraf-a100-sxm4-v12.xml", "v12"),
        ("t4", "telegraf-tesla-t4.xml", "v11"),
    ],
)
def test_the_layout_is_that_of_the_driver(node, profile, capture, dtd):
    path = CAPTURES / "nvidia-smi-xml" / capture
    if not path.exists():
        pytest.skip("no captures")
    theirs = dict(leaves(ET.parse(path).find("gpu")))
    node.describe(profile, 1, driver_version=ET.parse(path).findtext("driver_version"))
    assert f'"nvsmi_device_{dtd}.dtd"' in node.smi("-q", "-x")
    ours = dict(leaves(node.xml().find("gpu")))
    # A group that this machine did not have is one N/A; one pair changed places over time.
    gone = tuple(f"{name}/" for name, value in theirs.items() if value == "N/A")
    assert [name for name in ours if name not in theirs and not name.startswith(gone)] == []
    in_order = [name for name in ours if name in theirs and "atomic_caps" not in name]
    assert in_order == [name for name in theirs if name in in_order]


def test_the_values_are_those_of_the_capture_behind_the_profile(node):
    path = CAPTURES / "nvidia-smi-xml" / "k8s-h100.xml"
    if not path.exists():
        pytest.skip("no captures")
    theirs = dict(leaves(ET.parse(path).find("gpu")))
    ours = dict(leaves(node.xml("-i", "0").find("gpu")))
    told = {name for name, value in ours.items() if value != "N/A" and theirs[name] != "N/A"}
    assert len(told) > 100
    assert {name for name in told if ours[name] != theirs[name]} == {
        "serial",
        "uuid",
        "platformInfo/module_id",
        "pci/pci_bus",
        "pci/pci_bus_id",
        "pci/replay_counter",
        "fb_memory_usage/free",
        "bar1_memory_usage/used",
        "bar1_memory_usage/free",
        "gpu_power_readings/instant_power_draw",
    }


@pytest.mark.parametrize("profile", profiles())
def test_every_profile(node, profile):
    node.describe(profile, 1)
    assert "no field" not in node.smi("-q", "-x")
    assert node.xml().findtext("gpu/product_name") == node.query("name")[0]
    assert node.smi("-q").count("\n") > 150
    node.smi()


def test_hostile_text_is_escaped(node):
    name = "<evil a=\"1\"> & 'co' \x01\x1b[2J \N{LATIN SMALL LETTER E WITH ACUTE}]]>"
    node.describe(**{"gpu.0.name": name})
    shown = node.xml("-i", "0").findtext("gpu/product_name")
    assert shown == "<evil a=\"1\"> & 'co' ??[2J ??]]>"
    assert len(node.smi().splitlines()[7]) < 200


def test_the_sections_of_the_text(node):
    shown = node.smi("-q", "-d", "ecc,SUPPORTED_CLOCKS", "-i", "0")
    assert "        Current                                        : Enabled" in shown
    assert "    Supported Clocks\n        Memory " in shown
    assert "Product Name" not in shown
    assert "Supported Clocks" not in node.smi("-q")
    assert node.xml().findtext("gpu/supported_clocks/supported_mem_clock/value") == "2619 MHz"


# settings


@pytest.mark.parametrize(
    ("words", "said", "field", "value"),
    [
        (("-pm", "0"), f"Disabled persistence mode for GPU {BUS}.", "persistence_mode", "Disabled"),
        (
            ("--persistence-mode=ENABLED",),
            f"Persistence mode is already Enabled for GPU {BUS}.",
            "persistence_mode",
            "Enabled",
        ),
        (
            ("-pl", "500"),
            f"Power limit for GPU {BUS} was set to 500.00 W from 700.00 W.",
            "power.limit",
            "500.00 W",
        ),
        (
            ("--power-limit=350.5",),
            f"Power limit for GPU {BUS} was set to 350.50 W from 700.00 W.",
            "enforced.power.limit",
            "350.50 W",
        ),
        (
            ("-ac", "2619,1500"),
            f'Applications clocks set to "(MEM 2619, SM 1500)" for GPU {BUS}',
            "clocks.applications.graphics",
            "1500 MHz",
        ),
        (
            ("-e", "0"),
            f"Disabled ECC support for GPU {BUS}.",
            "ecc.mode.pending",
            "Disabled",
        ),
        (
            ("-c", "EXCLUSIVE_PROCESS"),
            f"Set compute mode to EXCLUSIVE_PROCESS for GPU {BUS}.",
            "compute_mode",
            "Exclusive_Process",
        ),
        (
            ("-c", "0"),
            f"Compute mode is already set to DEFAULT for GPU {BUS}.",
            "compute_mode",
            "Default",
        ),
        (("-mig", "1"), f"Enabled MIG Mode for GPU {BUS}", "mig.mode.pending", "Enabled"),
        (
            ("-p", "0"),
            f"Reset volatile ECC errors to zero for GPU {BUS}.",
            "ecc.errors.corrected.volatile.total",
            "0",
        ),
    ],
)
def test_a_setting_is_made_and_read_back(node, words, said, field, value):
    node.describe(**{"gpu.0.ecc.volatile_corrected": 3})
    before = node.query(field, "-i", "1")
    shown = node.smi("-i", "0", *words).splitlines()
    assert shown[:2] == [said, "All done."]
    assert shown[2:] == (["Reboot required."] if "ECC support" in said else [])
    assert node.query(field, "-i", "0") == [value]
    assert node.query(field, "-i", "1") == before


def locked(node):
    found = re.findall(r"^gpu\.1\.locked_clock_(\w+) = (\d+)$", node.path.read_text(), re.MULTILINE)
    return dict(found)


def test_locked_clocks(node):
    only = ("-i", "1")
    assert node.smi("-lgc", "1980", *only).splitlines() == [
        'GPU clocks set to "(gpuClkMin 1980, gpuClkMax 1980)" for GPU 00000000:02:00.0',
        "All done.",
    ]
    node.smi("--lock-memory-clocks=1593,2619", *only)
    assert locked(node)["graphics_min_mhz"] == "1980"
    assert locked(node)["memory_min_mhz"] == "1593"
    assert locked(node)["memory_max_mhz"] == "2619"
    assert node.smi("-rgc", *only) == node.smi("-rmc", *only) == "All done.\n"
    assert node.smi("-rac", *only) == "All done.\n"
    assert locked(node).get("graphics_max_mhz", "0") == "0"
    assert locked(node).get("memory_max_mhz", "0") == "0"


def test_without_persistence_mode_a_setting_warns(node):
    node.smi("-pm", "0")
    assert f"\nWarning: persistence mode is disabled on device {BUS}." in node.smi("-pl", "500")


def test_a_pending_setting_takes_effect_with_a_gpu_reset(node):
    node.smi("-e", "0")
    assert node.query("ecc.mode.current") == ["Enabled", "Enabled"]
    refused = f"The following GPUs could not be reset:\n  GPU {BUS}: In use by another client\n"
    assert node.smi("-r", "-i", "0", code=255).startswith(refused)
    node.smi("-pm", "0", "-i", "0")
    shown = node.smi("-r", "-i", "0")
    assert shown == f"GPU {BUS} was successfully reset.\nAll done.\n"
    assert node.query("ecc.mode.current") == ["Disabled", "Enabled"]


def test_mig_mode_that_waits_for_a_reset(node):
    node.describe("a100-sxm-80", 1)
    shown = node.smi("-mig", "1")
    assert shown.startswith(f"Warning: MIG mode is in pending enable state for GPU {BUS}:")
    assert node.query("mig.mode.current,mig.mode.pending") == ["Disabled, Enabled"]


# what fails

EARLY = "Terminating early due to previous errors.\n"


@pytest.mark.parametrize(
    ("extra", "words", "code", "said"),
    [
        (
            "",
            ("-pl", "900"),
            2,
            "Provided power limit 900.00 W is not a valid power limit which should be between "
            f"200.00 W and 700.00 W for GPU {BUS}\n{EARLY}",
        ),
        (
            "gpu.*.set.power_limit_mw = NVML_ERROR_NO_PERMISSION",
            ("-pl", "500"),
            4,
            f"Failed to set power management limit for GPU {BUS}: Insufficient Permissions\n"
            + EARLY,
        ),
        (
            "gpu.*.call.nvmlDeviceSetGpuLockedClocks = NVML_ERROR_NO_PERMISSION",
            ("-lgc", "1500"),
            4,
            f"The current user does not have permission to change clocks for GPU {BUS}.\n{EARLY}",
        ),
        (
            "gpu.*.call.nvmlDeviceSetPersistenceMode = NVML_ERROR_UNKNOWN",
            ("-pm", "0"),
            255,
            f"Unable to set persistence mode for GPU {BUS}: Unknown Error\n{EARLY}",
        ),
        (
            "",
            ("-ac", "2619,7"),
            0,
            f'Specified clock combination "(MEM 2619, SM 7)" is not supported for GPU {BUS}. Run '
            "'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations\n"
            "Treating as warning and moving on.\nAll done.\n",
        ),
        (
            "gpu.*.power_limit_mw = NVML_ERROR_NOT_SUPPORTED",
            ("-pl", "500"),
            0,
            "Changing power management limit is not supported in current scope for GPU: "
            f"{BUS}.\nTreating as warning and moving on.\nAll done.\n",
        ),
        (
            "gpu.*.power_limit_mw = NVML_ERROR_NOT_SUPPORTED",
            ("-pl", "500", "-eow"),
            3,
            "Changing power management limit is not supported in current scope for GPU: "
            f"{BUS}.\nTreating as warning and moving on.\nAll done.\n",
        ),
        (
            "gpu.*.persistence_mode = 0\ngpu.*.call.nodevet_sim_reset = NVML_ERROR_NOT_SUPPORTED",
            ("-r",),
            3,
            f"Resetting GPU {BUS} is not supported.\n",
        ),
        ("", ("-i", "7"), 6, "No devices were found\n"),
        ("", ("-i", "GPU-none", "-L"), 6, "No devices were found\n"),
        ("count = 0", ("-q", "-x"), 6, "No devices were found\n"),
        (
            "",
            ("--query-gpu=name,cuda_version", "--format=csv"),
            2,
            'Field "cuda_version" is not a valid field to query.\n\n',
        ),
        (
            "",
            ("--query-compute-apps=pid,uuid", "--format=csv"),
            2,
            'Field "uuid" is not a valid field to query.\n\n',
        ),
        ("", ("-format=csv",), 2, "ERROR: Option -format=csv is not recognized. "
                                  "Please run 'nvidia-smi -h'.\n\n"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_nvidia_smi_says(node, extra, words, code, said):
    node.describe(count=1, extra=extra + "\n")
    assert node.smi(*words, code=code) == said


@pytest.mark.parametrize(
    "words",
    [
        ("-pm",),
        ("-pm", "2"),
        ("-pl", "x"),
        ("-pl", "nan"),
        ("-lgc", "1500,"),
        ("-ac", "1500"),
        ("-c", "SHARED"),
        ("-pm", "1", "-pl", "500"),
        ("-x",),
        ("--query-gpu=name",),
        ("-L", "--format=csv"),
        ("--query-gpu=name", "--format=noheader"),
        ("--query-gpu=name", "--format=csv,pretty"),
    ],
)
def test_an_invalid_command_line_is_refused(node, words):
    node.smi(*words, code=2)
    assert "# set since boot" not in node.path.read_text()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            "NVML_ERROR_DRIVER_NOT_LOADED",
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.",
        ),
        (
            "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        ("NVML_ERROR_NO_PERMISSION", 4, "Failed to initialize NVML: Insufficient Permissions"),
        (
            "NVML_ERROR_INSUFFICIENT_POWER",
            8,
            "Failed to initialize NVML: Insufficient External Power",
        ),
        ("NVML_ERROR_IRQ_ISSUE", 10, "Failed to initialize NVML: Interrupt Request Issue"),
        ("NVML_ERROR_CORRUPTED_INFOROM", 14, "Failed to initialize NVML: Corrupted infoROM"),
        ("NVML_ERROR_UNKNOWN", 255, "Failed to initialize NVML: Unknown Error"),
    ],
)
def test_nvml_that_does_not_start(node, error, code, said):
    node.describe(init=error)
    assert node.smi(code=code).splitlines()[0] == said


def test_without_the_library_or_a_function_of_it(node, tmp_path):
    node.variables["LD_LIBRARY_PATH"] = str(tmp_path)
    assert "couldn't find libnvidia-ml.so library in your system" in node.smi(code=12)
    source = "int nvmlInit_v2(void) { return 0; }"
    command = ["gcc", "-shared", "-o", tmp_path / library.NAME, "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    assert "Function Not Found" in node.smi(code=13)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare, for mounts of its own",
)

ENDED = "ended() { for i in $(seq 300); do kill -0 $1 2>/dev/null || return 0; sleep 0.1; done; }\n"


def in_own_mounts(node, script):
    """What a shell script prints that has /run and mounts for itself; $BUILT are the programs."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-eu", "-c", "mount -t tmpfs tmpfs /run\n" + ENDED + script],
        capture_output=True,
        text=True,
        env={**node.variables, "BUILT": str(node.built)},
        timeout=DEADLINE * 2,
    )
    assert done.returncode == 0, done
    return done.stdout.splitlines()


@pytest.mark.parametrize("how", ["handle = NVML_ERROR_GPU_IS_LOST", "lost = 1"])
def test_a_lost_gpu(node, how):
    node.describe(extra=f"gpu.1.{how}\n")
    message = (
        "Unable to determine the device handle for GPU1: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )
    for words in ((), ("-L",), ("-q",), ("-q", "-x"), ("-pm", "0"), ("-r",)):
        done = node.call("nvidia-smi", *words)
        assert (done.returncode, done.stderr) == (15, message), words
        assert "All done." not in done.stdout
    shown = ET.fromstring(node.call("nvidia-smi", "-q", "-x").stdout)
    assert shown.findtext("attached_gpus") == "2"
    assert len(shown.findall("gpu")) == 1


def test_the_values_of_a_lost_gpu(node):
    node.describe(extra="gpu.1.lost = 1\n")
    shown = node.smi("--query-gpu=index,name,power.draw", "--format=csv,noheader", code=15)
    assert shown.splitlines()[1] == "1, [GPU is lost], [GPU is lost]"


@needs_root
def test_the_address_of_a_lost_gpu_is_known_where_the_driver_lists_it(node):
    node.describe(extra="gpu.1.lost = 1\n")
    shown = in_own_mounts(
        node,
        """
mount -t tmpfs tmpfs /proc/driver
mkdir -p /proc/driver/nvidia/gpus/0000:02:00.0 /proc/driver/nvidia/gpus/0000:01:00.0
$BUILT/nvidia-smi -L 2>&1 >/dev/null || echo $?
""",
    )
    message = "Unable to determine the device handle for GPU0000:02:00.0: GPU is lost.  "
    assert shown == [message + "Reboot the system to recover this GPU", "15"]


# daemons and load


@needs_root
@pytest.mark.parametrize(
    ("options", "during", "after"),
    [("--verbose", "Enabled", "Disabled"), ("--no-persistence-mode", "Disabled", "Disabled"),
     ("--user nobody", "Enabled", "Disabled")],
)  # fmt: skip
def test_persistenced(node, options, during, after):
    node.describe(count=1, **{"gpu.*.persistence_mode": 0})
    shown = in_own_mounts(
        node,
        f"""
mode() {{ $BUILT/nvidia-smi --query-gpu=persistence_mode --format=csv,noheader; }}
$BUILT/nvidia-persistenced {options}
pid=$(cat /run/nvidia-persistenced/nvidia-persistenced.pid)
trap "kill $pid 2>/dev/null || true" EXIT
cat /proc/$pid/comm
mode
$BUILT/nvidia-persistenced 2>/dev/null || echo refused $?
kill $pid
ended $pid
mode
ls /run
""",
    )
    assert shown == ["nvidia-persiste", during, "refused 1", after]


@needs_root
def test_persistenced_without_a_driver(node):
    node.describe(init="NVML_ERROR_DRIVER_NOT_LOADED")
    script = '$BUILT/nvidia-persistenced 2>&1 || echo "code $?"; ls /run'
    assert in_own_mounts(node, script) == [
        "nvidia-persistenced failed to initialize. Check syslog for more details.",
        "code 1",
    ]


@needs_root
def test_fabricmanager(node, tmp_path):
    shown = in_own_mounts(
        node,
        """
$BUILT/nv-fabricmanager
pid=$(cat /run/nvidia-fabricmanager/nv-fabricmanager.pid)
trap "kill $pid 2>/dev/null || true" EXIT
cat /proc/$pid/comm
$BUILT/nv-fabricmanager --version
kill $pid
ended $pid
ls /run
""",
    )
    assert shown == ["nv-fabricmanage", "Fabric Manager version is : 580.105.08"]


def test_a_fabricmanager_of_another_version_does_not_start(node, tmp_path):
    (tmp_path / "fm.cfg").write_text("# a comment\nNODEVET_SIM_VERSION=570.86.15\n")
    done = node.call("nv-fabricmanager", "-c", tmp_path / "fm.cfg")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (
        "fabric manager NVIDIA GPU driver interface version 570.86.15 don't match with driver "
        "version 580.105.08. Please update with matching NVIDIA driver package."
    )
    node.describe("t4", 1)
    done = node.call("nv-fabricmanager")
    assert done.returncode == 1
    assert "[NV_WARN_NOTHING_TO_DO]" in done.stderr
    done = node.call("nv-fabricmanager", "-c", tmp_path / "none.cfg")
    assert done.returncode == 1
    assert "none.cfg: No such file" in done.stderr


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_load(node):
    command = [node.built / "nodevet-sim-load", "--gpus", "1", "--memory-mb", "1024"]
    command += ["--utilization", "90", "--command", "/opt/<train>"]
    load = subprocess.Popen(command, env=node.variables, stderr=subprocess.DEVNULL)
    try:
        file = node.path.with_name("nvml.state.processes") / str(load.pid)
        wait_for(file.exists)
        assert file.read_text() == "gpus = 1\nmemory_mb = 1024\nutilization_percent = 90\n"
        assert Path(f"/proc/{load.pid}/comm").read_text() == "<train>\n"
        apps = "--query-compute-apps=pid,name,used_memory,gpu_bus_id"
        assert node.smi(apps, "--format=csv").splitlines() == [
            "pid, process_name, used_gpu_memory [MiB], gpu_bus_id",
            f"{load.pid}, /opt/<train>, 1024 MiB, 00000000:02:00.0",
        ]
        assert node.query("utilization.gpu,memory.used") == ["0 %, 0 MiB", "90 %, 1024 MiB"]
        shown = node.xml("-i", "1").find("gpu/processes/process_info")
        assert shown.findtext("process_name") == "/opt/<train>"
        assert shown.findtext("used_memory") == "1024 MiB"
        assert f"{load.pid}      C   /opt/<train>" in node.smi()
        assert "In use by another client" in node.smi("-r", code=255)
    finally:
        load.send_signal(signal.SIGTERM)
        assert load.wait(DEADLINE) == 0
    assert list(file.parent.iterdir()) == []
    assert node.query("utilization.gpu") == ["0 %", "0 %"]


@needs_root
def test_load_on_other_cpus_and_devices(node):
    shown = in_own_mounts(
        node,
        """
mount -t tmpfs tmpfs /dev
mknod /dev/null c 1 3
mknod /dev/nvidia0 c 195 0
mknod /dev/nvidiactl c 195 255
$BUILT/nodevet-sim-load --cpus 0-31,64 --mems 1 &
load=$!
trap "kill $load 2>/dev/null || true" EXIT
files=$NODEVET_SIM_STATE.processes
for i in $(seq 300); do [ -e $files/$load ] && break; sleep 0.1; done
grep allowed_list /proc/$load/status
grep Pid: /proc/$load/status | head -n 1 | sed s/$load/PID/
ls -l /proc/$load/fd | sed -n 's|.*-> /dev/nvidia|nvidia|p'
kill $load
wait $load
ls $files
grep /proc/$load /proc/self/mounts || echo unmounted
""",
    )
    assert shown == [
        "Cpus_allowed_list:\t0-31,64",
        "Mems_allowed_list:\t1",
        "Pid:\tPID",
        "nvidiactl",
        "nvidia0",
        "unmounted",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "7"), "NVML has no such GPU: 7"),
        (("--gpus", "0;1"), "not a list of numbers: --gpus"),
        (("--cpus", "0-3\nx"), "not a list of numbers: --cpus"),
        (("--utilization", "101"), "not a number in range: --utilization"),
    ],
)
def test_an_impossible_load_is_refused(node, words, said):
    done = node.call("nodevet-sim-load", *words)
    assert done.returncode == 1
    assert said in done.stderr
