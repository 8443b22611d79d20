"""One file that cannot be read costs its own host alone, and says so in the report."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EVIDENCE = {"schema": 1, "probe": "", "sections": {"host": {"status": "ok", "data": {}}}}
NODEVET = shlex.join([sys.executable, "-m", "nodevet"])
BASELINE = "nodevet: 1\nexpect:\n  uptime: {}\n"
BROKEN: dict[str, Callable[[Path], object]] = {
    "not JSON": lambda path: path.write_text("{"),
    "empty": lambda path: path.write_text(""),
    "nested": lambda path: path.write_text('{"sections": ' + "[" * 300_000),
    "huge": lambda path: [path.touch(), os.truncate(path, 1 << 40)],
    "binary": lambda path: path.write_bytes(b"\xff\x00" * 99),
    "a FIFO": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nowhere": lambda path: path.symlink_to("/no/such/file"),
    "a link to itself": lambda path: path.symlink_to(path),
    "unreadable": lambda path: path.symlink_to("/proc/self/mem"),
    "a saved run": lambda path: path.write_text(
        '{"schema": 1, "nodevet": "0.2", "started": "", "hosts": []}'
    ),
    "two values for a key": lambda path: path.write_text(
        json.dumps(EVIDENCE).replace('"data": {}', '"data": {"uptime_s": 1.0, "uptime_s": 2.0}')
    ),
    "kept, of another form": lambda path: path.write_text(
        '{"host": "n2", "status": "splendid", "evidence": {}}'
    ),
    "of a host that is there": lambda path: path.write_text(
        json.dumps({"host": "n1", "status": "vetted", "evidence": EVIDENCE})
    ),
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_e20_a_broken_file_makes_only_its_own_host_unreadable(
    nodevet: Callable[..., Any], tmp_path: Path, make: Callable[[Path], object]
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for name in ("n1", "n3"):
        (folder / f"{name}.json").write_text(json.dumps(EVIDENCE))
    make(folder / "n2.json")
    (tmp_path / "site.yaml").write_text(BASELINE)
    given = ("-b", tmp_path / "site.yaml", "--max-age", "none", "--format", "json")
    done = nodevet("check", "--evidence", folder, *given)
    assert done.returncode == 3, done.stderr
    hosts = {host["host"]: host for host in json.loads(done.stdout)["hosts"]}
    (lost,) = [name for name, host in hosts.items() if host["status"] == "unreadable"]
    assert str(folder / "n2.json") in hosts[lost]["why"]
    assert hosts["n3"]["status"] == "vetted"
    assert lost == "n2" or set(hosts) == {"n1", "n3"}


@pytest.mark.parametrize("command", ["capture", "compare"])
def test_e20_learning_from_many_files_omits_a_broken_one(
    nodevet: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    for name in ("n1", "n3", "n4"):
        (tmp_path / f"{name}.json").write_text(json.dumps(EVIDENCE))
    os.mkfifo(tmp_path / "n2.json")
    done = nodevet(command, "--evidence", tmp_path)
    assert done.returncode != 2 and "n2" in done.stdout + done.stderr, done
    assert "not a regular file" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    ["report FILE", "check --evidence FILE", "diagnose --from FILE", "explain n1 --from FILE",
     "apply FILE", "approve FILE", "check n1 -i FILE", "check n1 -b FILE", "feed FILE n1"],
)  # fmt: skip
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_e20_no_command_waits_for_a_named_pipe_or_reads_a_device_to_its_end(
    nodevet: Callable[..., Any], tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "file"
    make(path)
    done = nodevet(*words.replace("FILE", str(path)).split(), seconds=120)
    assert done.returncode in (2, 3), done
    assert "regular file" in done.stdout + done.stderr, done


def test_e20_the_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text(json.dumps(EVIDENCE))
    script = f"{NODEVET} check --evidence <(cat n1.json) -b generic --max-age none --format json"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["status"] == "vetted", done
