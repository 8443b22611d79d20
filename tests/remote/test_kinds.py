"""Kinds of resources are found by their files."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import state
from nodevet.remote.look import kind, look
from nodevet.remote.managers.search import managers

FILES = sorted(path.stem for path in Path(state.__file__).parent.glob("[!_]*.py"))
LIGHT = """
def look(root, name): return {"exists": True, "value": root + name, "why": ""}
"""


@pytest.mark.parametrize("name", FILES)
def test_every_kind_is_looked_at_and_has_patterns(name: str) -> None:
    module = kind(name)
    assert next(iter(inspect.signature(module.look).parameters)) == "root"
    assert len(inspect.signature(module.patterns).parameters) == 2


def test_a_new_file_is_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lamp.py").write_text(LIGHT)
    monkeypatch.setattr(state, "__path__", [*state.__path__, str(tmp_path)])
    asked = {"root": "/r/", "resources": [{"kind": "lamp", "name": "x"}]}
    assert look(asked) == [{"exists": True, "value": "/r/x", "why": ""}]
    assert managers(asked | {"root": str(tmp_path)}) == [[]], "it says nothing of others"


def test_a_kind_without_a_file_is_not_looked_at(ask: Callable[..., Any]) -> None:
    found = ask("look", "planet earth", "__init__ x", "os.path x")
    assert [each["why"] for each in found] == [
        "a planet cannot be looked at",
        "a __init__ cannot be looked at",
        "a os.path cannot be looked at",
    ]
