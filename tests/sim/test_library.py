"""The simulated NVML library itself: how it is built and how it reads its state."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

from nodevet_sim import library
from nodevet_sim.library import LibraryError, build, environment
from nodevet_sim.state import state


def run(nvml, path, program):
    """What a program with pynvml prints, over this library and state; None: the usual state."""
    variables = {"LD_LIBRARY_PATH": str(nvml.parent)} if path is None else environment(nvml, path)
    done = subprocess.run(
        [sys.executable, "-c", "import pynvml as n\n" + program],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
    )
    return done.stdout.split(), done.stderr


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryError, match="gcc is not installed; install it"):
        build(tmp_path)


def test_a_compiler_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "FLAGS", ("-shared", "-fno-such-thing"))
    with pytest.raises(LibraryError, match=r"could not build .*\n.*no-such-thing"):
        build(tmp_path)


def test_only_nvml_is_exported(nvml):
    symbols = subprocess.run(["nm", "-D", "--defined-only", nvml], capture_output=True, text=True)
    names = [row.split()[-1].split("@")[0] for row in symbols.stdout.splitlines()]
    assert "nvmlInitWithFlags" in names
    assert [name for name in names if not name.startswith("nvml")] == ["nodevet_sim_reset"]
    assert "nvml_errors" not in names


def test_a_changed_state_is_read_at_once_and_a_broken_one_is_ignored(nvml, tmp_path):
    path = tmp_path / "node.state"
    path.write_text(state("t4", 1))
    more = {"watts": 65000, "hours": 1}
    program = f"""
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
print(n.nvmlDeviceGetPowerManagementLimit(gpu))
text = open({str(path)!r}).read()
for line in ("gpu.0.power_limit_mw = {more["watts"]}", "this is no line"):
    open({str(path)!r} + "~", "w").write(text + line)
    import os; os.rename({str(path)!r} + "~", {str(path)!r})
    print(n.nvmlDeviceGetPowerManagementLimit(gpu))
"""
    shown, complaint = run(nvml, path, program)
    assert shown == ["70000", "65000", "65000"]
    assert "not `key = value`" in complaint


def test_a_state_that_cannot_be_read_is_reported(nvml, tmp_path):
    path = tmp_path / "node.state"
    program = "try: n.nvmlInit()\nexcept n.NVMLError as error: print(error.value)"
    assert run(nvml, path, program)[0] == ["999"]
    path.write_text("# fine\n\ncount = 1\nno equals sign here\n")
    shown, complaint = run(nvml, path, program)
    assert shown == ["999"]
    assert f"{path}:4: not `key = value`" in complaint


def test_every_declared_function_is_exported(nvml):
    header = (Path(library.__file__).parent / "nvml" / "nvml.h").read_text()
    declared = set(re.findall(r"^(?:nvmlReturn_t|const char \*) ?(\w+)\(", header, re.MULTILINE))
    symbols = subprocess.run(["nm", "-D", "--defined-only", nvml], capture_output=True, text=True)
    assert declared == {row.split()[-1].split("@")[0] for row in symbols.stdout.splitlines()}


def test_the_library_reads_its_state_from_the_default_path(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    place = tmp_path / "usual.state"
    built = build(tmp_path / "library", default=str(place))
    program = """
try:
    n.nvmlInit()
    print(n.nvmlDeviceGetCount())
except n.NVMLError as error: print(error.value)
"""
    shown, complaint = run(built, None, program)
    assert (shown, complaint) == ([str(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)], "")
    assert [each.name for each in tmp_path.iterdir()] == ["library"]
    place.write_text(state("t4", 3))
    assert run(built, None, program)[0] == ["3"]


def test_a_gpu_handle_is_found_by_uuid_serial_and_bus_id(nvml, tmp_path):
    path = tmp_path / "node.state"
    path.write_text(state("h100-sxm", 3, bus_ids=["0000:19:00.0", "0001:3b:00.0", "0002:5d:00.0"]))
    program = """
n.nvmlInit()
for index in range(3):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    bus_id = n.nvmlDeviceGetPciInfo(gpu).busId
    for handle in (
        n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(gpu)),
        n.nvmlDeviceGetHandleBySerial(n.nvmlDeviceGetSerial(gpu)),
        n.nvmlDeviceGetHandleByPciBusId(bus_id),
        n.nvmlDeviceGetHandleByPciBusId(bus_id[4:].lower()),
    ):
        print(n.nvmlDeviceGetIndex(handle))
print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("19:00.0")))
try: n.nvmlDeviceGetHandleByUUID("GPU-none")
except n.NVMLError as error: print(error.value)
"""
    assert run(nvml, path, program) == ([*"000011112222", "0", "6"], "")
    path.write_text(path.read_text() + "gpu.2.lost = 1\n")
    program = """
n.nvmlInit()
print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("0001:3b:00.0")))
try: n.nvmlDeviceGetHandleByPciBusId("0002:5d:00.0")
except n.NVMLError as error: print(error.value, error)
print(n.nvmlErrorString(4))
"""
    assert run(nvml, path, program) == (
        ["1", "15", *["GPU", "is", "lost", "Insufficient", "Permissions"]],
        "",
    )


def test_before_init_and_after_shutdown(nvml, tmp_path):
    path = tmp_path / "node.state"
    path.write_text(state("t4", 1))
    program = """
