"""The pages of a site as a reader without a script finds them."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote


class Page(HTMLParser):
    """The links and the anchors of a page, and everything that it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.tags: set[str] = set()
        self.policy = ""  # of its content
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        if values.get("id"):
            self.anchors.add(str(values["id"]))
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])
        if tag == "a":
            self.links.append(str(values["href"]))
        if tag in ("link", "script", "img"):
            self.loads.append(str(values.get("href") or values.get("src")))


def pages(folder: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(folder.rglob("*.html"))}


def broken(folder: Path, *files: Path, anchors: bool = True) -> list[str]:
    """The links of these pages (none: of all) that lead to no file, or to no anchor of one."""
    read = {file: Page(file) for file in files} or pages(folder)
    bad = []
    for file, page in read.items():
        for link in (*page.links, *page.loads):
            path, _, anchor = link.partition("#")
            target = (file.parent / unquote(path)).resolve() if path else file
            lost = not target.is_file() or folder.resolve() not in target.parents
            asked = anchors and anchor and not anchor.startswith("q=")
            if lost or (asked and anchor not in (read.get(target) or Page(target)).anchors):
                bad.append(f"{file}: {link}")
    return bad
