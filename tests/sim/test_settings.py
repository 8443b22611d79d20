"""What is set through the simulated NVML: by the real pynvml, in processes of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pynvml
import pytest

from nodevet_sim.library import environment, rebooted, update
from nodevet_sim.state import state

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may set anything")
SUCCESS, INVALID, NOT_SUPPORTED, NO_PERMISSION = 0, 2, 3, 4
NOT_FOUND, LOST, RESET_REQUIRED, IN_USE = 6, 15, 16, 19
NOBODY = 65534

# Answers requests on stdin, one JSON list of calls a line, until it is closed or killed: a
# call's result, or the code of its error. "gpu" among the arguments is the GPU's handle.
CLIENT = """
import ctypes, json, os, sys
import pynvml as n
library = ctypes.CDLL("libnvidia-ml.so.1")
uid, index = int(sys.argv[1]), int(sys.argv[2])
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(index)
print("ready", flush=True)

def power_limit_v2(gpu, scope, limit, version=n.nvmlPowerValue_v2):
    value = n.c_nvmlPowerValue_v2_t()
    value.version, value.powerScope, value.powerValueMw = version, scope, limit
    return library.nvmlDeviceSetPowerManagementLimit_v2(gpu, ctypes.byref(value))

own = {"reset": library.nodevet_sim_reset, "power_limit_v2": power_limit_v2}
whole = ("Init", "Shutdown")

def call(name, *arguments):
    if name in own:
        return own[name](*(gpu if each == "gpu" else each for each in arguments))
    try:
        function = getattr(n, "nvml" + ("" if name in whole else "Device") + name)
        found = function(*(gpu if each == "gpu" else each for each in arguments))
    except n.NVMLError as error:
        return {"error": error.value}
    if isinstance(found, list) and found and hasattr(found[0], "pid"):
        return [[each.pid, each.usedGpuMemory] for each in found]
    fields = getattr(found, "_fields_", ())
    return {field[0]: getattr(found, field[0]) for field in fields} or found

for line in sys.stdin:
    print(json.dumps([call(*each) for each in json.loads(line)]), flush=True)
