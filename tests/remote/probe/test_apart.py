"""What hangs costs only itself: the answers before it arrive, and nothing stays behind."""

import os
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet.remote.probe.apart import read_apart

HUNG = "not read within {:g} s: its file system may hang"


def refuse() -> Any:
    raise ValueError("no dump")


def fill(pipe: int) -> None:
    while True:
        os.write(pipe, b"x")


def test_readings_before_one_that_hangs_are_kept_and_the_rest_are_errors() -> None:
    reader, writer = os.pipe()
    held = sorted(Path("/proc/self/fd").iterdir())
    seconds = 2 * slowness()
    answers = read_apart([lambda: {"a": [1]}, refuse, lambda: os.read(reader, 1), refuse], seconds)
    hung = (None, HUNG.format(seconds))
    assert answers == [({"a": [1]}, None), (None, "no dump"), hung, hung]
    assert sorted(Path("/proc/self/fd").iterdir()) == held
    os.close(reader)
    with pytest.raises(BrokenPipeError):  # once the child, which reads it too, is gone
        fill(writer)
    os.close(writer)


def test_all_answers_arrive() -> None:
    assert read_apart([lambda: {"text": "x" * 100000}], 60.0) == [({"text": "x" * 100000}, None)]
    assert read_apart([lambda: os._exit(1)], 60.0) == [(None, HUNG.format(60.0))]
