"""The documentation builds as a site, every link of it leads somewhere, and it loads nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).parents[1]
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?https?:[^>]*>"""
    r"""|<link[^>]*rel=["']?(?:stylesheet|preconnect|icon|preload)[^>]*href=["']?https?:[^>]*>"""
    r"""|url\(["']?https?:|fetch\(["']https?:"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in (REPO / "docs").rglob("*.md"):
        name = page.relative_to(REPO / "docs").with_suffix(".html")
        name = name.with_name("index.html") if page.name == "README.md" else name
        assert (site / name).stat().st_size > 1000, page


def test_the_navigation_begins_with_the_readme_and_the_five_minute_pages() -> None:
    nav = yaml.safe_load((REPO / "mkdocs.yml").read_text())["nav"]
    assert nav[0] == "README.md"
    pages = [name for entry in nav[1]["In five minutes"] for name in entry.values()]
    assert pages == ["gate.md", "sweep.md", "drift.md", "diagnosis.md", "workstation.md"]


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in {".html", ".css", ".svg"}]
    assert len(files) > 40
    assert {found for path in files for found in LOADS.findall(path.read_text())} == set()


def test_comments_of_console_blocks_are_not_visible_on_the_site(site: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", (site / "drift.html").read_text(), flags=re.S)
    assert "exit: 1" not in text and "before: " not in text
    assert "nodevet plan" in text
