"""The writable part of a node's root disk: what differs from the machine that it runs on.

A node's root is an overlay: this machine's root file system below, read-only, and on top
a tmpfs of the node's own. What is written here stays over reboots of the node.
"""

import os
import re
import shlex
import shutil
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
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
    "tmp.mount",
    "var-lib-machines.mount",
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
    """What makes a node's disk its own."""

    machine_id: str
    host_key: Path  # private, its public half beside it
    authorized_keys: str
    hosts: str  # /etc/hosts


def write(
    upper: Path, node: SimulatedNode, identity: NodeIdentity, tools: Mapping[str, Path]
) -> None:
    """Fill the upper layer of a node that was never booted.

    `tools` are built programs by the path that they have inside the node.
    """
    for folder in OPAQUE:
        place = inside(upper, folder)
        place.mkdir(parents=True, exist_ok=True)
        os.setxattr(place, "trusted.overlay.opaque", b"y")
    for path in GONE:
        place = inside(upper, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))  # a whiteout; see overlayfs.rst
    inside(upper, "/root").chmod(0o700)
    for path, built in tools.items():
        put_tool(upper, path, built, _driver_version(node))
    for name in ("hardware", "sshd-signal", "session", "swap", "kmod"):
        put(upper, f"{LIBRARY}/{name}", _unit(name), 0o755)
    for link in Path(sys.executable).parent.glob("python*"):
        if link.is_symlink():
            put(upper, str(link), PYTHON.format(shlex.quote(str(link.resolve()))), 0o755)
    put(upper, "/usr/sbin/nvme", _unit("nvme"), 0o755)
    put(upper, "/usr/bin/mlxlink", _unit("mlxlink"), 0o755)
    for path in KMOD:
        inside(upper, path).parent.mkdir(parents=True, exist_ok=True)
        inside(upper, path).symlink_to(f"{LIBRARY}/kmod")
    put(upper, "/etc/ssh/ssh_host_ed25519_key", identity.host_key.read_bytes(), 0o600)
    for path, content in {**dict(_files(node, identity)), **node.root_files}.items():
        put(upper, path, content, mode_of(content))
    for each in node.swap:
        put_swap(upper, each)
    for unit in MASKED:
        inside(upper, f"/etc/systemd/system/{unit}").symlink_to("/dev/null")
    inside(upper, "/etc/systemd/system/default.target").symlink_to(
        "/usr/lib/systemd/system/multi-user.target"
    )
    for target, unit in _enabled(node):
        place = inside(upper, f"/etc/systemd/system/{target}.wants/{unit}")
        place.parent.mkdir(parents=True, exist_ok=True)
        own = inside(upper, f"/etc/systemd/system/{unit}").exists()
        place.symlink_to(f"{'/etc/systemd/system' if own else VENDOR}/{unit}")


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
    inside(upper, path).symlink_to(Path(file).name)


def _driver_version(node: SimulatedNode) -> str:
    """As NVML tells it; empty without a driver."""
    found = re.search(r"(?m)^driver_version *= *([0-9.]+)$", node.state or "")
    return found[1] if found else ""


def _files(node: SimulatedNode, identity: NodeIdentity) -> Iterator[tuple[str, Content]]:
    yield from _packages(node)
    yield "/etc/hostname", f"{node.name}\n"
    yield "/etc/hosts", identity.hosts
    yield "/etc/machine-id", f"{identity.machine_id}\n"
    yield "/etc/resolv.conf", ""
    yield "/etc/sysctl.conf", ""
    yield "/etc/modules", ""
    yield "/etc/ld.so.preload", ""
    yield (
        "/etc/shadow",
        "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\nnobody:*:19000:0:99999:7:::\n",
    )
    yield "/etc/ssh/sshd_config", SSHD_CONFIG
    yield "/etc/ssh/authorized_keys", identity.authorized_keys
    yield "/root/.profile", ""
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
    for name in programs.UNITS if node.state is not None else ():
        yield f"{VENDOR}/{name}", programs.unit(name)


def _packages(node: SimulatedNode) -> Iterator[tuple[str, Content]]:
    """What dpkg says of this machine, where it is used, and of the driver: its package is held."""
    version, status = _driver_version(node), Path(DPKG)
    if version and status.exists():
        rows = dpkg_rows(driver_package(version), version, held=True)
        text = "".join(f"{row}\n" for row in (*rows, ""))
        yield DPKG, status.read_bytes().rstrip() + f"\n\n{text}".encode()


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


def _enabled(node: SimulatedNode) -> Iterator[tuple[str, str]]:
    """(target, unit) of everything that starts at boot."""
    yield "multi-user.target", "systemd-user-sessions.service"
    for unit, target in OWN.items():
        yield target, unit
    for unit in node.services:
        yield "multi-user.target", unit


def _unit(name: str) -> str:
    return files("nodevet_sim").joinpath(f"nspawn/units/{name}").read_text(encoding="utf-8")


def inside(upper: Path, path: str) -> Path:
    """Where a path of the node is, outside."""
    return upper / path.lstrip("/")


def put(upper: Path, path: str, content: Content, mode: int = 0o644) -> None:
    place = inside(upper, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    place.chmod(mode)


def mode_of(content: Content) -> int:
    """That of a script, or of a file."""
    return 0o755 if content[:2] in ("#!", b"#!") else 0o644


def put_swap(upper: Path, swap: SwapArea) -> None:
    """The file, and of it the first page alone; a partition has none."""
    if not swap.name.startswith("/dev/"):
        put(upper, swap.name, bytes(4086) + b"SWAPSPACE2", 0o600)


def clear(folder: Path) -> None:
    """Remove a folder of the sim with everything in it, where it is there."""
    if folder.is_symlink() or not folder.exists():
        return
    shutil.rmtree(folder)
