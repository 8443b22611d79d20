"""Sections are found by their files, on a disk and in the payload."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet.fleet.protocol import exchange, payload
from nodevet.remote.probe import collectors, sections


def files() -> list[str]:
    folder = Path(collectors.__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def test_every_file_is_a_section_with_a_collector() -> None:
    assert sections.names() == files()
    for name in sections.names():
        assert callable(sections.collector(name).collect), name


def test_the_payload_has_the_same_sections_as_the_disk() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", payload.BOOT],
        input=payload.payload() + exchange.request(nonce="n", root="/", deadline=60, asked_s=None),
        capture_output=True,
        timeout=90,
    )
    assert sorted(json.loads(exchange.unframe(done.stdout, "n"))["sections"]) == files()


def test_a_new_file_is_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leds.py").write_text("def collect(root, request): return {'errors': {}}\n")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path)])
    assert sections.names() == sorted([*files(), "leds"])
    assert sections.limits(["leds"], "/", 100.0) == {"leds": 50.0}


def test_declarations_of_collectors_name_existing_sections() -> None:
    known = set(sections.names())
    for name in known:
        assert set(sections.declaration(name, "AFTER", ())) <= known - {name}
        assert set(sections.declaration(name, "AGAIN", ())) <= known


def test_declarations_of_collectors_have_the_right_type() -> None:
    for name in sections.names():
        assert isinstance(sections.declaration(name, "ASKED", False), bool), name
        alone = sections.declaration(name, "ALONE", False)
        assert isinstance(alone, bool) or callable(alone), name


def test_sections_read_on_request_only_are_known_from_their_source() -> None:
    names = sections.names()
    declared = [name for name in names if sections.declaration(name, "ASKED", False)]
    assert [name for name in names if sections.is_asked(name)] == declared
    assert not sections.is_asked("no_such_section")
    asks = {name: ["x"] for name in declared[:1]}
    assert sections.not_requested(names, asks) == declared[1:]


def test_a_section_is_read_after_those_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sections.stages(["processes", "cpu", "gpu"]) == [["cpu", "gpu"], ["processes"]]
    assert sections.stages(["processes", "cpu"]) == [["processes", "cpu"]]
    needs = {"a": ("b",), "b": ("c",), "d": ("e",), "e": ("d",)}
    monkeypatch.setattr(sections, "declaration", lambda name, what, default: needs.get(name, ()))
    assert sections.stages(["a", "b", "c"]) == [["c"], ["b"], ["a"]]
    assert sections.stages(["d", "e"]) == [["d", "e"]], "in a circle no order is right"
