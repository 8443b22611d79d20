"""Simulated nodes as a user runs them: real systemd, real sshd, and nothing left behind."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import click
import pytest

from nodevet.cli import UserError
from nodevet.inventory import read
from nodevet_sim import cli
from nodevet_sim.nspawn import cgroups, control, links, network, place
from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.packages import installed, of_a_node
from nodevet_sim.nspawn.supervisor import Supervisor
from nodevet_sim.software_files import DPKG

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
    pytest.mark.timeout(1500),
    pytest.mark.usefixtures("compiled_once"),
]
NODEVET = [sys.executable, "-m", "nodevet"]
SCENARIO = """\
sim: 1
name: {name}
nodes:
  gpu001: {{gpus: h100-sxm, cores: 4}}
  gpu002: {{gpus: h100-sxm}}
  ws001: {{gpus: {{profile: rtx-4090, count: 1}}, sockets: 1, cores: 2}}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


def nodevet(*arguments: str | Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*NODEVET, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert code is None or done.returncode == code, (done.stdout, done.stderr)
    return done


@contextlib.contextmanager
def running(folder: Path, text: str) -> Iterator[str]:
    """A fleet with a name that no other test has."""
    name = f"t{os.getpid()}-{time.monotonic_ns() % 1_000_000_000}"
    scenario = folder / "scenario.yaml"
    scenario.write_text(text.format(name=name))
    nodevet("sim", "up", scenario)
    try:
        yield name
    finally:
        nodevet("sim", "down", name)


@pytest.fixture(scope="module")
def fleet(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("nodes"), SCENARIO) as name:
        yield name


@pytest.fixture
def on(fleet: str) -> Callable[[str, str], str]:
    def run(node: str, command: str) -> str:
        return nodevet("sim", "ssh", "--fleet", fleet, node, "--", command).stdout

    return run


def inventory(fleet: str) -> Path:
    return place.FleetFolder(fleet).inventory


def check(fleet: str, *options: str, code: int | None = None) -> dict[str, dict]:
    words = ("check", "-i", inventory(fleet), "--all", "--format", "json")
    done = nodevet(*words, *options, code=code)
    return {host["host"]: host for host in json.loads(done.stdout)["hosts"]}


def test_a_healthy_node_is_ok_from_end_to_end(fleet: str) -> None:
    found = check(fleet, code=0)
    assert {name: host["baseline"] for name, host in found.items()} == {
        "gpu001": "nvidia-h100-sxm",
        "gpu002": "nvidia-h100-sxm",
        "ws001": "nvidia-rtx-4090",
    }
    assert {finding["verdict"] for finding in found["gpu001"]["findings"]} <= {
        "ok",
        "not_applicable",
    }


def test_each_node_is_a_machine_of_its_own(on: Callable[[str, str], str]) -> None:
    ask = (
        "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; "
        "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key; ip -4 -br addr show eth0"
    )
    one, two = on("gpu001", ask).splitlines(), on("gpu002", ask).splitlines()
    assert one[0] == "gpu001" and two[0] == "gpu002"
    assert all(ours != theirs for ours, theirs in zip(one, two, strict=True))


def test_systemd_is_up_and_clean(on: Callable[[str, str], str]) -> None:
    assert (
        on("gpu001", "systemctl is-system-running; systemctl --failed --no-legend") == "running\n"
    )
    assert 3600 <= float(on("gpu001", "cut -d' ' -f1 /proc/uptime")) < 7200


def test_nic_interfaces_are_simulated_next_to_the_real_eth0(
    on: Callable[[str, str], str],
) -> None:
    names = on("gpu001", "ls /sys/class/net").split()
    assert {"eth0", "lo", "ibp26s0"} < set(names) and len(names) == 10
    assert on("gpu001", "cat /sys/class/net/*/operstate").split().count("up") == 9
    assert on("gpu001", "cat /sys/class/infiniband/mlx5_0/device/net/*/mtu") == "4092\n"
    assert (
        on("gpu001", "cat /sys/class/infiniband/*/ports/1/state").split("\n", 1)[0] == "4: ACTIVE"
    )
    assert on("ws001", "ls /sys/class/net").split() == ["eth0", "lo"]


def test_no_hardware_of_this_machine_shows(on: Callable[[str, str], str]) -> None:
    """What the scenario describes is all that there is: CPUs, NUMA nodes, PCI, memory, DMI."""
    assert on("gpu002", "cat /sys/devices/system/cpu/online").strip() == "0-223"
    assert on("gpu002", "grep -c ^processor /proc/cpuinfo").strip() == "224"
    assert on("gpu002", "ls -d /sys/devices/system/node/node[0-9]*").split() == [
        "/sys/devices/system/node/node0",
        "/sys/devices/system/node/node1",
    ]
    assert on("gpu002", "cat /sys/class/dmi/id/product_name").strip() == "PowerEdge XE9680"
    assert on("gpu002", "awk '/MemTotal/ {print ($2 > 1000000000)}' /proc/meminfo").strip() == "1"
    ours = {entry.name for entry in Path("/sys/bus/pci/devices").iterdir()}
    theirs = set(on("gpu002", "ls /sys/bus/pci/devices").split())
    vendors = on("gpu002", "cat /sys/bus/pci/devices/*/vendor").split()
    assert vendors.count("0x10de") >= 8
    assert not ours & theirs or ours <= theirs  # an address may be the same, by chance
    for path in filter(Path.exists, map(Path, ("/proc/cmdline", "/proc/modules"))):
        assert on("gpu002", f"cat {path}") != path.read_text()


def test_no_software_or_user_of_this_machine_shows(
    on: Callable[[str, str], str], tmp_path: Path
) -> None:
    listed = on("gpu001", "dpkg-query -W -f '${Package}\\n' || true").split()
    if Path(DPKG).exists():
        packages = of_a_node(installed(Path(DPKG).read_text()))
        assert set(listed) - {package.name for package in packages} == {"nvidia-driver-580"}
        units = on("gpu001", "ls /usr/lib/systemd/system /usr/lib/systemd/system-generators")
        files = links.PackageFiles(Path("/"), packages).owned
        ours = {f"/usr/lib/systemd/{name}" for name in ("system", "system-generators")}
        brought = {path.rpartition("/")[2] for path in files if path.rpartition("/")[0] in ours}
        own = {name for name in units.split() if name.startswith("nvidia-")}
        assert {name for name in units.split() if not name.endswith(":")} <= brought | own
    assert on("gpu001", "getent passwd | awk -F: '$3 >= 1000 && $3 != 65534'") == ""
    assert on("gpu001", "ls -A /home /media /mnt /srv /etc/init.d | grep -v ':$' | xargs") == "\n"
    assert on("gpu001", f"ls {tmp_path} 2>/dev/null || true") == ""
    assert on("gpu001", "cat /etc/fstab /etc/environment; printenv TZ || true") == ""


def test_the_simulated_kernel_refuses_invalid_writes(on: Callable[[str, str], str]) -> None:
    governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    assert on("gpu002", f"echo powersave > {governor}; cat {governor}") == "powersave\n"
    refused = on("gpu002", f"{{ echo warp > {governor}; }} 2>&1; cat {governor}")
    assert "Invalid argument" in refused and refused.endswith("powersave\n")
    refused = on("gpu002", "{ echo x > /sys/class/dmi/id/sys_vendor; } 2>&1; true")
    assert "Permission denied" in refused
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"
    assert on("gpu002", f"echo always > {thp}; cat {thp}") == "[always] madvise never\n"
    assert on("gpu002", f"echo performance > {governor}; cat {governor}") == "performance\n"


def test_nvidia_smi_and_nvml_agree(on: Callable[[str, str], str]) -> None:
    assert on("gpu001", "nvidia-smi -L | wc -l").strip() == "8"
    said = on("gpu002", "nvidia-smi -i 3 -pl 500")
    assert "500.00 W from 700.00 W" in said
    query = "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits"
    assert on("gpu002", query).split() == ["700.00"] * 3 + ["500.00"] + ["700.00"] * 4


def test_settings_last_until_the_reboot_and_enabled_units_survive_it(
    fleet: str, on: Callable[[str, str], str]
) -> None:
    governor = "/sys/devices/system/cpu/cpufreq/policy7/scaling_governor"
    on("gpu002", f"echo powersave > {governor}; nvidia-smi -i 2 -pl 600; echo kept > /etc/kept")
    unit = (
        "[Unit]\\nAfter=ssh.service\\n[Service]\\nType=oneshot\\nExecStart=/bin/touch /run/ran\\n"
    )
    install = "[Install]\\nWantedBy=multi-user.target\\n"
    on(
        "gpu002",
        f"printf '{unit}{install}' > /etc/systemd/system/mine.service; "
        "systemctl --quiet enable mine.service",
    )
    before = on("gpu002", "cat /proc/sys/kernel/random/boot_id /etc/machine-id").split()
    nodevet("sim", "reboot", "--fleet", fleet, "gpu002")
    after = on("gpu002", "cat /proc/sys/kernel/random/boot_id /etc/machine-id").split()
    assert after[0] != before[0] and after[1] == before[1]
    assert on("gpu002", f"cat {governor} /etc/kept; ls /run/ran") == "performance\nkept\n/run/ran\n"
    query = "nvidia-smi -i 2 --query-gpu=power.limit --format=csv,noheader"
    assert on("gpu002", query) == "700.00 W\n"
    assert len(on("gpu002", "journalctl --list-boots --no-pager").splitlines()) >= 2


def test_diff_lists_what_changed_on_the_disk_and_nothing_else(
    fleet: str, on: Callable[[str, str], str]
) -> None:
    def diff(code: int) -> set[str]:
        done = nodevet("sim", "diff", "--fleet", fleet, "ws001", code=code)
        return set(done.stdout.splitlines())

    nodevet("sim", "reboot", "--fleet", fleet, "ws001")  # neither that nor a session is a change
    assert check(fleet, "--limit", "ws001")["ws001"]["status"] == "vetted" and diff(0) == set()
    on(
        "ws001",
        "echo one >/etc/new; ln -s /dev/null /root/link; chmod 600 /etc/hosts; touch /etc/passwd; "
        "mv /etc/debian_version /root; mkdir -p /etc/systemd/system; logger something",
    )
    one, found = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806", diff(1)
    assert {row.split("  ")[0] for row in found} == {
        *("+ /etc/new", "+ /root/link", "- /etc/hosts", "+ /etc/hosts"),
        *("- /etc/debian_version", "+ /root/debian_version"),
    }
    assert f"+ /etc/new  file   0644 0:0 4 {one}" in found  # printf 'one\\n' | sha256sum
    assert "+ /root/link  link   0777 0:0 0 /dev/null" in found
    on(
        "ws001",
        "rm /etc/new /root/link; chmod 644 /etc/hosts; mv /root/debian_version /etc",
    )
    assert diff(0) == set()


def test_a_reboot_from_inside_comes_back(fleet: str, on: Callable[[str, str], str]) -> None:
    before = on("ws001", "cat /proc/sys/kernel/random/boot_id")
    nodevet("sim", "ssh", "--fleet", fleet, "ws001", "--", "systemctl reboot", code=None)
    limit = time.monotonic() + 120
    while True:
        done = nodevet(
            "sim", "ssh", "--fleet", fleet, "ws001", "--",
            "cat /proc/sys/kernel/random/boot_id", code=None,
        )  # fmt: skip
        if done.returncode == 0 and done.stdout != before:
            break
        assert time.monotonic() < limit, done.stderr
        time.sleep(0.2)


def test_faults_come_and_go_while_the_node_runs(fleet: str, on: Callable[[str, str], str]) -> None:
    def wrong(name: str) -> set[str]:
        found = check(fleet, "--limit", name)[name]["findings"]
        return {finding["check"] for finding in found if finding["verdict"] == "fail"}

    assert wrong("gpu001") == set()
    nodevet("sim", "set", "--fleet", fleet, "gpu001", "governor=powersave")
    assert wrong("gpu001") == {"cpu_governor"}
    nodevet(
        "sim",
        "set",
        "--fleet",
        fleet,
        "gpu001",
        "governor=performance",
        "gpu.5.power_limit_mw=400000",
    )
    assert wrong("gpu001") == {"power_limit"}
    on("gpu001", "nvidia-smi -i 5 -pl 700")
    assert wrong("gpu001") == set()
    line = "NVRM: Xid (PCI:0000:19:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
    nodevet("sim", "set", "--fleet", fleet, "gpu001", f"kernel_log={line}")
    assert "Xid (PCI:0000:19:00): 79" in on("gpu001", "dmesg")
    assert "Xid (PCI:0000:19:00): 79" in on("gpu001", "journalctl -k -b --no-pager")
    assert wrong("gpu001") == {"xid"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("governer=powersave", "governor"),
        ("fault=pcie-widht", "pcie-width"),
        ("gpu.3.power_limit=1", "power_limit"),
        ("governor", "KEY=VALUE"),
    ],
)
def test_an_invalid_change_is_refused_with_a_hint(fleet: str, change: str, told: str) -> None:
    done = nodevet("sim", "set", "--fleet", fleet, "gpu001", change, code=2)
    assert told in done.stderr and done.stderr.count("\n") <= 3


