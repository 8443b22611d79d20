"""Interpreters that stand for one with torch answer in every wrong way."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import framework
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]

TORCH = """\
import sys
__version__ = "2.4.1+cu124"
print("a line that torch prints")
class version: cuda = "12.4"
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 8)
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """An interpreter that finds this torch, and runs as whoever runs the test."""
    monkeypatch.setattr(framework, "user_of", lambda name: ("me", None))

    def made(torch: str) -> str:
        (tmp_path / "torch.py").write_text(torch)
        path = tmp_path / "python"
        path.write_text(
            f"#!/bin/sh\n[ \"$1 $2\" = '-I -c' ] || exit 9\n"
            f'PYTHONPATH={tmp_path} exec {sys.executable} -B -c "$3"\n'
        )
        path.chmod(0o755)
        return str(path)

    return made


def asked(check: Check, *paths: str) -> Any:
    data = check("framework", framework.collect("/", {"asks": {"framework": list(paths)}}))
    return {each.name: each for each in data.interpreters}


def test_the_answer_of_torch_is_read_from_among_its_other_output(
    python: Callable[[str], str], check: Check
) -> None:
    path = python(TORCH)
    found = asked(check, path)[path]
    assert (found.failed, found.version, found.cuda) == ("", "2.4.1+cu124", "12.4")
    assert (found.available, found.devices, found.user) == (True, 8, "me")


@pytest.mark.parametrize(
    ("torch", "failed", "why"),
    [
        ("raise ImportError('libcudart.so.12: not found')", "ImportError: libcudart.so.12: ", ""),
        ("import sys; sys.exit(0)", "", "the interpreter did not say what it found"),
        ("print('nodevet:{}'); import os; os._exit(0)", "", "not what was asked for"),
        ("print('nodevet:[]', flush=True); import os; os._exit(0)", "", "not a JSON object"),
        ("import os; os.kill(os.getpid(), 9)", "no message", ""),
    ],
)
def test_an_interpreter_that_fails_is_reported(
    python: Callable[[str], str], check: Check, torch: str, failed: str, why: str
) -> None:
    path = python(torch.replace("'nodevet:{}')", "'nodevet:{}', flush=True)"))
    found = asked(check, path)[path]
    assert (found.failed or "").startswith(failed) and found.version is None
    assert why in (found.errors.get("failed") or "")


def test_e06_the_error_of_an_interpreter_is_reported_whole(
    python: Callable[[str], str], check: Check
) -> None:
    text = "x" * 1000
    (found,) = asked(check, python(f"raise ImportError('{text}')")).values()
    assert found.failed == f"ImportError: {text}"


def test_a_program_that_is_not_an_interpreter_is_unread(check: Check, tmp_path: Path) -> None:
    found = asked(check, "/no/such/python", "python3", "/opt/../bin/sh")
    assert "ENOENT" in found["/no/such/python"].errors["failed"]
    for path in ("python3", "/opt/../bin/sh"):
        assert found[path].errors["failed"] == "not an absolute path of an interpreter"
    with pytest.raises(Absent):
        framework.collect(str(tmp_path), {"asks": {"framework": ["/bin/sh"]}})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_root_runs_an_interpreter_as_nobody_unless_a_user_is_named(check: Check) -> None:
    path = os.path.realpath("/bin/sh")
    found = asked(check, path, f"root:{path}", f"nosuchuser:{path}")
    assert found[path].user == "nobody" and found[f"root:{path}"].user == "root"
    assert found[f"nosuchuser:{path}"].errors["failed"] == "there is no user nosuchuser"
