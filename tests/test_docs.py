"""The pages that are written by hand agree with the code."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
ARCHITECTURE = (REPO / "docs/architecture.md").read_text()


def rooms() -> set[str]:
    return set(re.findall(r"^\| `([\w/.]+)` \|", ARCHITECTURE, re.MULTILINE))


def test_every_room_on_the_page_exists() -> None:
    assert rooms()
    assert [room for room in rooms() if "/" in room and not (REPO / room).exists()] == []


def test_every_room_is_on_the_page() -> None:
    here = {"checks/", "fixes/", "baselines/", "inventories/"}
    for path in (REPO / "nodevet").iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            here.add(f"nodevet/{path.name}/")
        elif path.suffix == ".py" and path.name != "__init__.py":
            here.add(f"nodevet/{path.name}")
    assert sorted(here - rooms()) == []


def test_every_noun_on_the_page_exists() -> None:
    table = ARCHITECTURE.split("## The nouns")[1].split("\n## ")[0]
    sources = "".join(path.read_text() for path in (REPO / "nodevet").rglob("*.py"))
    for noun in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
        assert re.search(rf"^class {noun}\b", sources, re.MULTILINE), noun


def pages() -> list[Path]:
    return [*sorted((REPO / "docs").glob("*.md")), *sorted(REPO.glob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
