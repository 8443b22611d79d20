"""The contents of a node's root disk besides the programs of this machine.

A node's root is an overlay of three layers: `root.build` makes the lowest; `write_common` makes
the next, for all nodes of a fleet; both are read-only. `write` fills the uppermost, a tmpfs of
the node's own: what is written there stays over reboots of the node.
"""

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from nodevet_sim import programs
from nodevet_sim.description import Content, SimulatedNode, SwapArea
from nodevet_sim.software_files import DPKG, dpkg_rows, driver_package

LIBRARY = "/usr/lib/nodevet-sim"  # programs of the sim, inside the node
SHARED = "/run/nodevet-sim"  # inside the node: what the sim and the node both write
OPAQUE = (  # folders of this machine that a node does not inherit
    "/etc/init.d",
    "/etc/systemd/system",
    "/etc/systemd/journald.conf.d",
    "/etc/systemd/system.conf.d",
    "/etc/ssh",
    "/etc/sysctl.d",
    "/etc/tmpfiles.d",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/tuned",
    "/home",
    "/root",
    "/usr/lib/modprobe.d",
    "/usr/lib/modules",  # of this machine's kernel, not of the node's
    "/usr/lib/modules-load.d",
    "/usr/lib/sysctl.d",  # what is in it is not for a container, and would fail
    "/usr/lib/systemd/system/multi-user.target.wants",
    "/var/log",
    "/var/tmp",  # noqa: S108  (a folder of the node)
    "/var/lib/systemd",
)
GONE = ("/usr/bin/nvidia-modprobe",)  # it would load into this machine's kernel
MASKED = (  # units that a container has no use for, or that would slow its boot
    "console-getty.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "ldconfig.service",
    "proc-sys-fs-binfmt_misc.automount",
    "ssh.socket",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-resolved.service",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
    "tmp.mount",
    "var-lib-machines.mount",
)
IDLE = (  # generators that find nothing in a container
    "systemd-bless-boot-generator",
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-integritysetup-generator",
    "systemd-run-generator",
    "systemd-ssh-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-tpm2-generator",
    "systemd-veritysetup-generator",
)
SSHD_CONFIG = f"""\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
Include {SHARED}/sshd.conf
"""


@dataclass(frozen=True)
class NodeIdentity:
    """The files that make a node's disk unique."""

    machine_id: str
    host_key: Path  # private, its public half beside it
    authorized_keys: str
    hosts: str  # /etc/hosts


@dataclass(frozen=True)
class SharedLayers:
    """The layers that the nodes of a fleet have below their own."""

    folders: tuple[Path, ...]  # the uppermost first
    merged: Path  # where all of them are mounted as one, read-only

    @property
    def option(self) -> str:
        """Of mount(8)."""
        return f"lowerdir={':'.join(map(str, self.folders))}"


