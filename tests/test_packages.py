"""What the Debian and RPM packages are built from. `.ci/packages` builds and installs them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nodevet.settings import settings

PACKAGES = Path(__file__).parents[1] / "packages"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PACKAGES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build, wheels = script("build"), script("wheels")


def test_every_wheel_of_a_package_is_pinned_by_its_hash() -> None:
    names = wheels.needed()
    assert {"pyinfra", "sqlalchemy", "apprise", "pg8000"} <= names
    assert names & {"pyarrow", "distributed", "pytest"} == set()
    entries = wheels.pinned(names)
    assert len(entries) >= len(names)
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_a_wheel_without_a_pin_is_refused() -> None:
    with pytest.raises(SystemExit, match="does not pin nosuch"):
        wheels.pinned({"rich", "nosuch"})


def test_the_units_start_the_package_s_nodevet_with_the_files_in_etc() -> None:
    units = dict(build.unit_files())
    assert set(units) == {
        *("nodevet-gate.service", "nodevet-sweep@.service", "nodevet-sweep@.timer"),
    }
    sweep, gate = units["nodevet-sweep@.service"], units["nodevet-gate.service"]
    command = '/usr/bin/nodevet sweep "%i" --config /etc/nodevet/nodevet.toml --jitter 0s'
    assert f"\nExecStart={command}\n" in sweep
    assert "\nUser=nodevet\n" in sweep and "%%i" not in "".join(units.values())
    assert " /usr/bin/nodevet gate @local -b /etc/nodevet/gate.yaml --wait 600s " in gate
    assert sweep.startswith("# nodevet-sweep@.service\n")


def test_the_settings_in_etc_are_valid_as_they_are_and_without_their_comment_signs(
    tmp_path: Path,
) -> None:
    text = (PACKAGES / "etc/nodevet.toml").read_text()
    _, _, example = text.partition("\n#\n")
    file = tmp_path / "nodevet.toml"
    file.write_text(text)
    assert settings(file).settings.sweep == {}
    file.write_text(re.sub(r"(?m)^# ?", "", example))
    site = settings(file)
    assert site.store_url == "sqlite:////var/lib/nodevet/history.sqlite"
    assert list(site.settings.sweep) == ["nightly"]


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts_are_posix_shell_and_delete_no_user_files(
    name: str,
) -> None:
    path = PACKAGES / "deb" / name
    subprocess.run(["sh", "-n", path], check=True)
    text = path.read_text().replace("rm -rf /var/cache/nodevet\n", "")  # what root may lose
    assert text.startswith("#!/bin/sh\nset -e\n")
    assert re.search(r"\brm\b|\bfind\b|--purge|userdel -r", text) is None


def test_the_package_names_the_python_that_it_is_built_for() -> None:
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    assert Path(python).name == build.PYTHON
    control = (PACKAGES / "deb/control").read_text()
    assert "\nDepends: ${python}, " in control
    assert "\nRequires: /usr/bin/${python}\n" in (PACKAGES / "nodevet.spec").read_text()


@pytest.mark.parametrize(
    ("names", "glibc"),
    [
        (
            ["a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64"],
            "2.17",
        ),
        (["a-1-cp311-abi3-manylinux_2_34_x86_64", "b-1-py3-none-any"], "2.34"),
    ],
)
def test_the_package_needs_the_glibc_of_its_newest_library(
    names: list[str], glibc: str, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / f"{name}.whl").touch()
    assert build.fields(tmp_path)["glibc"] == glibc
