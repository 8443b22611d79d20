"""`nodevet capture` and `nodevet compare` over SSH, on nodes that differ in one thing each."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_captured_baseline_passes_the_node_and_fails_the_others(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "good.yaml"
    done = nodevet("capture", *reach, "--limit", "gpu1", "-o", file)
    assert done.returncode == 0, done.stderr
    again = nodevet("check", *reach, "--limit", "gpu[1-3]", "-b", file, "--format", "json")
    hosts = {host["host"]: host for host in json.loads(again.stdout)["hosts"]}
    failed = {
        name: {one["check"] for one in host["findings"] if one["verdict"] == "fail"}
        for name, host in hosts.items()
    }
    assert failed == {"gpu1": set(), "gpu2": {"power_limit"}, "gpu3": {"cpu_governor"}}
    assert not {one["verdict"] for one in hosts["gpu1"]["findings"]} & {"fail", "unknown"}


def test_capture_overwrites_an_existing_file_only_with_force(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("nodevet: 1\n")
    done = nodevet("capture", *reach, "--limit", "gpu1", "-o", file)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert file.read_text() == "nodevet: 1\n"


def test_nothing_is_written_if_a_host_cannot_be_read(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "good.yaml"
    done = nodevet("capture", *reach, "--limit", "gpu1,gpu4", "-o", file)
    assert done.returncode == 3
    assert "gpu4: " in done.stderr
    assert not file.exists()


def test_compare_reports_the_majority_value_and_the_outliers(
    nodevet: Run, reach: list[str]
) -> None:
    done = nodevet("compare", *reach)
    assert done.returncode == 1, done.stderr
    assert "cpu_governor  performance on 2 of 3; powersave on gpu3" in done.stdout
    assert "power_limit   700 on 2 of 3; 500 on gpu2" in done.stdout
    assert "gpu4: not compared: " in done.stdout
    names = nodevet("compare", *reach, "--limit", "gpu[1-3]", "--format", "nodeset")
    assert names.stdout == "gpu[2-3]\n"


def test_saved_evidence_is_compared_like_hosts(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    nodevet("check", *reach, "--limit", "gpu[1-3]", "--save", tmp_path, "-b", "generic")
    done = nodevet("compare", "--evidence", tmp_path, "--format", "json")
    found = json.loads(done.stdout)
    assert found["outliers"] == ["gpu2", "gpu3"]
    assert done.returncode == 1
