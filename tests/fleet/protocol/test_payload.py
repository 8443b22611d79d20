"""Payload and frame, between real interpreters and byte by byte."""

import ast
import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.fleet.protocol.exchange import Answer, AnswerError, request, unframe
from nodevet.fleet.protocol.payload import (
    BOOT,
    COLLECTORS,
    FOLDER,
    NOT_IN_PROBE,
    PROBE,
    REMOTE,
    modules,
    pack,
    payload,
    probe_payload,
    sources,
)
from nodevet.remote.main import frame
from nodevet.remote.probe.main import NOT_ASKED
from nodevet.remote.probe.sections import names

PYENV = Path.home() / ".pyenv/versions"
PYTHONS = [  # this one, and where pyenv has them older and newer ones
    sys.executable,
    *(
        str(path)
        for version in ("3.6.15", "3.8.18", "3.13.0")
        if (path := PYENV / version / "bin/python3").exists()
    ),
]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_payload_runs_from_stdin_alone(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-I", "-c", BOOT],
        input=payload() + request(nonce="n", root="/", deadline=80, asked_s=None),
        capture_output=True,
        cwd=tmp_path,
    )
    assert done.stderr == b""
    document = json.loads(unframe(done.stdout, "n"))
    assert document["sections"]["host"]["status"] == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("python", PYTHONS)
def test_only_another_version_of_python_compiles_the_payload(python: str) -> None:
    main = "import builtins\nbuiltins.compile = lambda *rest: sys.exit(3)\nimport one\n"
    done = subprocess.run([python, "-I", "-S", "-c", BOOT], input=pack({"one": "1"}, main))
    tag = "import sys; print(sys.implementation.cache_tag)"
    same = subprocess.check_output([python, "-c", tag], text=True)
    assert done.returncode == (0 if same.strip() == sys.implementation.cache_tag else 3)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("python", PYTHONS[:2])
def test_a_section_without_parameters_is_sent_without_its_collector(
    python: str, asked: bool
) -> None:
    asks = {"limits": ["nofile"]} if asked else {}
    sections = ("host", "limits")
    assert sources(PROBE, sections, frozenset())[f"{COLLECTORS}limits"].split() == [
        "ASKED",
        "=",
        "True",
    ]
    wish = request(nonce="n", root="/", deadline=80, asked_s=None, asks=asks, sections=sections)
    program = probe_payload(sections, [{}, asks])
    done = subprocess.run(
        [python, "-I", "-S", "-c", BOOT], input=program + wish, capture_output=True
    )
    read = json.loads(unframe(done.stdout, "n"))["sections"]
    assert read["host"]["status"] == "ok"
    assert (read["limits"].get("why") == NOT_ASKED) is not asked
    assert asked is (read["limits"]["status"] == "ok")


@pytest.mark.parametrize("program", [PROBE, REMOTE])
def test_the_payload_of_a_program_contains_all_its_imports(program: str) -> None:
    every, sent = dict(modules(REMOTE, FOLDER)), sources(program)
    require_imports(every, sent)
    of_remote = {name for name in every if name.startswith(NOT_IN_PROBE)}
    assert sent.keys() & of_remote == (of_remote if program == REMOTE else set())
    assert (f"{PROBE}.main" in sent) is (program == PROBE)


def test_the_payload_of_a_section_contains_all_its_imports() -> None:
    every = dict(modules(REMOTE, FOLDER))
    for name in names():
        sent = sources(PROBE, (name,), frozenset({name}))
        require_imports(every, sent)
        assert sent[COLLECTORS + name] == every[COLLECTORS + name]
        assert len([module for module in sent if module.startswith(COLLECTORS)]) < 4


def require_imports(every: dict[str, str], sent: dict[str, str]) -> None:
    """Fail if these modules import one of nodevet that is not among them."""
    for name, text in sent.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                assert not [each for each in node.names if each.name.startswith("nodevet")], name
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nodevet"):
                asked = {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
                assert asked & every.keys() <= sent.keys(), name


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 50))
def test_noise_around_the_frame_and_odd_chunks_do_not_matter(
    before: bytes, after: bytes, size: int
) -> None:
    text = b'{"schema":1}'
    output = before + frame(text, "n0") + after
    answer = Answer("n0", 1000)
    for start in range(0, len(output), size):
        document = answer.take(output[start : start + size])
        if document is not None:
            break
    assert document == text


@given(st.integers(0, 11))
def test_a_truncated_answer_is_reported(length: int) -> None:
    text = b'{"schema":1}'
    answer = Answer("n", 1000)
    whole = frame(text, "n")
    assert answer.take(whole[: len(whole) - len(text) - 1 + length]) is None
    assert answer.missing() == f"truncated response: {length} of 12 bytes"


@given(st.integers(0, 11), st.integers(1, 255))
def test_an_answer_with_a_changed_byte_is_refused(place: int, change: int) -> None:
    whole = bytearray(frame(b'{"schema":1}', "n"))
    whole[-13 + place] ^= change
    with pytest.raises(AnswerError, match="corrupted response"):
        unframe(bytes(whole), "n")


def test_a_frame_of_another_run_is_refused() -> None:
    with pytest.raises(AnswerError, match="no evidence"):
        unframe(frame(b"{}", "other"), "n")


def test_too_much_output_is_refused() -> None:
    answer = Answer("n", 1 << 20)
    assert answer.take(b"x" * (1 << 20)) is None
    with pytest.raises(AnswerError, match="more than 1 MiB of output"):
        answer.take(b"x")


@given(st.binary(max_size=4096))
def test_packed_answer_arrives_whole(text: bytes) -> None:
    assert Answer("n", 1 << 20).take(frame(text, "n", packed=True)) == text


def test_packed_answer_of_too_much_text_ends_at_the_limit() -> None:
    """A node may send a few kilobytes that unpack to a gigabyte."""
    bomb = frame(bytes(64 << 20), "n", packed=True)
    answer = Answer("n", 1 << 20)
    assert len(bomb) < 1 << 20
    with pytest.raises(AnswerError, match="more than 1 MiB of output"):
        answer.take(bomb)


@pytest.mark.parametrize(
    "packed",
    [b"", b"not zlib", zlib.compress(b"{}" * 99)[:-1], zlib.compress(b"{}") + b"more"],
)
def test_packed_answer_that_is_not_zlib_is_refused(packed: bytes) -> None:
    digest = hashlib.sha256(packed).hexdigest()
    head = f"\x1eNODEVETZ n {len(packed)} {digest}\n".encode()
    with pytest.raises(AnswerError, match="zlib cannot unpack it"):
        Answer("n", 1 << 20).take(head + packed)
