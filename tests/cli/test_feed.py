"""`nodevet feed` as a user runs it: by a file alone, over SSH, on saved evidence."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds

pytestmark = pytest.mark.timeout(600)  # nodes are booted first
Run = Callable[..., subprocess.CompletedProcess[str]]
REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "workloads/resnet50-a100.yaml"


def test_the_worked_table_by_the_file_alone(nodevet: Run) -> None:
    done = nodevet("feed", EXAMPLE, "--batch", "256")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert rows["32"][1:3] + rows["32"][5:6] == ["5.86", "8.00", "73.2"]
    assert rows["256"][-4:] == ["%", "5.45×", "10.900", "transform"]
    assert "44 needed for each GPU; 8 there; from 44 on the accelerator binds" in done.stdout
    assert "44 workers for each GPU instead of 8 (needs 44 cores)    +445 %" in done.stdout
    assert "#" not in done.stdout


def test_plot_draws_with_plain_characters(nodevet: Run) -> None:
    done = nodevet("feed", EXAMPLE, "--plot")
    drawn = done.stdout.split("utilization by batch size")[1]
    assert "  32  |#####################################.............|  73.2 %  transform" in drawn
    assert " 8  |######" in drawn and "transform, now" in drawn
    assert all(ord(letter) < 128 for letter in drawn)


def test_json_is_what_its_schema_says(nodevet: Run, tmp_path: Path) -> None:
    done = nodevet("feed", EXAMPLE, "--format", "json", "--format", f"markdown:{tmp_path / 'a.md'}")
    document = json.loads(done.stdout)
    jsonschema.validate(document, kinds()["feed"].schema(Project()))
    (node,) = document["nodes"]
    assert [round(each["utilization"]["high"], 3) for each in node["batches"]] == [
        *(0.732, 0.419, 0.262, 0.183, 0.144, 0.125),
    ]
    assert (node["at"], node["node"], document["schema"]) == (1024, None, 1)
    assert "| 512 | 18.47 | 128.00 |" in (tmp_path / "a.md").read_text()


def test_the_example_workload_matches_the_schema_for_editors() -> None:
    import yaml

    document = yaml.safe_load(EXAMPLE.read_text())
    schema = kinds()["workload"].schema(Project())
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "workrs": 8}, schema)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "100"], "--batch 100 is not among the batch sizes of the file: 32, 64, 128"),
        (["--format", "junit"], "the format junit does not render this; these do: "),
        (["--format", "tabel"], "no report format is named 'tabel'; did you mean table?"),
        (["@nowhere"], "@nowhere"),
        (["--workers", "16"], "--workers is for --measure (the file has a field for it)"),
        (["--measure", "--format", "html"], "the format html does not render this; these do: json"),
        (["--measure", "--plot"], "--plot is for a workload; leave it out with --measure"),
    ],
)
def test_invalid_options_of_feed_are_refused(nodevet: Run, arguments: list[str], said: str) -> None:
    done = nodevet("feed", EXAMPLE, *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_feed_reports_all_mistakes_in_the_file_by_line(nodevet: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("nodevet: 1\nworkload: x\nstep: {32: 5.86 msec, fix: 3 ms}\n")
    done = nodevet("feed", path)
    assert done.returncode == 2
    assert f"{path}:3:12: step.32: msec is not a known unit; did you mean ms?" in done.stderr
    assert f"{path}:3:28: step.fix: is not a batch size; did you mean fixed?" in done.stderr
    done = nodevet("feed", REPO / "baselines/generic.yaml")
    assert (done.returncode, "this is a baseline; use it with -b" in done.stderr) == (2, True)


def test_lint_takes_workloads(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/job.yaml").write_text(EXAMPLE.read_text().replace("8 #", "many #"))
    done = nodevet("lint", "--project", tmp_path)
    assert done.returncode == 2
    assert 'job.yaml:12:10: workers: must be a whole number, not "many"' in done.stdout
    assert nodevet("lint", EXAMPLE).returncode == 0


def test_nodes_fill_in_what_the_file_does_not_say(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    text = EXAMPLE.read_text().replace("gpus: 1\n", "").replace("link: Gen4 x16\n", "")
    job.write_text(text)
    done = nodevet("feed", job, "gpu[1,3-4]", "--format", "json", *reach)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    (node,) = document["nodes"]
    assert node["hosts"] == ["gpu1", "gpu3"]
    assert list(document["lost"]) == ["gpu4"]
    assert (node["gpus"], node["node"]["cores"]) == (8, 16)
    # 16 cores for 8 GPUs with 8 workers each: 500 MB/s for each GPU
    first = node["batches"][0]
    assert first["transform_s"]["high"] == pytest.approx(0.032)
    assert first["link_s"]["high"] is not None
    table = nodevet("feed", job, "gpu[1,3-4]", *reach).stdout
    assert "gpu[1,3]: 8 × NVIDIA H100 80GB HBM3, 8 workers for each, 500 kB samples" in table
    assert "gpu4: not read: " in table


def test_a_node_with_fewer_gpus_than_the_job(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    fields = "nodevet: 1\nworkload: x\ngpus: 16\nsample_size: 500 kB\nstep: {32: 5 ms}\n"
    file = tmp_path / "job.yaml"
    file.write_text(fields)
    done = nodevet("feed", file, "gpu1", *reach)
    assert "\ngpu1: 16 GPUs for the job, but the node has 8 × NVIDIA H100" in done.stdout, done


def test_saved_evidence(nodevet: Run, reach: list[str], tmp_path: Path) -> None:
    nodevet("check", "gpu1", "-b", "generic", "--save", tmp_path / "saved", *reach)
    done = nodevet("feed", EXAMPLE, "--evidence", tmp_path / "saved")
    assert done.returncode == 0, done.stderr
    assert "\ngpu1: 1 × NVIDIA H100" in done.stdout


def test_a_loader_is_measured_here_and_on_a_node(nodevet: Run, reach: list[str]) -> None:
    import yaml

    words = ["--for", "60s", "--", "sh", "-c", "head -c 9000000 /dev/zero | wc -c; echo samples 90"]
    for where in ([], ["--on", "gpu1", *reach]):
        done = nodevet("feed", "--measure", *where, *words, cwd=Path("/"))
        assert done.returncode == 0, done.stderr
        measured = yaml.safe_load(done.stdout)["measured"]
        assert measured["command"].startswith("sh -c 'head -c 9000000")
        assert ("gpu1" if where else measured["host"]) == measured["host"]
        assert "page cache" in done.stdout
    done = nodevet("feed", "--measure", "--format", "json", *words, cwd=Path("/"))
    told = json.loads(done.stdout)
    assert (told["schema"], told["run"]["samples"], told["run"]["asked_b"] >= 9e6) == (1, 90, True)
    assert told["measured"]["worker_rate"].endswith(" samples/s") and told["remarks"]["worker_rate"]
    assert "page cache" in told["unknown"][0]
    done = nodevet("feed", "--measure", "--", "sh", "-c", "echo no data >&2; exit 4", cwd=Path("/"))
    assert done.returncode == 2
    assert "the loader ended with 4, run as " in done.stderr and "no data" in done.stderr
    done = nodevet("feed", "--measure", "--on", "gpu[1-2]", *reach, "--", "true")
    assert (done.returncode, "--on names 2 hosts; measure a loader on one" in done.stderr) == (
        2,
        True,
    )
