"""What has changed on a disk, by its upper layer."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodevet_sim.nspawn.diff import DiskChange, DiskEntry, changes, left_out, listing


@dataclass
class Disk:
    """An upper layer over a machine; here no overlay merges the two, so that root is made too."""

    below: Path
    upper: Path
    root: Path

    def write(self, path: str, content: str, *layers: Path, mode: int = 0o644) -> None:
        for layer in layers or (self.upper, self.root):
            place = layer / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
            place.chmod(mode)

    def listing(self) -> dict[str, DiskEntry | None]:
        return listing(self.upper, self.root, self.below)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    old = os.umask(0o022)
    made = Disk(tmp_path / "below", tmp_path / "upper", tmp_path / "root")
    for folder in (made.below, made.upper, made.root):
        folder.mkdir()
    made.write("etc/hosts", "one\n", made.below, made.root)
    yield made
    os.umask(old)


ONE = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"  # printf 'one\n'


def test_a_file_that_was_only_copied_up_is_unchanged(disk: Disk) -> None:
    disk.write("etc/hosts", "one\n")
    assert disk.listing() == {}


def test_content_mode_kind_and_target_are_seen(disk: Disk) -> None:
    disk.write("etc/hosts", "two\n")
    disk.write("etc/new", "one\n", mode=0o600)
    for layer in (disk.upper, disk.root):
        (layer / "etc/link").symlink_to("/dev/null")
        os.mkfifo(layer / "pipe", 0o600)
    found = disk.listing()
    uid, gid = os.getuid(), os.getgid()
    assert found["/etc/new"] == DiskEntry("file", 0o600, uid, gid, 4, ONE)
    assert str(found["/etc/new"]) == f"file   0600 {uid}:{gid} 4 {ONE}"
    assert found["/etc/link"] == DiskEntry("link", 0o777, uid, gid, 0, "/dev/null")
    assert found["/pipe"] == DiskEntry("pipe", 0o600, uid, gid, 0, "")
    assert set(found) == {"/etc/hosts", "/etc/new", "/etc/link", "/pipe"}


def test_diff_lists_a_removed_file(disk: Disk) -> None:
    disk.write("etc/hosts", "the whiteout of an overlay", disk.upper)
    (disk.root / "etc/hosts").unlink()
    assert disk.listing() == {"/etc/hosts": None}


def test_changes_are_reported_with_both_values(disk: Disk) -> None:
    disk.write("etc/own", "one\n")
    first = disk.listing()
    assert changes(first, first, disk.below) == []
    disk.write("etc/hosts", "two\n")
    disk.write("etc/own", "one\n", mode=0o600)
    disk.write("etc/new", "one\n")
    now = disk.listing()
    found = {each.path: each for each in changes(first, now, disk.below)}
    assert set(found) == {"/etc/hosts", "/etc/new", "/etc/own"}
    was = found["/etc/hosts"].before
    assert was is not None and was.what == ONE  # it was as below, and so in no listing
    assert found["/etc/new"] == DiskChange("/etc/new", None, now["/etc/new"])
    assert found["/etc/own"] == DiskChange("/etc/own", first["/etc/own"], now["/etc/own"])
    back = changes(now, first, disk.below)
    assert [(each.path, each.after, each.before) for each in back] == sorted(found.values())


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("/var/log/journal", True),
        ("/var/lib/systemd/random-seed", True),
        ("/tmp/systemd-private-0a-ssh.service-x", True),
        ("/usr/lib/python3/__pycache__", True),
        ("/etc/systemd-private-x", False),
        ("/var/log/messages", False),
        ("/var/lib/systemd/linger", False),
    ],
)
def test_what_systemd_writes_is_omitted(disk: Disk, path: str, out: bool) -> None:
    assert left_out(path) is out
    disk.write(f"{path[1:]}/file", "x")
    assert (f"{path}/file" not in disk.listing()) is out