"""


class Client:
    def __init__(self, nvml, path, uid=0, index=0):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(uid), str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment(nvml, path)},
        )
        assert self.process.stdout.readline() == "ready\n"

    def send(self, *calls):
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()

    def __call__(self, *calls):
        self.send(*calls)
        results = json.loads(self.process.stdout.readline())
        return results[0] if len(calls) == 1 else results

    def end(self, how=None):
        """Closed, or by this signal; it is gone on return."""
        if how is not None:
            self.process.send_signal(how)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=120)


class Node:
    """A state file, and the clients of it."""

    def __init__(self, nvml, folder):
        self.nvml, self.path, self.clients = nvml, folder / "node.state", []

    def describe(self, profile="h100-sxm", count=2, **overrides):
        self.path.write_text(state(profile, count))
        # Not of state(): it knows what hardware is, and not how it misbehaves.
        lines = [f"{key} = {value}\n" for key, value in overrides.items()]
        self.path.write_text(self.path.read_text() + "".join(lines))
        return self

    def client(self, uid=0, index=0):
        self.clients.append(Client(self.nvml, self.path, uid, index))
        return self.clients[-1]

    def ask(self, *calls, uid=0, index=0):
        """What a client of its own is answered: nobody else may be one then."""
        client = self.client(uid, index)
        try:
            return client(*calls)
        finally:
            client.end()

    def since_boot(self):
        return self.path.read_text().partition("# set since boot\n")[2].splitlines()


@pytest.fixture
def node(nvml):
    folder = Path(tempfile.mkdtemp(prefix="nodevet-test-"))
    folder.chmod(0o755)  # pytest's own folders are for root alone
    node = Node(nvml, folder)
    yield node
    for client in node.clients:
        if client.process.returncode is None:
            client.end(signal.SIGKILL)
    shutil.rmtree(folder)


def error(code):
    return {"error": code}


SETTERS = [  # profile, setter, its arguments, what reads it, what is read then
    ("h100-sxm", "SetPersistenceMode", (0,), "GetPersistenceMode", 0),
    ("h100-sxm", "SetPowerManagementLimit", (350000,), "GetPowerManagementLimit", 350000),
    ("h100-sxm", "SetPowerManagementLimit", (200000,), "GetEnforcedPowerLimit", 200000),
    ("h100-sxm", "SetPowerManagementLimit", (700000,), "GetPowerManagementLimit", 700000),
    ("h100-sxm", "SetComputeMode", (3,), "GetComputeMode", 3),
    ("h100-sxm", "SetComputeMode", (2,), "GetComputeMode", 2),
    ("h100-sxm", "SetEccMode", (0,), "GetEccMode", [1, 0]),
    ("t4", "SetApplicationsClocks", (5001, 1590), "GetApplicationsClock 0", 1590),
    ("t4", "SetApplicationsClocks", (5001, 300), "GetApplicationsClock 2", 5001),
    ("h100-sxm", "SetGpuLockedClocks", (1980, 1980), "GetClockInfo 0", 1980),
    ("h100-sxm", "SetGpuLockedClocks", (1200, 1500), "GetClockInfo 1", 1200),
    ("h100-sxm", "SetGpuLockedClocks", (0, 300), "GetClockInfo 1", 300),
    ("h100-sxm", "SetGpuLockedClocks", (0, 1980), "GetClockInfo 1", 345),
    ("h100-sxm", "SetMemoryLockedClocks", (1593, 1593), "GetClockInfo 2", 1593),
]


@needs_root
def test_a_setting_is_read_by_other_processes(node):
    node.describe()
    other, here, neighbour = node.client(), node.client(), node.client(index=1)
    for case in SETTERS:
        profile, setter, values, getter, then = case
        node.describe(profile)
        read = (getter.split()[0], "gpu", *map(int, getter.split()[1:]))
        before = neighbour(read)
        assert other(read) == before, case
        assert here((setter, "gpu", *values)) is None, case
        assert here(read) == other(read) == then, case
        assert neighbour(read) == before, case
    assert node.path.stat().st_mode & 0o777 == 0o644


OUT_OF_RANGE = [
    ("h100-sxm", "SetPersistenceMode", (2,)),
    ("h100-sxm", "SetPowerManagementLimit", (199999,)),
    ("h100-sxm", "SetPowerManagementLimit", (700001,)),
    ("h100-sxm", "SetComputeMode", (4,)),
    ("h100-sxm", "SetEccMode", (2,)),
    ("h100-sxm", "SetMigMode", (2,)),
    ("h100-sxm", "ClearEccErrorCounts", (2,)),
    ("h100-sxm", "SetGpuLockedClocks", (1980, 1200)),
    ("h100-sxm", "SetGpuLockedClocks", (1980, 1995)),
    ("h100-sxm", "SetGpuLockedClocks", (0, 0)),
    ("h100-sxm", "SetGpuLockedClocks", (1980, pynvml.NVML_CLOCK_LIMIT_ID_UNLIMITED)),
    ("h100-sxm", "SetMemoryLockedClocks", (2619, 2620)),
    ("t4", "SetApplicationsClocks", (5001, 1591)),
    ("t4", "SetApplicationsClocks", (5002, 1590)),
]


@needs_root
def test_what_is_out_of_range_is_refused(node):
    client = node.describe().client()
    for case in OUT_OF_RANGE:
        profile, setter, values = case
        before = node.describe(profile).path.read_text()
        assert client((setter, "gpu", *values)) == error(INVALID), case
        assert node.path.read_text() == before, case


ALL = [  # every setter, its arguments, the key that must be there
    ("SetPersistenceMode", (1,), "persistence_mode"),
    ("SetPowerManagementLimit", (65000,), "power_limit_mw"),
    ("SetComputeMode", (0,), "compute_mode"),
    ("SetEccMode", (1,), "ecc_pending"),
    ("SetMigMode", (1,), "mig_pending"),
    ("ClearEccErrorCounts", (0,), "ecc.volatile_uncorrected"),
    ("ClearEccErrorCounts", (1,), "ecc.aggregate_uncorrected"),
    ("SetApplicationsClocks", (2619, 1980), "app_clock_graphics_mhz"),
    ("ResetApplicationsClocks", (), "app_clock_graphics_mhz"),
    ("SetGpuLockedClocks", (1200, 1200), "max_clock_graphics_mhz"),
    ("ResetGpuLockedClocks", (), "max_clock_graphics_mhz"),
    ("SetMemoryLockedClocks", (2619, 2619), "max_clock_memory_mhz"),
    ("ResetMemoryLockedClocks", (), "max_clock_memory_mhz"),
]


@needs_root
def test_only_root_may_set(node):
    before = node.describe().path.read_text()
    found = node.ask(
        *((setter, "gpu", *values) for setter, values, _ in ALL), ("reset", 0), uid=NOBODY
    )
    assert found == [*[error(NO_PERMISSION)] * len(ALL), NO_PERMISSION]
    assert node.path.read_text() == before


@needs_root
def test_each_setter_fails_as_its_getter_does(node):
    calls = [(setter, "gpu", *values) for setter, values, _ in ALL]
    for why, code in (("NVML_ERROR_NOT_SUPPORTED", 3), ("NVML_ERROR_TIMEOUT", 10)):
        node.describe(**{f"gpu.0.{key}": why for _, _, key in ALL})
        assert node.ask(*calls) == [error(code)] * len(ALL)
    node.describe(**{"gpu.0.lost": 1})
    assert node.ask(*calls, ("reset", 0)) == [*[error(LOST)] * len(ALL), LOST]
    text = node.describe().path.read_text()
    keys = tuple(f"gpu.*.{key} " for _, _, key in ALL)
    node.path.write_text("".join(x for x in text.splitlines(True) if not x.startswith(keys)))
    assert node.ask(*calls) == [error(NOT_SUPPORTED)] * len(ALL)
    assert node.since_boot() == []


@needs_root
def test_settings_that_hardware_lacks_are_refused(node):
    node.describe("t4")
    assert node.ask(
        ("SetMigMode", "gpu", 1),
        ("SetMemoryLockedClocks", "gpu", 5001, 5001),
        ("SetComputeMode", "gpu", 1),
        ("SetGpuLockedClocks", "gpu", 1590, 1590),
    ) == [*[error(NOT_SUPPORTED)] * 3, None]
    node.describe("l40s")
    assert node.ask(("SetApplicationsClocks", "gpu", 9001, 2520)) == error(26)
    node.describe("h100-sxm", **{"gpu.*.gpu_architecture": "PASCAL"})
    assert node.ask(("SetGpuLockedClocks", "gpu", 1590, 1590)) == error(NOT_SUPPORTED)


@needs_root
def test_a_setter_can_fail_hang_or_have_no_effect(node):
    node.describe(
        **{
            "gpu.0.set.power_limit_mw": "NVML_ERROR_UNKNOWN",
            "gpu.0.set.compute_mode": "ignored",
            "gpu.*.set.locked_clock_graphics_mhz": "NVML_ERROR_NOT_SUPPORTED",
            "gpu.0.set.persistence_mode": "hang",
        }
    )
    client = node.client()
    assert client(
        ("SetPowerManagementLimit", "gpu", 300000),
        ("SetPowerManagementLimit", "gpu", 1),
        ("GetPowerManagementLimit", "gpu"),
        ("SetComputeMode", "gpu", 3),
        ("GetComputeMode", "gpu"),
        ("SetGpuLockedClocks", "gpu", 1980, 1980),
        ("SetEccMode", "gpu", 0),
    ) == [error(999), error(INVALID), 700000, None, 0, error(NOT_SUPPORTED), None]
    assert node.client(index=1)(("SetPowerManagementLimit", "gpu", 300000)) is None
    client.send(("SetPersistenceMode", "gpu", 0))
    assert does_not_answer(client)


def does_not_answer(client, seconds=0.7):
    answered = threading.Event()

    def wait():
        if client.process.stdout.readline():
            answered.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    is_silent = not answered.wait(seconds)
    client.process.kill()
    waiting.join(120)
    return is_silent


@needs_root
def test_calls_that_hang_fail_or_take_long(node):
    node.describe(
        **{
            "call.nvmlDeviceGetSerial": "NVML_ERROR_TIMEOUT",
            "call.nvmlDeviceGetMemoryInfo": "NVML_ERROR_UNKNOWN",
            "gpu.1.call.nvmlDeviceGetName": "NVML_ERROR_IRQ_ISSUE",
            "gpu.0.call.nvmlDeviceGetUUID": "delay:300",
            "gpu.0.call.nvmlDeviceSetEccMode": "hang",
        }
    )
    one, two = node.client(), node.client(index=1)
    reads = [("GetSerial", "gpu"), ("GetMemoryInfo", "gpu", 0x2000028), ("GetName", "gpu")]
    assert one(*reads) == [error(10), error(999), "NVIDIA H100 80GB HBM3"]
    assert two(*reads) == [error(10), error(999), error(11)]
    began = time.monotonic()
    assert one(("GetUUID", "gpu")).startswith("GPU-00000000")
    assert time.monotonic() - began >= 0.3
    assert two(("SetEccMode", "gpu", 0)) is None
    one.send(("SetEccMode", "gpu", 0))
    assert does_not_answer(one)
    assert two(("SetEccMode", "gpu", 1)) is None  # who hangs holds no lock


@needs_root
def test_an_enforced_limit_of_another_origin_stays(node):
    node.describe(**{"gpu.0.power_limit_enforced_mw": 350000})
    limits = [("GetPowerManagementLimit", "gpu"), ("GetEnforcedPowerLimit", "gpu")]
    for limit, enforced in ((600000, 350000), (300000, 300000)):
        assert node.ask(("SetPowerManagementLimit", "gpu", limit), *limits) == [
            None,
            limit,
            enforced,
        ]


@needs_root
def test_power_limit_by_scope(node):
    node.describe()
    version = pynvml.nvmlPowerValue_v2
    assert node.ask(
        ("power_limit_v2", "gpu", 0, 300000),
        ("power_limit_v2", "gpu", 0, 1),
        ("power_limit_v2", "gpu", 1, 300000),
        ("power_limit_v2", "gpu", 0, 400000, version - 1),
        ("GetPowerManagementLimit", "gpu"),
    ) == [SUCCESS, INVALID, NOT_SUPPORTED, 25, 300000]


@needs_root
def test_clocks_are_reset(node):
    node.describe("a100-sxm-80")
    assert node.ask(
        ("SetGpuLockedClocks", "gpu", 1410, 1410),
        ("SetMemoryLockedClocks", "gpu", 810, 810),
        ("SetApplicationsClocks", "gpu", 1593, 1410),
        ("ResetGpuLockedClocks", "gpu"),
        ("ResetMemoryLockedClocks", "gpu"),
        ("ResetApplicationsClocks", "gpu"),
        *(("GetClockInfo", "gpu", kind) for kind in (0, 1, 2)),
        ("GetApplicationsClock", "gpu", 0),
    ) == [*[None] * 6, 210, 210, 1593, 1275]
    unlimited = pynvml.NVML_CLOCK_LIMIT_ID_UNLIMITED
    assert node.ask(
        ("SetGpuLockedClocks", "gpu", 1410, 1410),
        ("SetGpuLockedClocks", "gpu", unlimited, unlimited),
        ("GetClockInfo", "gpu", 0),
    ) == [None, None, 210]


def test_supported_clocks(node):
    node.describe("a100-sxm-80")
    memory, graphics, wrong = node.ask(
        ("GetSupportedMemoryClocks", "gpu"),
        ("GetSupportedGraphicsClocks", "gpu", 1593),
        ("GetSupportedGraphicsClocks", "gpu", 1594),
    )
    assert (memory, wrong) == ([1593], error(NOT_FOUND))
    assert graphics == list(range(1410, 209, -15))
    node.describe("h100-sxm", **{"gpu.*.app_clock_graphics_default_mhz": 1189})
    graphics = node.ask(("GetSupportedGraphicsClocks", "gpu", 2619))
    assert graphics == sorted({*range(1980, 209, -15), 1189}, reverse=True)


@needs_root
def test_ecc_counts_are_cleared(node):
    counts = {f"gpu.0.ecc.{life}_uncorrected": 7 for life in ("volatile", "aggregate")}
    node.describe(**counts)
    reads = [("GetTotalEccErrors", "gpu", 1, lifetime) for lifetime in (0, 1)]
    assert node.ask(*reads) == [7, 7]
    assert node.ask(("ClearEccErrorCounts", "gpu", 0), *reads) == [None, 0, 7]
    assert node.ask(("ClearEccErrorCounts", "gpu", 1), *reads) == [None, 0, 0]


@needs_root
def test_mig_mode(node):
    node.describe("h100-sxm")
    assert node.ask(("SetMigMode", "gpu", 1), ("GetMigMode", "gpu")) == [SUCCESS, [1, 1]]
    rows = (("GetRemappedRows", "gpu"), ("GetRowRemapperHistogram", "gpu"))
    assert node.ask(*rows) == [error(NOT_SUPPORTED)] * 2
    node.describe("h100-sxm", **{"gpu.0.processes": "4711:1024"})
    assert node.ask(("SetMigMode", "gpu", 1), ("GetMigMode", "gpu")) == [IN_USE, [0, 1]]
    node.describe("a100-sxm-80")
    assert node.ask(("SetMigMode", "gpu", 1), ("GetMigMode", "gpu")) == [RESET_REQUIRED, [0, 1]]
    assert node.ask(("reset", 0), ("GetMigMode", "gpu")) == [SUCCESS, [1, 1]]


@needs_root
def test_a_reset(node):
    faults = {"ecc.volatile_corrected": 3, "ecc.aggregate_corrected": 3, "remapping.pending": 1}
    faults["recovery_action"] = "GPU_RESET"
    node.describe(**{f"gpu.*.{key}": value for key, value in faults.items()})
    reads = [
        ("GetEccMode", "gpu"),
        ("GetPowerManagementLimit", "gpu"),
        ("GetTotalEccErrors", "gpu", 0, 0),
        ("GetTotalEccErrors", "gpu", 0, 1),
        ("GetRemappedRows", "gpu"),
    ]
    wish = [("SetEccMode", "gpu", 0), ("SetPowerManagementLimit", "gpu", 300000)]
    one, two = node.client(), node.client(index=1)
    one(*wish)
    two(*wish)
    before = [[1, 0], 300000, 3, 3, [0, 0, 1, 0]]
    assert one(*reads) == before
    assert one(("reset", 0), ("reset", 2)) == [SUCCESS, INVALID]
    assert one(*reads) == [[0, 0], 700000, 0, 3, [0, 0, 0, 0]]
    assert two(*reads) == before
    assert "gpu.0.recovery_action = NONE" in node.since_boot()
    text = rebooted(node.path.read_text())
    node.path.write_text(text)
    assert node.ask(*reads) == [[0, 0], 700000, 0, 3, [0, 0, 0, 0]]


@needs_root
@pytest.mark.parametrize(
    ("cleared_by", "reset", "booted"),
    [("reset", 0, 0), ("reboot", 1, 0), ("power", 1, 1)],
)
def test_a_fault_ends_with_the_event_that_clears_it(node, cleared_by, reset, booted):
    faults = {"remapping.pending": 1, "recovery_action": "GPU_RESET", "cleared_by": cleared_by}
    faults["utilization_gpu_percent"] = "NVML_ERROR_RESET_REQUIRED"
    node.describe(**{f"gpu.*.{key}": value for key, value in faults.items()})
    reads = (("GetRemappedRows", "gpu"), ("GetUtilizationRates", "gpu"))

    def is_left():
        rows, rates = node.ask(*reads)
        assert (rates == error(RESET_REQUIRED)) == bool(rows[2])
        return rows[2]

    assert is_left() == 1
    described = node.path.read_text()
    assert node.ask(("reset", 0)) == SUCCESS
    assert is_left() == reset
    node.path.write_text(rebooted(described))  # a boot without a reset before
    assert is_left() == 1  # a state that was never booted
    node.path.write_text(rebooted(rebooted(described)))
    assert is_left() == booted


@needs_root
def test_live_processes(node):
    node.describe(**{"gpu.0.processes": "4711:1024"})
    folder = Path(f"{node.path}.processes")
    folder.mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    load = "gpus = 0 13\nmemory_mb = 1024\nutilization_percent = 90\n"
    (folder / str(gone.pid)).write_text(load)
    (folder / "notes").write_text(load)
    reads = [
        ("GetComputeRunningProcesses", "gpu"),
        ("GetUtilizationRates", "gpu"),
        ("GetMemoryInfo", "gpu", 0x2000028),
    ]
    one, two = node.client(), node.client(index=1)
    idle, first, memory = one(*reads)
    assert (idle, first["gpu"], memory["used"]) == ([[4711, 1024]], 0, 0)
    assert two(("reset", 0), ("reset", 1)) == [IN_USE, SUCCESS]
    (folder / str(os.getpid())).write_text(load.replace("13", "1"))
    for client, described in ((one, [[4711, 1024]]), (two, [])):
        busy, rates, memory = client(*reads)
        assert busy == [*described, [os.getpid(), 1 << 30]]
        assert (rates["gpu"], memory["used"]) == (90, 1 << 30)
        assert memory["free"] == memory["total"] - memory["used"] - memory["reserved"]
    assert two(("reset", 1)) == IN_USE
    (folder / str(os.getpid())).write_text("gpus = 1\nmemory_mb = 99999999\n")
    busy, rates, memory = two(*reads)
    assert (memory["free"], rates["gpu"]) == (0, 0)


FORGOTTEN = [
    ("SetPowerManagementLimit", "gpu", 300000),
    ("SetComputeMode", "gpu", 3),
    ("SetGpuLockedClocks", "gpu", 1980, 1980),
    ("SetApplicationsClocks", "gpu", 2619, 1200),
    ("SetEccMode", "gpu", 0),
]
READS = [
    ("GetPowerManagementLimit", "gpu"),
    ("GetEnforcedPowerLimit", "gpu"),
    ("GetComputeMode", "gpu"),
    ("GetClockInfo", "gpu", 0),
    ("GetApplicationsClock", "gpu", 0),
    ("GetEccMode", "gpu"),
]
SET = [300000, 300000, 3, 1980, 1200, [1, 0]]
FORGOT = [700000, 700000, 0, 345, 1980, [1, 0]]


@needs_root
@pytest.mark.parametrize("how", [None, signal.SIGKILL])
def test_the_last_client_resets_these_settings(node, how):
    node.describe(**{"gpu.0.persistence_mode": 0})
    first, second = node.client(), node.client()
    for client in (first, node.client(index=1)):
        client(*FORGOTTEN)
    first.end(how)
    node.clients[-1].end(how)
    third = node.client()
    second.end(how)
    assert third(*READS) == SET  # there was a client all the time
    third.end(how)
    assert node.ask(*READS) == FORGOT
    assert node.ask(*READS, index=1) == SET  # this one's persistence mode is on


@needs_root
def test_settings_are_forgotten_whichever_user_opens_the_next_session(node):
    """Root or another user may be the first of a session, with or without a writer in it."""
    node.describe(**{"gpu.0.persistence_mode": 0})
    node.ask(*FORGOTTEN)
    assert node.ask(*READS, uid=NOBODY) == FORGOT
    assert node.ask(*READS) == FORGOT
    node.ask(*FORGOTTEN)
    user = node.client(uid=NOBODY)
    root = node.client()
    assert user(*READS) == root(*READS) == FORGOT
    root(("SetPersistenceMode", "gpu", 1))  # too late for what is forgotten
    assert user(*READS) == root(*READS) == FORGOT
    root(*FORGOTTEN)
    root.end()
    user.end()
    assert node.ask(*READS, uid=NOBODY) == SET
    node.ask(("SetPersistenceMode", "gpu", 0))
    assert node.ask(*READS, uid=NOBODY) == FORGOT
    assert node.ask(("GetPersistenceMode", "gpu")) == 0


@needs_root
def test_within_one_process(node):
    node.describe(**{"gpu.0.persistence_mode": 0})
    client = node.client()
    client(*FORGOTTEN)
    assert client(("Init",), ("Shutdown",), *READS) == [None, None, *SET]
    assert client(("Shutdown",), ("Init",), *READS) == [None, None, *FORGOT]


@needs_root
def test_a_process_on_a_gpu_keeps_its_settings(node):
    node.describe(**{"gpu.0.persistence_mode": 0, "gpu.0.processes": "4711:1024"})
    node.ask(*FORGOTTEN)
    assert node.ask(*READS) == SET


@needs_root
def test_a_child_that_executed_another_program_is_not_a_client(node):
    node.describe(**{"gpu.0.persistence_mode": 0})
    program = """
