"""What services run for a site: for a job of Slurm, at boot by cloud-init, as a link comes up.

Each row is (file, line number, command). A script of a folder is a row of its own, of line 0.
"""

import os
import re

from nodevet.remote.managers.root_processes import root_processes
from nodevet.remote.probe.files import path_under

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, Sequence

    from nodevet.remote.managers.node_files import NodeFiles

SLURM = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",  # of a slurmd that has its configuration from the controller
    "/var/spool/slurmd/conf-cache/slurm.conf",
    "/var/spool/slurm/d/conf-cache/slurm.conf",
)
INCLUDED = 64  # files of slurm.conf
RUN_BY_SLURMD = re.compile(
    r"\s*(?:(?:Task|Srun)?(?:Prolog|Epilog)|HealthCheckProgram|UnkillableStepProgram|RebootProgram)"
    r"\s*=\s*(.*)",
    re.IGNORECASE,
)
INCLUDE = re.compile(r"\s*Include\s+(\S+)", re.IGNORECASE)
CLOUD_UNITS = ("cloud-init.service", "cloud-init-main.service", "cloud-init-local.service")
INSTANCE = "/var/lib/cloud/instance"
TOP_KEY = re.compile(r"([A-Za-z_]+)\s*:\s*(.*)")
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
    ),
}


class Hooks(object):
    """Those of one node; `lives` tells whether a service runs or is started."""

    def __init__(
        self, node: "NodeFiles", services: "dict[str, str]", lives: "Callable[[str], bool]"
    ) -> None:
        self.node = node
        self.services = services
        self.lives = lives

    def rows(self) -> "list[tuple[str, int, str]]":
        """Every command, with its place."""
        return list(self.slurm()) + list(self.cloud_init()) + list(self.dispatchers())

    def slurm(self) -> "Iterator[tuple[str, int, str]]":
        for file, number, line in self.slurm_lines():
            match = RUN_BY_SLURMD.match(line)
            for pattern in match.group(1).split(",") if match else ():
                for path in self.paths(pattern.strip(" \"'"), os.path.dirname(file)):
                    yield file, number, path

    def slurm_lines(self) -> "Iterator[tuple[str, int, str]]":
        """(file, number, line) of slurm.conf, and of what it includes, where slurmd runs."""
        if not self.has_slurmd():
            return
        waiting = [path for path in SLURM if self.node.text(path)]
        done: "list[str]" = []
        while waiting and len(done) < INCLUDED:
            file = waiting.pop(0)
            done.append(file)
            for number, whole in self.node.lines(file):
                line = whole.partition("#")[0]
                match = INCLUDE.match(line)
                if match:
                    found = self.paths(match.group(1), os.path.dirname(file))
                    waiting += [path for path in found if path not in done + waiting]
                yield file, number, line
        if waiting:
            self.node.unread[waiting[0]] = "slurm.conf includes too many files to read all of them"

    def has_slurmd(self) -> bool:
        """By its unit, or, where it has none, by its process."""
        if "slurmd.service" in self.services:
            return self.lives("slurmd.service")
        return "slurmd" in {name for name, _ in root_processes(self.node.root)}

    def paths(self, pattern: str, folder: str) -> "list[str]":
        """The files that a path names, perhaps by a pattern in its last part."""
        path = os.path.join(folder, pattern)
        return self.node.matching(path) if pattern else []

    def cloud_init(self) -> "Iterator[tuple[str, int, str]]":
        """bootcmd and scripts of each boot; what is run once per instance, if it was not yet."""
        known = any(name in self.services for name in CLOUD_UNITS)
        if not known or self.is_there("/etc/cloud/cloud-init.disabled"):
            return
        keys, folders = ["bootcmd"], ["per-boot"]
        if not self.is_there(INSTANCE + "/sem/config_runcmd"):
            keys.append("runcmd")
        if not self.is_there(INSTANCE + "/sem/config_scripts_per_instance"):
            folders.append("per-instance")
        for file in self.cloud_files():
            for number, line in of_keys(self.node.lines(file), keys):
                yield file, number, line
        for folder in folders:
            for path in self.node.files_in("/var/lib/cloud/scripts/" + folder):
                yield path, 0, path

    def cloud_files(self) -> "Iterator[str]":
        yield "/etc/cloud/cloud.cfg"
        for path in self.node.matching("/etc/cloud/cloud.cfg.d/*.cfg"):
            yield path
        yield INSTANCE + "/cloud-config.txt"  # of the user and the vendor, put together
        yield INSTANCE + "/vendor-cloud-config.txt"

    def dispatchers(self) -> "Iterator[tuple[str, int, str]]":
        for service, folders in sorted(DISPATCHERS.items()):
            if self.lives(service):
                for folder in folders:
                    for path in self.node.files_in(folder):
                        yield path, 0, path

    def is_there(self, path: str) -> bool:
        return os.path.exists(path_under(self.node.root, path))


def of_keys(
    rows: "Iterable[tuple[int, str]]", keys: "Sequence[str]"
) -> "Iterator[tuple[int, str]]":
    """(number, command) of the lists below these keys of a YAML file of cloud-init.

    >>> list(of_keys([(1, "bootcmd:"), (2, "- [ swapoff, -a ]"), (3, "x: 1")], ["bootcmd"]))
    [(2, '  swapoff  -a  ')]
    """
    inside = False
    for number, line in rows:
        match = TOP_KEY.match(line)
        inside = match.group(1) in keys if match else inside
        command = match.group(2) if match else line
        if inside and command:
            yield number, re.sub(r"[\[\],]", " ", re.sub(r"^\s*(?:-\s+)*", "", command))