n.nvmlInit()
n.nvmlInit()
n.nvmlShutdown()
print(n.nvmlDeviceGetCount())
gpu = n.nvmlDeviceGetHandleByIndex(0)
n.nvmlShutdown()
for call in (n.nvmlDeviceGetCount, lambda: n.nvmlDeviceGetUUID(gpu), n.nvmlShutdown):
    try: call()
    except n.NVMLError as error: print(error.value)
"""
    assert run(nvml, path, program)[0] == ["1", "1", "1", "1"]


@pytest.mark.parametrize("count", ["unavailable", "-1", "257", "4294967295"])
def test_a_count_that_no_machine_has_is_an_unknown_error(nvml, tmp_path, count):
    path = tmp_path / "node.state"
    path.write_text(f"count = {count}\n")
    program = "n.nvmlInit()\ntry: n.nvmlDeviceGetCount()\nexcept n.NVMLError as e: print(e.value)"
    assert run(nvml, path, program)[0] == ["999"]


def test_a_value_that_is_not_a_number_is_an_unknown_error(nvml, tmp_path):
    path = tmp_path / "node.state"
    path.write_text(state("t4", 1, **{"gpu.0.power_limit_mw": "7O W", "gpu.0.bus_id": "none"}))
    program = """
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
for call in (n.nvmlDeviceGetPowerManagementLimit, n.nvmlDeviceGetPciInfo):
    try: call(gpu)
    except n.NVMLError as error: print(error.value)
try: n.nvmlDeviceGetHandleByIndex(1)
except n.NVMLError as error: print(error.value)
"""
    assert run(nvml, path, program)[0] == ["999", "999", "2"]


def test_a_live_process_is_charged_with_the_work_of_its_gpu(nvml, tmp_path):
    """`recent` of processes.c; the samples are of a sixth of a second each."""
    path = tmp_path / "node.state"
    path.write_text(state("h100-sxm", 2))
    folder = tmp_path / "node.state.processes"
    folder.mkdir()
    end = (time.time_ns() // 1000 // 1_000_000 + 1) * 1_000_000
    slots = " ".join(["80"] * 200 + ["x", "99"])  # of ten seconds; then nothing that can be read
    (folder / str(os.getpid())).write_text(f"gpus = 1\nrecent = {end} {slots}\n")
    program = f"""
n.nvmlInit()
for gpu in map(n.nvmlDeviceGetHandleByIndex, (0, 1)):
    _, samples = n.nvmlDeviceGetSamples(gpu, n.NVML_GPU_UTILIZATION_SAMPLES, {end - 18_000_000})
    ages = [(({end} - each.timeStamp) / 1e6, each.sampleValue.uiVal) for each in samples]
    print(*sorted({{value for age, value in ages if 0.2 < age < 9.5}}))
    print(*sorted({{value for age, value in ages if age > 10}}))
"""
    shown, _ = run(nvml, path, program)
    assert shown == ["0", "0", "80", "0"]


def test_a_rising_counter_grows_between_two_reads(nvml, tmp_path):
    path = tmp_path / "node.state"
    rising = "gpu.0.pcie_replay_counter = 1000/s\n"
    path.write_text(state("h100-sxm", 2) + rising)
    program = """
n.nvmlInit()
first, other = map(n.nvmlDeviceGetHandleByIndex, (0, 1))
before = n.nvmlDeviceGetPcieReplayCounter(first)
while n.nvmlDeviceGetPcieReplayCounter(first) == before:
    pass
print(before > 0, n.nvmlDeviceGetPcieReplayCounter(other))
"""
    assert run(nvml, path, program) == (["True", "0"], "")


def test_a_busy_gpu_at_a_low_power_limit_draws_that_power_and_runs_slower(nvml, tmp_path):
    """GPU 1 may draw 490 W, and GPU 2 never comes near that, for its clock is locked low."""
    path = tmp_path / "node.state"
    low = "".join(f"gpu.{index}.power_limit_enforced_mw = 490000\n" for index in (1, 2))
    locked = (
        "gpu.2.locked_clock_graphics_min_mhz = 900\ngpu.2.locked_clock_graphics_max_mhz = 900\n"
    )
    path.write_text(state("h100-sxm", 3) + low + locked)
    folder = tmp_path / "node.state.processes"
    folder.mkdir()
    (folder / str(os.getpid())).write_text("gpus = 0 1 2\nutilization_percent = 100\n")
    program = """
n.nvmlInit()
for gpu in map(n.nvmlDeviceGetHandleByIndex, range(3)):
    print(n.nvmlDeviceGetPowerUsage(gpu) // 1000)
    print(n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM))
    print(n.nvmlDeviceGetCurrentClocksEventReasons(gpu))
"""
    shown, _ = run(nvml, path, program)
    free, capped, slow = (tuple(map(int, shown[at : at + 3])) for at in (0, 3, 6))
    assert free == (629, 1980, 0)
    assert 480 < capped[0] <= 490 and 1600 < capped[1] < 1800 and capped[2] == 4, capped
    assert slow == (184, 900, 0)
