"""Boot loaders on trees of files: what sets the command line, and what the entries have."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.look import look
from nodevet.remote.managers.search import managers
from nodevet.remote.probe.collectors import bootloader

Check = Callable[[str, dict[str, Any]], Any]
MENU = """\
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian' --class os $menuentry_id_option 'gnulinux-simple-7' {
\tlinux\t/vmlinuz-6.1 root=UUID=7 ro  iommu=pt quiet
}
submenu 'Advanced' $menuentry_id_option 'gnulinux-advanced-7' {
\tmenuentry 'Debian' $menuentry_id_option 'gnulinux-6.1-advanced-7' {
\t\tlinuxefi\t/vmlinuz-6.1 root=UUID=7 ro  quiet
\t}
\tmenuentry 'Debian (recovery mode)' $menuentry_id_option 'gnulinux-6.1-recovery-7' {
\t\tlinux\t/vmlinuz-6.1 root=UUID=7 ro single
\t}
}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/40_custom ###
menuentry 'my own' {
\tlinux /mine root=/dev/sdb pci=mine
}
### END /etc/grub.d/40_custom ###
"""
FILES = {
    "/usr/sbin/update-grub": "",
    "/boot/grub/grub.cfg": MENU,
    "/etc/default/grub": "# GRUB_CMDLINE_LINUX=no\nGRUB_CMDLINE_LINUX_DEFAULT='quiet'\n",
    "/etc/default/grub.d/b.cfg": 'export GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n',
    "/etc/default/grub.d/a.cfg": " GRUB_CMDLINE_LINUX+=x\nGRUB_CMDLINE_LINUX_XEN=y\n",
    "/etc/default/grub.d/.hidden.cfg": "GRUB_CMDLINE_LINUX=no\n",
    "/etc/default/grub.d/old.cfg.bak": "GRUB_CMDLINE_LINUX=no\n",
    "/etc/grub.d/10_linux": "",
}


def put(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        os.utime(place, (1000, 1000))
    return str(root.resolve())


def test_the_settings_in_their_order_and_the_entries_of_grubs_own_script(
    tmp_path: Path, check: Check
) -> None:
    root = put(tmp_path, FILES)
    found = check("bootloader", bootloader.collect(root, {}))
    assert not found.errors and found.newer == ()
    assert (found.programs, found.files) == (("update-grub",), ("/boot/grub/grub.cfg",))
    assert found.entries == ("root=UUID=7 ro  iommu=pt quiet", "root=UUID=7 ro  quiet")
    rows = [(row.file, row.line, row.name, row.text) for row in found.settings]
    assert rows == [
        ("/etc/default/grub", 2, "GRUB_CMDLINE_LINUX_DEFAULT", "'quiet'"),
        ("/etc/default/grub.d/a.cfg", 1, "GRUB_CMDLINE_LINUX", "x"),
        *[("/etc/default/grub.d/b.cfg", 1, "GRUB_CMDLINE_LINUX", '"$GRUB_CMDLINE_LINUX iommu=pt"')],
    ]


@pytest.mark.parametrize(
    "path", ["/etc/default/grub", "/etc/default/grub.d/b.cfg", "/etc/grub.d/10_linux"]
)
def test_what_changed_after_the_menu_was_written_is_named(
    tmp_path: Path, check: Check, path: str
) -> None:
    root = put(tmp_path, FILES)
    os.utime(root + path, (1001, 1001))
    assert check("bootloader", bootloader.collect(root, {})).newer == (path,)


def test_a_node_without_a_boot_loader_and_one_with_grubby(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path / "none", {"/etc/hostname": "n1\n"})
    found = check("bootloader", bootloader.collect(root, {}))
    assert not found.errors
    assert [found.programs, found.files, found.entries, found.settings, found.newer] == [()] * 5
    root = put(tmp_path / "rhel", {"/sbin/grubby": "", "/etc/kernel/cmdline": "ro\n"})
    found = check("bootloader", bootloader.collect(root, {}))
    assert (found.programs, found.files) == (("grubby",), ("/etc/kernel/cmdline",))


def test_an_unreadable_grub_menu_is_an_error_and_not_empty(tmp_path: Path, check: Check) -> None:
    root = put(tmp_path, {"/etc/default/grub": "", "/boot/grub/grub.cfg/x": ""})
    found = check("bootloader", bootloader.collect(root, {}))
    assert found.entries is None and found.errors["entries"]
    root = put(tmp_path / "long", {**FILES, "/boot/grub/grub.cfg": MENU.replace("pt", "p" * 5000)})
    found = check("bootloader", bootloader.collect(root, {}))
    assert "4096 characters" in found.errors["entries"]


def state(root: str, name: str) -> dict[str, Any]:
    (found,) = look({"root": root, "resources": [{"kind": "boot_parameter", "name": name}]})
    return dict(found)


def test_the_state_of_a_parameter_is_what_the_entries_have(tmp_path: Path) -> None:
    root = put(tmp_path, FILES)
    assert state(root, "iommu") == {"exists": True, "value": ["", "iommu=pt"], "why": ""}
    assert state(root, "pci")["value"] == [""], "a person's own entry does not count"
    assert state(root, "a b")["why"]
    (tmp_path / "boot/grub/grub.cfg").write_text("set x=1\n")
    assert state(root, "iommu")["why"] == "no entry boots Linux"
    (tmp_path / "boot/grub/grub.cfg").unlink()
    assert state(root, "iommu") == {"exists": False, "value": None, "why": ""}


def test_a_script_at_boot_that_edits_the_command_line_is_a_manager(tmp_path: Path) -> None:
    script = "grubby --update-kernel=ALL --args='numa-balancing=0 iommu=off'\n"
    root = put(tmp_path, {**FILES, "/etc/rc.local": f"#!/bin/sh\n{script}"})
    (tmp_path / "etc/rc.local").chmod(0o755)
    asked = [
        {"kind": "boot_parameter", "name": name}
        for name in ("numa_balancing", "iommu", "amd_iommu")
    ]
    found = managers({"root": root, "resources": asked})
    assert found == [["/etc/rc.local:2"], ["/etc/rc.local:2"], []]


# --- one boot -------------------------------------------------------------------------------------

BLOCK = "# GRUB Environment Block\n{}".format
PROBE = "case $1 in *=abstraction) echo {layers} ;; *) echo {system} ;; esac"


@pytest.mark.parametrize(
    ("layers", "system", "why"),
    [
        ("", "ext2", ""),
        ("", "fat", ""),
        ("lvm", "ext2", "/boot/grub is on lvm, which GRUB does not write"),
        ("diskfilter mdraid1x", "xfs", "/boot/grub is on diskfilter mdraid1x"),
        ("", "btrfs", "GRUB does not write to btrfs"),
        ("", "", "GRUB does not write to "),
    ],
)
def test_grub_cannot_boot_an_entry_once_from_a_device_that_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: str, system: str, why: str
) -> None:
    tool = tmp_path / "grub-probe"
    tool.write_text("#!/bin/sh\n" + PROBE.format(layers=layers, system=system))
    tool.chmod(0o755)
    monkeypatch.setattr(bootloader, "find_program", lambda name: str(tmp_path / name))
    tools = {f"/usr/sbin/{name}": "" for name in bootloader.TOOLS}
    root = put(tmp_path / "root", {**tools, "/boot/grub/grubenv": BLOCK("").ljust(1024, "#")})
    said = bootloader.boot_once_obstacle(root)
    assert said.startswith(why) and bool(said) is bool(why)


def test_grub_cannot_boot_an_entry_once_without_grubenv_or_a_tool(tmp_path: Path) -> None:
    tools = {f"/usr/bin/{name}": "" for name in bootloader.TOOLS}
    assert bootloader.boot_once_obstacle(put(tmp_path / "none", {})) == "there is no grub-probe"
    root = put(tmp_path / "tools", tools)
    assert bootloader.boot_once_obstacle(root) == "there is no /boot/grub/grubenv"
    put(tmp_path / "tools", {"/boot/grub/grubenv": BLOCK("")})
    assert bootloader.boot_once_obstacle(root) == "/boot/grub/grubenv is not a file of 1024 bytes"


def test_the_state_of_a_boot_once_entry_is_read_from_its_file_and_grubenv(
    tmp_path: Path,
) -> None:
    own = "/etc/default/grub.d/zz-nodevet-smt.cfg"
    asked = {"resources": [{"kind": "boot_once", "name": name} for name in ("smt", "iommu", "A/b")]}
    for text, chosen, expected in (
        ("x=1\n", "nodevet-once", None),
        ('[ -z "${NODEVET_ONCE-}" ] || x=1\n', "nodevet-once", "chosen"),
        ('[ -z "${NODEVET_ONCE-}" ] || x=1\n', "", "made"),
        ('[ -z "${NODEVET_ONCE-}" ] || x=1\n', "2", "made"),
    ):
        env = BLOCK(f"saved_entry=0\nnext_entry={chosen}\n").ljust(1024, "#")
        root = put(tmp_path, {own: text, "/boot/grub/grubenv": env})
        first, second, third = look({"root": root, **asked})
        assert (first["value"], first["exists"]) == (expected, expected is not None)
        assert not second["exists"] and third["why"]
