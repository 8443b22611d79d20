"""`.ci/programs` is whole: what make, the tests, the demo and the bench call is in it."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevet_sim.nspawn.needs import FILES, PROGRAMS

REPO = Path(__file__).parents[1]
LIST = REPO / ".ci" / "programs"
ROWS = [row.split() for row in LIST.read_text().splitlines() if row[:1] not in {"#", ""}]
PACKAGES = {program: package for program, package, *_ in ROWS}
NAMES = {program.rsplit("/", 1)[-1] for program in PACKAGES}
CALLS = {"run", "Popen", "check_output", "check_call", "call", "create_subprocess_exec", "which"}
UNLISTED = "tac"
NOT_HERE = {"nvidia-smi"}  # of a machine with a GPU: never installed for a test
WORDS = set(  # of the shell itself, and functions of the scripts
    re.findall(
        r"\w+",
        "available break case cd command continue do done echo elif else esac exec exit export fi "
        "finish for if in local printf read return set shift test then there trap wait while",
    )
)


def called(tree: ast.Module) -> Iterator[str]:
    """The programs that a module names where it runs or looks for one."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name not in CALLS:
            continue
        first = node.args[0]
        if isinstance(first, (ast.List, ast.Tuple)) and first.elts:
            first = first.elts[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def installed(name: str) -> bool:
    return bool(re.fullmatch(r"[a-z0-9/._-]+", name)) and shutil.which(name) is not None


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "sim/nodevet_sim", "docs"])
def test_every_program_that_python_code_calls_is_listed(folder: str) -> None:
    found = {
        (name.rsplit("/", 1)[-1], str(path.relative_to(REPO)))
        for path in (REPO / folder).rglob("*.py")
        for name in called(ast.parse(path.read_text()))
        if installed(name)
    }
    assert {pair for pair in found if pair[0] not in NAMES | NOT_HERE} == set()


@pytest.mark.parametrize(
    "file",
    [
        "Makefile",
        ".ci/run",
        ".ci/setup",
        ".ci/other-slurm",
        ".ci/node-tools",
        ".ci/fresh",
        ".ci/image",
        ".ci/packages",
    ],
)
def test_every_program_that_scripts_call_is_listed(file: str) -> None:
    code = re.sub(r"(?m)(^| )#.*", "", (REPO / file).read_text())
    text = re.sub(r"'[^']*'|echo \"[^\"]*\"|<<END\n.*?\nEND", "''", code, flags=re.S)
    heads = re.findall(
        r"(?:^\t@?|^ *|[|;&(`] *|\bdo |\bthen |\bexec )([a-z][a-z0-9-]*)\b(?! *[:?]?=|\))",
        text,
        re.M,
    )
    found = {word for word in heads if word not in WORDS and installed(word)}
    assert found - NAMES - {"nodevet"} == set()
    assert found or file == ".ci/run"


def test_the_simulator_and_the_list_name_the_same_packages() -> None:
    assert {name: PACKAGES.get(name) for name in PROGRAMS} == PROGRAMS
    assert {path: PACKAGES.get(path) for path in FILES} == FILES


def test_setup_names_the_packages_of_missing_programs(tmp_path: Path) -> None:
    """With nothing on PATH but what is needed to look."""
    for name in ("bash", "grep", "dirname", "cat", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    done = subprocess.run(
        ["bash", REPO / ".ci/setup", "sim", "test"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    wanted = set(done.stderr.split("apt-get install ")[1].rstrip(")\n").split())
    assert wanted >= {"systemd-container", "dbus", "pkg-config", "sudo", "zsh", "git"}


def test_setup_refuses_an_unknown_group() -> None:
    done = subprocess.run(["bash", REPO / ".ci/setup", "nosuch"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "setup: no group 'nosuch' in .ci/programs\n")


def test_a_program_that_is_not_listed_may_not_be_called(tmp_path: Path) -> None:
    """By any test, whatever installed it here."""
    with pytest.raises(AssertionError, match=f"{UNLISTED} is called by a test: name it"):
        subprocess.run([UNLISTED, "/dev/null"])
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert subprocess.run([own]).returncode == 0
