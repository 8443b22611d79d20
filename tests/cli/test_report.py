"""`nodevet report` on what diagnose and feed have saved; both need a place for their answer."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.diagnose import incident
from nodevet.diagnose.sheet import diagnosis_sheet
from nodevet.feed.saved import parse_feed
from nodevet.sheet import markdown
from nodevet.sheet.json import indented
from tests.cli.test_feed import EXAMPLE
from tests.diagnosis.samples import CASES
from tests.report import diagnoses
from tests.run.test_incident import visit_of

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]
FORMATS = ("table", "markdown", "html", "json")


@pytest.fixture
def saved(nodevet: Run, tmp_path: Path) -> Path:
    """A folder with an incident bundle, its diagnosis and the output of feed."""
    bundle = tmp_path / "incident.json.gz"
    incident.write(bundle, [visit_of(CASES["storage-bound"], "gpu1")], redact=False)
    (tmp_path / "job.yaml").write_bytes(EXAMPLE.read_bytes())
    as_json = ("--format", "json:diagnosis.json", "-b", "generic")
    assert nodevet("diagnose", "--from", bundle.name, *as_json, cwd=tmp_path).returncode == 1
    feed = nodevet("feed", "job.yaml", "--format", "json:feed.json", cwd=tmp_path)
    assert (feed.returncode, feed.stdout, feed.stderr) == (0, "", "")
    return tmp_path


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("what", ["diagnosis", "feed"])
def test_report_renders_diagnoses_and_feed_answers_as_their_commands_do(
    nodevet: Run, saved: Path, what: str, form: str
) -> None:
    words = {
        "diagnosis": ("diagnose", "--from", "incident.json.gz", "-b", "generic"),
        "feed": ("feed", "job.yaml"),
    }[what]
    first = nodevet(*words, "--format", form, cwd=saved)
    again = nodevet("report", f"{what}.json", "--format", form, cwd=saved)
    assert again.returncode == first.returncode
    old = what == "diagnosis"  # it was watched long ago
    assert ("diagnosis.json: the diagnosis is " in again.stderr) == old == bool(again.stderr)
    if old and form == "json":  # each run has an id of its own
        told, shown = json.loads(again.stdout), json.loads(first.stdout)
        assert told.pop("id") and shown.pop("id") and told == shown
    elif old and form != "table":
        assert len(again.stdout) == len(first.stdout)
    else:
        assert again.stdout == first.stdout


def test_report_with_all_shows_rules_and_bars(nodevet: Run, saved: Path) -> None:
    rules = nodevet("report", "diagnosis.json", "--all", cwd=saved).stdout
    assert "[holds by " in rules and "[does not hold by " in rules
    assert "|###" in nodevet("report", "feed.json", "--all", cwd=saved).stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report incident.json.gz", "this is an incident bundle; diagnose it with: nodevet diagno"),
        ("report other.gz", "not a saved run"),
        ("report job.yaml", "this is a workload"),
        ("report diagnosis.json --format junit", "the format junit does not render this; these do"),
        ("report feed.json --format tabel", "no report format is named 'tabel'; did you mean ta"),
        ("report feed.json --previous feed.json", "--previous is gone"),
        ("report newer.json", "the output of feed has schema 9, this nodevet reads 1; `nodevet fe"),
        ("check --evidence diagnosis.json", "this is a diagnosis; render it with: nodevet report"),
        ("feed feed.json", "this is the output of feed; render it with: nodevet report feed.json"),
        ("feed job.yaml --format foo", "is named 'foo'; there are html, json, markdown, table"),
        ("diagnose @local --format foo", "is named 'foo'; there are html, json, markdown, table"),
    ],
)
def test_mistakes(nodevet: Run, saved: Path, words: str, told: str) -> None:
    newer = (saved / "feed.json").read_text().replace('"schema": 1', '"schema": 9', 1)
    (saved / "newer.json").write_text(newer)
    (saved / "other.gz").write_bytes((saved / "incident.json.gz").read_bytes()[:9])
    done = nodevet(*words.split(), cwd=saved)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in " ".join(done.stderr.split())


def test_an_answer_of_feed_is_read_as_it_was_written(saved: Path) -> None:
    text = (saved / "feed.json").read_text()
    assert indented(parse_feed(text)) == text


@pytest.mark.parametrize(
    "words",
    [
        "feed job.yaml",
        "feed --measure -- touch ran",
        "diagnose --from incident.json.gz -b generic",
        "report diagnosis.json",
    ],
)
def test_a_closed_standard_output_is_reported_before_anything_is_done(
    saved: Path, words: str
) -> None:
    script = ["sh", "-c", '"$@" >&-', "sh", *NODEVET, *words.split()]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, cwd=saved)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "nodevet: standard output is closed, and the answer would be lost\n"
    )
    assert not (saved / "ran").exists()


def test_a_file_is_written_though_standard_output_is_closed(saved: Path) -> None:
    words = [*NODEVET, "feed", "job.yaml", "--format", "json:again.json"]
    subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], check=True, timeout=60, cwd=saved)
    assert (saved / "again.json").read_text() == (saved / "feed.json").read_text()


def test_a_made_up_fleet_is_rendered_from_its_file(nodevet: Run, tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text(indented(diagnoses.fleet()))
    done = nodevet("report", file, "--format", "markdown")
    assert done.stdout == markdown.render(diagnosis_sheet(diagnoses.fleet()))
