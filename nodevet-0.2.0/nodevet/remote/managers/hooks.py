"""What services run for a site: Slurm for a job, cloud-init at boot, dispatchers on link changes.

Each row is (file, line number, command). A script in a folder is a row with line number 0.
"""

import os
import re

from nodevet.remote.probe.files import names, path_under, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, Sequence

    from nodevet.remote.managers.node_files import NodeFiles
    from nodevet.remote.managers.units import UnitFiles

SLURM = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",  # a slurmd that gets its configuration from the controller
    "/var/spool/slurmd/conf-cache/slurm.conf",
    "/var/spool/slurm/d/conf-cache/slurm.conf",
)
SLURMD = "slurmd.service"
SLURMD_FILE = re.compile(r"(?<!\S)-f\s*(\S+)")  # slurmd(8)
SLURMD_PREFIX = re.compile(r"(/\S+)/s?bin/slurmd(?!\S)")  # built for another folder: PREFIX/etc
MOST_INCLUDED = 64  # files of slurm.conf
RUN_BY_SLURMD = re.compile(
    r"\s*(?:(?:Task|Srun)?(?:Prolog|Epilog)|HealthCheckProgram|UnkillableStepProgram|RebootProgram)"
    r"\s*=\s*(.*)",
    re.IGNORECASE,
)
BESIDE = {  # files of slurmd in the folder of slurm.conf -> what they have slurmd run
    "helpers.conf": re.compile(r"(?:.*\s)?Helper\s*=\s*(\S+)", re.IGNORECASE),
    "job_container.conf": re.compile(r"(?:.*\s)?InitScript\s*=\s*(\S+)", re.IGNORECASE),
}
INCLUDE_LINE = re.compile(r"\s*Include\s+(\S+)", re.IGNORECASE)
CLOUD_UNITS = ("cloud-init.service", "cloud-init-main.service", "cloud-init-local.service")
INSTANCE = "/var/lib/cloud/instance"
TOP_KEY = re.compile(r"[\"']?([A-Za-z_]+)[\"']?\s*:\s*(.*)")
ONCE = {  # folder of cloud-init's scripts: (mark of those that ran, module)
    "/var/lib/cloud/scripts/per-instance": ("scripts_per_instance", "scripts-per-instance"),
    "/var/lib/cloud/scripts/per-once": ("scripts_per_once", "scripts-per-once"),
    INSTANCE + "/scripts": ("scripts_user", "scripts-user"),
    INSTANCE + "/scripts/vendor": ("scripts_vendor", "scripts-vendor"),
}
EACH_BOOT = ("/var/lib/cloud/scripts/per-boot", INSTANCE + "/boothooks")
DISPATCHERS = {  # service: folders of what it runs
    "NetworkManager.service": tuple(
        top + "/NetworkManager/dispatcher.d" + part
        for top in ("/etc", "/usr/lib")
        for part in ("", "/pre-up.d", "/pre-down.d", "/no-wait.d")
    ),
    "networkd-dispatcher.service": tuple(
        "{}/networkd-dispatcher/{}.d".format(top, state)
        for top in ("/etc", "/usr/lib")
        for state in (
            *("routable", "dormant", "no-carrier", "off", "carrier", "degraded"),
            *("configuring", "configured", "initialized"),
        )
    ),
    "networking.service": tuple(
        "/etc/network/if-{}.d".format(when) for when in ("pre-up", "up", "down", "post-down")
    )
    + tuple("/etc/dhcp/dhclient-{}-hooks.d".format(when) for when in ("enter", "exit")),
}
ROOT = re.compile(r"(?m)^Uid:\s+0\s")
NAME = re.compile(r"(?m)^Name:\s+(\S.*)$")
STATUS = 1 << 12  # bytes
WORDS = 1 << 12  # bytes of a command line


