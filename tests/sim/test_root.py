"""The root that nodes share: of two machines with the same packages of a node it is the same,
whatever else is installed, configured, stored or going on there."""

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodevet_sim.nspawn import links
from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.packages import installed, of_a_node
from nodevet_sim.nspawn.root import build

pytestmark = pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))

SHELL, TREE = "#!/bin/sh\n", "one\n"
STATUS = """\
Package: bash
Essential: yes
Status: install ok installed
Architecture: amd64
Version: 5.2
Depends: awk | mawk, libc6 (>= 2.36)
Conffiles:
 /etc/bash.bashrc {bashrc}
 /etc/skel/.bashrc {edited}

Package: libc6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 2.36

Package: gawk
Status: install ok installed
Architecture: amd64
Version: 5.1
Provides: awk

Package: systemd
Status: install ok installed
Architecture: amd64
Version: 252
"""
LISTS = {
    "bash": "/.\n/bin\n/bin/bash\n/home\n/etc\n/etc/bash.bashrc\n/etc/skel\n/etc/skel/.bashrc\n",
    "libc6:amd64": "/.\n/lib\n/lib/libc.so.6\n/etc\n/etc/alternatives\n",
    "gawk": "/.\n/usr\n/usr/bin\n/usr/bin/gawk\n/usr/share\n/usr/share/doc\n/usr/share/doc/gawk\n",
    "systemd": "/.\n/lib\n/lib/systemd\n/lib/systemd/system\n/lib/systemd/system/a.service\n"
    "/usr/lib/py\n/usr/lib/py/one.py\n/etc/systemd\n/var\n/var/lib\n/var/lib/systemd\n"
    "/usr/lib/tool\n/usr/lib/ours\n/usr/lib/whole\n/usr/lib/whole/__pycache__\n"
    "/usr/lib/whole/__pycache__/a.cpython-311.pyc\n/usr/lib/whole/a.py\n/tmp\n/var/tmp\n",
}
FILES = {
    "usr/bin/bash": SHELL,
    "usr/bin/gawk": SHELL,
    "usr/lib/libc.so.6": "",
    "usr/lib/py/one.py": "",
    "usr/lib/py/__pycache__/one.cpython-311.pyc": "",
    "usr/lib/systemd/system/a.service": "[Service]\n",
    "usr/lib/tool/part": "",
    "usr/lib/whole/a.py": "",
    "usr/lib/whole/__pycache__/a.cpython-311.pyc": "",
    "usr/share/doc/gawk": "",
    "etc/bash.bashrc": "PS1=x\n",
    "etc/skel/.bashrc": "as it was\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:104:65534::/run/sshd:/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\n",
    "var/lib/systemd/made": "by a run\n",
    "var/lib/dpkg/info/format": "1\n",
}


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def put(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """One on which nothing but a node's packages was ever installed."""
    root = tmp_path / "machine"
    put(root, FILES)
    status = STATUS.format(bashrc=md5("PS1=x\n"), edited=md5("as it was\n"))
    put(root, {"var/lib/dpkg/status": status})
    put(root, {f"var/lib/dpkg/info/{name}.list": text for name, text in LISTS.items()})
    for name in ("bin", "lib"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/lib/ours").symlink_to("/usr/lib/tool")
    for name in ("awk", "nawk"):
        (root / "usr/bin" / name).symlink_to("/etc/alternatives/awk")
    for name in ("alternatives", "systemd"):
        (root / "etc" / name).mkdir()
    (root / "etc/alternatives/awk").symlink_to("/usr/bin/gawk")
    return root


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of every path, but for the index of libraries, which has times."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = (0, str(path.readlink()))
        elif not name.startswith(("etc/ld.so.cache", "var/cache/ldconfig")):
            found[name] = (path.stat().st_mode, path.read_text() if path.is_file() else "")
    return found


def test_the_root_has_the_packages_and_what_their_scripts_created(
    machine: Path, tmp_path: Path
) -> None:
    root = build(tmp_path / "cache", machine)
    found = tree(root)
    assert {"usr/bin/bash", "usr/bin/gawk", "usr/lib/systemd/system/a.service"} <= set(found)
    assert found["bin"] == (0, "usr/bin") and found["usr/bin/awk"] == (0, "/etc/alternatives/awk")
    assert found["etc/alternatives/awk"] == (0, "/usr/bin/gawk")
    assert "usr/lib/py/__pycache__/one.cpython-311.pyc" in found
    assert found["etc/bash.bashrc"][1] == "PS1=x\n"
    assert "usr/share/doc/gawk" not in found and "var/lib/systemd/made" not in found
    assert found["tmp"][0] & 0o7777 == 0o1777 and found["root"][0] & 0o7777 == 0o700
    assert (root / "usr/bin/bash").samefile(machine / "usr/bin/bash")
    assert not (root / "etc/bash.bashrc").samefile(machine / "etc/bash.bashrc")


PACKAGE = """

Package: openipmi
Status: install ok installed
Architecture: amd64
Version: 2.0
Depends: bash
"""
MORE = {
    "var/lib/dpkg/info/openipmi.list": "/usr/bin/ipmi\n/usr/lib/systemd/system/openipmi.service\n",
    "var/lib/dpkg/lock-frontend": "",
    "var/lib/dpkg/updates/0001": "Package: bash\nStatus: install ok half-configured\n",
    "var/lib/dpkg/info/bash.postinst": SHELL,
    "usr/lib/systemd/system/openipmi.service": "[Service]\nExecStart=/bin/false\n",
    "usr/lib/systemd/system-generators/postgresql-generator": SHELL,
    "etc/systemd/system/multi-user.target.wants/failing.service": "[Service]\n",
    "etc/init.d/openipmi": SHELL,
    "etc/cron.d/site": "* * * * * root reboot\n",
    "etc/docker/daemon.json": "{}",
    "etc/fstab": "/dev/sda1 / ext4\n",
    "etc/NetworkManager/NetworkManager.conf": "",
    "usr/bin/scontrol": SHELL,
    "usr/bin/ipmi": SHELL,
    "usr/local/bin/dockerd": SHELL,
    "usr/lib/py/__pycache__/two.cpython-311.pyc": "",
    "usr/lib/py/two.py": "",
    "usr/lib/libnccl.so.2": "",
    "home/ann/.profile": "",
    "root/.ssh/id": "",
    "opt/tool": "",
    "srv/data": "",
    "tmp/left": "",
    "var/tmp/left": "",
    "var/lib/postgresql/data": "",
    "var/spool/cron/crontabs/root": "",
    "run/systemd/system/transient.service": "",
    "snap/bin/podman": "",
    "etc/passwd": "root:x:0:0:Ann:/root:/usr/bin/fish\nsshd:x:104:65534::/run/sshd:/sbin/nologin\n"
    "postgres:x:110:110::/var/lib/postgresql:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\n",
    "etc/group": "root:x:0:ann\ntty:x:5:ann\ndocker:x:999:ann\n",
}


@pytest.mark.parametrize("busy", ["half-configured", "unpacked", "triggers-pending"])
def test_nothing_else_of_the_machine_shows(machine: Path, tmp_path: Path, busy: str) -> None:
    bare = tree(build(tmp_path / "bare", machine))
    put(machine, MORE)
    status = machine / "var/lib/dpkg/status"
    during = status.read_text().replace("ok installed", f"ok {busy}", 1)
    during = during.replace("install ok installed", "hold ok installed", 1)
    status.write_text(during.rstrip() + PACKAGE)
    (machine / "usr/bin/slurmd").symlink_to("/usr/bin/scontrol")
    (machine / "usr/lib/systemd/system/multi-user.target.wants").mkdir()
    before = tree(machine)
    assert tree(build(tmp_path / "full", machine)) == bare
    assert tree(machine) == before


def test_configuration_that_was_edited_is_omitted(machine: Path, tmp_path: Path) -> None:
    (machine / "etc/skel/.bashrc").write_text("exec fish\n")
    found = tree(build(tmp_path / "cache", machine))
    assert "etc/bash.bashrc" in found and "etc/skel/.bashrc" not in found


def test_a_folder_that_was_moved_is_empty_too(machine: Path, tmp_path: Path) -> None:
    bare = tree(build(tmp_path / "bare", machine))
    put(machine, {"data/home/ann/.profile": "", "var/tmp/left": ""})
    (machine / "home").symlink_to("data/home")
    (machine / "tmp").symlink_to("/var/tmp")
    assert tree(build(tmp_path / "moved", machine)) == bare


def test_the_root_does_not_change_while_dpkg_replaces_files(machine: Path, tmp_path: Path) -> None:
    root = build(tmp_path / "cache", machine)
    before = tree(root)
    new = machine / "usr/bin/bash.dpkg-new"
    new.write_text("another\n")
    new.rename(machine / "usr/bin/bash")
    (machine / "usr/bin/gawk").unlink()
    (machine / "etc/bash.bashrc").write_text("edited in place\n")
    assert tree(root) == before
    assert build(tmp_path / "cache", machine) == root


def test_a_file_that_dpkg_has_just_removed_is_omitted(machine: Path, tmp_path: Path) -> None:
    (machine / "usr/bin/gawk").unlink()
    found = tree(build(tmp_path / "cache", machine))
    assert "usr/bin/gawk" not in found and "usr/bin/awk" in found


def test_files_on_another_file_system_are_copied_instead_of_linked(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = tree(build(tmp_path / "linked", machine))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(links.os, "link", refuse)
    root = build(tmp_path / "copied", machine)
    assert tree(root) == linked
    assert not (root / "usr/bin/bash").samefile(machine / "usr/bin/bash")


def test_a_machine_without_dpkg_is_its_own_root(tmp_path: Path) -> None:
    assert build(tmp_path / "cache", tmp_path) == tmp_path
    assert not (tmp_path / "cache").exists()


def test_a_node_has_what_its_packages_depend_on() -> None:
    found = of_a_node(installed(STATUS))
    assert [package.name for package in found] == ["bash", "gawk", "libc6", "systemd"]
    assert "".join(f"{package.paragraph}\n" for package in installed(STATUS)) == f"{STATUS}\n"


def test_removed_packages_are_not_listed_as_installed() -> None:
    for state in ("deinstall ok config-files", "purge ok not-installed"):
        text = STATUS.replace("install ok installed", state, 1)
        assert "bash" not in {package.name for package in installed(text)}
