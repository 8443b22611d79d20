"""The driver's packages as dpkg and rpm have them; programs that stand for these answer in
every wrong way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from nodevet.checks.driver_version import specifiers
from nodevet.remote import program
from nodevet.remote.probe import driver_rpms
from nodevet.remote.probe.collectors import packages
from nodevet.remote.probe.files import Absent, SectionError

Check = Callable[[str, dict[str, Any]], Any]
Install = Callable[..., None]
V = "550.54.14"

# dpkg 1.21, as `packages.ROW` asks for it
INSTALLED = """\
ii \tdpkg\tamd64\t1.21.22
ii \tlibnvidia-compute-550:amd64\tamd64\t550.54.14-0ubuntu1
ii \tlibnvidia-compute-550:i386\ti386\t550.54.14-0ubuntu1
hi \tnvidia-driver-550\tamd64\t550.54.14-0ubuntu1
iF \tnvidia-dkms-550\tamd64\t550.54.14-0ubuntu1
ii \tnvidia-firmware-550-550.54.14\tamd64\t550.54.14-0ubuntu1
ii \tlibcuda1:amd64\tamd64\t1:550.54.14-1~deb12u1
ii \tbash\tamd64\t5.2-1
rc \tnvidia-driver-535\tamd64\t535.1.2-1
un \tnvidia-driver\tamd64\t
"""
# apt 2.6: `apt-cache madison -- ...`
OFFERED = """\
libnvidia-compute-550 | 550.90.07-0ubuntu1 | https://repo.example x/main amd64 Packages
libnvidia-compute-550 | 550.90.07-0ubuntu1 | file:/srv/repo ./ Packages
libnvidia-compute-550 | 550.54.14-0ubuntu1 | https://repo.example x/main amd64 Packages
libnvidia-compute-550:i386 | 550.54.14-0ubuntu1 | https://repo.example x/main i386 Packages
nvidia-driver-550 | 550.90.07-0ubuntu1 | https://repo.example x/main amd64 Packages
nvidia-driver-550 | 999-1 | https://repo.example x/main Sources
nvidia-firmware-550-550.90.07 | 550.90.07-0ubuntu1 | https://repo.example x/main amd64 Packages
"""


def script(text: str) -> str:
    return f"cat <<'EOF'\n{text}EOF\n"


APT_CACHE = f"""\
[ "$1 $2 $3 $4" = "-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=" ] || exit 9
shift 4; [ "$2" = -- ] || exit 9
case $1 in
pkgnames) [ "$3" = nvidia-firmware-550- ] || exit 9
    echo nvidia-firmware-550-550.90.07; echo nvidia-firmware-550-server-550.90.07;;
