"""What is shipped: the wheel built from the sdist, in a place of its own."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
TOP = ("checks", "fixes", "baselines")


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (REPO / name).is_file()]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((REPO / name).read_bytes())
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def names(dist: Path) -> set[str]:
    (wheel,) = dist.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def site(dist: Path) -> Path:
    """The wheel, unpacked as pip would install it."""
    (wheel,) = dist.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(dist / "site")
    return dist / "site"


def test_the_only_import_name_is_nodevet(names: set[str]) -> None:
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"nodevet"}


def test_every_module_is_in_the_wheel(names: set[str]) -> None:
    modules = [
        name if name.startswith("nodevet/") else f"nodevet/{name}"
        for name in tracked()
        if name.endswith(".py") and name.split("/")[0] in (*TOP, "nodevet")
    ]
    assert len(modules) > 30
    assert sorted(set(modules) - names) == []


def test_data_files_are_in_the_wheel(names: set[str]) -> None:
    data = [
        name
        for name in tracked()
        if name.split("/")[0] in (*TOP, "nodevet") and not name.endswith(".py")
    ]
    shipped = {name if name.startswith("nodevet/") else f"nodevet/{name}" for name in data}
    assert any(name.endswith(".yaml") for name in shipped)
    assert any(name.endswith(".c") for name in shipped)
    assert sorted(shipped - names) == []


def test_the_sdist_holds_tests_and_docs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert sorted(set(tracked()) - inside - {".gitignore", "MANIFEST.in"}) == []


def test_the_installed_wheel_runs(site: Path, tmp_path: Path) -> None:
    code = (
        "import nodevet, sys; assert nodevet.__file__.startswith(sys.argv[1]), nodevet.__file__;"
        "sys.argv = ['nodevet', 'list', 'checks']; from nodevet.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "persistence_mode" in done.stdout
