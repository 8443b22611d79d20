"""pynvml as it is sent to nodes: all that the probe asks for, and what that needs."""

import builtins
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from nodevet.fleet.protocol.payload import FOLDER, REMOTE, modules
from nodevet.fleet.protocol.slim import slim, words


@pytest.fixture(scope="module")
def slimmer() -> tuple[str, types.ModuleType, set[str]]:
    asked = words(dict(modules(REMOTE, FOLDER)).values())
    text = slim(Path(pynvml.__file__).read_text(encoding="utf-8"), asked)
    found = types.ModuleType("pynvml")
    before = sys.modules["pynvml"]
    sys.modules["pynvml"] = found  # it looks itself up there
    try:
        exec(compile(text, "pynvml", "exec"), found.__dict__)
    finally:
        sys.modules["pynvml"] = before
    return text, found, asked


def test_what_is_asked_for_is_there(slimmer: tuple[str, types.ModuleType, set[str]]) -> None:
    _, found, asked = slimmer
    assert {name for name in asked & vars(pynvml).keys() if not hasattr(found, name)} == set()
    constants = {name for name in vars(pynvml) if name.startswith("NVML_")}
    assert constants - vars(found).keys() == set()
    assert "nvmlDeviceGetHandleByIndex_v2" in vars(found) or "nvmlDeviceGetHandleByIndex" in asked


def test_what_stays_finds_all_that_it_names(
    slimmer: tuple[str, types.ModuleType, set[str]],
) -> None:
    text, found, _ = slimmer
    named = set(_names(compile(text, "pynvml", "exec")))
    known = vars(pynvml).keys() | vars(builtins).keys()
    assert named & known - vars(found).keys() - vars(builtins).keys() == set()


def test_it_is_much_less(slimmer: tuple[str, types.ModuleType, set[str]]) -> None:
    text, _, _ = slimmer
    assert 10_000 < len(text) < 0.6 * Path(pynvml.__file__).stat().st_size


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)


SOURCE = """# of NVIDIA
import ctypes

ONE = 1

class Base:
    pass

class Kept(Base):
    field = (
        "Base",
)

@decorated
def called():
    return Kept

def lonely():
    return ONE

def asked(
    one,
):
    return called()
"""


def test_what_nobody_names_goes() -> None:
    text = slim(SOURCE, ["asked"])
    assert text == SOURCE.replace("def lonely():\n    return ONE\n\n", "")
    assert "class Kept" not in slim(SOURCE, ["lonely"])


def test_a_text_at_the_margin_leaves_all_as_it_is() -> None:
    odd = SOURCE + 'def odd():\n    """A\ntext\n"""\n'
    assert slim(odd, ["asked"]) == odd
