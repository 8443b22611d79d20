"""Where a run goes: what cannot be written costs nothing else, and nothing is destroyed."""

import fcntl
import json
import os
import pty
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from far_processes import take_signal

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]
FULL = Path("/dev/full")


@pytest.fixture
def kept(tmp_path: Path) -> list[str]:
    """A command that judges saved evidence: two hosts that could not be reached."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    for host in ("gpu1", "gpu2"):
        visit = {"host": host, "status": "unreachable", "why": "no answer " * 30, "evidence": None}
        (folder / f"{host}.json").write_text(json.dumps(visit))
    return ["check", "--evidence", str(folder), "-b", "generic"]


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A device on which nothing can be written, as a full disk."""
    device = tmp_path / "full"
    device.symlink_to(FULL)
    return device


@pytest.mark.parametrize("lost", ["html", "jsonl"])
def test_a_report_that_cannot_be_written_does_not_stop_the_others(
    nodevet: Run, kept: list[str], full: Path, tmp_path: Path, lost: str
) -> None:
    done = nodevet(
        *kept, f"--format={lost}:{full}", f"--format=json:{tmp_path / 'run'}", "--format=table"
    )
    assert done.returncode == 2
    assert done.stderr == f"nodevet: {full}: cannot be written: No space left on device\n"
    assert "UNREACHABLE" in done.stdout
    assert len(json.loads((tmp_path / "run").read_text())["hosts"]) == 2
    assert stat.S_ISCHR(FULL.stat().st_mode)
    assert full.is_symlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_waits_for_the_reports_that_go_to_files(
    kept: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    """The run is over, its first report is read slowly, and the second one is yet to come."""
    pipe, page = tmp_path / "pipe", tmp_path / "page.html"
    os.mkfifo(pipe)
    words = [*NODEVET, *kept, f"--format=json:{pipe}", f"--format=html:{page}", "--format=table"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _hangs(process.pid, "hrtimer_nanosleep")
    process.send_signal(number)
    assert len(json.loads(pipe.read_text())["hosts"]) == 2
    shown, said = process.communicate(timeout=120)
    assert (process.returncode, shown, said) == (130, "", "nodevet: interrupted\n")
    assert page.read_text().endswith("</html>\n")


def test_a_second_interrupt_does_not_wait(kept: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen([*NODEVET, *kept, f"--format=json:{pipe}"], stderr=subprocess.PIPE)
    _hangs(process.pid, "hrtimer_nanosleep")
    process.send_signal(signal.SIGINT)
    take_signal(process.pid, signal.SIGINT)  # two that come together are one
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120)[1] == b"nodevet: interrupted\n"
    assert process.returncode == 130


def test_an_interrupt_that_cannot_be_reported_exits_130() -> None:
    with FULL.open("w") as full:
        words = [*NODEVET, "check", "-", "-b", "generic"]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=full)
    _hangs(process.pid, "pipe_read", "anon_pipe_read")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def test_a_crash_prints_a_traceback() -> None:
    words = [*NODEVET, "check", "-", "-b", "generic"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _hangs(process.pid, "pipe_read", "anon_pipe_read")
    process.send_signal(signal.SIGSEGV)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == -signal.SIGSEGV
    assert said.startswith("Fatal Python error: Segmentation fault") and "in command" in said


def _hangs(process: int, *places: str) -> None:
    """Wait until a process hangs in one of these functions of the kernel."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with suppress(OSError):
            if Path(f"/proc/{process}/wchan").read_text() in places:
                return
        time.sleep(0.05)
    pytest.fail(f"did not come to {places}")


def test_a_pipe_is_written_to_and_not_replaced(kept: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen([*NODEVET, *kept, f"--format=json:{pipe}"])
    assert len(json.loads(pipe.read_text())["hosts"]) == 2
    assert process.wait(60) == 3
    assert pipe.is_fifo()


def test_a_link_stays_and_leads_to_the_new_report(
    nodevet: Run, kept: list[str], tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    link = tmp_path / "last.json"
    link.symlink_to("runs/tonight.json")
    assert nodevet(*kept, f"--format=json:{link}").returncode == 3
    assert link.is_symlink()
    assert json.loads((tmp_path / "runs" / "tonight.json").read_text())["hosts"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["tonight.json"]


@pytest.mark.parametrize("format", ["table", "jsonl"])
def test_a_closed_output_pipe_does_not_stop_reports_to_files(
    kept: list[str], tmp_path: Path, format: str
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*NODEVET, *kept, f"--format={format}", f"--format=json:{tmp_path / 'run'}"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert len(json.loads((tmp_path / "run").read_text())["hosts"]) == 2
    assert done.returncode == 2
    assert done.stderr == "nodevet: standard output: cannot be written: Broken pipe\n"


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">&- 2>&- <&-"])
def test_closed_streams(kept: list[str], tmp_path: Path, closed: str) -> None:
    script = f'"$@" {closed}'
    command = ["sh", "-c", script, "sh", *NODEVET, *kept]
    wanted = ["--format=table", f"--format=json:{tmp_path / 'run'}"]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert len(json.loads((tmp_path / "run").read_text())["hosts"]) == 2


def test_output_works_in_an_encoding_that_lacks_a_character(kept: list[str]) -> None:
    done = subprocess.run(
        [*NODEVET, *kept, "--format=diff"],
        env={**os.environ, "PYTHONIOENCODING": "koi8-r"},
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert b"2 hosts" in done.stdout


def test_the_table_is_as_wide_as_the_terminal(kept: list[str]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*NODEVET, *kept], stdout=theirs, stderr=subprocess.PIPE, env={**env, "NO_COLOR": "1"}
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    process.communicate(timeout=60)
    lines = said.decode().splitlines()
    assert any("gpu[1-2]" in line for line in lines)
    assert max(map(len, lines)) <= 50
    assert "\x1b" not in said.decode()


def test_the_suffix_of_an_output_file_selects_its_format(
    nodevet: Run, kept: list[str], tmp_path: Path
) -> None:
    names = ("r.html", "r.md", "r.json", "r.jsonl", "r.xml", "r.prom", "r.diff", "r.txt")
    done = nodevet(*kept, *(word for name in names for word in ("-o", tmp_path / name)))
    assert "gpu[1-2]" in done.stdout  # the table is printed all the same
    begins = {name: (tmp_path / name).read_text()[:60] for name in names}
    assert begins["r.html"].startswith("<!doctype html>")
    assert begins["r.json"].startswith("{") and begins["r.jsonl"].startswith('{"record":"run"')
    assert begins["r.xml"].startswith("<testsuites") and begins["r.prom"].startswith("# HELP")
    assert begins["r.md"] != begins["r.txt"] and all(begins.values())
    wrong = nodevet(*kept, "-o", "r.docx")
    assert wrong.returncode == 2
    assert "-o r.docx: its name does not say which format; use --format NAME:r.docx" in wrong.stderr


def test_the_same_file_twice_under_two_names(nodevet: Run, kept: list[str], tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "evidence" / ".." / "a"
    done = nodevet(*kept, f"--format=json:{one}", f"--format=html:{other}")
    assert done.returncode == 2
    assert "two formats for" in done.stderr


def test_a_place_that_cannot_be_written_is_reported_before_the_run(
    nodevet: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for option in (
        ["--save", tmp_path / "file" / "evidence"],
        ["--save", "/proc/evidence"],
        ["--format", "json:/proc/run.json"],
        ["--format", f"json:{tmp_path}"],
    ):
        done = nodevet("check", "@local", "-b", "generic", *option)
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot be written" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_report_is_printed_even_if_evidence_cannot_be_saved(nodevet: Run, tmp_path: Path) -> None:
    """The name that the host's evidence would get is taken by a folder."""
    name = json.loads(nodevet("check", "@local", "-b", "generic", "--format=json").stdout)
    host = name["hosts"][0]["host"]
    (tmp_path / "kept" / f"{host}.json" / "x").mkdir(parents=True)
    done = nodevet("check", "@local", "-b", "generic", "--save", tmp_path / "kept")
    assert done.returncode == 2
    assert "1 host" in done.stdout
    assert f"the evidence of {host}: cannot be written" in done.stderr
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"{host}.json"]


@pytest.mark.parametrize("text", ["sys.exit(0)", "raise SystemExit"])
def test_a_check_that_calls_exit_exits_2(nodevet: Run, tmp_path: Path, text: str) -> None:
    for folder in ("checks", "baselines"):
        (tmp_path / folder).mkdir()
    (tmp_path / "baselines" / "b.yaml").write_text("nodevet: 1\nexpect: {own: {}}\n")
    path = tmp_path / "checks" / "own.py"
    path.write_text(f'"""Own."""\nimport sys\n{text}\n')
    done = nodevet("check", "@local", "-b", "b", "--project", tmp_path)
    assert done.returncode == 2
    assert f"{path}:3: SystemExit" in done.stderr
    path.write_text(
        '"""Own."""\nimport sys\nfrom nodevet.model import Check, CheckParams\n'
        f"def judge(evidence, params):\n    {text}\n    yield\n"
        "CHECK = Check(params=CheckParams, reads=(), judge=judge)\n"
    )
    done = nodevet("check", "@local", "-b", "b", "--project", tmp_path)
    assert done.returncode == 3
    assert "the check itself failed: SystemExit" in done.stdout


@pytest.mark.parametrize("option", ["--deadline", "--connect-timeout"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_nan_and_inf_are_not_valid_durations(nodevet: Run, option: str, value: str) -> None:
    done = nodevet("check", "@local", "-b", "generic", option, value)
    assert done.returncode == 2
    assert "invalid duration" in done.stderr


def test_explain_wants_one_host(nodevet: Run) -> None:
    done = nodevet("explain", "pcie_link", "--host", "gpu[1-2]")
    assert done.returncode == 2
    assert "stands for 2 hosts" in done.stderr
