"""Which entry a node boots: by its menu, and by what `grub-reboot` and `grub-set-default` chose."""

from pathlib import Path

import pytest

from nodevet_sim.nspawn.grub import BLOCK, booted

MENU = """\
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    save_env saved_entry
  fi
}
menuentry 'Debian' --class os --id 'simple' {
    if [ x$feature_platform_search_hint = xy ]; then search x; else linux /wrong; fi
    linux   /vmlinuz-2 root=/dev/vda ro
}
submenu 'More' --id 'more' {
    menuentry 'Two' --id 'two' {
        linux /vmlinuz-2 two
    }
    menuentry 'One' --id 'one' {
        linux /vmlinuz-1 one
    }
}
menuentry 'Once' --unrestricted --id 'once' {
    configfile $prefix/other.cfg
}
"""


def disk(root: Path, default: str, **env: str) -> Path:
    folder = root / "boot/grub"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grub.cfg").write_text(MENU.replace("DEFAULT", default))
    (folder / "other.cfg").write_text("menuentry 'x' {\n  linux /vmlinuz-2 new\n}\n")
    rows = "".join(f"{name}={value}\n" for name, value in env.items())
    (folder / "grubenv").write_text(f"# GRUB Environment Block\n{rows}".ljust(BLOCK, "#"))
    return root


@pytest.mark.parametrize(
    ("default", "line"),
    [
        ("0", "BOOT_IMAGE=/vmlinuz-2 root=/dev/vda ro"),
        ("simple", "BOOT_IMAGE=/vmlinuz-2 root=/dev/vda ro"),
        ("1>1", "BOOT_IMAGE=/vmlinuz-1 one"),
        ("More>Two", "BOOT_IMAGE=/vmlinuz-2 two"),
        ("more>one", "BOOT_IMAGE=/vmlinuz-1 one"),
        ("gone", "BOOT_IMAGE=/vmlinuz-2 root=/dev/vda ro"),
        ("${saved_entry}", "BOOT_IMAGE=/vmlinuz-1 one"),
    ],
)
def test_the_default_entry_boots(tmp_path: Path, default: str, line: str) -> None:
    assert booted(disk(tmp_path, default, saved_entry="more>one")) == line


def test_what_grub_reboot_chose_holds_for_one_boot(tmp_path: Path) -> None:
    root = disk(tmp_path, "0", saved_entry="x", next_entry="once")
    assert booted(root) == "BOOT_IMAGE=/vmlinuz-2 new"
    block = (root / "boot/grub/grubenv").read_bytes()
    assert len(block) == BLOCK and b"next_entry=\n" in block and b"saved_entry=x\n" in block
    assert booted(root) == "BOOT_IMAGE=/vmlinuz-2 root=/dev/vda ro"


def test_a_disk_without_a_grub_menu_has_no_command_line(tmp_path: Path) -> None:
    assert booted(tmp_path) is None
    (disk(tmp_path, "0") / "boot/grub/grub.cfg").write_text("menuentry 'x' {\n}\n")
    assert booted(tmp_path) is None