def test_unknown_node_and_fleet_names_are_reported(fleet: str) -> None:
    assert "gpu009" in nodevet("sim", "ssh", "--fleet", fleet, "gpu009", code=2).stderr
    assert "nosuch" in nodevet("sim", "down", "nosuch", code=2).stderr
    scenario = place.FleetFolder(fleet).scenario.read_text()
    assert "is already up" in nodevet("sim", "up", scenario, "--name", fleet, code=2).stderr


def state_of_this_machine(ours: str) -> dict[str, Counter[str]]:
    """What a fleet must not change: processes, mounts, namespaces, interfaces, groups, files.

    The fleets of another worker come and go meanwhile; what is theirs is left out.
    """
    theirs = re.compile(rf"/{cgroups.PREFIX}(?!{ours}(?:/|$))", re.MULTILINE)
    processes, namespaces = Counter(), set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, state = (entry / "stat").read_text().partition("(")[2].rsplit(") ", 1)
            if state.startswith("Z"):  # ended; the first process has not looked yet
                continue
            if theirs.search((entry / "cgroup").read_text()):
                continue
            if name.startswith(("systemd", "kernelfs", "setpriv", "(sd-")):
                processes[name] += 1
            namespaces |= {str(space.readlink()) for space in (entry / "ns").iterdir()}
    interfaces = (entry.name for entry in Path("/sys/class/net").iterdir())
    own = place.FleetFolder(ours).number
    number = own.read_text() if own.exists() else "none"
    return {
        "processes": processes,
        "mounts": Counter(Path("/proc/self/mounts").read_text().splitlines()),
        "namespaces": Counter(
            name for name in namespaces if name.startswith(("net:", "uts:", "cgroup:"))
        ),
        "interfaces": Counter(
            name for name in interfaces if not name.startswith("nvsim") or f"m{number}n" in name
        ),
        "run": Counter({entry.name for entry in Path("/run").iterdir()} - {"nodevet-sim", "sshd"}),
        "groups": Counter(str(path) for path in groups() if path.name == cgroups.PREFIX + ours),
    }