madison) case " $* " in *" nvidia-firmware-550-550.90.07 "*) ;; *) exit 9;; esac
{script(OFFERED)}
esac
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A machine with these programs, on which this driver runs."""

    def install(running: str | None = V, **scripts: str) -> None:
        for name, text in scripts.items():
            place = tmp_path / name.replace("_", "-")
            place.write_text(f"#!/bin/sh\n{text}")
            place.chmod(0o755)
        for name, text in {"version": running, "status": "Package: a\n", "states": None}.items():
            if text is not None:
                (tmp_path / name).write_text(text)
        monkeypatch.setattr(program, "FOLDERS", (str(tmp_path / "gone"), str(tmp_path)))
        monkeypatch.setattr(packages, "RUNNING", str(tmp_path / "version"))
        monkeypatch.setattr(packages, "DPKG", str(tmp_path / "status"))
        monkeypatch.setattr(packages, "STATES", str(tmp_path / "states"))

    return install


def collect(*wanted: str, root: str = "/") -> Any:
    return packages.collect(root, {"asks": {"packages": list(wanted)}})


def test_the_packages_with_what_the_repositories_have(
    node: Install, check: Check, tmp_path: Path
) -> None:
    node(dpkg_query=script(INSTALLED), apt_cache=APT_CACHE)
    (tmp_path / "states").write_text(
        "Package: libnvidia-compute-550\nArchitecture: amd64\nAuto-Installed: 1\n\n"
        "Package: nvidia-driver-550\nArchitecture: amd64\nAuto-Installed: 0\n"
    )
    found = check("packages", collect(">=560"))
    assert found.manager == "dpkg"
    new, old = "550.90.07-0ubuntu1", "550.54.14-0ubuntu1"
    told = {
        each.name: (each.version, each.held, each.automatic, each.offers) for each in found.packages
    }
    assert told == {
        "libnvidia-compute-550:amd64": (old, False, True, (new, old)),
        "libnvidia-compute-550:i386": (old, False, False, (old,)),
        "nvidia-driver-550": (old, True, False, (new,)),
        "nvidia-dkms-550": (None, False, False, ()),
        "nvidia-firmware-550-550.54.14": (old, False, False, ()),
        "libcuda1:amd64": ("1:550.54.14-1~deb12u1", False, False, ()),
        "nvidia-firmware-550-550.90.07": (None, None, None, (new,)),
    }
    why = {each.name: each.errors.get("version") for each in found.packages if each.errors}
    assert why == {
        "nvidia-dkms-550": "dpkg: not fully installed: 'iF'",
        "nvidia-firmware-550-550.90.07": packages.NOT_INSTALLED,
    }


@pytest.mark.parametrize(
    ("apt_cache", "why"),
    [
        ("echo E: The list of sources could not be read. >&2; exit 100", "ended with 100: 'E: The"),
        ("echo rubbish", "not a row of apt-cache madison: 'rubbish'"),
        ("exec yes 'a | 1 | x Packages'", "printed more than 0 MiB"),
        ("exec sleep 60", "timed out after 1 s"),
        (None, "apt-cache is not on this node"),
    ],
)
def test_repositories_that_cannot_be_asked(
    node: Install, check: Check, monkeypatch: pytest.MonkeyPatch, apt_cache: str | None, why: str
) -> None:
    scripts = {"apt_cache": apt_cache} if apt_cache else {}
    node(dpkg_query=script("ii \tnvidia-driver-550\tamd64\t550.54.14-1\n"), **scripts)
    monkeypatch.setattr(packages, "SECONDS", 1)
    monkeypatch.setattr(packages, "OUTPUT", 1 << 16)
    (driver,) = check("packages", collect("550.90.07")).packages
    assert (driver.version, driver.offers) == ("550.54.14-1", None)
    assert why in driver.errors["offers"]


@pytest.mark.parametrize(
    ("dpkg_query", "why"),
    [
        ("exit 2", "dpkg-query ended with 2: ''"),
        ("echo rubbish", "not a row of dpkg-query: 'rubbish'"),
        ("i=0; while [ $i -lt 301 ]; do i=$((i+1)); printf 'ii \\tnvidia-%s\\ta\\t1\\n' $i; done",
         "more than 300 NVIDIA packages"),
        ("kill -9 $$", "dpkg-query ended with -9"),
    ],
)  # fmt: skip
def test_packages_that_cannot_be_asked(node: Install, dpkg_query: str, why: str) -> None:
    node(dpkg_query=dpkg_query)
    with pytest.raises(SectionError, match=why):
        collect("550.90.07")


def test_invalid_package_names_and_versions_are_dropped(node: Install, check: Check) -> None:
    rows = "ii \tnvidia-$(reboot)\ta\t1\nii \tnvidia-a\ta\t1;reboot\nii \tnvidia-b\ta\t1\n"
    offers = "nvidia-b | 2 `x` | y Packages\nnvidia-b | 3 | y Packages\n-o | 3 | y Packages\n"
    node(dpkg_query=script(rows), apt_cache=script(offers))
    found = check("packages", collect("550.90.07")).packages
    assert [(each.name, each.version, each.offers) for each in found] == [
        ("nvidia-a", None, ()),
        ("nvidia-b", "1", ("3",)),
    ]


def test_packages_of_rpm_are_read(
    node: Install, check: Check, tmp_path: Path, monkeypatch: Any
) -> None:
    rows = (
        "bash.x86_64\t5.2-1\nnvidia-driver.x86_64\t3:550.54.14-1.el9\n"
        "kmod-nvidia.x86_64\t1-1\nkmod-nvidia.x86_64\t2-1\n"
    )
    node(rpm=script(rows))
    (tmp_path / "status").write_text("")  # a machine with rpm may have one
    monkeypatch.setattr(packages, "RPM", (str(tmp_path / "gone"), str(tmp_path)))
    monkeypatch.setattr(driver_rpms, "DNF4", str(tmp_path / "gone"))
    monkeypatch.setattr(driver_rpms, "ZYPPER", str(tmp_path / "gone"))
    found = check("packages", collect("550.90.07"))
    assert found.manager == "rpm"
    driver, module = found.packages
    assert (driver.name, driver.version) == ("nvidia-driver.x86_64", "3:550.54.14-1.el9")
    assert driver.errors["offers"] == driver_rpms.NO_MANAGER
    assert module.errors["version"] == driver_rpms.SEVERAL
    monkeypatch.setattr(packages, "RPM", ())
    with pytest.raises(Absent, match="neither dpkg nor rpm"):
        collect("550.90.07")


def test_packages_are_read_only_if_the_driver_differs_from_the_baseline(
    node: Install, check: Check, tmp_path: Path
) -> None:
    node(dpkg_query="exit 1")
    assert check("packages", collect()).why("packages") == packages.NOT_ASKED
    as_wanted = check("packages", collect(">=550,<560", V))
    assert as_wanted.why("packages") == as_wanted.why("manager") == packages.AS_EXPECTED
    for wanted in (["550.90.07"], [V, ">=560"], ["~=550.1"]):
        with pytest.raises(SectionError):
            collect(*wanted)
    node(running=None, dpkg_query="exit 1")
    (tmp_path / "version").unlink()
    with pytest.raises(SectionError):
        collect(V)
    with pytest.raises(Absent, match="a running machine only"):
        collect(V, root=str(tmp_path))


PARTS = st.integers(0, 20).map(str)
VERSIONS = st.lists(PARTS, min_size=1, max_size=3).map(".".join)
CLAUSES = st.tuples(
    st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~="]),
    VERSIONS,
    st.sampled_from(["", ".*"]),
).map("".join)


@given(VERSIONS, st.lists(CLAUSES, min_size=1, max_size=3).map(",".join))
def test_the_probe_admits_no_version_that_the_check_does_not(version: str, text: str) -> None:
    """Where it does not say so it may still be admitted, and somebody looks for nothing."""
    fits = packages.is_admitted(version, text)
    try:
        admitted = specifiers(text).contains(Version(version))
    except ValueError:
        assert not fits
    else:
        assert fits is admitted or (not fits and "~=" in text)


def test_a_program_is_killed_at_its_time_limit_whatever_it_does_with_its_output(
    tmp_path: Path,
) -> None:
    for text, why in (
        ("exec sleep 60", r"timed out after 0\.2 s"),
        ("exec 1>&- 2>&-; exec sleep 60", r"timed out after 0\.2 s"),
        ("exec yes >&2", r"timed out after 0\.2 s"),
    ):
        with pytest.raises(SectionError, match=why):
            program.output_of(("/bin/sh", "-c", text), 0.2, 100)
    with pytest.raises(SectionError, match="cannot be run: ENOENT"):
        program.output_of((str(tmp_path / "gone"),), 1, 100)
    words = ("/bin/sh", "-c", "echo $LC_ALL; printf '\\377'")
    assert program.output_of(words, 9, 100) == "C\n\\xff"


ORDINARY = (1 << 31) - 1  # signals 1 to 31; those after them are the C library's own


def test_a_program_starts_as_from_a_shell() -> None:
    text = "pwd; grep SigIgn /proc/self/status; ls /proc/self/fd | wc -l; kill -9 $$"
    code, told, _ = program.run(("/bin/sh", "-c", text))
    folder, _, ignored, descriptors = told.split()
    assert (code, folder, descriptors) == (-9, "/", "4")
    assert int(ignored, 16) & ORDINARY == 0
