"""File systems as statvfs(3) tells them; real ones, in a mount namespace of their own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe import files
from nodevet.remote.probe.collectors import filesystems
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]
MOUNTS = r"""rootfs / rootfs rw 0 0
/dev/vda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/vdb1 /mnt/a\040b xfs ro,noatime 0 0
"""


def test_the_last_of_two_mounts_on_a_point_is_seen() -> None:
    mounts = filesystems.parse_mounts(MOUNTS)
    assert filesystems.mount_of(mounts, "/tmp") == ("ext4", ["rw", "relatime"])
    assert filesystems.mount_of(mounts, "/home/anna/data")[0] == "nfs4"
    assert filesystems.mount_of(mounts, "/homer")[0] == "ext4"
    assert filesystems.mount_of(mounts, "/mnt/a b/c") == ("xfs", ["ro", "noatime"])


@pytest.mark.parametrize(
    ("kind", "remote"),
    [("nfs4", True), ("lustre", True), ("autofs", True), ("fuse.sshfs", True), ("fuse", True),
     ("ext4", False),
     ("fuse.fuse-overlayfs", False), ("fuseblk", False), ("overlay", False), ("tmpfs", False)],
)  # fmt: skip
def test_remote_file_systems_are_recognized(kind: str, remote: bool) -> None:
    assert filesystems.is_remote(kind) is remote


@pytest.mark.parametrize(
    ("kind", "options", "immutable"),
    [("squashfs", "rw", True), ("overlay", "ro,lowerdir=/a::/b,metacopy=on", True),
     ("overlay", "ro,lowerdir=/a,upperdir=/b,workdir=/c", False), ("ext4", "ro", False)],
)  # fmt: skip
def test_immutable_file_systems_are_recognized(kind: str, options: str, immutable: bool) -> None:
    assert filesystems.is_immutable(kind, options.split(",")) is immutable


@given(st.text(max_size=100))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    _, why = files.attempt(filesystems.parse_mounts, text)
    assert why != ""


def test_links_are_followed_up_to_a_network_file_system(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "real").mkdir()
    (place / "local").symlink_to("real/../real")
    (place / "away").symlink_to(place / "nfs/anna")  # which is not there: asking it would fail
    (place / "loop").symlink_to("loop")
    mounts = {"/": ("ext4", ["rw"]), str(place / "nfs"): ("nfs4", ["rw"])}
    assert filesystems.resolve(mounts, str(place / "local")) == str(place / "real")
    assert filesystems.resolve(mounts, str(place / "away/x")) == str(place / "nfs")
    with pytest.raises(ValueError, match="more than 40 links"):
        filesystems.resolve(mounts, str(place / "loop"))
    with pytest.raises(FileNotFoundError):
        filesystems.resolve(mounts, str(place / "gone"))


def test_links_of_a_mounted_machine_stay_below_its_root(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for folder in ("etc", "data/tmp"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").symlink_to("/data/tmp")
    (root / "up").symlink_to("../../../etc")
    mounts = {"/": ("ext4", ["rw"])}
    for link, target in (("tmp", "data/tmp"), ("up", "etc")):
        assert filesystems.resolve(mounts, str(root / link), str(root)) == str(root / target)


def test_a_network_file_system_is_named_and_not_read() -> None:
    mounts = {"/": ("ext4", ["rw"]), "/no-such-place": ("nfs4", ["rw"])}
    key, record = filesystems.file_system(mounts, "/home", "/no-such-place/anna")
    assert (key, record["type"], record["remote"]) == ("/no-such-place", "nfs4", True)
    assert record["size_b"] is record["read_only"] is None
    assert record["errors"]["available_b"] == "network file systems are not read"


def test_ext4_with_emergency_ro_is_read_only(tmp_path: Path) -> None:
    mounts = {"/": ("ext4", ["rw", "emergency_ro"])}
    _, record = filesystems.file_system(mounts, "/", str(tmp_path))
    assert record["read_only"] is True


def test_this_machine(check: Check) -> None:
    found = check("filesystems", filesystems.collect("/", {}))
    first = found.filesystems[0]
    told = os.statvfs("/")
    assert (first.path, first.size_b) == ("/", told.f_blocks * told.f_frsize)
    assert 0 <= first.available_b <= first.size_b


def test_further_paths_by_name(check: Check, tmp_path: Path) -> None:
    here, gone = str(tmp_path), str(tmp_path / "gone")
    asks = {"asks": {"filesystems": [here, gone, "relative", "/"]}}
    found = check("filesystems", filesystems.collect("/", asks))
    told = {each.path: each for each in found.filesystems}
    assert told[here].missing is False and told[here].size_b > 0
    assert told[gone].missing is True and told[gone].size_b is None
    assert "relative" not in told
    assert set(found.found) == set(told)


def test_file_systems_are_absent_in_a_captured_tree(node: Path) -> None:
    with pytest.raises(Absent):
        filesystems.collect(str(node), {})


def test_a_tree_of_the_same_boot_is_this_machine(tmp_path: Path, check: Check) -> None:
    root = tmp_path.resolve()
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    boot_id = Path(filesystems.BOOT_ID).read_text()
    (root / "proc/sys/kernel/random/boot_id").write_text(boot_id)
    found = check("filesystems", filesystems.collect(str(root), {}))
    assert [each.path for each in found.filesystems] == ["/"]


INSIDE = """
set -e
mount -t tmpfs -o size=1m,nr_inodes=32 none /var/tmp
mount -t tmpfs -o ro none /var/log
mount -t tmpfs -o size=64k,nr_inodes=0 none /dev/shm
head -c 1040384 /dev/zero > /var/tmp/full
exec "$@"
"""
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from nodevet.remote.probe.collectors import filesystems
print(json.dumps(filesystems.collect((sys.argv[2:] or ["/"])[0], {})))
"""


POD = """
set -e
mount -t tmpfs -o ro none /var/log
mkdir -p "$1/host"
mount --rbind / "$1/host"
mount -o remount,bind,ro "$1/host"
exec "$2" -c "$3" "$4" "$1/host"
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
def test_a_machine_that_a_container_has_mounted_read_only_may_write(
    check: Check, tmp_path: Path
) -> None:
    repository = str(Path(filesystems.__file__).parents[4])
    words = [str(tmp_path.resolve()), sys.executable, PROGRAM, repository]
    done = subprocess.run(
        ["unshare", "-mpf", "--mount-proc", "--", "sh", "-c", POD, "sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    found = {each.path: each for each in check("filesystems", json.loads(done.stdout)).filesystems}
    assert (found["/"].read_only, found["/var/log"].read_only) == (False, True)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
def test_full_and_read_only_file_systems_are_read(check: Check) -> None:
    repository = str(Path(filesystems.__file__).parents[4])
    program = [sys.executable, "-c", PROGRAM, repository]
    done = subprocess.run(
        ["unshare", "-m", "--", "sh", "-c", INSIDE, "sh", *program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    found = {each.path: each for each in check("filesystems", json.loads(done.stdout)).filesystems}
    full, log, shm = (found[path] for path in ("/var/tmp", "/var/log", "/dev/shm"))
    assert (full.size_b, full.available_b, full.inodes, full.read_only) == (
        1 << 20,
        8192,
        32,
        False,
    )
    assert full.inodes_available == 30
    assert (log.type, log.read_only) == ("tmpfs", True)
    assert (shm.size_b, shm.inodes) == (1 << 16, 0)
