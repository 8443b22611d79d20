"""A run that is saved without `--all`: what report and explain say of the findings it counts."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.model import HostReport, Status, Subject, fail, not_applicable, ok
from nodevet.model.run import Run as Checks
from nodevet.vet.formats import render

Run = Callable[..., subprocess.CompletedProcess[str]]
EVIDENCE = {"schema": 1, "probe": "", "sections": {"host": {"status": "ok", "data": {}}}}
FINDINGS = (
    fail(check="swap", expected="none", actual="8 GiB"),
    *(ok(Subject(kind="gpu", id=str(gpu)), check="mig_mode", actual="off") for gpu in range(8)),
    not_applicable(check="nvlink", why="one GPU"),
)
RUN = Checks(
    id="20261122T040012.345Z-1f3a9c2e", nodevet="0", started="2026-11-22T04:00:12+00:00",
    seconds=1.0, hosts=(HostReport(host="gpu1", status=Status.VETTED, findings=FINDINGS),),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("saved")
    for everything, name in ((False, "short"), (True, "whole")):
        for form in ("json", "jsonl"):
            (made / f"{name}.{form}").write_text(render(form, RUN, everything=everything))
    (made / "gpu1.json").write_text(json.dumps(EVIDENCE))
    return made


@pytest.mark.parametrize("file", ["short.json", "short.jsonl"])
def test_report_says_that_a_run_saved_without_all_has_only_counts(
    nodevet: Run, folder: Path, file: str
) -> None:
    done = nodevet("report", file, "--all", cwd=folder)
    assert done.returncode == 1
    assert f"{file}: written without --all: findings that passed are only counted" in done.stderr
    assert "8 findings, saved without details" in done.stdout
    assert "only counted" not in nodevet("report", file, cwd=folder).stderr


def test_report_has_all_of_a_run_that_was_saved_with_all(nodevet: Run, folder: Path) -> None:
    done = nodevet("report", "whole.json", "--all", "--format", "jsonl", cwd=folder)
    assert done.stdout == (folder / "whole.jsonl").read_text()
    assert "only counted" not in done.stderr
    assert (
        nodevet("report", "whole.json", "--format", "jsonl", cwd=folder).stdout
        == (folder / "short.jsonl").read_text()
    )


def test_explain_counts_findings_saved_without_details(nodevet: Run, folder: Path) -> None:
    done = nodevet("explain", "gpu1", "--from", "short.json", cwd=folder)
    assert done.stdout.startswith("gpu1  FAIL  1 fail, 8 ok, 1 not applicable\n")
    words = ("mig_mode", "--from", "short.json", "--host", "gpu1")
    assert "8 findings, saved without details" in nodevet("explain", *words, cwd=folder).stdout
    document = json.loads(nodevet("explain", *words, "--format", "json", cwd=folder).stdout)
    assert document["host"]["findings"] == []
    (counted,) = document["host"]["counted"]
    assert (counted["check"], counted["count"]) == ("mig_mode", 8)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_check_saves_counts_without_all_and_findings_with_all(
    nodevet: Run, folder: Path, form: str
) -> None:
    words = ("check", "@local", "-b", "generic", "--store", "none", "--format", form)
    for more, has_numbers in (((), True), (("--all",), False)):
        text = nodevet(*words, *more, cwd=folder).stdout
        assert ('"counted"' in text) is has_numbers
