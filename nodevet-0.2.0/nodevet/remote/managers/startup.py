"""What older ways of starting run: SysV scripts, generators, ifupdown, modprobe, supervisord; and
what root's shells and sessions run.

Each row is (file, line number, command), as in hooks.py.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from nodevet.remote.managers.node_files import NodeFiles

RUN_LEVELS = tuple(
    "{}/rc{}.d".format(top, level) for top in ("/etc", "/etc/rc.d") for level in "2345S"
)
STARTED = re.compile(r"S\d\d(.+)\Z")
INIT = ("/etc/init.d/", "/etc/rc.d/init.d/")
GENERATORS = ("/etc/systemd/system-generators", "/usr/local/lib/systemd/system-generators")
INTERFACES = "/etc/network/interfaces"
IF_COMMAND = re.compile(r"\s*(?:pre-up|up|post-up|down|pre-down|post-down)\s+(.*)")
IF_LOCAL = tuple(  # that the network scripts of Red Hat run
    top + name
    for top in ("/sbin/", "/usr/sbin/")
    for name in ("ifup-pre-local", "ifup-local", "ifdown-pre-local", "ifdown-local")
)
NETWORK_SCRIPTS = "/etc/sysconfig/network-scripts/ifup"
LOGIN = (  # of root, by a login, an SSH command or a new shell
    *("/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/bashrc"),
    *("/root/.bash_profile", "/root/.bash_login", "/root/.profile", "/root/.bashrc"),
    *("/etc/ssh/sshrc", "/root/.ssh/rc"),
)
MODULE_COMMAND = re.compile(r"\s*(?:install|remove)\s+\S+\s+(.*)")
SUPERVISORS = ("supervisor.service", "supervisord.service")
SUPERVISED = (
    "/etc/supervisor/supervisord.conf",
    "/etc/supervisor/conf.d/*.conf",
    "/etc/supervisord.conf",
    "/etc/supervisord/conf.d/*.conf",
    "/etc/supervisord.d/*.ini",
    "/etc/supervisord.d/*.conf",
)
SUPERVISED_COMMAND = re.compile(r"\s*command\s*=\s*(.*)")


class Startup(object):
    """`is_live(service)`: whether it runs or is started at boot."""

    def __init__(self, node: "NodeFiles", is_live: "Callable[[str], bool]") -> None:
        self.node = node
        self.is_live = is_live

    def rows(self) -> "Iterator[tuple[str, int, str]]":
        yield from self.sysv()
        for folder in GENERATORS:
            for path in self.node.files_in(folder):
                yield path, 0, path
        if self.is_live("networking.service"):
            paths = [INTERFACES, *self.node.files_in(INTERFACES + ".d")]
            yield from self.matching_lines(IF_COMMAND, paths)
        if self.node.is_file(NETWORK_SCRIPTS):
            for path in filter(self.node.is_file, IF_LOCAL):
                yield path, 0, path
        for path in (path for pattern in LOGIN for path in self.node.matching(pattern)):
            for number, line in self.node.lines(path):
                yield path, number, line
        yield from self.matching_lines(MODULE_COMMAND, self.node.drop_in_folder("modprobe.d"))
        if any(map(self.is_live, SUPERVISORS)):
            files = [path for pattern in SUPERVISED for path in self.node.matching(pattern)]
            yield from self.matching_lines(SUPERVISED_COMMAND, files)

    def sysv(self) -> "Iterator[tuple[str, int, str]]":
        """Scripts that systemd-sysv-generator(8) starts: those without a unit of the same name."""
        links = [STARTED.match(name) for level in RUN_LEVELS for name in self.node.entries(level)]
        for name in sorted({link.group(1) for link in links if link}):
            if not self.has_unit(name + ".service"):
                for path in (top + name for top in INIT):
                    if self.node.is_file(path):
                        yield path, 0, path

    def has_unit(self, name: str) -> bool:
        """Whether there is a unit, masked or not."""
        folders = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
        return any(name in self.node.entries(folder) for folder in folders)

    def matching_lines(
        self, pattern: "re.Pattern[str]", paths: "list[str]"
    ) -> "Iterator[tuple[str, int, str]]":
        for path in paths:
            for number, line in self.node.lines(path):
                match = pattern.match(line)
                if match:
                    yield path, number, match.group(1)
