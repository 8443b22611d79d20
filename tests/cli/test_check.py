"""`nodevet check` from end to end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.vet.formats import formats

pytestmark = pytest.mark.timeout(600)  # nodes are booted first
Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]


H100 = ("-b", "nvidia-h100-sxm")


def test_a_healthy_host_is_ok(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("check", "gpu1", *reach, *H100)
    assert (done.returncode, done.stderr) == (0, "")
    assert "baseline     nvidia-h100-sxm\n\nAll ok: 1 host · " in done.stdout


def test_check_chooses_the_baseline_that_fits_the_node(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("check", "gpu1", *reach, "--all", "--format", "json")
    assert done.returncode == 0
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["baseline"] == "nvidia-h100-sxm"
    told = {(finding["check"], finding["verdict"]) for finding in host["findings"]}
    health = ("gpu_lost", "ecc_errors", "row_remapping", "clock_skew")
    assert told >= {(check, "ok") for check in health}
    assert not told & {(check, "not_applicable") for check in health}


def test_differences_are_folded_and_counted(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("check", *reach, *H100)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    power = next(line for line in lines if "power_limit" in line)
    assert power.split()[:7] == ["FAIL", "power_limit", "500", "W,", "expected", "700", "W"]
    assert "gpu2" in power
    assert "GPU 0-7" in power
    assert any("UNREACHABLE" in line and "connection refused" in line for line in lines)
    assert "4 hosts: 1 ok, 2 fail, 1 unreachable" in done.stdout


@pytest.mark.parametrize(
    ("hosts", "options", "code"),
    [
        ("gpu1", [], 0),
        ("gpu2", [], 1),
        ("gpu3", [], 1),
        ("gpu3", ["--fail-on", "critical"], 0),
        ("gpu4", [], 3),
        ("gpu[1,4]", [], 3),
        ("gpu[2,4]", [], 1),
        ("gpu1", ["-b", "nvidia-a100-sxm-80"], 1),
    ],
)
def test_exit_codes(
    nodevet: Run, reach: list[str], hosts: str, options: list[str], code: int
) -> None:
    given = options if "-b" in options else [*options, *H100]
    assert nodevet("check", hosts, *reach, *given).returncode == code


@pytest.mark.parametrize(("host", "code"), [("gpu1", 0), ("gpu3", 1), ("gpu2", 2), ("gpu4", 3)])
def test_nagios_format_prints_the_state_and_exits_with_its_code(
    nodevet: Run, reach: list[str], host: str, code: int
) -> None:
    done = nodevet("check", host, *reach, *H100, "--format", "nagios")
    word = ("OK", "WARNING", "CRITICAL", "UNKNOWN")[code]
    assert done.stdout.startswith(f"NODEVET {word}")
    assert done.returncode == code


def test_this_machine_without_a_gpu_is_never_ok(nodevet: Run) -> None:
    done = nodevet("check", "@local", "-b", "generic", "--all", "--format", "json")
    run = json.loads(done.stdout)
    if any(
        finding["verdict"] == "ok" and finding["check"] == "gpu_count"
        for finding in run["hosts"][0]["findings"]
    ):
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
    others = {"clocksource", "disk_space", "file_handles", "kernel_faults", "kernel_modules"}
    others |= {"machine_check", "pcie_errors"}
    about_gpus = [one for one in run["hosts"][0]["findings"] if one["check"] not in others]
    assert {finding["verdict"] for finding in about_gpus} <= {"fail", "unknown", "not_applicable"}


def test_saved_evidence_gives_the_same_findings(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    form = ("--all", "--format", "json")
    live = nodevet("check", *reach, *H100, "--save", tmp_path / "e", *form)
    again = nodevet("check", "--evidence", tmp_path / "e", *H100, *form)
    assert again.returncode == live.returncode == 1
    before, after = json.loads(live.stdout), json.loads(again.stdout)
    for key in ("host", "status", "why", "findings", "machine_id", "boot_id"):
        assert [host[key] for host in before["hosts"]] == [host[key] for host in after["hosts"]]
    assert [host["host"] for host in after["hosts"]] == ["gpu1", "gpu2", "gpu3", "gpu4"]


def test_saving_evidence_of_this_machine_changes_no_finding(nodevet: Run, tmp_path: Path) -> None:
    def judged(*options: str | Path) -> list[tuple[str, ...]]:
        done = nodevet("check", "@local", "-b", "generic", "--format", "json", *options)
        findings = json.loads(done.stdout)["hosts"][0]["findings"]
        keys = ("check", "verdict", "why", "advice")
        return [tuple(finding.get(key, "") for key in keys) for finding in findings]

    assert judged() == judged("--save", tmp_path / "evidence")
    (file,) = (tmp_path / "evidence").glob("*.json")
    assert "network" in json.loads(file.read_text())["evidence"]["sections"]


def test_saved_evidence_can_be_judged_by_another_baseline(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    nodevet("check", "gpu1", *reach, *H100, "--save", tmp_path / "e")
    other = nodevet("check", "--evidence", tmp_path / "e", "-b", "nvidia-a100-sxm-40")
    assert other.returncode == 1
    assert "10de:2330" in other.stdout


def test_what_probe_prints_can_be_judged(nodevet: Run, tmp_path: Path) -> None:
    (tmp_path / "here.json").write_text(nodevet("probe").stdout)
    done = nodevet("check", "--evidence", tmp_path / "here.json", "-b", "generic")
    assert "here" in done.stdout
    assert done.returncode == nodevet("check", "@local", "-b", "generic").returncode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not an evidence document"),
        ("nonsense", "not an evidence document"),
        ('{"schema": 99, "probe": "", "sections": {}}', "evidence schema 99"),
        ('{"host": "a", "status": "vetted", "evidence": null}', "contradict each other"),
    ],
)
def test_a_file_that_is_not_evidence_is_reported(
    nodevet: Run, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "a.json").write_text(text)
    done = nodevet("check", "--evidence", tmp_path / "a.json", "-b", "generic")
    assert done.returncode == 3
    told = " ".join(done.stdout.split())
    assert "a.json: " in told
    assert words in told


def test_check_writes_all_formats_and_report_renders_them_again(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    wanted = [f"--format={name}:{tmp_path / name}" for name in formats()]
    live = nodevet("check", *reach, *H100, "--all", *wanted)
    assert (live.returncode, live.stdout) == (1, "")
    assert re.match(
        r"nodevet: 4 hosts: 1 ok, 2 fail, 1 unreachable · .* s · written: diff /", live.stderr
    )
    for source in ("json", "jsonl"):
        for name in formats():
            again = nodevet("report", tmp_path / source, "--all", "--format", name)
            assert again.returncode == {"nagios": 2, "nico": 0}.get(name, 1)
            if (source, name) in (("json", "jsonl"), ("jsonl", "json"), ("jsonl", "jsonl")):
                continue  # a stream is in the order of finishing
            if source == "json":
                assert again.stdout == (tmp_path / name).read_text(), name
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]


def test_jsonl_on_standard_output_has_a_line_for_every_host(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("check", *reach, *H100, "--format", "jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["host"] for line in lines if "host" in line) == [
        "gpu1", "gpu2", "gpu3", "gpu4",
    ]  # fmt: skip


def test_what_is_new_since_an_earlier_run(nodevet: Run, reach: list[str], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'history'}"
    nodevet("check", "gpu[1-2]", *reach, *H100, "--store", store)
    done = nodevet("check", *reach, *H100, "--store", store)
    new = [line for line in done.stdout.splitlines() if "NEW" in line]
    assert any("cpu_governor" in line for line in new)
    assert not any("power_limit" in line for line in new)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "no hosts"),
        (["check", "gpu1", "--format", "tabel"], "did you mean table"),
        (["check", "gpu1", "--format", "json", "--format", "html"], "two formats"),
        (["check", "gpu1", "--format", "json:/no/such/folder/x"], "does not exist"),
        (["check", "gpu1", "-b", "nvidia-h1000"], "did you mean nvidia-h100-sxm"),
        (["check", "gpu1", "-b", "/no/such.yaml"], "no such file"),
        (["check", "-i", "/no/such/inventory.yaml"], "/no/such/inventory.yaml"),
        (["check", "gpu[1-"], "gpu[1-"),
        (["check", "--evidence", "/", "--save", "x"], "--save cannot be used with --evidence"),
        (["check", "gpu1", "--max-age", "2d"], "--max-age needs --evidence, or @local"),
        (["check", "--evidence", "/", "--max-age", "2"], "invalid duration '2'"),
        (["check", "gpu1", "--fail-on", "much"], "--fail-on"),
        (["chekc"], "chekc"),
        (["explain", "pcie"], "did you mean pcie_link"),
        (["report", "/etc/hostname"], "/etc/hostname"),
        (["probe", "gpus"], "unknown section"),
    ],
)
def test_mistakes_are_reported_on_one_screen(
    nodevet: Run, arguments: list[str], words: str
) -> None:
    done = nodevet(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) < 12


def test_every_mistake_in_a_baseline_is_reported_at_once(
    nodevet: Run, reach: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "nodevet: 1\nextends: nvidia-h100-sxm\nexpect:\n"
        "  driver_version: 550.10\n  persistance_mode: yes\n  pcie_link: {width: 15}\n"
    )
    done = nodevet("check", "gpu1", *reach, "-b", path)
    assert (done.returncode, done.stdout) == (2, "")
    for place in ("4:19", "5:3", "6:22"):
        assert f"{path}:{place}:" in done.stderr


def done_with(host: str, stream: Path) -> bool:
    """Whether the jsonl stream holds the host's report by now."""
    lines = stream.read_text().splitlines() if stream.exists() else []
    return any(json.loads(line).get("host") == host for line in lines if line.endswith("}"))