def added(before: dict[str, Counter[str]], after: dict[str, Counter[str]]) -> dict[str, object]:
    """What is there now and was not; a fleet of another worker may have ended meanwhile."""
    found = {part: after[part] - before[part] for part in before}
    return {part: dict(names) for part, names in found.items() if names}


def groups() -> Iterator[Path]:
    for root in cgroups.own_groups():
        yield from root.glob(f"{cgroups.PREFIX}*")


@pytest.mark.parametrize("ending", ["down", "SIGKILL"])
def test_down_leaves_the_machine_as_it_was(tmp_path: Path, ending: str) -> None:
    scenario = tmp_path / "two.yaml"
    name = f"gone{os.getpid()}"
    before = state_of_this_machine(name)
    scenario.write_text(f"sim: 1\nname: {name}\nnodes:\n  gpu[1-2]: {{gpus: h100-sxm, cores: 2}}\n")
    nodevet("sim", "up", scenario)
    where = place.FleetFolder(name)
    number = where.number.read_text()
    during = state_of_this_machine(name)
    assert {"processes", "namespaces", "groups"} <= set(added(before, during))
    assert {f"nvsim{number}n0", f"nvsim{number}n1"} <= set(during["interfaces"])
    if ending == "SIGKILL":
        os.kill(int(where.pid.read_text()), signal.SIGKILL)
        limit = time.monotonic() + 120
        while where.lives() and time.monotonic() < limit:
            time.sleep(0.05)
        assert "died" in nodevet("sim", "list").stdout
    nodevet("sim", "down", name)
    assert not where.folder.exists()
    assert added(before, state_of_this_machine(name)) == {}
    with place.lock_folders():
        assert place.fleets() or place.is_kept() or not place.CACHE.exists()
    with contextlib.suppress(OSError):
        place.TOP.rmdir()
    left = {entry.name for entry in Path("/sys/class/net").iterdir()}
    if number not in {place.FleetFolder(each).number.read_text() for each in place.fleets()}:
        assert not {f"nvsim{number}n0", f"nvsim{number}n1"} & left


