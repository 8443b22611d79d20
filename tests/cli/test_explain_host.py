"""`nodevet explain HOST`: of a saved run, of saved evidence, of a host that is visited."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.model import HostReport, Status, fail
from nodevet.model.run import Run as Checks
from nodevet.vet.formats import render

Run = Callable[..., subprocess.CompletedProcess[str]]
HOSTS = (
    HostReport(
        host="gpu1",
        status=Status.VETTED,
        baseline="site",
        findings=(fail(check="swap", expected="none", actual="8 GiB", origin="site.yaml:3"),),
    ),
    HostReport(host="swap", status=Status.UNREACHABLE, why="no route"),
)
RUN = Checks(
    id="20261122T040012.345Z-1f3a9c2e", nodevet="0", started="2026-11-22T04:00:12+00:00",
    seconds=1.0, hosts=HOSTS,
)  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run, saved evidence, and a baseline that every machine fails or passes."""
    folder = tmp_path_factory.mktemp("explain")
    for form in ("json", "jsonl"):
        (folder / f"last.{form}").write_text(render(form, RUN))
    (folder / "saved").mkdir()
    for name in ("gpu1", "gpu2"):
        host = {"status": "ok", "data": {"hostname": name, "kernel": "6.1"}}
        document = {"schema": 1, "probe": "", "sections": {"host": host}}
        (folder / f"saved/{name}.json").write_text(json.dumps(document))
    (folder / "site.yaml").write_text("nodevet: 1\nexpect: {swap: none}\n")
    return folder


@pytest.mark.parametrize("file", ["last.json", "last.jsonl"])
def test_a_saved_run_is_read(nodevet: Run, project: Path, file: str) -> None:
    done = nodevet("explain", "gpu1", "--from", file, cwd=project)
    assert done.returncode == 0
    assert done.stdout.startswith("gpu1  FAIL  1 fail\n")
    assert "swap: FAIL (critical)\n" in done.stdout
    for part in ("baseline  site", "expected  none", "actual    8 GiB", "from      site.yaml:3"):
        assert f"  {part}\n" in done.stdout


def test_saved_evidence_is_judged_again(nodevet: Run, project: Path) -> None:
    done = nodevet("explain", "gpu2", "--from", "saved", "-b", "./site.yaml", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpu2  UNKNOWN  1 unknown\n")
    assert "swap: UNKNOWN" in done.stdout and "from  site.yaml:2" in done.stdout


def test_explain_reads_this_machine(nodevet: Run, project: Path) -> None:
    inventory = project / "here.yaml"
    inventory.write_text('nodevet: 1\nhosts: "@local"\n')
    name = nodevet("list", "hosts", "-i", inventory).stdout.split()[0]
    done = nodevet("explain", name, "-i", inventory, "-b", project / "site.yaml")
    assert done.returncode == 0
    assert done.stdout.startswith(f"{name}  ")
    assert "swap" in done.stdout and "read at" in done.stdout


def test_the_verdicts_of_a_check_and_host_are_listed(nodevet: Run, project: Path) -> None:
    done = nodevet("explain", "swap", "--host", "gpu1", "--from", "last.json", cwd=project)
    assert done.stdout.startswith("The node has no swap") or "**Why it matters.**" in done.stdout
    assert done.stdout.endswith("  actual    8 GiB\n  from      site.yaml:3\n")


def test_a_check_wins_over_a_host_of_its_name(nodevet: Run, project: Path) -> None:
    done = nodevet("explain", "swap", "--from", "last.json", cwd=project)
    assert "**Why it matters.**" in done.stdout and "no route" not in done.stdout
    assert done.stderr.endswith("swap is a check; for a host of last.json: --host NAME\n")


def test_explain_prints_json_and_documents_for_hosts_checks_and_baselines(
    nodevet: Run, project: Path
) -> None:
    def told(*words: object, form: str = "json") -> str:
        done = nodevet("explain", *words, "--format", form, cwd=project)
        assert done.returncode == 0, done
        return done.stdout

    (finding,) = json.loads(told("gpu1", "--from", "last.json"))["host"]["findings"]
    assert (finding["check"], finding["actual"]) == ("swap", "8 GiB")
    check = json.loads(told("swap", "--host", "gpu1", "--from", "last.json"))
    assert (check["kind"], check["check"], check["fix"]) == ("explain", "swap", "drain")
    assert check["host"]["findings"] == [finding]
    (expected,) = json.loads(told("swap", "-b", "./site.yaml"))["expected"]
    assert expected["because"][0]["origin"] == "site.yaml:2"
    (baseline,) = json.loads(told("-b", "./site.yaml"))["baselines"]
    assert [wish["check"] for wish in baseline["expects"]] == ["swap"]
    for words in (["gpu1", "--from", "last.json"], ["swap"], ["-b", "./site.yaml"]):
        assert told(*words, form="markdown").startswith("# ")
        assert told(*words, form="html").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpu9", "--from", "last.json"], "last.json: no host is named gpu9; did you mean gpu1?"),
        (["gpu9", "--from", "gone.json"], "gone.json: there is no such file or folder"),
        (["gpu9", "--from", "saved"], "gpu9 is not among the saved hosts; did you mean gpu"),
        (["gpu1", "--from", "site.yaml"], "site.yaml: this is a baseline"),
        (["gpu1", "--from", "last.json", "-b", "generic"], "was judged when it was saved"),
        (
            ["gpu1"],
            "names them. For a host: nodevet explain gpu1 --from last.json, or -i INVENTORY",
        ),
        (["swaps"], "no check or baseline is named 'swaps'; did you mean swap? For a host"),
    ],
)
def test_mistakes(nodevet: Run, project: Path, arguments: list[str], words: str) -> None:
    done = nodevet("explain", *arguments, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
