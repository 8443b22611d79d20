"""nodevet and its interpreter on a simulated node, which sees nothing of this machine: the folders
that hold them are mounted there, read-only, with interpreters that have the node's clock.

    python shown_folders.py PID WRAPPERS FOLDER...

does it, in a mount namespace of its own, for the node whose systemd is PID.
"""

import ctypes
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).parents[2]
OPEN_TREE, MOVE_MOUNT, CLONE_NEWNS = 428, 429, 0x20000
HERE, CLONE, EMPTY_PATH = -100, 1, 4  # AT_FDCWD, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH


def show(fleet: str, node: str, scratch: Path) -> None:
    """Mount them on a node, as long as it does not reboot; `scratch` stays meanwhile."""
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__]
    words = [str(leader(fleet, node)), str(scratch / "interpreters"), *map(str, folders())]
    subprocess.run([*command, *words], check=True)


def folders() -> list[Path]:
    """None lies in another."""
    found = [REPO, Path(sys.prefix), Path(sys.base_prefix)]
    own = [each for each in dict.fromkeys(found) if each not in map(Path, ("/usr", "/usr/local"))]
    return [each for each in own if not any(other in each.parents for other in own)]


def _wrappers() -> Iterator[tuple[str, str]]:
    from nodevet_sim.nspawn.disk import PYTHON

    for link in Path(sys.executable).parent.glob("python*"):
        if link.is_symlink():
            yield str(link), PYTHON.format(shlex.quote(str(link.resolve())))


def leader(fleet: str, node: str) -> int:
    """The process id of a node's systemd."""
    from nodevet_sim.nspawn import cgroups

    for pid in sorted(pid for group in cgroups.fleet_groups(fleet) for pid in cgroups.pids(group)):
        place = Path("/proc", str(pid))
        try:
            status = (place / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            continue
        own = next(row for row in status.splitlines() if row.startswith("NSpid:")).split()
        if own[2:] == ["1"] and (place / "root/etc/hostname").read_text().strip() == node:
            return pid
    raise AssertionError(f"{node} of {fleet} does not run")


def _done(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main(pid: str, wrappers: str, *shown: str) -> None:
    os.umask(0o022)  # any user of the node may read them
    for path, text in _wrappers():
        place = Path(wrappers, path.lstrip("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)
    libc = ctypes.CDLL(None, use_errno=True)
    trees = []
    for folder in shown:
        own = Path(wrappers, folder.lstrip("/"))
        own.mkdir(parents=True, exist_ok=True)
        layers = f"lowerdir={own}:{folder}"
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "shown", folder], check=True)
        trees.append(_done(libc.syscall(OPEN_TREE, HERE, folder.encode(), CLONE)))
    with Path("/proc", pid, "ns/mnt").open("rb") as space:
        _done(libc.setns(space.fileno(), CLONE_NEWNS))
    for folder, tree in zip(shown, trees, strict=True):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for above in Path(folder).parents:  # of the node: /root is closed to its other users
            above.chmod(above.stat().st_mode | 0o011)
        _done(libc.syscall(MOVE_MOUNT, tree, b"", HERE, folder.encode(), EMPTY_PATH))


if __name__ == "__main__":
    main(*sys.argv[1:])
