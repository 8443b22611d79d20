"""A test that leaves a process or an open file behind fails itself, not the next one: what fixtures
of several tests start or open is none of the test that asks for it first."""

import gc
import os
import signal
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

PROCESS = ("cmdline", "status")
GRACE = 60.0  # seconds for a process that a test ended to be gone
SHARED: set[object] = set()  # what fixtures of several tests hold; a test may start it again


def held_resources() -> dict[tuple[str, str], str]:
    """The processes that this one started and that still run, and the files that it has open."""
    return {**children(), **open_files()}


def open_files() -> dict[tuple[str, str], str]:
    found = {}
    for number in {*os.listdir("/proc/self/fd")} - {"0", "1", "2"}:  # noqa: PTH208 - often called
        with suppress(OSError):  # closed by now
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
            if target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
                found["file", f"{number} {target}"] = f"the open file {target}"
    return found


def children() -> dict[tuple[str, str], str]:
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for pid in (task / "children").read_text().split():
                words, status = ((Path("/proc") / pid / name).read_bytes() for name in PROCESS)
                if b"\nState:\tZ" not in status:
                    text = words.replace(b"\0", b" ").decode(errors="replace").strip()
                    found["process", pid] = f"the process {text}"
    return found


def after_grace(before: Set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What a test left behind when processes that were told to end had time for it."""
    end = time.monotonic() + GRACE
    while any(kind == "process" for kind, _ in left_since(before)) and time.monotonic() < end:
        time.sleep(0.05)
    return left_since(before)


def left_since(before: Set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    known = before | SHARED
    now = held_resources().items()
    return {each: text for each, text in now if each not in known and text not in SHARED}


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = set(held_resources())
    yield
    if held_resources().keys() - before:
        gc.collect()  # what is closed only now warns, and fails this test
    left = after_grace(before)
    for what, name in left:
        if what == "process":
            os.kill(int(name), signal.SIGKILL)
    assert not left, f"the test leaves behind {', '.join(left.values())}: close or end it there"


@contextmanager
def shared() -> Iterator[None]:
    """What starts or opens here lasts longer than one test: a fixture of several tests ends it."""
    before = set(held_resources())
    try:
        yield
    finally:
        new = {each: text for each, text in held_resources().items() if each not in before}
        SHARED.update(new.keys(), new.values())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Any:
    with shared() if fixturedef.scope != "function" else nullcontext():
        return (yield)
