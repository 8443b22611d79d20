"""Faults of the node around its GPUs. A function's docstring is the fault's documentation."""

import re
from typing import Annotated

from pydantic import Field

from nodevet_sim.description import LogLine
from nodevet_sim.faults.gpu import AFTER, lower_limit
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.state import count_of

GOVERNOR = re.compile(
    r"sys/devices/system/cpu/(?:cpufreq/policy\d+|cpu\d+/cpufreq)/scaling_governor"
)
ONLY_INSIDE = "[ -d /run/nodevet-sim ]"  # what follows would harm a real machine
NODES = "sys/devices/system/node"


class Governor(FaultParams):
    governor: Annotated[str, Field(pattern=r"^[a-z]+$")] = "powersave"


def governor_powersave(healthy: Healthy, want: Governor) -> Patch:
    """The CPUs run a power-saving cpufreq governor.

    `governor`, powersave.
    """
    return Patch(dict.fromkeys(governors(healthy, want.governor), f"{want.governor}\n"))


def governors(healthy: Healthy, governor: str) -> list[str]:
    """The files that take a governor. Raises FaultError if there is none, or no such one."""
    paths = [path for path in healthy.files if GOVERNOR.fullmatch(path)]
    if not paths:
        raise FaultError("the node has no cpufreq")
    for path in paths:
        offered = healthy.files.get(path.replace("scaling_governor", "scaling_available_governors"))
        words = offered.decode("ascii", "replace") if isinstance(offered, bytes) else offered
        if words is not None and governor not in words.split():
            raise FaultError(f"the node offers {', '.join(words.split())}, not {governor}")
    return paths


def numa_swapped(healthy: Healthy, want: NoParams) -> Patch:
    """The firmware swaps the NUMA nodes of the GPUs: it reports the first one for the last.

    Only a baseline that says which GPU belongs to which node detects it.
    """
    places = [healthy.place(gpu) for gpu in range(count_of(healthy.state))]
    known = {place: healthy.read(f"{place}/numa_node") for place in places}
    nodes = sorted({int(text) for text in known.values() if text and text != "-1"})
    if len(nodes) < 2:
        raise FaultError("the GPUs are not on different NUMA nodes")
    other = dict(zip(map(str, nodes), map(str, reversed(nodes)), strict=True))
    files = {}
    for place, node in known.items():
        if node in other:
            new = other[node]
            files[f"{place}/numa_node"] = f"{new}\n"
            for name, source in (("local_cpulist", "cpulist"), ("local_cpus", "cpumap")):
                files[f"{place}/{name}"] = f"{healthy.read(f'{NODES}/node{new}/{source}')}\n"
    return Patch(healthy.present(files))


class DriverMismatch(FaultParams):
    module: Annotated[str, Field(pattern=r"^[0-9]{3}\.[0-9.]{1,10}$")] = "525.60.13"


