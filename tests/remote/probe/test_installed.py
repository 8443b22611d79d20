"""Packages by name: of dpkg's status file as it is on real machines, and of what rpm prints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import program
from nodevet.remote.probe.collectors import installed
from nodevet.remote.probe.files import Absent, SectionError

Check = Callable[[str, dict[str, Any]], Any]

STATUS = """\
Package: libnvidia-compute-550
Status: install ok installed
Priority: optional
Architecture: amd64
Multi-Arch: same
Source: nvidia-graphics-drivers-550
Version: 550.90.07-0ubuntu1
Depends: libc6 (>= 2.34)
Description: NVIDIA libcompute package
 Version: 1 of a description's text
 .
 and its end

Package: libnvidia-compute-550
Status: install ok installed
Architecture: i386
Version: 550.90.07-0ubuntu1

Package: nvidia-driver-550
Status: hold ok installed
Architecture: amd64
Version: 550.90.07-0ubuntu1

Package: nvidia-dkms-550
Status: install ok half-configured
Architecture: amd64
Version: 550.90.07-0ubuntu1
Config-Version: 550.54.15-0ubuntu1

Package: nvidia-driver-535
Status: deinstall ok config-files
Architecture: amd64
Version: 535.183.01-0ubuntu1

Package: odd
Status: installed

"""


def tree(root: Path, status: str | bytes = STATUS) -> str:
    place = root / "var/lib/dpkg/status"
    place.parent.mkdir(parents=True)
    place.write_bytes(status if isinstance(status, bytes) else status.encode())
    return str(root.resolve())


def collect(root: str, *names: str) -> dict[str, Any]:
    return installed.collect(root, {"asks": {"installed": list(names)}})


def told(data: Any, name: str) -> Any:
    (found,) = [each for each in data.packages if each.name == name]
    if found.found is None:
        return found.errors["found"]
    return [
        (each.name, each.architecture, each.version, each.state, each.held) for each in found.found
    ]


def test_packages_are_found_by_name_by_architecture_and_by_pattern(
    tmp_path: Path, check: Check
) -> None:
    root = tree(tmp_path)
    version = "550.90.07-0ubuntu1"
    names = ("libnvidia-compute-550", "libnvidia-compute-550:i386", "nvidia-driver-*", "bash")
    data = check("installed", collect(root, *names, "nvidia-dkms-550", "a b", "--root", "nvidia"))
    assert data.manager == "dpkg"
    one, other = told(data, "libnvidia-compute-550")
    assert one == ("libnvidia-compute-550", "amd64", version, "installed", False)
    assert [other] == told(data, "libnvidia-compute-550:i386")
    assert told(data, "nvidia-driver-*") == [
        ("nvidia-driver-550", "amd64", version, "installed", True),
        ("nvidia-driver-535", "amd64", "535.183.01-0ubuntu1", "config-files", False),
    ]
    assert told(data, "nvidia-dkms-550")[0][2:4] == (version, "half-configured")
    assert told(data, "bash") == told(data, "nvidia") == []
    assert told(data, "a b") == told(data, "--root") == "not a valid package name"


def test_an_invalid_dpkg_status_is_reported(tmp_path: Path, check: Check) -> None:
    (odd,) = check("installed", collect(tree(tmp_path), "odd")).packages[0].found
    assert (odd.state, odd.version, odd.held) == (None, None, None)
    assert odd.errors["state"] == "not a valid status: 'installed'"


def test_nothing_is_read_unless_it_is_asked_for(check: Check) -> None:
    assert check("installed", installed.collect("/no/such/root", {})).packages == ()


def test_a_pattern_that_matches_too_many_packages_is_an_error(tmp_path: Path, check: Check) -> None:
    block = "Package: p{}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n"
    root = tree(tmp_path, "".join(block.format(number) for number in range(65)))
    data = check("installed", collect(root, "p*", "p1"))
    assert told(data, "p*") == "more than 64 packages have such a name"
    assert len(told(data, "p1")) == 1


def test_nothing_is_reported_while_dpkg_works(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (tmp_path / "var/lib/dpkg/updates").mkdir()
    assert told_of(root) == 1
    (tmp_path / "var/lib/dpkg/updates/0001").touch()
    with pytest.raises(SectionError, match="dpkg was interrupted"):
        collect(root, "odd")


def told_of(root: str) -> int:
    return len(collect(root, "odd")["packages"][0]["found"])


@pytest.mark.parametrize("status", ["nonsense\n", b"\xff\xfe\n", "Package\n\n"])
def test_a_file_that_is_not_a_dpkg_status_is_an_error(tmp_path: Path, status: str | bytes) -> None:
    with pytest.raises(ValueError, match="not a package"):
        collect(tree(tmp_path, status), "bash")


def test_the_section_is_absent_without_a_package_manager(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="neither dpkg nor rpm"):
        collect(str(tmp_path.resolve()), "bash")
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    with pytest.raises(Absent, match="on a running machine only"):
        collect(str(tmp_path.resolve()), "bash")


def test_rpm_is_run_once_for_all_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(program, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(installed, "DPKG", str(tmp_path / "status"))
    monkeypatch.setattr(installed, "RPM", (str(tmp_path),))
    (tmp_path / "status").touch()  # as the package of dpkg leaves it on a machine of RPMs
    script = tmp_path / "rpm"
    script.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-qa --queryformat" ] || exit 9\nshift 3\n'
        '[ "$*" = "kernel-core nvidia-*" ] || exit 8\n'
        'for version in 427 503; do printf "kernel-core\\tx86_64\\t5.14.0-$version.el9\\n"; done\n'
        "printf 'nvidia-fabric-manager\\tx86_64\\t3:550.90.07-1.el9\\n'\n"
    )
    script.chmod(0o755)
    data = check("installed", collect("/", "kernel-core", "nvidia-*"))
    assert data.manager == "rpm"
    assert [each[2] for each in told(data, "kernel-core")] == ["5.14.0-427.el9", "5.14.0-503.el9"]
    assert told(data, "nvidia-*") == [
        ("nvidia-fabric-manager", "x86_64", "3:550.90.07-1.el9", "installed", None)
    ]
    script.write_text("#!/bin/sh\nprintf 'warning: a lock'\n")
    with pytest.raises(ValueError, match="not a row of rpm"):
        collect("/", "nvidia-*")


def test_packages_of_this_machine_are_read(check: Check) -> None:
    if not Path(installed.DPKG).is_file():
        pytest.skip("dpkg keeps nothing here")
    (found,) = check("installed", collect("/", "dpkg")).packages[0].found
    assert found.state == "installed" and found.version