def states(fleet: str) -> dict[str, str]:
    reply = control.ask(place.FleetFolder(fleet), {"do": "list"})
    return {node["name"]: f"{node['state']} {node['why']}".strip() for node in reply["nodes"]}


def await_state(fleet: str, node: str, wanted: str) -> str:
    limit = time.monotonic() + 120
    while wanted not in states(fleet)[node]:
        assert time.monotonic() < limit, states(fleet)
        time.sleep(0.1)
    return states(fleet)[node]


def test_a_node_that_is_off_is_reported_and_reboot_starts_it(fleet: str) -> None:
    nodevet("sim", "ssh", "--fleet", fleet, "ws001", "systemctl", "poweroff", code=None)
    assert await_state(fleet, "ws001", "off") == "off"
    assert "is off; start it" in nodevet("sim", "ssh", "--fleet", fleet, "ws001", code=2).stderr
    change = "kernel_log=NVRM: lost"
    refused = nodevet("sim", "set", "--fleet", fleet, "ws001", change, code=2).stderr
    assert "nothing was changed" in refused and "nodevet sim reboot ws001" in refused
    assert "ws001 is up" in nodevet("sim", "reboot", "--fleet", fleet, "ws001").stdout
    assert "NVRM: lost" not in nodevet("sim", "ssh", "--fleet", fleet, "ws001", "dmesg").stdout


