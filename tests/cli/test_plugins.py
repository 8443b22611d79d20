"""Commands of other distributions: entry points of the group `nodevet.commands`."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., None]
Run = Callable[..., subprocess.CompletedProcess[str]]

GOOD = """
import click

@click.command()
@click.argument("who")
def command(who):
    \"\"\"Greet someone.\"\"\"
    click.echo(f"hello {who}")
    return 3
"""


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Puts a distribution with one command onto the path: a module and its metadata."""

    def add(name: str, command: str, code: str, version: str = "1.2") -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(
            f"[nodevet.commands]\n{command} = {module}:command\n"
        )

    return add


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from nodevet.cli import main; main()", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


def test_another_distribution_adds_a_command(install: Install, run: Run) -> None:
    install("acme-tools", "greet", GOOD)
    done = run("greet", "gpu001")
    assert (done.returncode, done.stdout) == (3, "hello gpu001\n")
    assert re.search(r"\n  greet +Greet someone\.\n", run("--help").stdout)
    assert run("greet", "--help").stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("x = 1", "AttributeError: module 'acme_tools' has no attribute 'command'"),
        ("command = 'greet'", "acme_tools:command is not a click command"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--help",), ("-x", "gpu001", "--", "y")])
def test_a_command_that_cannot_be_loaded_says_why(
    install: Install, run: Run, code: str, why: str, arguments: tuple[str, ...]
) -> None:
    install("acme-tools", "greet", code)
    done = run("greet", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"nodevet: command 'greet' of acme-tools 1.2 cannot be loaded: {why}; "
        "upgrade or uninstall that distribution\n"
    )


def test_a_command_that_cannot_be_loaded_hides_no_other(install: Install, run: Run) -> None:
    install("acme-tools", "greet", "import no_such_module")
    listed = run("--help")
    assert listed.returncode == 0
    assert "\n  check  " in listed.stdout
    assert re.search(r"\n  greet +\(unusable; run it to see why\)\n", listed.stdout)


def test_a_command_of_nodevet_is_never_replaced(install: Install, run: Run) -> None:
    install("acme-tools", "schema", "print('replaced')")
    done = run("schema")
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert "replaced" not in run("--help").stdout


def test_a_command_that_two_distributions_define_is_refused(install: Install, run: Run) -> None:
    install("acme-tools", "greet", GOOD)
    install("other-tools", "greet", GOOD, "3.0")
    done = run("greet", "gpu001")
    assert done.returncode == 2
    assert done.stderr == (
        "nodevet: command 'greet' cannot be used: several distributions define it: "
        "acme-tools 1.2, other-tools 3.0; uninstall all but one\n"
    )


def test_a_command_that_no_distribution_defines_is_unknown(run: Run) -> None:
    done = run("greet")
    assert done.returncode == 2
    assert "no such command 'greet'" in done.stderr


@pytest.mark.parametrize("arguments", [("--version",), ("probe", "--help")])
def test_nodevets_own_commands_do_not_import_importlib_metadata(
    run: Run, arguments: tuple[str, ...]
) -> None:
    code = (
        "import sys; from nodevet.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(str('importlib.metadata' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "False")
