"""Who else may decide what a path holds."""

import grp
import os
import pwd
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.base.trust import distrust, is_private_group, shared_folder

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file two folders below one of its own."""
    (tmp_path / "top" / "below").mkdir(parents=True)
    path = tmp_path / "top" / "below" / "file"
    path.write_text("")
    return path


def test_what_only_this_user_may_write_is_trusted(file: Path) -> None:
    assert distrust(file) == ""
    assert distrust(file.parent / "not-there") == ""
    assert distrust(file / "not-a-folder") == ""
    assert distrust(file, must_exist=True) == ""
    for name in ("not-there", "not-there/below", "file/not-a-folder"):
        assert "cannot be read" in distrust(file.parent / name, must_exist=True)


@pytest.mark.parametrize("up", range(3))
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.chmod(0o777), "mode 0777) can be written by everyone"),
        (lambda path: os.chown(path, NOBODY.pw_uid, 0), "belongs to another user"),
    ],
)
@ROOT
def test_e01_the_path_and_every_folder_above_it_count(
    file: Path, up: int, spoil: Callable[[Path], None], why: str
) -> None:
    place = (file, *file.parents)[up]
    spoil(place)
    told = distrust(file)
    assert told.startswith(f"{place} (owner ")
    assert why in told


def test_a_file_in_a_sticky_folder_is_trusted(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert distrust(file) == ""
    file.chmod(0o1777)  # a file is no folder
    assert "everyone" in distrust(file)


@ROOT
def test_e01_symlinks_in_a_path_are_followed_and_checked(file: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "real").mkdir()
    (tmp_path / "link").symlink_to("open/real")
    assert distrust(tmp_path / "link" / "file").startswith(f"{tmp_path}/open (")
    planted = tmp_path / "planted"
    planted.symlink_to(file)
    os.chown(planted, NOBODY.pw_uid, 0, follow_symlinks=False)
    assert distrust(planted).startswith(f"{planted} (owner nobody")
    dangling = tmp_path / "dangling"
    dangling.symlink_to("/nowhere/at/all")
    os.chown(dangling, NOBODY.pw_uid, 0, follow_symlinks=False)
    assert distrust(dangling).startswith(f"{dangling} (owner nobody")


def test_folders_before_dot_dot_in_a_path_are_checked_too(file: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert distrust(tmp_path / "open" / ".." / "top" / "below" / "file")
    (tmp_path / "to-top").symlink_to(tmp_path / "top" / "below")
    assert distrust(tmp_path / "to-top" / ".." / ".." / "open").startswith(f"{tmp_path}/open (")


def test_links_in_a_circle_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "cannot be read: Too many levels of symbolic links" in distrust(tmp_path / "a")


def test_an_acl_that_lets_others_write_counts(file: Path) -> None:
    entries = [(0x01, 6, -1), (0x02, 6, NOBODY.pw_uid), (0x04, 4, -1), (0x10, 6, -1), (0x20, 4, -1)]
    packed = b"".join(
        struct.pack("<HHI", tag, bits, ids & 0xFFFFFFFF) for tag, bits, ids in entries
    )
    try:
        os.setxattr(file, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    except OSError:
        pytest.skip("this file system has no access control lists")
    assert "has an access control list that lets others write it" in distrust(file)
    file.chmod(0o640)  # its mask then forbids it
    assert distrust(file) == ""


def test_a_relative_path_is_judged_from_here(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert distrust(Path("file")) == ""
    file.parent.chmod(0o777)
    assert distrust(Path("file")).startswith(f"{file.parent} (")
    assert distrust(Path()).startswith(f"{file.parent} (")


@given(mode=st.integers(0, 0o777), of=st.sampled_from(["file", "folder"]))
def test_files_that_others_may_write_are_distrusted(
    tmp_path_factory: pytest.TempPathFactory, mode: int, of: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = folder / "file"
    path.write_text("")
    os.chown(folder, os.geteuid(), NOBODY.pw_gid if os.geteuid() == 0 else os.getegid())
    os.chown(path, os.geteuid(), NOBODY.pw_gid if os.geteuid() == 0 else os.getegid())
    (path if of == "file" else folder).chmod(mode | 0o500)
    writes = mode & (0o022 if os.geteuid() == 0 else 0o002)
    assert bool(distrust(path)) == bool(writes)


def test_a_group_without_other_members_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian makes users: `ann` in the group `ann`, and a umask of 002."""
    users = {1000: ("ann", 1000), 1001: ("bob", 100)}
    groups = {
        1000: ("ann", ["root"]),
        1002: ("ops", ["ann", "bob"]),
        100: ("users", []),
        0: ("root", []),
    }

    def user(number: int) -> pwd.struct_passwd:
        name, group = users[number]
        return pwd.struct_passwd((name, "x", number, group, "", "/", ""))

    def group(number: int) -> grp.struct_group:
        name, members = groups[number]
        return grp.struct_group((name, "x", number, members))

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user(1000), user(1001)])
    assert is_private_group(1000, 1000)
    assert is_private_group(1000, 0)
    assert not is_private_group(1000, 1002)
    assert not is_private_group(1001, 100)  # every user's group
    assert is_private_group(4711, 7)  # a number that no file names, as in a container
    assert not is_private_group(4711, 1002)
    groups[1000] = ("ann", ["bob"])
    assert not is_private_group(1000, 1000)


def test_e01_a_group_that_is_the_main_group_of_another_user_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def user(name: str, uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, 7001, "", "/", "/bin/sh"))

    ann, bob = user("ann", 7001), user("bob", 7002)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {7001: ann, 7002: bob}[uid])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("ann", "x", gid, [])))
    monkeypatch.setattr(pwd, "getpwall", lambda: [ann])
    assert is_private_group(7001, 7001)
    monkeypatch.setattr(pwd, "getpwall", lambda: [ann, bob])
    assert not is_private_group(7001, 7001)


def test_e01_users_whose_main_group_is_that_of_root_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red Hat has system users there that run nothing; a person writes what root's group may."""

    def user(name: str, uid: int, shell: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, 0, "", "/", shell))

    root = user("root", 0, "/bin/bash")
    system = [user("operator", 11, "/sbin/nologin"), user("sync", 5, "/bin/sync")]
    monkeypatch.setattr(pwd, "getpwuid", lambda _: root)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("root", "x", gid, [])))
    monkeypatch.setattr(pwd, "getpwall", lambda: [root, *system])
    assert is_private_group(0, 0)
    monkeypatch.setattr(pwd, "getpwall", lambda: [root, *system, user("eve", 1002, "/bin/bash")])
    assert not is_private_group(0, 0)


@pytest.mark.parametrize(("mode", "shared"), [(0o700, False), (0o755, False), (0o1777, True)])
def test_e03_a_folder_in_which_others_make_files_is_named(
    tmp_path: Path, mode: int, shared: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert bool(shared_folder(folder / "store.sqlite")) == shared
