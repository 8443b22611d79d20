"""What is shipped: two distributions, each wheel built from its sdist, installed on their own."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from email.message import Message
from functools import cache
from pathlib import Path, PurePath
from types import SimpleNamespace

import pytest

import nodevet
from nodevet_sim.nspawn.needs import missing

REPO = Path(__file__).parents[1]
MAPPED = ("checks", "fixes", "baselines")
DATA = {".css", ".js", ".json", ".jinja", ".typed", ".yaml"}
SHARED = {".1", ".fish", ""}  # the man page, and the scripts of shells
SIMULATOR = re.compile(rb"simulat|nodevet[-_]sim", re.I)
NAMED = (  # how to install it, what its files are, and which version of it is here
    b"in a clone of nodevet, run: pip install ./sim",
    b'"a scenario of simulated nodes"',
    b'"nodevet-sim": "nodevet-sim"',
)

Run = Callable[..., subprocess.CompletedProcess[str]]


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (REPO / name).is_file()]


def own(name: str) -> str:
    """Where a file of the repository is in nodevet's wheel; empty for one that is not."""
    top = name.split("/", maxsplit=1)[0]
    if top == "share":
        return f"nodevet-{nodevet.__version__}.data/data/{name}"
    return name if top == "nodevet" else f"nodevet/{name}" if top in MAPPED else ""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimpleNamespace]:
    """By distribution: the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((REPO / name).read_bytes())
    found = {}
    for name, place in (("nodevet", source), ("nodevet-sim", source / "sim")):
        into = folder / name
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into)]
        done = subprocess.run([*build, str(place)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
        found[name] = SimpleNamespace(sdist=sdist, wheel=wheel)
    return found


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.split("/")[0].endswith(".dist-info")
        }


def metadata(wheel: Path) -> tuple[Message, set[str]]:
    """METADATA, and the names of the files of the .dist-info folder."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" in name}
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        message = message_from_bytes(archive.read(path))
    return message, {name.split("/", 1)[1] for name in names}


def test_the_wheel_of_nodevet_holds_its_packages_and_nothing_else(built) -> None:
    shipped = set(contents(built["nodevet"].wheel))
    assert len(shipped) > 200
    assert shipped == {own(name) for name in tracked()} - {""}
    assert {PurePath(name).suffix for name in shipped} - {".py"} == DATA | SHARED


def test_the_wheel_of_nodevet_mentions_the_simulator_only_in_known_lines(built) -> None:
    found = [
        (name, line)
        for name, content in contents(built["nodevet"].wheel).items()
        for line in content.splitlines()
        if SIMULATOR.search(line)
    ]
    assert len(found) == len(NAMED), found
    assert all(any(name in line for name in NAMED) for _, line in found), found


def test_the_wheel_of_the_simulator_holds_all_of_it_and_nothing_else(built) -> None:
    shipped = set(contents(built["nodevet-sim"].wheel))
    assert shipped == {
        name.removeprefix("sim/") for name in tracked() if name.startswith("sim/nodevet_sim/")
    }
    assert {".c", ".h", ".service", ".yaml", ".state"} < {PurePath(name).suffix for name in shipped}


@pytest.mark.parametrize("name", ["nodevet", "nodevet-sim"])
def test_both_wheels_have_the_same_version_a_readme_and_the_license(built, name: str) -> None:
    fields, files = metadata(built[name].wheel)
    assert fields["Version"] == nodevet.__version__
    assert fields["License-Expression"] == "Apache-2.0"
    assert f"# {name}\n" in fields.get_payload()
    assert "licenses/LICENSE" in files
    assert (REPO / "LICENSE").read_bytes() == (REPO / "sim/LICENSE").read_bytes()


@pytest.mark.parametrize("name", ["nodevet", "nodevet-sim"])
def test_links_of_the_readme_exist(built, name: str) -> None:
    """Links of a README that lead into the repository lead nowhere on another page."""
    fields, _ = metadata(built[name].wheel)
    text = fields.get_payload()
    assert fields["Description-Content-Type"] == "text/markdown"
    assert fields["Author"] == "nodevet contributors"
    assert fields["Keywords"] and len(fields.get_all("Classifier")) > 5
    urls = dict(url.split(", ") for url in fields.get_all("Project-URL"))
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert [url for url in pictures if "/raw/main/" not in url] == []
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith((urls["Homepage"], "#"))] == []
    for link in [*links, *urls.values()]:
        _, found, path = link.replace("/raw/", "/blob/").partition("/blob/main/")
        assert not found or (REPO / path.partition("#")[0]).exists(), link