def test_to_wait_for_a_fleet_is_to_wait_for_a_node_that_is_reset(fleet: str) -> None:
    where, reset = place.FleetFolder(fleet), {"do": "power", "node": "ws001", "set": "reset"}
    before = {node["name"]: node["boots"] for node in control.ask(where, {"do": "list"})["nodes"]}
    control.ask(where, reset)
    after = {node["name"]: node for node in control.ask(where, {"do": "wait"})["nodes"]}
    assert after["ws001"]["state"] == "running"
    assert after["ws001"]["boots"] == before["ws001"] + 1


def test_a_node_whose_systemd_or_kernel_dies_is_no_longer_running(fleet: str) -> None:
    nodevet("sim", "ssh", "--fleet", fleet, "ws001", "kill -SEGV 1", code=None)
    assert "systemd-nspawn ended with" in await_state(fleet, "ws001", "off")
    nodevet("sim", "reboot", "--fleet", fleet, "ws001")
    (kernel,) = kernels(fleet, node=3)
    os.kill(kernel, signal.SIGKILL)
    assert "its simulated kernel exited with -9" in await_state(fleet, "ws001", "failed")
    nodevet("sim", "reboot", "--fleet", fleet, "ws001")
    assert states(fleet)["ws001"] == "running"


def kernels(fleet: str, *, node: int) -> list[int]:
    """The process ids of a node's kernelfs; `node` counts from 1."""
    shown = f"{place.FleetFolder(fleet).nodes}/{node - 1}/manifest".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"/kernelfs") and shown in words:
                found.append(int(entry.name))
    return found


