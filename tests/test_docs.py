"""The pages that are written by hand agree with the code."""

import re
from datetime import date
from pathlib import Path

import pytest

from nodevet.baseline import lint
from nodevet.checking.catalog import Catalog
from nodevet.vet.formats import formats

REPO = Path(__file__).parents[1]
ARCHITECTURE = (REPO / "docs/architecture.md").read_text()


def packages() -> set[str]:
    return set(re.findall(r"^\| `([\w/.]+)` \|", ARCHITECTURE, re.MULTILINE))


def test_every_package_on_the_page_exists() -> None:
    assert packages()
    folders = [REPO / package for package in packages() if "/" in package]
    assert [folder for folder in folders if not folder.exists()] == []


def test_every_package_is_on_the_page() -> None:
    here = {"checks/", "fixes/", "baselines/", "inventories/"}
    for path in (REPO / "nodevet").iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            here.add(f"nodevet/{path.name}/")
        elif path.suffix == ".py" and not path.name.startswith("__"):
            here.add(f"nodevet/{path.name}")
    lacking = sorted(here - packages())
    assert not lacking, f"{lacking}: add a row to the table in docs/architecture.md"


def test_every_noun_on_the_page_exists() -> None:
    table = ARCHITECTURE.split("## The nouns")[1].split("\n## ")[0]
    sources = "".join(path.read_text() for path in (REPO / "nodevet").rglob("*.py"))
    for noun in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
        assert re.search(rf"^class {noun}\b", sources, re.MULTILINE), noun


def pages() -> list[Path]:
    return [*sorted((REPO / "docs").rglob("*.md")), *sorted(REPO.glob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_baselines_of_the_readme_load(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.+?)```", (REPO / "README.md").read_text(), re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"readme{number}.yaml"
        path.write_text(block)
        assert lint([str(path)], catalog=Catalog(), today=date(2026, 1, 1)) == ()


def test_no_page_installs_a_name_that_the_index_does_not_have() -> None:
    """nodevet is in no index, where anyone could take its name. Extras of what is installed are
    fine, but not in a new environment."""
    pages = [REPO / "README.md", REPO / "sim/README.md", *(REPO / "docs").rglob("*.md")]
    pages += [
        path for ending in ("md", "yml") for path in (REPO / "integrations").rglob(f"*.{ending}")
    ]
    assert len(pages) > 100
    wrong = re.compile(
        r"pip install (-\S+ )*['\"]?nodevet(-sim)?['\"]?(?![\w\[/-])"
        r"|(?i:install): *['\"]?nodevet\b"
        r"|-m venv (?:(?!pip install)[^#`])*pip install ['\"]?nodevet\[\w+\]['\"]?(?! @)"
    )
    assert wrong.search("`pip install nodevet`") and wrong.search("pip install -U nodevet-sim\n")
    assert wrong.search("install: nodevet\n") and wrong.search("NODEVET_INSTALL: nodevet\n")
    assert wrong.search("python3 -m venv a && a/bin/pip install 'nodevet[kubernetes]'\n")
    assert [str(page) for page in pages if wrong.search(page.read_text())] == []


def test_the_readme_takes_a_minute_and_begins_with_the_installation() -> None:
    text = (REPO / "README.md").read_text()
    assert len(text.split()) < 1200
    order = ["pip install", "make demo", "make test", "nodevet check -i", "](docs/overview.svg)"]
    order += ["nodevet gate", "nodevet sweep", "nodevet plan", "allowed_signers"]
    order += ["$ nodevet approve", "$ nodevet apply", "## What nodevet is not"]
    places = [text.find(words) for words in order]
    assert -1 not in places and places == sorted(places), [*zip(order, places, strict=True)]


def test_the_page_of_reports_names_every_format() -> None:
    text = (REPO / "docs/reports.md").read_text()
    assert [name for name in formats() if f"`{name}`" not in text] == []


def test_every_metric_on_a_page_exists() -> None:
    known = set(re.findall(r"`(nodevet_\w+)`", (REPO / "docs/metrics.md").read_text()))
    assert len(known) > 20
    for page in pages():
        named = set(
            re.findall(
                r"\b(nodevet_(?:run|host|check|finding|fix|sweep|baseline)_\w+)", page.read_text()
            )
        )
        assert sorted(named - known) == [], page