import subprocess, sys
import pynvml as n
n.nvmlInit()
n.nvmlDeviceSetPowerManagementLimit(n.nvmlDeviceGetHandleByIndex(0), 300000)
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(subprocess.Popen(["sleep", "60"], close_fds=False, **quiet).pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment(node.nvml, node.path)},
        check=True,
    )
    try:
        assert node.ask(("GetPowerManagementLimit", "gpu")) == 700000
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


@needs_root
def test_no_concurrent_setting_is_lost(node):
    node.describe("h100-sxm", 8)
    clients = [node.client(index=index) for index in range(8)]
    rounds = 40
    for index, client in enumerate(clients):
        calls = []
        for round_ in range(rounds):
            calls += [
                ("SetPowerManagementLimit", "gpu", 300000 + 1000 * index + round_),
                ("GetPowerManagementLimit", "gpu"),
            ]
        client.send(*calls, ("SetComputeMode", "gpu", 3), ("SetEccMode", "gpu", 0))
    for index, client in enumerate(clients):
        found = json.loads(client.process.stdout.readline())
        wished = [300000 + 1000 * index + round_ for round_ in range(rounds)]
        assert found[: 2 * rounds : 2] == [None] * rounds
        assert found[1 : 2 * rounds : 2] == wished  # also of changes within a clock's tick
    reader = node.client()
    assert reader(("GetPowerManagementLimit", "gpu")) == 300000 + rounds - 1
    assert sorted(node.since_boot()) == sorted(
        [
            "session = 1",
            *(f"gpu.{x}.power_limit_mw = {300000 + 1000 * x + rounds - 1}" for x in range(8)),
            *(
                f"gpu.{x}.power_limit_enforced_mw = {300000 + 1000 * x + rounds - 1}"
                for x in range(8)
            ),
            *(f"gpu.{x}.compute_mode = EXCLUSIVE_PROCESS" for x in range(8)),
            *(f"gpu.{x}.ecc_pending = 0" for x in range(8)),
        ]
    )