def driver_mismatch(healthy: Healthy, want: DriverMismatch) -> Patch:
    """The driver was upgraded without a reboot: nvmlInit answers LIB_RM_VERSION_MISMATCH.

    `module`, the version of the kernel module that is still loaded: 525.60.13.
    """
    library = healthy.state.get("driver_version", "")
    if not count_of(healthy.state):
        raise FaultError("the node has no GPU")
    if library == want.module:
        raise FaultError(f"the library has version {library} too; give another `module`")
    version_text = healthy.read("proc/driver/nvidia/version").replace(library, want.module)
    files = {
        "sys/module/nvidia/version": f"{want.module}\n",
        "proc/driver/nvidia/version": f"{version_text}\n",
    }
    return Patch(healthy.present(files), {"init": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"})


def python_missing(healthy: Healthy, want: NoParams) -> Patch:
    """Python is not installed, neither in PATH nor as platform-python."""
    folders = "/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin /usr/libexec"
    remove = 'rm -f "$folder"/python* "$folder"/platform-python*'
    return Patch(boot=(f"{ONLY_INSIDE} && for folder in {folders}; do {remove}; done",))


class DiskFull(FaultParams):
    size_mb: Annotated[int, Field(ge=64, le=4096)] = 128


def disk_full(healthy: Healthy, want: DiskFull) -> Patch:
    """The root disk is full. The disk lies in this machine's memory, so it is small.

    `size_mb` of the whole disk, 128.
    """
    size = min(want.size_mb, healthy.disk_mb)
    fill = f"dd if=/dev/zero of=/var/tmp/full bs=1M count={size} 2>/dev/null"
    return Patch(node={"disk_mb": size}, boot=(f"{ONLY_INSIDE} && {fill}",))


def sshd_hang(healthy: Healthy, want: NoParams) -> Patch:
    """sshd accepts connections and never answers."""
    return Patch(node={"sshd": "hangs"})


def sshd_stopped(healthy: Healthy, want: NoParams) -> Patch:
    """sshd is not running: the node refuses connections."""
    return Patch(node={"sshd": "stopped"})


class SlowSessions(FaultParams):
    seconds: Annotated[float, Field(gt=0, le=86400)] = 120.0


def slow(healthy: Healthy, want: SlowSessions) -> Patch:
    """Every command over SSH is delayed.

    `seconds`, 120.
    """
    return Patch(node={"delay_s": want.seconds})


class WrongClock(FaultParams):
    seconds: Annotated[float, Field(ge=-315360000, le=315360000)] = 300.0


def clock_skew(healthy: Healthy, want: WrongClock) -> Patch:
    """The node's wall clock is wrong.

    `seconds` ahead of the true time, 300; negative: behind it.
    """
    return Patch(node={"clock_offset_s": want.seconds})


class RevertedSettings(FaultParams):
    governor: Annotated[str, Field(pattern=r"^[a-z]+$")] = "powersave"
    watts: Annotated[int, Field(ge=1, le=10000)] | None = None


UNIT = """\
[Unit]
Description=Power settings of this site
After=multi-user.target nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /etc/site-power.sh

[Install]
WantedBy=multi-user.target
"""


def reverts_on_boot(healthy: Healthy, want: RevertedSettings) -> Patch:
    """Another unit, site-power.service, resets governor and power limit at every boot.

    `governor`, powersave; `watts`, by default 70 % of the board's default. The governor is
    set if the node has cpufreq, the limit if it has GPUs.
    """
    rows = []
    if any(GOVERNOR.fullmatch(path) for path in healthy.files):
        governors(healthy, want.governor)
        rows.append("for file in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do")
        rows.append(f'    echo {want.governor} >"$file"\ndone')
    for gpu in range(count_of(healthy.state)):
        limit = lower_limit(healthy, gpu, want.watts)
        rows.append(f"nvidia-smi -i {gpu} -pl {limit // 1000}")
    if not rows:
        raise FaultError("the node has neither cpufreq nor GPUs")
    script = "#!/bin/sh\n# Saves power.\n" + "".join(f"{row}\n" for row in rows)
    files = {"/etc/systemd/system/site-power.service": UNIT, "/etc/site-power.sh": script}
    return Patch(root_files=files, services={"site-power.service": True})


class Mce(FaultParams):
    cpu: Annotated[int, Field(ge=0, le=4095)] = 0
    bank: Annotated[int, Field(ge=0, le=63)] = 8
    after: Annotated[float, Field(ge=0)] = AFTER


def mce(healthy: Healthy, want: Mce) -> Patch:
    """The kernel log has a machine check: a corrected memory error.

    `cpu`, 0; `bank`, 8; `after`, seconds after boot, 3.
    """
    if f"sys/devices/system/cpu/cpu{want.cpu}/topology/core_id" not in healthy.files:
        raise FaultError(f"the node has no CPU {want.cpu}")
    lines = (
        "mce: [Hardware Error]: Machine check events logged",
        f"mce: [Hardware Error]: CPU {want.cpu}: Machine Check: 0 "
        f"Bank {want.bank}: 8c00004000010090",
        "mce: [Hardware Error]: TSC 0 ADDR 3f4e80 MISC 140400c0c086 ",
    )
    return Patch(log=tuple(LogLine(line, want.after, 0) for line in lines))
