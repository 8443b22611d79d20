"""What a stand-in for health-validation prints; nodevet reads its exit code and one word of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import program
from nodevet.remote.probe.collectors import health_validation

Says = Callable[[str], dict[str, Any]]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """The section where the program is this script."""
    monkeypatch.setattr(program, "FOLDERS", (str(tmp_path),))

    def run(script: str) -> dict[str, Any]:
        file = tmp_path / "health-validation"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return dict(health_validation.collect("/", {}))

    return run


@pytest.mark.parametrize(("code", "word"), [(0, "PASS"), (0, "WARNING"), (1, "CRITICAL")])
def test_a_verdict(says: Says, code: int, word: str) -> None:
    script = f'[ "$*" = run ] || exit 3\necho \'{{"overall_severity": "{word}", "x": [1]}}\'\n'
    section = says(f"{script}exit {code}")
    assert (section["exit_code"], section["overall_severity"]) == (code, word)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "no JSON document with overall_severity"),
        ("PASS", "no JSON document with overall_severity"),
        ('{"severity": "PASS"}', "no JSON document with overall_severity"),
        ('["overall_severity"]', "no JSON document with overall_severity"),
        ('{"overall_severity": null}', "overall_severity is not a word"),
        ('{"overall_severity": "PASS\\\\u001b[2J"}', "overall_severity is not a word"),
        ("[" * 100_000, "no JSON document with overall_severity"),
    ],
)
def test_any_other_output_has_no_severity(says: Says, output: str, why: str) -> None:
    (Path(program.FOLDERS[0]) / "output").write_text(output)
    section = says(f"cat {program.FOLDERS[0]}/output; echo no sensor >&2; exit 2")
    assert (section["exit_code"], section["overall_severity"]) == (2, None)
    assert section["errors"] == {"overall_severity": f"health-validation: {why}: 'no sensor'"}


def test_health_validation_runs_only_on_a_running_machine_that_has_it(
    says: Says, tmp_path: Path
) -> None:
    with pytest.raises(program.ToolError, match="health-validation is not on this node"):
        health_validation.collect("/", {})
    with pytest.raises(health_validation.SectionError, match="running machine only"):
        health_validation.collect(str(tmp_path), {})