def test_a_change_within_a_tick_of_the_clock_is_seen(node):
    """Kernels stamp files by a clock that stands still for milliseconds."""
    client = node.describe().client()
    ahead = time.time_ns() + 3600 * 10**9
    for limit in (600000, 500000):
        text = state("h100-sxm", 2, **{"gpu.0.power_limit_mw": limit})
        with node.path.open("r+") as file:  # the same file, of the same size
            file.write(text)
            file.truncate()
        os.utime(node.path, ns=(ahead, ahead))
        assert client(("GetPowerManagementLimit", "gpu")) == limit


@needs_root
def test_a_changed_description_loses_no_setting_of_clients(node):
    node.describe("h100-sxm", 2)
    one, two = node.client(), node.client(index=1)
    for client in (one, two):
        client.send(*(("SetPowerManagementLimit", "gpu", 300000 + each) for each in range(60)))
        for each in range(20):
            update(node.path, lambda text, now=each: f"gpu.0.x{now} = 1\n{text}")
    for client in (one, two):
        assert json.loads(client.process.stdout.readline()) == [None] * 60
        assert client(("GetPowerManagementLimit", "gpu")) == 300059
    assert node.path.read_text().count("gpu.0.x") == 40


def values(text):
    rows = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {key: value for key, _, value in rows}


