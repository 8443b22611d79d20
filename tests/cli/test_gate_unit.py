"""The unit that `nodevet gate --install` prints, without a node."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodevet.model import HostReport, Severity, Status
from nodevet.model.run import Run
from nodevet.vet.gate_unit import DECISION, GateUnit
from nodevet.vet.use.gate import GateVerdict

NODEVET = [sys.executable, "-m", "nodevet"]
SITE = "nodevet: 1\nexpect: {gpu_count: 1}\n"
IN, OUT = 0, 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(SITE)
    return tmp_path


def install(folder: Path, *words: str, **rest: Any) -> "subprocess.CompletedProcess[str]":
    command = [*NODEVET, "gate", "--install", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **rest)


def printed(folder: Path, *words: str) -> str:
    done = install(folder, *words)
    assert done.returncode == 0, done.stderr
    assert "/etc/systemd/system/nodevet-gate.service" in done.stderr
    assert "systemctl daemon-reload && systemctl enable nodevet-gate.service" in done.stderr
    return done.stdout


def values(unit: str, key: str) -> list[str]:
    return [row.partition("=")[2] for row in unit.splitlines() if row.startswith(f"{key}=")]


def verified(folder: Path, unit: str) -> None:
    file = folder / "nodevet-gate.service"
    file.write_text(unit)
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_takes_the_unit(folder: Path) -> None:
    unit = printed(folder, "-b", "site.yaml", "--wait", "20m", "--settle", "1m", "@local")
    verified(folder, unit)
    (seconds,) = values(unit, "TimeoutStartSec")
    limit = int(values(unit, "ExecStart")[0].partition("KILL ")[2].split()[0])
    assert 20 * 60 + 60 < limit < int(seconds)
    assert f"gate @local -b {folder}/site.yaml --wait 1200s --settle 60s" in unit
    assert values(unit, "Before") == values(unit, "RequiredBy")
    assert values(unit, "Before") == ["slurmd.service kubelet.service"]


def test_the_program_of_the_unit_is_the_one_that_printed_it(folder: Path) -> None:
    script = Path(sys.executable).with_name("nodevet")
    words = [script.name, "gate", "--install", "-b", "site.yaml"]
    env = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env)
    assert f" {script} gate @local " in done.stdout


@pytest.mark.parametrize(
    "name",
    ["a b.yaml", "100%n.yaml", "$HOME.yaml", "${x}.yaml", "q\"'.yaml", "b\\n.yaml", "ü;.yaml"],
)
def test_systemd_reads_odd_names_as_they_are(folder: Path, name: str) -> None:
    """The command of `systemctl show` would be unread quoting: systemd runs it."""
    (folder / name).write_text(SITE)
    unit = printed(folder, "-b", name)
    verified(folder, unit)
    assert words_of(unit) == str(folder / name)


def words_of(unit: str) -> str:
    """The baseline, by the rules of systemd.service(5), "Command lines"."""
    line = values(unit, "ExecStart")[0].partition(" -b ")[2].partition(" --wait")[0]
    if line.startswith('"'):
        line = line[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return line.replace("$$", "$").replace("%%", "%")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-b", "site.yaml", "gpu1"], "name no other host"),
        (["-b", "site.yaml", "-i", "fleet.yaml"], "does not take --inventory"),
        (["-b", "site.yaml", "--format", "json"], "does not take --format"),
        (["-b", "site.yaml", "--interval", "1s", "-q"], "does not take --interval, --quiet"),
        (["-b", "site.yaml", "--store", "none"], "does not take --store"),
        (["-b", "site.yaml", "--project", "."], "does not take --project"),
        ([], "needs -b"),
        (["-b", "missing.yaml"], "missing.yaml"),
        (["-b", "site"], "site"),
        (["-b", "site.yaml", "--wait", "10s", "--settle", "10s"], "longer than --settle"),
        (["-b", "site.yaml", "--verdict", "/tmp/gate.json"], "others could write a verdict"),
        (["-b", "line\nbreak.yaml"], "cannot hold"),
    ],
)
def test_options_that_a_unit_cannot_contain_are_refused(
    folder: Path, words: list[str], said: str
) -> None:
    (folder / "fleet.yaml").write_text("")
    (folder / "line\nbreak.yaml").write_text(SITE)
    done = install(folder, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_earlier_verdict_is_kept_if_the_unit_is_refused(folder: Path) -> None:
    verdict = folder / "gate.json"
    verdict.write_text(GateVerdict(verdict="pass", exit_code=0).text())
    assert install(folder, "--verdict", str(verdict)).returncode == 2
    assert '"pass"' in verdict.read_text()


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("services: {running: [slurmd.service]}", "services: slurmd.service waits for the gate"),
        ("rule: {x: {services: {running: [kubelet.service]}}}", "rule: kubelet.service waits"),
        ("slurm_node: {}", "slurm_node: slurmd"),
    ],
)
def test_checks_that_need_a_running_slurmd_or_kubelet_are_refused(
    folder: Path, expected: str, said: str
) -> None:
    (folder / "site.yaml").write_text(f"nodevet: 1\nexpect: {{{expected}}}\n")
    done = install(folder, "-b", "site.yaml")
    assert done.returncode == 2
    assert f"site.yaml:2: {said}" in done.stderr


def test_checks_of_slurmd_that_do_not_fail_the_gate_are_accepted(folder: Path) -> None:
    (folder / "site.yaml").write_text(
        "nodevet: 1\nseverity: {services: info}\nexpect: {services: {running: [slurmd.service]}}\n"
    )
    assert "slurmd" in printed(folder, "-b", "site.yaml")
    (folder / "site.yaml").write_text(
        "nodevet: 1\nexpect: {services: {enabled: [slurmd.service]}}\n"
    )
    assert "slurmd" in printed(folder, "-b", "site.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file is needed")
def test_files_of_other_users_are_refused(folder: Path) -> None:
    os.chown(folder / "site.yaml", 12345, 12345)
    done = install(folder, "-b", "site.yaml")
    assert done.returncode == 2
    assert "belongs to another user" in done.stderr


def test_a_unit_that_cannot_be_written_completely_is_an_error(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*NODEVET, "gate", "--install", "-b", "site.yaml"]
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2


RUN = Run(
    id="1", nodevet="1", started="2026-01-01T00:00:00+00:00", seconds=1.0, fail_on=Severity.WARNING,
    hosts=(HostReport(host="@local", status=Status.TIMEOUT, why='"verdict": "pass"'),),
)  # fmt: skip
EARLY = "not settled: up for 9 s, expected 30 s"


@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        (GateVerdict(verdict="pass", exit_code=0, run=RUN), IN, "pass: slurmd"),
        (GateVerdict(verdict="fail", exit_code=1, run=RUN), OUT, "<2>FAIL, see above"),
        (GateVerdict(verdict="pending", exit_code=75, run=RUN), OUT, "<2>NOT JUDGED YET"),
        (GateVerdict(verdict="pending"), IN, "<2>NO VERDICT: nodevet is broken"),
        (None, IN, "<2>NO VERDICT: nodevet is broken"),
        ({"n1": EARLY}, IN, "<2>NO VERDICT: nodevet is broken"),
        ({"n1": f"{EARLY}; so far gpu_count: 7"}, OUT, "NO VERDICT, and the node"),
        ({"n1": "gpu_count: 7, expected 8"}, OUT, '"n1": "gpu_count: 7, expected 8"'),
        ({"n1": 'x": "not settled: \n"verdict": "pass"'}, OUT, "NO VERDICT, and"),
        ({"n1": "-n `reboot` $(reboot) %s \\c"}, OUT, r"`reboot` $(reboot) %s \\c"),
    ],
)
def test_the_verdict_file_decides(
    tmp_path: Path, verdict: "GateVerdict | dict[str, str] | None", code: int, said: str
) -> None:
    file = tmp_path / "gate.json"
    if isinstance(verdict, dict):
        verdict = GateVerdict(verdict="pending", waiting=verdict)
    if verdict:
        file.write_text(verdict.text())
    line = DECISION.replace("\n", " ")  # as systemd reads it
    done = subprocess.run(["/bin/sh", "-c", line, file], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout


@pytest.mark.parametrize("text", ["", "\n", "pass", "\0\0\0\0\n", "{\n", '{"verdict": "pass"}'])
def test_a_damaged_verdict_does_not_pass(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.json"
    file.write_text(text)
    line = DECISION.replace("\n", " ")
    done = subprocess.run(["/bin/sh", "-c", line, file], capture_output=True, text=True)
    assert "NO VERDICT" in done.stdout


def test_the_limit_is_above_the_longest_gate() -> None:
    unit = GateUnit(program=("/x",), baselines=("b",), wait=7 * 86400.0, settle=0.5, fail_on="info")
    assert unit.limit > 7 * 86400 + 0.5
    assert "--wait 604800s --settle 0.5s" in " ".join(unit.command)
