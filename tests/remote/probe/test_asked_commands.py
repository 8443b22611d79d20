"""Commands that a baseline asks for: how they are run, and what of their output comes back."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet.remote.probe.collectors import commands
from nodevet.remote.probe.files import Absent

ROOT = os.geteuid() == 0


def wish(*run: str, **other: Any) -> dict[str, Any]:
    return {"name": " ".join(run), "run": list(run), "user": "", "deadline": 60, **other}


def ask(*questions: dict[str, Any], **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = commands.collect(
        "/", {"asks": {"commands": list(questions)}, "deadline": 90.0, **request}
    )["commands"]
    return found


def sh(script: str, **other: Any) -> dict[str, Any]:
    """What /bin/sh makes of a script, as a command."""
    return ask(wish("/bin/sh", "-c", script, **other))[0]


def test_no_command_is_run_unless_the_baseline_asks() -> None:
    assert commands.collect("/", {}) == {"errors": {}, "commands": []}
    assert not commands.ALONE({})
    assert commands.ALONE({"asks": {"commands": [wish("true")]}})


def test_a_command_reports_its_exit_code_and_the_requested_matches() -> None:
    found = sh("echo one; echo two", equals=["one\ntwo"], contains=["one", "x"], pattern=["^two$"])
    assert (found["exit"], found["text"], found["complaint"]) == (0, "one\ntwo\n", "")
    assert [each["found"] for each in found["matches"]] == [True, True, False, True]


def test_the_output_of_a_command_stays_on_the_node() -> None:
    found = sh("echo secret; echo hidden >&2", name="it", contains=["s"])
    assert "secret" not in json.dumps(found) and "hidden" not in json.dumps(found)


def test_a_command_that_fails_says_why() -> None:
    found = sh("echo no luck >&2; exit 7")
    assert (found["exit"], found["complaint"]) == (7, "no luck")
    assert sh("kill -9 $$")["exit"] == 137


def test_values_in_json() -> None:
    document = {"gpus": [{"speed": 16.0, "name": "a", "none": None, "big": 1 << 70}], "ok": True}
    paths: list[list[Any]] = [
        ["gpus", 0, "speed"],
        ["ok"],
        ["gpus", 1],
        ["gpus", "x"],
        ["gpus", 0, "none"],
        ["gpus", 0, "big"],
        ["gpus"],
    ]
    found = sh(f"echo '{json.dumps(document)}'", json=paths)["values"]
    told = [(each["path"], each.get("there"), each["value"]) for each in found]
    assert told == [
        ("gpus[0].speed", True, 16.0),
        ("ok", True, True),
        ("gpus[1]", False, None),
        ("gpus.x", False, None),
        ("gpus[0].none", True, None),
        ("gpus[0].big", True, None),
        ("gpus", True, None),
    ]
    assert found[4]["errors"] and found[5]["errors"] == {"value": "beyond 64 bits"}
    (value,) = sh("echo hello", json=[["a"]])["values"]
    assert value["there"] is None and value["errors"]["there"].startswith("the output is not JSON")


def test_a_lone_surrogate_in_the_output_is_an_error() -> None:
    (value,) = sh("""printf '{"a": "\\\\ud800"}'""", json=[["a"]])["values"]
    assert value["errors"] == {"value": "half a character"}


def test_a_command_is_killed_at_its_deadline_with_its_children(tmp_path: Path) -> None:
    script, limit = f"sleep 600 & echo $! > {tmp_path}/pid; wait", round(0.5 * slowness(), 1)
    found = sh(script, deadline=limit, user="root" * ROOT)
    assert found["exit"] is None and found["errors"]["exit"] == f"sh timed out after {limit:g} s"
    assert ended(int((tmp_path / "pid").read_text()))


DAEMON = """\
import os
if os.fork():
    os.read(os.open("{0}/pid", os.O_RDONLY), 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
os.write(os.open("{0}/pid", os.O_WRONLY), b"1")
with open("{0}/number", "w") as file:
    file.write(str(os.getpid()))
os.execvp("sleep", ["sleep", "600"])
"""


def test_a_daemon_left_behind_by_a_command_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    script = DAEMON.format(tmp_path)
    mine = subprocess.Popen(["sleep", "600"])
    try:
        (found,) = ask(wish(sys.executable, "-c", script, user="root" * ROOT))
        assert found["exit"] == 0, found
        number = tmp_path / "number"
        if number.exists() and (text := number.read_text()):  # else it was ended before it wrote it
            assert ended(int(text))
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


def test_a_child_in_its_own_process_group_is_killed_at_the_deadline(tmp_path: Path) -> None:
    script = f"timeout 600 sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600'; true"
    found = sh(script, deadline=slowness(), user="root" * ROOT)
    assert found["exit"] is None
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_command_can_open_dev_stdout_and_dev_stderr() -> None:
    found = sh("echo out > /dev/stdout; echo no luck > /dev/stderr; exit 3", equals=["out"])
    assert (found["exit"], found["complaint"], found["text"]) == (3, "no luck", "out\n")


def ended(pid: int) -> bool:
    """Whether a process ends, waited for or not."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_flood_is_cut_off() -> None:
    assert sh("yes")["errors"]["exit"] == "sh printed more than 1 MiB"


def test_the_last_command_gets_the_remaining_time() -> None:
    slow, late = wish("/bin/sleep", "600", deadline=600), wish("/bin/true", name="/bin/true")
    limit = 2 * slowness()
    found = ask(slow, late, end=time.monotonic() + commands.SPARE + limit)
    told = re.fullmatch(r"sleep timed out after ([\d.]+) s", found[0]["errors"]["exit"])
    assert told and float(told.group(1)) <= round(limit, 1)
    assert found[1]["errors"]["exit"] == "the commands before it left no time for it"


def test_no_shell_expands_the_arguments_of_a_command() -> None:
    (found,) = ask(wish("echo", "$HOME; `id`", equals=["$HOME; `id`"]))
    assert found["matches"][0]["found"] is True


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "/etc/passwd"])
def test_a_command_that_cannot_run_gives_a_reason(name: str) -> None:
    (found,) = ask(wish(name, contains=["x"], json=[["a"]]))
    assert found["exit"] is None and found["errors"]["exit"]
    assert found["matches"][0]["found"] is None and found["values"][0]["there"] is None


def test_under_another_root_nothing_is_run(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        commands.collect(str(tmp_path), {"asks": {"commands": [wish("true")]}})


@pytest.mark.skipif(not ROOT, reason="only root can be another user")
def test_root_runs_a_command_as_nobody_with_no_new_privileges() -> None:
    found = sh("id -un; id -G; grep NoNewPrivs /proc/self/status", equals=[""])
    name, groups, barred = found["text"].splitlines()
    assert name == found["user"] == "nobody" and "0" not in groups.split()
    assert barred.split() == ["NoNewPrivs:", "1"]
    found = sh("id -un", user="root", equals=["root"])
    assert (found["user"], found["matches"][0]["found"]) == ("root", True)
    assert sh("true", user="no-such-user")["errors"]["exit"] == "there is no user no-such-user"


def test_a_user_other_than_root_runs_a_command_as_that_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands.os, "geteuid", lambda: 1)
    assert commands.user_of("") == ("daemon", None)
    assert commands.user_of("daemon") == ("daemon", None)
    with pytest.raises(commands.ToolError, match="only root can run it as nobody"):
        commands.user_of("nobody")
