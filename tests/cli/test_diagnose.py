"""`nodevet diagnose` as a user runs it: bundles, formats, and the rounds of --watch."""

import gzip
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ras_server import JOB, serving

from nodevet.diagnose import incident
from nodevet.diagnose.board import BARS, board, sparkline
from nodevet.diagnose.model import Cause, Diagnosis
from nodevet.diagnose.saved import parse_diagnosis
from nodevet.evidence.document import decode
from nodevet.evidence.nccl_ras import NcclRas
from tests.diagnosis.samples import CASES
from tests.report import diagnoses
from tests.run.test_incident import visit_of

Run = Callable[..., subprocess.CompletedProcess[str]]
WATCH = ["diagnose", "@local", "--watch", "--duration", "1s", "--interval", "0.5s"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    visits = [visit_of(CASES["storage-bound"], "gpu1"), visit_of(CASES["idle"], "gpu2")]
    path = tmp_path / "i.json.gz"
    incident.write(path, visits, redact=False)
    return path


def test_several_formats_at_once(nodevet: Run, bundle: Path, tmp_path: Path) -> None:
    files = {form: tmp_path / f"d.{form}" for form in ("json", "markdown", "html")}
    options = [f"--format={form}:{path}" for form, path in files.items()]
    done = nodevet("diagnose", "--from", bundle, "--format", "table", *options, "-b", "generic")
    assert (done.returncode, done.stderr) == (1, "")
    assert "GPU 0: storage-bound" in done.stdout and "gpu2" in done.stdout
    found = parse_diagnosis(files["json"].read_text())
    assert [gpu.cause for host in found.hosts for gpu in host.gpus] == [Cause.STORAGE, Cause.IDLE]
    assert len(re.findall(r'id="h\d+"', files["html"].read_text())) == 2
    assert "### GPU 0: **storage-bound**" in files["markdown"].read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", "{bundle}", "gpu1"), "--from reads one bundle: leave out hosts"),
        (("--from", "{bundle}", "-i", "x.yaml"), "--from reads one bundle: leave out hosts"),
        (("--from", "{bundle}", "--watch"), "--watch shows hosts only: leave out --from"),
        (("@local", "--watch", "--format", "json"), "--watch shows hosts only"),
        (("--from", "{bundle}", "--format", "nagios"), "the format nagios does not render this"),
        (("--from", "{bundle}", "--format", "tabel"), "no report format is named 'tabel'"),
        (("--from", "{bundle}", "--job", "12"), "--from reads one bundle: leave out hosts"),
        (("@local", "--watch", "--job", "12"), "--watch shows hosts only"),
        (("--job", "12", "--ranks", "{text}"), "--job and --ranks exclude each other"),
        (("--ranks", "{text}"), "text.json:1: "),
        (("@local", "--nccl-ras", "localhost:28028"), "--nccl-ras goes with --job JOB"),
        (("--job", "12", "--nccl-ras", "gpu001:28028"), "write localhost:PORT, IPV4:PORT or"),
        (("--job", "12", "--nccl-ras", "[::1]"), "--nccl-ras [::1]: write localhost:PORT"),
        (("--job", "12", "--nccl-ras", "[::1]:0"), "write localhost:PORT"),
        (
            ("--job", "12", "--nccl-ras", "[::1]:28028", "--duration", "5s"),
            "--nccl-ras compares two answers: watch for 10s or longer",
        ),
        (("--job", "12x"), "name a job of Slurm"),
        (("@local", "--redact"), "--redact goes with --capture FILE"),
        (("@local", "--capture", "x", "--format", "json:x"), "a report goes there too"),
        (("--from", "{half}"), "the gzip is damaged or truncated"),
        (("--from", "{text}"), "not an incident bundle"),
        (("--from", "{many}"), "Expected `array` of length <= 65536 - at `$.hosts`"),
    ],
)
def test_mistakes(
    nodevet: Run, bundle: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    half, text = tmp_path / "half.gz", tmp_path / "text.json"
    half.write_bytes(bundle.read_bytes()[:-40])
    text.write_bytes(gzip.decompress(bundle.read_bytes())[:-40])
    many = tmp_path / "many.gz"
    hosts = ['{"host":"a","status":"timeout","evidence":null}'] * 65537
    many.write_bytes(
        gzip.compress(f'{{"nodevet_incident":1,"hosts":[{",".join(hosts)}]}}'.encode())
    )
    words = [word.format(bundle=bundle, half=half, text=text, many=many) for word in options]
    done = nodevet("diagnose", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def named_by_slurm(host: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of `serving` runs on this host."""
    squeue = folder / "squeue"
    squeue.write_text(f"#!/bin/sh\necho '{JOB}|{JOB}|RUNNING|{os.getuid()}|{host}'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_launchers_may_ask_more_than_twice_and_are_refused(
    nodevet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_by_slurm("n1", tmp_path, monkeypatch)
    (tmp_path / "nodevet.toml").write_text('launchers.eu = "ssh eu"\n')
    address = ("--nccl-ras", "localhost:28028")
    done = nodevet("diagnose", "n1", "--job", JOB, *address, cwd=tmp_path)
    assert done.returncode == 2 and "out the launchers of nodevet.toml" in done.stderr


def test_the_ras_port_of_a_job_that_has_just_begun_is_not_asked(
    nodevet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "i.json"
    named_by_slurm(socket.gethostname(), tmp_path, monkeypatch)
    with serving(tmp_path, tmp_path / "libnccl.so.2.29.2") as server:
        address = ("--nccl-ras", f"localhost:{server.port}", "--duration", "10s")
        done = nodevet("diagnose", "@local", "--job", JOB, *address, "--capture", bundle)
        assert server.received_lines == []
    assert done.returncode == 3, done.stderr  # this machine has no GPU
    ((visit, _),) = incident.read(bundle)
    assert visit.evidence is not None
    data = decode(bytes(visit.evidence))[NcclRas].data
    assert data is not None and data.not_asked.startswith("a process that listens began only ")


def test_rounds_in_a_log_until_an_interrupt(nodevet_words: list[str], tmp_path: Path) -> None:
    words = [*nodevet_words, *WATCH, "-b", "generic"]
    seen = ""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen += line
            if line.startswith("round 2"):
                process.send_signal(signal.SIGINT)
        assert process.wait(60) == 3  # this machine has no GPU
    assert re.match(r"round 1 at \d\d:\d\d:\d\d · ", seen) and "\x1b" not in seen
    assert "no diagnosis: " in seen


def test_a_terminal_is_redrawn_in_place(nodevet_words: list[str], tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*nodevet_words, *WATCH, "-b", "generic"],
        stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )  # fmt: skip
    os.close(slave)
    seen, end = "", time.monotonic() + 90
    while "round 2" not in seen:
        assert time.monotonic() < end and process.poll() is None, seen
        if select.select([master], [], [], 0.5)[0]:
            seen += os.read(master, 4096).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 3
    os.close(master)
    assert "\x1b[1A" in seen and "Ctrl-C ends" in seen


@pytest.fixture
def nodevet_words() -> list[str]:
    return [sys.executable, "-m", "nodevet"]


def rows(found: Diagnosis, **more: object) -> list[str]:
    given = {"colour": False, "width": 100, **more}
    return board(found, **given)


def test_a_round_has_a_line_for_each_gpu_and_the_worst_in_words() -> None:
    told = rows(diagnoses.fleet())
    with_bars = [line for line in told if "GPU" in line and re.search(f"[{BARS}]{{2,}}", line)]
    assert len(with_bars) == 40
    is_lost = [" lost " in line for line in with_bars]
    assert is_lost == [not re.search(f"[{BARS}]+ +[0-9]+ %", line) for line in with_bars]
    assert "gpu004: no diagnosis: connection refused" in told
    assert "is lost to the driver: NVML answers NVML_ERROR_GPU_IS_LOST" in " ".join(told)
    assert max(map(len, told)) <= 100


def test_a_terminal_with_few_lines_shows_the_worst_gpus() -> None:
    told = rows(diagnoses.fleet(), height=12)
    assert len(told) <= 12 and " lost " in told[0] and " stuck " in told[2]
    assert any(re.fullmatch(r"and \d+ more GPUs", line) for line in told)


def test_colour_changes_no_text_and_hostile_names_are_escaped() -> None:
    found = diagnoses.hostile(("\x1b[2Jstuck", "x" * 300, "漢字"))
    told = rows(found, colour=True)
    assert [re.sub(r"\x1b\[\d*m", "", line) for line in told] == rows(found)
    assert "\x1b[2J" not in "".join(told)


def test_a_sparkline_draws_values_as_bars() -> None:
    points = tuple((float(n), 100.0 * (n % 2)) for n in range(4))
    assert sparkline(points, 4) == "▁█▁█"
    assert sparkline(points[:1], 3) == "▁▁▁"
    assert sparkline((), 3) == ""
