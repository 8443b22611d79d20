"""DKMS's tree as dkms(8) leaves it, and the firmware's variable, on trees of files."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import dkms, modules
from nodevet.remote.probe.files import Absent
from nodevet.remote.state.dkms import look

Check = Callable[[str, dict[str, Any]], Any]

OLD, NEW = "5.15.0-105-generic", "5.15.0-107-generic"


def installed(root: Path, module: str, kernel: str, *, files: tuple[str, ...], place: str) -> None:
    tree = root / "var/lib/dkms" / module
    built = tree / "550.90.07" / kernel / "x86_64/module"
    built.mkdir(parents=True)
    (tree / f"kernel-{kernel}-x86_64").symlink_to(f"550.90.07/{kernel}/x86_64")
    target = root / "lib/modules" / kernel / place
    target.mkdir(parents=True, exist_ok=True)
    for name in files:
        (built / name).touch()
        (target / name).touch()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    for path in (
        f"boot/vmlinuz-{OLD}",
        f"lib/modules/{NEW}/vmlinuz",
        "lib/modules/4.9/modules.dep",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text(f"{OLD}\n")
    files = ("nvidia.ko.zst", "nvidia-uvm.ko.zst")
    installed(root, "nvidia", OLD, files=files, place="updates/dkms")
    installed(root, "nvidia", NEW, files=files, place="extra")
    (root / "var/lib/dkms/nvidia/550.54.15").mkdir()
    (root / "var/lib/dkms/dkms_dbversion").write_text("2.0.0\n")
    return root


def test_what_is_installed_for_which_kernel(tree: Path, check: Check) -> None:
    found = check("dkms", dkms.collect(str(tree), {}))
    assert found.running == OLD
    assert found.kernels == (OLD, NEW)
    (nvidia,) = found.modules
    told = {each.kernel: (each.version, each.missing) for each in nvidia.builds}
    assert told == {OLD: ("550.90.07", 0), NEW: ("550.90.07", 0)}


def test_a_build_whose_files_are_gone(tree: Path, check: Check) -> None:
    (tree / f"lib/modules/{NEW}/extra/nvidia-uvm.ko.zst").unlink()
    (nvidia,) = check("dkms", dkms.collect(str(tree), {})).modules
    assert {each.kernel: each.missing for each in nvidia.builds} == {OLD: 0, NEW: 1}


def test_kernels_are_unknown_if_none_is_installed(tree: Path, check: Check) -> None:
    (tree / f"boot/vmlinuz-{OLD}").unlink()
    (tree / f"lib/modules/{NEW}/vmlinuz").unlink()
    found = check("dkms", dkms.collect(str(tree), {}))
    assert found.kernels is None and found.errors["kernels"] == "no kernel is installed here"


def test_an_unreadable_folder_is_an_error_and_not_empty(
    tree: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    def closed(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(dkms.os, "lstat", closed)
    assert check("dkms", dkms.collect(str(tree), {})).errors["kernels"] == "EACCES"


def test_a_link_that_leads_out_of_the_dkms_tree_is_an_error(tree: Path, check: Check) -> None:
    place = tree / f"var/lib/dkms/nvidia/kernel-{NEW}-x86_64"
    place.unlink()
    place.symlink_to("/etc")
    (nvidia,) = check("dkms", dkms.collect(str(tree), {})).modules
    assert nvidia.builds is None and "leads to" in nvidia.errors["builds"]


def test_the_section_is_absent_if_dkms_has_no_modules(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Absent, match="DKMS has no modules here"):
            dkms.collect(str(tmp_path.resolve()), {})
        (tmp_path / "var/lib/dkms").mkdir(parents=True, exist_ok=True)


def secure_boot(root: Path, check: Check) -> Any:
    found = check("modules", modules.collect(str(root.resolve()), {}))
    return found.errors.get("secure_boot") if found.secure_boot is None else found.secure_boot


def test_secure_boot_as_the_firmware_says_it(tmp_path: Path, check: Check) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/modules").write_text("")
    assert secure_boot(tmp_path, check) is False
    variables = tmp_path / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    assert "efivarfs has no variable SecureBoot" in secure_boot(tmp_path, check)
    variable = variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    for data, told in (
        (b"\6\0\0\0\1", True),
        (b"\6\0\0\0\0", False),
        (b"\1", "not a valid variable SecureBoot"),
        (b"\6\0\0\0\7", "not a valid variable SecureBoot"),
    ):
        variable.write_bytes(data)
        assert secure_boot(tmp_path, check) == told


def test_the_release_of_ofed(tmp_path: Path, check: Check) -> None:
    place = tmp_path / "sys/module/mlx5_core"
    found = check("modules", modules.collect(str(tmp_path.resolve()), {}))
    assert found.errors["mlx5_core_version"] == "mlx5_core is not loaded"
    place.mkdir(parents=True)
    found = check("modules", modules.collect(str(tmp_path.resolve()), {}))
    assert found.mlx5_core_version == ""
    (place / "version").write_text("24.10-1.1.4\n")
    found = check("modules", modules.collect(str(tmp_path.resolve()), {}))
    assert found.mlx5_core_version == "24.10-1.1.4"


def test_versions_and_headers_are_those_that_dkms_can_use(tree: Path, check: Check) -> None:
    tree.joinpath("usr/src/nvidia-550.54.15").mkdir(parents=True)
    for version in ("550.54.15", "550.90.07"):
        source = tree / "var/lib/dkms/nvidia" / version / "source"
        source.symlink_to(f"/usr/src/nvidia-{version}")  # one leads nowhere
    tree.joinpath("lib/modules", NEW, "build/include").mkdir(parents=True)
    tree.joinpath("lib/modules", OLD, "build").symlink_to("/usr/src/linux-headers-gone")
    found = check("dkms", dkms.collect(str(tree), {}))
    assert (found.modules[0].versions, found.headers) == (("550.54.15",), (NEW,))


def test_the_state_of_a_module_for_a_kernel(tree: Path) -> None:
    def state(version: str, kernel: str) -> object:
        answer = look(str(tree), f"nvidia/{version}/{kernel}")
        return answer["value"] if answer["exists"] else "absent"

    assert state("550.90.07", OLD) == "absent"
    tree.joinpath("var/lib/dkms/nvidia/550.90.07/source").mkdir()
    tree.joinpath("var/lib/dkms/nvidia/550.54.15/source").mkdir()
    tree.joinpath("var/lib/dkms/nvidia/550.54.15", OLD, "x86_64").mkdir(parents=True)
    states = [state(v, k) for v in ("550.90.07", "550.54.15") for k in (OLD, NEW, "6.1")]
    assert states == ["installed", "installed", "added", "built", "added", "added"]
    for name in ("nvidia/1", "nvidia/../etc", "a/b/c/d", "-m/1/2", "a b/1/2"):
        with pytest.raises(ValueError, match="not NAME/VERSION/KERNEL"):
            look(str(tree), name)