def test_changes_at_the_same_time_all_count(fleet: str) -> None:
    keys = [f"gpu.{gpu}.power_limit_mw=650000" for gpu in range(4)]
    asked = [
        subprocess.Popen([*NODEVET, "sim", "set", "--fleet", fleet, "gpu002", key]) for key in keys
    ]
    assert [process.wait(timeout=120) for process in asked] == [0] * len(keys)
    query = "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits"
    told = nodevet("sim", "ssh", "--fleet", fleet, "gpu002", query).stdout.split()
    assert told[:4] == ["650.00"] * 4


def test_ssh_hands_over_options_codes_and_input(fleet: str) -> None:
    ssh = ("sim", "ssh", "--fleet", fleet, "gpu001")
    assert "Usage: ls" in nodevet(*ssh, "ls", "--help").stdout
    assert "Usage: ls" in nodevet(*ssh, "--", "ls", "--help").stdout
    assert nodevet(*ssh, "echo", "-l", "--fleet").stdout == "-l --fleet\n"
    nodevet(*ssh, "exit 7", code=7)
    done = subprocess.run([*NODEVET, *ssh, "cat"], input="said", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "said")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "*", "-x", "a\nb", "x" * 41])
def test_a_name_that_no_fleet_can_have(tmp_path: Path, name: str) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text("sim: 1\nnodes: {one: {gpus: none}}\n")
    done = nodevet("sim", "up", scenario, f"--name={name}", code=2)
    assert "is not a valid fleet name" in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_during_up_leaves_no_unreported_fleet(tmp_path: Path) -> None:
    """While it starts, nothing is left; while its nodes boot, it says how to end it."""
    name = f"ctrl{os.getpid()}"
    where = place.FleetFolder(name)
    scenario = tmp_path / "one.yaml"
    scenario.write_text(f"sim: 1\nname: {name}\nnodes: {{one: {{gpus: none}}}}\n")

    def interrupted(once: Path) -> str:
        command = [*NODEVET, "sim", "up", str(scenario)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 120
        while not once.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=120)[1]
        assert process.returncode == 130 and "Traceback" not in told
        return told

    assert "nodevet: interrupted" in interrupted(where.pid)
    assert not where.folder.exists()
    try:
        told = interrupted(where.control)
        assert f"nodevet sim down {name}" in told or not where.folder.exists()
    finally:
        nodevet("sim", "down", name, code=None)
    assert not where.folder.exists()


class StandInSupervisor:
    """It holds the folder's lock and answers at once."""

    pid = 0

    def __init__(self, where: place.FleetFolder, lock: int) -> None:
        self.lock: int | None = os.dup(lock)
        where.control.touch()

    def poll(self) -> None:
        return None

    def kill(self) -> None:
        if self.lock is not None:
            os.close(self.lock)
        self.lock = None

    def wait(self) -> None:
        assert self.lock is None


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the fleets, apart from those of this machine."""
    monkeypatch.setattr(place, "TOP", tmp_path / "fleets")
    monkeypatch.setattr(place, "CACHE", tmp_path / "cache/sim")
    return tmp_path


def interrupt_at(step: int) -> Callable[..., Any]:
    """A trace function that sends SIGINT at this line of the fleets' code."""
    files = {module.__file__ for module in (cli, control, place)}
    lines = itertools.count()

    def line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line" and next(lines) == step:
            os.kill(os.getpid(), signal.SIGINT)
        return line

    return lambda frame, *_: line if frame.f_code.co_filename in files else None