def test_the_first_boot_changes_nothing():
    text = state("a100-sxm-80", 1, **{"gpu.0.ecc_pending": 0, "gpu.0.remapping.pending": 1})
    text += "gpu.0.name = what some call\u2028a line\n"
    assert rebooted(text) == text + "# set since boot\n"


def test_a_boot():
    faults = {"gpu.*.ecc.volatile_corrected": 4, "gpu.1.ecc.aggregate_corrected": 9}
    faults |= {"gpu.1.remapping.pending": 1, "gpu.1.recovery_action": "NODE_REBOOT"}
    faults |= {"gpu.1.ecc.volatile_uncorrected": "NVML_ERROR_UNKNOWN"}
    for profile, mig in (("a100-sxm-80", ("1", "1")), ("h100-sxm", ("0", "0"))):
        text = rebooted(state(profile, 2, **faults))
        text += "session = 4\ngpu.0.power_limit_mw = 300000\ngpu.0.persistence_mode = 0\n"
        text += "gpu.0.ecc_pending = 0\ngpu.0.mig_pending = 1\ngpu.1.ecc.aggregate_corrected = 0\n"
        after = rebooted(text)
        assert after.endswith("\n# set since boot\n")
        found = values(after)
        assert "session" not in found and "gpu.0.power_limit_mw" not in found
        assert "gpu.0.persistence_mode" not in found
        assert (found["gpu.0.ecc_current"], found["gpu.0.ecc_pending"]) == ("0", "0")
        now = [found.get(f"gpu.0.mig_{x}", found[f"gpu.*.mig_{x}"]) for x in ("current", "pending")]
        assert tuple(now) == mig
        assert found["gpu.0.ecc.volatile_corrected"] == found["gpu.1.ecc.volatile_corrected"] == "0"
        assert found["gpu.1.ecc.volatile_uncorrected"] == "NVML_ERROR_UNKNOWN"
        assert found["gpu.1.ecc.aggregate_corrected"] == "0"
        assert found["gpu.1.remapping.pending"] == "0"
        assert found["gpu.1.recovery_action"] == "NONE"
        assert rebooted(after) == after


@pytest.mark.parametrize(
    ("cleared_by", "ends"),
    [("reset", "boot"), ("reboot", "boot"), ("power", "power"), ("nothing", "")],
)
def test_a_boot_or_power_cycle_ends_the_faults_that_it_clears(cleared_by, ends):
    faults = {"gpu.0.recovery_action": "GPU_RESET", "gpu.0.lost": 1}
    text = rebooted(state("h100-sxm", 1, **faults, **{"gpu.0.cleared_by": cleared_by}))
    for powered in (False, True):
        found = values(rebooted(text, powered=powered))
        is_over = ends == "boot" or (ends == "power" and powered)
        expected = ("NONE", "0") if is_over else ("GPU_RESET", "1")
        assert (found["gpu.0.recovery_action"], found["gpu.0.lost"]) == expected
