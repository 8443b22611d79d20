"""Files that a baseline asks about: what is so of them, and nothing of what is in them."""

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(f"root:x:0:0::/:/bin/sh\nme:x:{os.getuid()}:0::/:/x\n")
    (tmp_path / "etc/group").write_text(f"root:x:0:\nours:x:{os.getgid()}:me\n")
    (tmp_path / "etc/motd").write_text("Authorised use only\nof gpu001\n")
    (tmp_path / "etc/motd").chmod(0o640)
    return tmp_path


def ask(root: Path, *questions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = files.collect(str(root), {"asks": {"files": list(questions)}})["files"]
    return {each["path"]: each for each in found}


def answers(record: dict[str, Any]) -> dict[tuple[str, str], bool | None]:
    return {(each["kind"], each["text"]): each["found"] for each in record["matches"]}


def test_a_file_is_reported_with_its_metadata_and_the_requested_matches(root: Path) -> None:
    wanted = {
        "path": "/etc/motd",
        "private": True,
        "sha256": True,
        "equals": ["Authorised use only\nof gpu001"],
        "contains": ["use only", "no such words"],
        "pattern": ["^of gpu[0-9]+$", "^gpu"],
    }
    motd = ask(root, wanted)["/etc/motd"]
    names = ("root", "root") if os.getuid() == 0 else ("me", "ours")
    assert (motd["exists"], motd["kind"], motd["mode"]) == (True, "file", "0640")
    assert (motd["owner"], motd["group"], motd["uid"]) == (*names, os.getuid())
    assert motd["sha256"] == hashlib.sha256((root / "etc/motd").read_bytes()).hexdigest()
    assert list(answers(motd).values()) == [True, True, False, True, False]
    assert motd["errors"] == {}


def test_a_pattern_that_times_out_does_not_affect_other_answers(root: Path) -> None:
    (root / "etc/a").write_text("a" * 100_000)
    endless, fine = (
        {"path": "/etc/a", "pattern": ["^(a+)+b", "^a"]},
        {"path": "/etc/motd", "private": True},
    )
    found = ask(root, endless, {**fine, "pattern": ["^of"]})
    answered = {each["text"]: each for each in found["/etc/a"]["matches"]}
    assert answered["^(a+)+b"]["found"] is None
    assert "the pattern took longer than 1 s" in answered["^(a+)+b"]["errors"]["found"]
    assert answered["^a"]["found"] is True
    assert answers(found["/etc/motd"]) == {("pattern", "^of"): True}
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_unasked_values_are_not_reported(root: Path) -> None:
    motd = ask(root, {"path": "/etc/motd"})["/etc/motd"]
    assert "Authorised" not in str(motd)
    assert motd["sha256"] is None and motd["errors"] == {"sha256": files.NOT_ASKED}


def test_questions_about_one_file_are_answered_together(root: Path) -> None:
    asked = (
        {"path": "/etc/motd", "private": True, "contains": ["use"]},
        {"path": "/etc/motd", "private": True, "contains": ["of"]},
    )
    assert answers(ask(root, *asked)["/etc/motd"]) == {
        ("contains", "use"): True,
        ("contains", "of"): True,
    }


def test_a_file_that_is_not_there(root: Path) -> None:
    found = ask(root, {"path": "/etc/gone", "contains": ["x"]}, {"path": "/etc/motd/x"})
    gone = found["/etc/gone"]
    assert (gone["exists"], gone["mode"]) == (False, None)
    assert answers(gone) == {("contains", "x"): None}
    assert gone["matches"][0]["errors"] == {"found": files.GONE}
    assert found["/etc/motd/x"]["exists"] is False


def test_each_value_fails_alone(root: Path) -> None:
    (root / "etc/passwd").unlink()
    (root / "etc/group").unlink()
    (root / "etc/large").write_bytes(b"x" * (files.LARGEST + 1))
    os.mkfifo(root / "etc/fifo")
    (root / "etc/loop").symlink_to("loop")
    (root / "etc/bytes").write_bytes(b"\xff\xfe not text")
    found = ask(
        root,
        {"path": "/etc/motd", "private": True, "pattern": ["("]},
        {"path": "/etc/large", "sha256": True, "contains": ["x"]},
        {"path": "/etc/fifo", "sha256": True, "contains": ["x"]},
        {"path": "/etc/loop"},
        {"path": "/etc/bytes", "contains": ["not text"]},
    )
    motd = found["/etc/motd"]
    assert (motd["owner"], motd["errors"]["owner"]) == (None, "ENOENT")
    assert motd["matches"][0]["errors"]["found"].startswith("this node's Python cannot use")
    large = found["/etc/large"]
    assert large["errors"] == {"owner": "ENOENT", "group": "ENOENT", "sha256": "larger than 64 MiB"}
    assert large["matches"][0]["errors"] == {"found": "EFBIG"}
    fifo = found["/etc/fifo"]
    assert fifo["kind"] == "fifo" and fifo["errors"]["sha256"] == "not a regular file"
    assert fifo["matches"][0]["errors"] == {"found": "not a regular file"}
    assert (
        found["/etc/loop"]["exists"] is None and found["/etc/loop"]["errors"]["exists"] == "ELOOP"
    )
    assert answers(found["/etc/bytes"]) == {("contains", "not text"): True}


def test_links_are_followed_inside_the_root(root: Path) -> None:
    (root / "etc/link").symlink_to("/etc/motd")
    assert ask(root, {"path": "/etc/link"})["/etc/link"]["mode"] == "0640"


def test_names_of_this_machine() -> None:
    passwd = ask(Path("/"), {"path": "/etc/passwd"})["/etc/passwd"]
    assert (passwd["owner"], passwd["group"], passwd["uid"]) == ("root", "root", 0)


def test_a_device_is_not_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(path: Any, flags: int, *rest: Any) -> int:
        assert flags & os.O_PATH, "opened for more than a look at what it is"
        return real(path, flags, *rest)

    monkeypatch.setattr(files.os, "open", opened)
    asked = {"path": "/dev/null", "sha256": True, "contains": ["x"]}
    (null,) = files.collect("/", {"asks": {"files": [asked]}})["files"]
    assert null["kind"] == "character device"
    assert null["errors"]["sha256"] == "not a regular file"
    assert null["matches"][0]["errors"] == {"found": "not a regular file"}


QUESTION = {"sha256": True, "equals": ["a"], "contains": ["b"], "pattern": ["^c"]}


def unanswered(record: dict[str, Any]) -> set[str]:
    """Why nothing of a file's text was answered; empty if all of it was."""
    assert record["exists"]
    assert record["mode"] is not None
    whys = {each["errors"].get("found", "") for each in record["matches"]}
    return {*whys, record["errors"].get("sha256", "")} - {""}


@pytest.mark.parametrize("name", ["/etc/motd", "/etc/link", "/closed/world"])
def test_e02_the_text_of_a_private_file_is_matched_only_if_allowed(root: Path, name: str) -> None:
    (root / "etc/link").symlink_to("motd")
    (root / "closed").mkdir(mode=0o700)
    (root / "closed/world").write_text("abc")
    question = {"path": name, **QUESTION}
    (why,) = unanswered(ask(root, question)[name])
    assert "allow_file_text: true" in why
    assert unanswered(ask(root, {**question, "private": True})[name]) == set()


def test_e02_every_question_about_a_private_file_must_allow_its_text(root: Path) -> None:
    question = {"path": "/etc/motd", **QUESTION}
    assert unanswered(ask(root, {**question, "private": True}, question)["/etc/motd"])
    assert unanswered(ask(root, {**question, "private": 1})["/etc/motd"])


def test_e02_the_owner_and_mode_of_a_private_file_are_always_reported(root: Path) -> None:
    motd = ask(root, {"path": "/etc/motd"})["/etc/motd"]
    assert (motd["exists"], motd["mode"], motd["uid"]) == (True, "0640", os.getuid())
    (root / "etc/motd").chmod(0o644)
    assert unanswered(ask(root, {"path": "/etc/motd", **QUESTION})["/etc/motd"]) == set()


def test_e02_files_of_a_process_in_proc_are_private_whatever_their_mode() -> None:
    asked = [{"path": f"/proc/self/{name}", "pattern": ["."]} for name in ("maps", "status")]
    for record in ask(Path("/"), *asked).values():
        assert unanswered(record)
    version = ask(Path("/"), {"path": "/proc/version", "pattern": ["^Linux"]})["/proc/version"]
    assert answers(version) == {("pattern", "^Linux"): True}


@given(
    letters=st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("".join),
    mode=st.integers(0, 0o777),
    above=st.integers(0, 0o777),
)
def test_e02_no_answer_depends_on_a_text_that_not_everyone_may_read(
    tmp_path_factory: pytest.TempPathFactory, letters: str, mode: int, above: int
) -> None:
    root = tmp_path_factory.mktemp("any")
    (root / "in").mkdir()
    told = []
    for text in (letters, "secret"):
        (root / "in").chmod(0o755)
        (root / "in/file").write_text(text)
        (root / "in/file").chmod(mode | 0o400)
        (root / "in").chmod(above | 0o700)
        question = {"path": "/in/file", "sha256": True, "pattern": ["^a"], "equals": [letters]}
        told.append(ask(root, question)["/in/file"])
    free = mode & 0o004 and above & 0o001
    assert bool(free) == (told[0] != told[1])