def test_the_simulator_needs_the_nodevet_of_its_own_version(built) -> None:
    fields, _ = metadata(built["nodevet-sim"].wheel)
    assert f"nodevet=={nodevet.__version__}" in fields.get_all("Requires-Dist")


def test_the_sdist_of_nodevet_is_the_whole_repository(built) -> None:
    assert sorted(set(tracked()) - packed(built["nodevet"].sdist)) == []


def test_the_sdist_of_the_simulator_is_its_folder(built) -> None:
    wanted = {name.removeprefix("sim/") for name in tracked() if name.startswith("sim/")}
    assert sorted(wanted - packed(built["nodevet-sim"].sdist)) == []


def packed(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.split("/", 1)[-1] for name in archive.getnames()}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is installed here, without nodevet and nodevet-sim."""
    folder = tmp_path_factory.mktemp("others")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"nodevet|__editable__|.*\.pth$", entry.name):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def installed(
    built: dict[str, SimpleNamespace], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Installs wheels, once, into a folder of their own."""
    folder = tmp_path_factory.mktemp("installed")

    @cache
    def into(*distributions: str) -> Path:
        site = folder / "-".join(distributions)
        wheels = [str(built[name].wheel) for name in distributions]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        done = subprocess.run(
            [*pip, "--disable-pip-version-check", "--target", str(site), *wheels],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return site

    return into


@pytest.fixture
def install(installed: Callable[..., Path], others: Path, tmp_path: Path) -> Callable[..., Run]:
    """Installs wheels; returns what runs `nodevet` from there."""

    def into(*distributions: str) -> Run:
        site = installed(*distributions)

        def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
            done = subprocess.run(
                [sys.executable, "-S", "-m", "nodevet", *map(str, arguments)],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": f"{site}:{others}"},
                capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert "Traceback" not in done.stderr, done.stderr
            return done

        return run

    return into


def test_nodevet_runs_without_the_simulator(install: Callable[..., Run]) -> None:
    run = install("nodevet")
    listed = run("list", "checks")
    assert listed.returncode == 0, listed.stderr
    assert "persistence_mode" in listed.stdout
    assert "\n  sim " not in run("--help").stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("up", "demo"), ("-x", "--", "-y")])
def test_without_the_simulator_its_command_says_how_to_install_it(
    install: Callable[..., Run], arguments: tuple[str, ...]
) -> None:
    done = install("nodevet")("sim", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "nodevet: simulated nodes are not installed; "
        "in a clone of nodevet, run: pip install ./sim\n"
    )


@pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))
@pytest.mark.timeout(1500)
def test_the_installed_wheels_boot_and_vet_a_node(
    install: Callable[..., Run], tmp_path: Path
) -> None:
    run = install("nodevet", "nodevet-sim")
    assert "\n  sim " in run("--help").stdout
    name = f"wheel{os.getpid()}"
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("sim: 1\nnodes:\n  gpu001: {gpus: h100-sxm}\n")
    up = run("sim", "up", scenario, "--name", name)
    try:
        assert up.returncode == 0, up.stderr
        (tmp_path / "inventory.yaml").write_text(run("sim", "inventory", name).stdout)
        vetted = run("check", "-i", tmp_path / "inventory.yaml")
        assert vetted.returncode == 0, vetted.stdout + vetted.stderr
    finally:
        down = run("sim", "down", name)
    assert down.returncode == 0, down.stderr


SWEEP = """
import sys
OTHERS = "fix.", "fixing", "fixes.", "resource", "remote.", "baseline.schema"
PROBE = "nodevet.remote.probe"  # packages of a docstring, below which the payload finds its code
SHARED = {"nodevet.remote.digest", PROBE, f"{PROBE}.collectors"}  # digest hashes baselines too
from nodevet.cli import main
sys.argv = ["nodevet", "check", "-i", "fleet.yaml", "--format", "json"]
try:
    main()
except SystemExit:
    begin = tuple(f"nodevet.{name}" for name in OTHERS)
    found = (name for name in sys.modules if name.startswith(begin) and name not in SHARED)
    print(*found, file=sys.stderr)
"""


def test_a_sweep_starts_without_what_only_fixes_need(tmp_path: Path) -> None:
    hosts = "nodevet: 1\nhosts:\n  gpu1: {address: 127.0.0.1, port: 9}\n"
    (tmp_path / "fleet.yaml").write_text(hosts)
    words = [sys.executable, "-c", SWEEP]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert '"unreachable"' in done.stdout
    assert done.stderr.strip() == ""