def write_common(layer: Path, tools: Mapping[str, Path], below: Path) -> None:
    """Fill the layer that all nodes of a fleet have above `below`.

    `tools` are built programs by the path that they have inside a node.
    """
    for folder in OPAQUE:
        place = inside(layer, folder)
        place.mkdir(parents=True, exist_ok=True)
        os.setxattr(place, "trusted.overlay.opaque", b"y")
    for path in filter(lambda path: inside(below, path).exists(), GONE):
        inside(layer, path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(inside(layer, path), stat.S_IFCHR, os.makedev(0, 0))  # a whiteout; overlayfs.rst
    inside(layer, "/root").chmod(0o700)
    inside(layer, "/var/tmp").chmod(0o1777)  # noqa: S108  (a folder of the node)
    for path, built in tools.items():
        put(layer, path, built.read_bytes(), 0o755)
    for name in ("hardware", "sshd-signal", "session", "swap", "kmod"):
        put(layer, f"{LIBRARY}/{name}", _unit(name), 0o755)
    for link in Path(sys.executable).parent.glob("python*"):
        if link.is_symlink() and inside(below, str(link)).is_symlink():
            put(layer, str(link), PYTHON.format(shlex.quote(str(link.resolve()))), 0o755)
    put(layer, "/usr/sbin/nvme", _unit("nvme"), 0o755)
    put(layer, "/usr/bin/mlxlink", _unit("mlxlink"), 0o755)
    for path in KMOD:
        symlink(layer, path, f"{LIBRARY}/kmod")
    for path, content in _common_files():
        put(layer, path, content, mode_of(content))
    for unit in MASKED:
        symlink(layer, f"/etc/systemd/system/{unit}", "/dev/null")
    for generator in IDLE:
        symlink(layer, f"/etc/systemd/system-generators/{generator}", "/dev/null")
    symlink(layer, "/etc/systemd/system/default.target", f"{VENDOR}/multi-user.target")
    sessions = "systemd-user-sessions.service"
    symlink(layer, f"{WANTS}/{sessions}", f"{VENDOR}/{sessions}")
    for unit, target in OWN.items():
        symlink(layer, f"/etc/systemd/system/{target}.wants/{unit}", f"/etc/systemd/system/{unit}")


def write(
    upper: Path,
    node: SimulatedNode,
    identity: NodeIdentity,
    tools: Mapping[str, Path],
    below: Path,
) -> None:
    """Fill the upper layer of a node that was never booted."""
    for path, built in tools.items():
        put_tool(upper, path, built, _driver_version(node))
    put(upper, "/etc/ssh/ssh_host_ed25519_key", identity.host_key.read_bytes(), 0o600)
    own = {**dict(_files(node, identity)), **dict(_packages(node, below)), **node.root_files}
    for path, content in own.items():
        put(upper, path, content, mode_of(content))
    for swap in node.swap:
        put_swap(upper, swap)
    for unit in node.services:
        own_unit = f"/etc/systemd/system/{unit}"
        there = inside(upper, own_unit).exists()
        symlink(upper, f"{WANTS}/{unit}", own_unit if there else f"{VENDOR}/{unit}")


PYTHON = f"""#!/bin/bash
# preloads the simulated clock whatever the environment: a session's own is not passed on by all
set -a
. {SHARED}/environment
exec -a "$0" {{}} "$@"
"""


def put_tool(upper: Path, path: str, built: Path, version: str) -> None:
    """A built program, or a library of the driver, whose file has its version in its name."""
    if not version or not path.endswith(".so.1"):
        put(upper, path, built.read_bytes(), 0o755)
        return
    file = f"{path.removesuffix('1')}{version}"
    put(upper, file, built.read_bytes(), 0o755)
    symlink(upper, path, Path(file).name)


def _driver_version(node: SimulatedNode) -> str:
    """As NVML reports it; empty without a driver."""
    match = re.search(r"(?m)^driver_version *= *([0-9.]+)$", node.state or "")
    return match[1] if match else ""


def _files(node: SimulatedNode, identity: NodeIdentity) -> Iterator[tuple[str, Content]]:
    yield "/etc/hostname", f"{node.name}\n"
    yield "/etc/hosts", identity.hosts
    yield "/etc/machine-id", f"{identity.machine_id}\n"
    yield "/etc/ssh/authorized_keys", identity.authorized_keys
    for name in programs.UNITS if node.state is not None else ():
        yield f"{VENDOR}/{name}", programs.unit(name)


def _common_files() -> Iterator[tuple[str, Content]]:
    for path in EMPTY:
        yield path, ""
    yield (
        "/etc/shadow",
        "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\nnobody:*:19000:0:99999:7:::\n",
    )
    yield "/etc/ssh/sshd_config", SSHD_CONFIG
    yield (
        "/etc/systemd/journald.conf",
        "[Journal]\nStorage=persistent\nReadKMsg=yes\nSystemMaxUse=32M\n",
    )
    # the container's /proc/sys is read-only, but not the simulated files in it
    yield (
        "/etc/systemd/system/systemd-sysctl.service.d/nodevet-sim.conf",
        "[Unit]\nConditionPathIsReadWrite=\n",
    )
    # the real one would load into this machine's kernel, and is not allowed to
    yield (
        "/etc/systemd/system/systemd-modules-load.service.d/nodevet-sim.conf",
        "[Unit]\nConditionCapability=\nConditionDirectoryNotEmpty=\nConditionKernelCommandLine=\n"
        f"[Service]\nExecStart=\nExecStart={LIBRARY}/modules-load\n",
    )
    yield "/etc/systemd/system.conf", "[Manager]\nDefaultTimeoutStopSec=5s\nShowStatus=no\n"
    for name in OWN:
        yield f"/etc/systemd/system/{name}", _unit(name)


def _packages(node: SimulatedNode, below: Path) -> Iterator[tuple[str, Content]]:
    """The packages that dpkg lists in the lower layer, if it is used, and the driver's package,
    which is held.
    """
    version, status = _driver_version(node), inside(below, DPKG)
    if version and status.exists():
        rows = dpkg_rows(driver_package(version), version, held=True)
        text = "".join(f"{row}\n" for row in (*rows, ""))
        yield DPKG, status.read_bytes().rstrip() + f"\n\n{text}".encode()


EMPTY = (  # files
    "/etc/environment",
    "/etc/fstab",
    "/etc/ld.so.preload",
    "/etc/modules",
    "/etc/resolv.conf",
    "/etc/sysctl.conf",
    "/root/.profile",
)
KMOD = (  # the names that it goes by
    "/usr/sbin/modprobe",
    "/usr/sbin/rmmod",
    "/usr/bin/lsmod",
    f"{LIBRARY}/coldplug",
    f"{LIBRARY}/modules-load",
)


OWN = {  # units of the sim -> the target that wants each
    "nodevet-sim-hardware.service": "sysinit.target",
    "nodevet-sim-boot.service": "multi-user.target",
    "nodevet-sim-swap.service": "multi-user.target",
    "nodevet-sim-sshd-hangs.service": "multi-user.target",
    "ssh.service": "multi-user.target",
}


VENDOR = "/usr/lib/systemd/system"  # where packages install units


WANTS = "/etc/systemd/system/multi-user.target.wants"


def _unit(name: str) -> str:
    return files("nodevet_sim").joinpath(f"nspawn/units/{name}").read_text(encoding="utf-8")


def inside(upper: Path, path: str) -> Path:
    """The place of a node's path outside the node."""
    return upper / path.lstrip("/")


def put(upper: Path, path: str, content: Content, mode: int = 0o644) -> None:
    place = inside(upper, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    place.chmod(mode)


def symlink(upper: Path, path: str, to: str) -> None:
    place = inside(upper, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(to)


def mode_of(content: Content) -> int:
    """The mode of a script, or of a file."""
    return 0o755 if content[:2] in ("#!", b"#!") else 0o644


def put_swap(upper: Path, swap: SwapArea) -> None:
    """The file, with only its first page; a partition has none."""
    if not swap.name.startswith("/dev/"):
        put(upper, swap.name, bytes(4086) + b"SWAPSPACE2", 0o600)