class Hooks(object):
    """The hooks of one node; `is_live(service)`: whether it runs or is started at boot."""

    def __init__(
        self, node: "NodeFiles", units: "UnitFiles", is_live: "Callable[[str], bool]"
    ) -> None:
        self.node = node
        self.units = units
        self.services = units.services
        self.is_live = is_live

    def rows(self) -> "list[tuple[str, int, str]]":
        """(file, line number, command) of every hook."""
        return list(self.slurm()) + list(self.cloud_init()) + list(self.dispatchers())

    def slurm(self) -> "Iterator[tuple[str, int, str]]":
        for file, number, line in self.slurm_lines():
            match = RUN_BY_SLURMD.match(line)
            for pattern in match.group(1).split(",") if match else ():
                for path in self.paths(pattern.strip(" \"'"), os.path.dirname(file)):
                    yield file, number, path
        if self.has_slurmd():
            folders = dict.fromkeys(map(os.path.dirname, self.slurm_files()))
            for folder in folders:
                for name, pattern in BESIDE.items():
                    yield from self.slurm_helpers(folder + "/" + name, pattern)

    def slurm_helpers(
        self, file: str, pattern: "re.Pattern[str]"
    ) -> "Iterator[tuple[str, int, str]]":
        """What node features and job containers run: helpers.conf(5), job_container.conf(5)."""
        for number, line in self.node.lines(file):
            match = pattern.match(line.partition("#")[0])
            if match:
                yield file, number, match.group(1).strip("\"'")

    def slurm_lines(self) -> "Iterator[tuple[str, int, str]]":
        """(file, number, line) of slurm.conf and its included files, if slurmd runs."""
        if not self.has_slurmd():
            return
        waiting = [path for path in self.slurm_files() if self.node.text(path)]
        if not waiting and self.slurmd_commands():
            self.node.unread[SLURM[0]] = "slurmd runs, and its configuration is not found"
        visited: "list[str]" = []
        while waiting and len(visited) < MOST_INCLUDED:
            file = waiting.pop(0)
            visited.append(file)
            for number, text in self.node.lines(file):
                line = text.partition("#")[0]
                match = INCLUDE_LINE.match(line)
                if match:
                    paths = self.paths(match.group(1), os.path.dirname(file))
                    waiting += [path for path in paths if path not in visited + waiting]
                yield file, number, line
        if waiting:
            self.node.unread[waiting[0]] = "slurm.conf includes too many files to read all of them"

    def slurm_files(self) -> "list[str]":
        """Where slurm.conf may lie: -f, SLURM_CONF and the prefix of slurmd, and usual paths."""
        commands = self.slurmd_commands()
        paths = []
        if SLURMD in self.services:
            commands += [command for _, _, command in self.units.commands(SLURMD)]
            paths.append(self.units.environment(SLURMD).get("SLURM_CONF", ""))
        for command in commands:
            paths += [path.strip("\"'") for path in SLURMD_FILE.findall(command)]
            paths += [prefix + "/etc/slurm.conf" for prefix in SLURMD_PREFIX.findall(command)]
        return list(dict.fromkeys([path for path in paths if path.startswith("/")] + list(SLURM)))

    def has_slurmd(self) -> bool:
        """Whether slurmd runs, by its unit; without a unit by its process."""
        if SLURMD in self.services:
            return self.is_live(SLURMD)
        return bool(self.slurmd_commands())

    def slurmd_commands(self) -> "list[str]":
        """The command lines of root's processes of this name."""
        return [line for name, line in root_processes(self.node.root) if name == "slurmd"]

    def paths(self, pattern: str, folder: str) -> "list[str]":
        """The files that a path names; its last part may be a pattern."""
        path = os.path.join(folder, pattern)
        return self.node.matching(path) if pattern else []

    def cloud_init(self) -> "Iterator[tuple[str, int, str]]":
        """bootcmd and scripts of each boot; scripts of an instance that did not run yet."""
        has_cloud_init = any(name in self.services for name in CLOUD_UNITS)
        if not has_cloud_init or self.exists("/etc/cloud/cloud-init.disabled"):
            return
        keys = (
            ["bootcmd"] if self.exists(INSTANCE + "/sem/config_runcmd") else ["bootcmd", "runcmd"]
        )
        for file in self.cloud_files():
            for number, line in commands_under(self.node.lines(file), keys):
                yield file, number, line
        for folder in self.cloud_folders():
            for path in self.node.files_in(folder):
                yield path, 0, path

    def cloud_folders(self) -> "Iterator[str]":
        """Folders of scripts of each boot, and of those that run again or did not run yet."""
        yield from EACH_BOOT
        lines = [line for file in self.cloud_files() for _, line in self.node.lines(file)]
        for folder, (mark, module) in ONCE.items():
            is_done = any(
                self.exists(top + "/sem/config_" + mark + end)
                for top, end in ((INSTANCE, ""), ("/var/lib/cloud", ".once"))
            )
            if not is_done or any(module in line and "always" in line for line in lines):
                yield folder

    def cloud_files(self) -> "list[str]":
        return [
            "/etc/cloud/cloud.cfg",
            *self.node.matching("/etc/cloud/cloud.cfg.d/*.cfg"),
            INSTANCE + "/cloud-config.txt",  # user data and vendor data, merged
            INSTANCE + "/vendor-cloud-config.txt",
        ]

    def dispatchers(self) -> "Iterator[tuple[str, int, str]]":
        for service, folders in sorted(DISPATCHERS.items()):
            if self.is_live(service):
                for folder in folders:
                    for path in self.node.files_in(folder):
                        yield path, 0, path

    def exists(self, path: str) -> bool:
        return os.path.exists(path_under(self.node.root, path))


def commands_under(
    rows: "Iterable[tuple[int, str]]", keys: "Sequence[str]"
) -> "Iterator[tuple[int, str]]":
    """(number, command) of the lists below `keys` in a YAML file of cloud-init.

    >>> list(commands_under([(1, "bootcmd:"), (2, "- [ swapoff, -a ]"), (3, "x: 1")], ["bootcmd"]))
    [(2, '  swapoff  -a  ')]
    """
    inside = False
    for number, line in rows:
        match = TOP_KEY.match(line)
        inside = match.group(1) in keys if match else inside
        command = match.group(2) if match else line
        if inside and command:
            yield number, re.sub(r"[\[\],]", " ", re.sub(r"^\s*(?:-\s+)*", "", command))


def root_processes(root: str) -> "list[tuple[str, str]]":
    """(name, command line) of each process of root: another user's may have any name."""
    try:
        pids = [name for name in names(root, "/proc") if name.isdigit()]
    except (OSError, ValueError):
        return []
    return [row for row in (root_process(root, pid) for pid in pids) if row]


def root_process(root: str, pid: str) -> "tuple[str, str] | None":
    """(name, command line) of a process; None if it is not root's, or is gone."""
    try:
        status = read_text(root, "/proc/{}/status".format(pid), STATUS)
        name = NAME.search(status)
        if not name or not ROOT.search(status):
            return None
        words = read_text(root, "/proc/{}/cmdline".format(pid), WORDS)
        return name.group(1), words.replace("\0", " ")
    except (OSError, ValueError):
        return None


def read_text(root: str, path: str, limit: int) -> str:
    return read_bytes(root, path, limit).decode("utf-8", "replace")