@pytest.mark.timeout(300)
def test_ctrl_c_at_any_line_of_up_leaves_no_unreported_fleet(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisors: list[StandInSupervisor] = []

    def start(where: place.FleetFolder, lock: int, _: Path) -> StandInSupervisor:
        supervisors.append(StandInSupervisor(where, lock))
        return supervisors[-1]

    monkeypatch.setattr(control, "check", lambda nodes: None)
    monkeypatch.setattr(control, "_start", start)
    monkeypatch.setattr(control.cgroups, "fleet_groups", lambda fleet: ())
    monkeypatch.setattr(cli, "_ask", lambda where, request: {"nodes": []})
    scenario = folders / "one.yaml"
    scenario.write_text("sim: 1\nname: any\nnodes: {one: {gpus: none}}\n")
    where = place.FleetFolder("any")
    codes = []
    for step in itertools.count():
        sys.settrace(interrupt_at(step))
        try:
            codes.append(cli.command.main(["up", str(scenario)], standalone_mode=False))
        except click.Abort:
            codes.append(130)
        finally:
            sys.settrace(None)
        told = capfd.readouterr().err
        assert not where.folder.exists() or "fleet any: 1 node booting" in told, (step, told)
        assert codes[-1] == 0 or not where.folder.exists() or "nodevet sim down any" in told, step
        while supervisors:
            supervisor = supervisors.pop()
            assert supervisor.lock is None or where.folder.exists(), step
            supervisor.kill()
        place.remove(where)
        if codes[-1] == 0:
            break
    assert len(codes) > 50


def test_up_awaits_a_child_that_outlives_its_killed_supervisor(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child has the lock open until it runs a program of its own."""

    def start(where: place.FleetFolder, lock: int, _: Path) -> "subprocess.Popen[bytes]":
        holder = ["sh", "-c", "sleep 1 & touch $0; wait", str(where.control)]
        return subprocess.Popen(holder, pass_fds=(lock,))

    def interrupted(where: place.FleetFolder, *_: object) -> None:
        while not where.control.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "check", lambda nodes: None)
    monkeypatch.setattr(control, "_start", start)
    monkeypatch.setattr(control, "_await_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        control.up("any", folders, nodes=1, act=lambda: None)
    assert not place.FleetFolder("any").folder.exists()


def test_down_leaves_the_interfaces_of_another_fleet_with_the_same_number(folders: Path) -> None:
    """One of a container that shares this machine's network."""
    where, lock = place.claim("any")
    os.close(lock)
    where.number.write_text("249")
    here = Path("/sys/class/net/nvsim249n0")
    ip = ("ip", "link")
    make = (*ip, "add", here.name, "alias", "theirs", "type", "veth", "peer", "nvsim249p0")
    subprocess.run(make, check=True)
    try:
        control.clean(where)
        assert here.exists() and not where.folder.exists()
        subprocess.run((*ip, "set", here.name, "alias", "any"), check=True)
        assert [*network.interfaces("any", 249)] == [here.name]
    finally:
        subprocess.run((*ip, "delete", here.name), check=True)


def test_down_ends_a_fleet_that_is_starting(tmp_path: Path) -> None:
    name = f"soon{os.getpid()}"
    where = place.FleetFolder(name)
    scenario = tmp_path / "one.yaml"
    scenario.write_text(f"sim: 1\nname: {name}\nnodes: {{one: {{gpus: none}}}}\n")
    command = [*NODEVET, "sim", "up", str(scenario)]
    starting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 120
    while not where.pid.exists() and time.monotonic() < limit:
        time.sleep(0.01)
    assert where.lives()  # nobody may take it for dead
    nodevet("sim", "down", name, code=None)  # 2 where `up` has already tidied up
    told = starting.communicate(timeout=120)[1]
    assert starting.returncode == 2 and "Traceback" not in told
    assert not where.folder.exists()


def test_fleet_commands_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for words in (["list"], ["down", "--all"], ["ssh", "n"], ["set", "n", "a=b"], ["inventory"]):
        with pytest.raises(UserError, match="need root"):
            cli.command.main(words, standalone_mode=False)


def test_the_inventory_is_valid_for_node_names_like_null_and_007(tmp_path: Path) -> None:
    """`null` and `007` are no text in YAML."""
    nodes = {
        name: SimpleNamespace(network=network.NodeNetwork(0, place, "any"))
        for place, name in enumerate(["null", "007"])
    }
    fleet = SimpleNamespace(where=place.FleetFolder("any"), nodes=nodes)
    path = tmp_path / "inventory.yaml"
    path.write_text(Supervisor.inventory(fleet))  # type: ignore[arg-type]
    hosts = read([], inventories=[str(path)])
    assert {host.name: host.whole_machine for host in hosts} == {"null": True, "007": True}
