"""What others' tools read here: the Dockerfile, its ignore list, pre-commit's hook."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).parents[1]
PINS = (REPO / ".ci/requirements.txt").read_text()
HOOK_KEYS = {"id", "name", "description", "entry", "language", "files"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its words on one line."""
    text = re.sub(r"(?m)^#.*\n", "", (REPO / "Dockerfile").read_text()).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line.strip()]


def admitted() -> list[str]:
    """The tracked files that .dockerignore lets into the build, which begins by excluding all."""
    lines = (REPO / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    wanted = tuple(rule[1:] for rule in rules[1:] if rule.startswith("!"))
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    return [
        name
        for name in listed.stdout.splitlines()
        if any(name == rule or (rule[-1] == "/" and name.startswith(rule)) for rule in wanted)
    ]


def test_the_image_runs_as_a_user_of_its_own_from_pinned_wheels() -> None:
    steps = instructions()
    assert {word for word, _ in steps} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"),
    }
    images = [words.split()[0] for word, words in steps if word == "FROM"]
    assert len(images) == 2 and all(re.fullmatch(r"python:3\.\d+-slim", name) for name in images)
    last = steps[max(number for number, (word, _) in enumerate(steps) if word == "FROM") :]
    assert [words for word, words in last if word == "USER"] == ["nodevet"]
    assert [word for word, _ in last].index("USER") > [word for word, _ in last].index("RUN")
    assert ("ENTRYPOINT", '["nodevet"]') in last
    commands = [part for word, words in steps if word == "RUN" for part in words.split("&&")]
    for command in (part for part in commands if re.search(r"\bpip (install|wheel)\b", part)):
        own = "--no-build-isolation" in command and shlex.split(command)[-1] == "."
        assert "--require-hashes" in command or "--no-index" in command or own, command


def test_every_dependency_is_among_the_pins() -> None:
    """So that the second stage installs nodevet without an index."""
    pinned = {canonicalize_name(name) for name in re.findall(r"(?m)^([\w.-]+)==", PINS)}
    found, left = set(), ["nodevet"]
    while left:
        for text in requires(left.pop()) or ():
            wanted = Requirement(text)
            name = canonicalize_name(wanted.name)
            if (wanted.marker is None or wanted.marker.evaluate({"extra": ""})) and (
                name not in found
            ):
                found.add(name)
                left.append(name)
    assert len(found) > 20
    assert found - pinned == set()


def test_the_build_gets_what_a_wheel_is_made_of(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in admitted():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, source / name)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    shipped = {"nodevet", "checks", "fixes", "baselines", "share"}
    assert len(names) == len([name for name in admitted() if name.split("/")[0] in shipped])


def no_builder() -> str:
    docker = shutil.which("docker")
    if docker is None:
        return "no container builder: no docker"
    done = subprocess.run([docker, "info"], capture_output=True, text=True)
    return "" if done.returncode == 0 else "no container builder: no docker daemon"


@pytest.mark.timeout(900)
def test_the_image_builds_and_runs() -> None:
    if why := no_builder():
        pytest.skip(why)
    subprocess.run(["docker", "build", "-q", "-t", "nodevet-test", str(REPO)], check=True)
    words = ["docker", "run", "--rm", "nodevet-test", "list", "checks"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, "persistence_mode" in done.stdout) == (0, True), done.stderr


def test_the_hook_lints_the_baselines_that_are_committed(tmp_path: Path) -> None:
    """As pre-commit does: `entry`, and the staged files that `files` matches."""
    (hook,) = yaml.safe_load((REPO / ".pre-commit-hooks.yaml").read_text())
    assert set(hook) == HOOK_KEYS
    assert hook["language"] == "python"  # pre-commit installs this repository into a venv
    good, bad = tmp_path / "baselines/good.yaml", tmp_path / "baselines/bad.yaml"
    good.parent.mkdir()
    good.write_text("nodevet: 1\nextends: nvidia-l40s\n")
    bad.write_text("nodevet: 1\nextends: nvidia-l40z\n")
    (tmp_path / "fleet.yaml").write_text("nodevet: 1\nhosts: gpu001\n")
    (tmp_path / "baselines/notes.md").write_text("# notes\n")
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    chosen = sorted(name for name in names if re.search(hook["files"], name))
    assert chosen == ["baselines/bad.yaml", "baselines/good.yaml"]
    entry = [str(Path(sys.prefix, "bin/nodevet")), *shlex.split(hook["entry"])[1:]]
    assert shlex.split(hook["entry"])[0] == "nodevet"
    passed = subprocess.run([*entry, chosen[1]], cwd=tmp_path, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stderr
    failed = subprocess.run([*entry, *chosen], cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 2
    assert "baselines/bad.yaml:2:10: " in failed.stdout + failed.stderr
