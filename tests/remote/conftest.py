"""A tree that stands for a node's files, and what is answered about it."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.fleet.protocol.exchange import remote_request, unframe
from nodevet.fleet.protocol.payload import BOOT, REMOTE, payload

Ask = Callable[..., Any]


def resources(*labels: str) -> list[dict[str, str]]:
    """Resources by their labels: `kernel /sys/x`."""
    pairs = [label.split(" ", 1) for label in labels]
    return [{"kind": kind, "name": name} for kind, name in pairs]


def asked(do: str, *labels: str, root: Path | str = "/", **rest: object) -> Any:
    """What nodevet.remote answers as a node runs it: from stdin, in memory; or its error."""
    told = remote_request(
        nonce="n", do=do, deadline=30, root=str(root), resources=resources(*labels), **rest
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", BOOT],
        input=payload(REMOTE) + told,
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b"", done.stderr
    answer = json.loads(unframe(done.stdout, "n"))
    return answer.get("result", answer.get("error"))


@pytest.fixture(scope="session")
def ask() -> Ask:
    return asked


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Files of a node under a root: path -> text, or `-> target` for a link."""

    def write(files: dict[str, str]) -> Path:
        for path, text in files.items():
            place = tmp_path / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                place.symlink_to(text[3:])
            else:
                place.write_text(text)
        return tmp_path

    return write


@pytest.fixture(scope="session")
def served() -> Callable[[bytes], tuple[int, bytes, bytes]]:
    """What nodevet.remote does with any bytes on its stdin after the payload."""

    def run(text: bytes) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [sys.executable, "-I", "-c", BOOT],
            stdin=None,
            input=io.BytesIO(payload(REMOTE) + text).read(),
            capture_output=True,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    return run
