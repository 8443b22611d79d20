"""pynvml as it is sent to nodes: all that the probe asks for, and what that needs."""

import builtins
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from nodevet.fleet.protocol.payload import FOLDER, REMOTE, modules
from nodevet.fleet.protocol.slim import slim, words
from nodevet.remote.probe import gpu_health, gpu_values

PREFIXES = (
    "NVML_BRAND_",
    "NVML_DEVICE_ARCH_",
    "NVML_ERROR_",
    "NVML_FI_DEV_NVLINK_SPEED_MBPS_L",
    "NVML_MEMORY_ERROR_TYPE_",
    "NVML_MEMORY_LOCATION_",
    "NVML_NVLINK_ERROR_DL_",
    "NVML_VALUE_TYPE_",
)


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


def test_every_pynvml_name_that_the_probe_uses_is_kept(
    slimmer: tuple[str, types.ModuleType, set[str]],
) -> None:
    _, found, asked = slimmer
    assert {name for name in asked & vars(pynvml).keys() if not hasattr(found, name)} == set()
    assert "nvmlDeviceGetHandleByIndex_v2" in vars(found) or "nvmlDeviceGetHandleByIndex" in asked


def test_constants_whose_names_the_code_builds_are_kept(
    slimmer: tuple[str, types.ModuleType, set[str]],
) -> None:
    _, found, _ = slimmer
    made = [prefix for prefix in PREFIXES for name in vars(pynvml) if name.startswith(prefix)]
    assert set(made) == set(PREFIXES)
    named = {name for name in vars(pynvml) if name.startswith(PREFIXES)} | set(asked_of_nvml())
    assert named & vars(pynvml).keys() - vars(found).keys() == set()


def asked_of_nvml() -> Iterator[str]:
    """Every constant and function in the tables of what is read of a GPU and of its links."""
    tables = [*vars(gpu_values).values(), *vars(gpu_health).values()]
    tables += map(gpu_health.nvlink_rows, range(18))
    yield from _texts([table for table in tables if isinstance(table, tuple)])


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for each in tree:
            yield from _texts(each)


def test_the_code_builds_nvml_names_from_at_least_two_words() -> None:
    """slim keeps what begins so; a name that is made of NVML_ and a rest it cannot know."""
    sources = dict(modules(REMOTE, FOLDER)).values()
    short = re.compile(r"[\"']NVML_[A-Z]*(\{|%|[\"'] *[+%])")
    assert [found[0] for text in sources for found in short.finditer(text)] == []


def test_kept_code_keeps_every_name_that_it_uses(
    slimmer: tuple[str, types.ModuleType, set[str]],
) -> None:
    text, found, _ = slimmer
    named = set(_names(compile(text, "pynvml", "exec")))
    known = vars(pynvml).keys() | vars(builtins).keys()
    assert named & known - vars(found).keys() - vars(builtins).keys() == set()


def test_the_payload_is_much_smaller(slimmer: tuple[str, types.ModuleType, set[str]]) -> None:
    text, _, _ = slimmer
    assert 10_000 < len(text) < 0.3 * Path(pynvml.__file__).stat().st_size


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)


SOURCE = """# of NVIDIA
import ctypes
import lonely_module

ONE = 1
TWO = (
    2,
)
NAME_A, NAME_B = 1, 2
OF_LIST_A = 1  # made
OF_LIST_B = 2

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
    return called(ctypes, "OF_LIST_" + one)
"""


def test_unused_definitions_are_removed() -> None:
    gone = ("def lonely():\n    return ONE\n\n", "import lonely_module\n\n", "ONE = 1\n")
    rest = SOURCE
    for text in (*gone, "TWO = (\n    2,\n)\n"):
        rest = rest.replace(text, "", 1)
    assert slim(SOURCE, ["asked"]) == rest
    assert "class Kept" not in slim(SOURCE, ["lonely"])
    assert "\nONE = 1\n" in slim(SOURCE, ["lonely"])


def test_a_string_with_text_at_column_0_leaves_the_source_unchanged() -> None:
    odd = SOURCE + 'def odd():\n    """A\ntext\n"""\n'
    assert slim(odd, ["asked"]) == odd