def test_ctrl_c_ends_with_a_report(fleet: Any, tmp_path: Path) -> None:
    """One host hangs in NVML; the other is done when the user gives up."""
    fleet.sim("set", "gpu3", "gpu.5.power_draw_mw=hang")
    try:
        process = subprocess.Popen(
            [*NODEVET, "check", "gpu[1,3]", "-i", fleet.place.inventory, *H100,
             "--format=table", f"--format=jsonl:{tmp_path / 'run'}"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        end = time.monotonic() + 60
        while not done_with("gpu1", tmp_path / "run"):
            assert time.monotonic() < end
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        fleet.sim("set", "gpu3", "gpu.5.power_draw_mw=68570")
    assert process.returncode == 3, stderr
    assert "INTERRUPTED" in stdout
    assert "gpu3" in stdout
    assert "1 ok" in stdout
    assert "Traceback" not in stderr


def test_a_hung_nvml_is_named(nodevet: Run, fleet: Any, reach: list[str]) -> None:
    fleet.sim("set", "gpu3", "gpu.5.power_draw_mw=hang")
    try:
        done = nodevet("check", "gpu3", *reach, *H100, "--deadline", "15", "--format", "json")
    finally:
        fleet.sim("set", "gpu3", "gpu.5.power_draw_mw=68570")
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["status"] == "vetted"
    told = [f["why"] for f in host["findings"] if f["check"] == "power_limit"]
    assert "GPU 5 nvmlDeviceGetPowerUsage" in told[0]
    assert [f["verdict"] for f in host["findings"] if f["check"] == "cpu_governor"] == ["fail"]


def test_hostile_text_from_a_node_is_inert(
    nodevet: Run, fleet: Any, reach: list[str], tmp_path: Path
) -> None:
    state = "/run/nodevet-sim/nvml.state"
    hostile = r"driver_version = \033]0;owned\007<script>550.1\n"
    fleet.run_on("gpu2", f"cp {state} /root; printf '{hostile}' >> {state}")
    site = tmp_path / "site.yaml"
    site.write_text(
        'nodevet: 1\nextends: nvidia-h100-sxm\nexpect: {driver_version: ">=550,<560"}\n'
    )
    try:
        done = nodevet("check", "gpu2", *reach, "-b", site)
        page = nodevet("check", "gpu2", *reach, "-b", site, "--format", "html")
    finally:
        fleet.run_on("gpu2", f"cp /root/nvml.state {state}")
    assert done.returncode == page.returncode == 1
    assert "\x1b" not in done.stdout
    assert "<script>550" not in page.stdout


def imported(*arguments: str) -> set[str]:
    """The names of all modules that a command imports in its own process."""
    command = [NODEVET[0], "-X", "importtime", *NODEVET[1:], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    rows = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(rows) > 50
    return {row.rsplit("|", 1)[1].strip() for row in rows}


def test_a_node_local_run_imports_no_package_that_it_does_not_use() -> None:
    names = imported("probe")
    assert not names & {"pyinfra", "gevent", "paramiko", "pydantic", "msgspec", "yaml", "rich"}
    names = imported("check", "@local", "-b", "generic")
    assert not names & {"pyinfra", "gevent", "paramiko", "rich", "jinja2", "prometheus_client"}
    assert not names & {"pydantic", "click", "tomllib", "hashlib", "tempfile"}
