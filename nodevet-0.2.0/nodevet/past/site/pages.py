"""Render sheets as pages of the site, with their style sheet and script. Reads only the package."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from nodevet import __version__
from nodevet.past.site import links, names, search
from nodevet.sheet import page
from nodevet.sheet.model import Sheet

HERE = "nodevet.past.site"
MENU = (("Fleet", "index.html"), ("Hosts", names.list_page(0)), ("Runs", "runs.html"))


class Assets(NamedTuple):
    """The style sheet and the script of all pages, with the names of their files."""

    style: str
    script: str

    @property
    def style_file(self) -> str:
        return f"site-{digest(self.style)[:12]}.css"

    @property
    def script_file(self) -> str:
        return f"site-{digest(self.script)[:12]}.js"


def read_assets() -> Assets:
    """The style sheet and the script that are part of nodevet."""
    style, script = (
        files(HERE).joinpath(f"site.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    sheet = "nodevet.sheet"
    return Assets(page.source(sheet, "base") + page.source(sheet, "style") + style, script)


def digest(*values: object) -> str:
    """The SHA-256 of these values, in hexadecimal."""
    return hashlib.sha256(repr(values).encode()).hexdigest()


class PageRenderer:
    """Renders sheets as pages of a site."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    def render(
        self,
        path: str,
        sheet: Sheet,
        by_name: Mapping[str, str],
        crumbs: Sequence[tuple[str, str]] = (),
        tiles: Sequence[page.Tile] = (),
        host: str = "",
        began: str = "",
    ) -> str:
        """The HTML of the page at `path`, which is below the site's folder. `by_name`: the path of
        the page of each name. The script adds the last visit of `host`, or the time since the last
        run `began`."""
        top = "../" if "/" in path else ""
        frame = page.SiteFrame(
            top=top,
            style=top + self._assets.style_file,
            script=top + self._assets.script_file,
            menu=tuple((label, top + to) for label, to in MENU),
            crumbs=tuple((label, top + to) for label, to in crumbs),
            linked=links.linker(by_name, top),
            tiles=tuple(tile._replace(path=top + tile.path) for tile in tiles),
            state=search.state_key(host) if host else "",
            about=names.page_name(host) if host else began,
            foot=f"Times are UTC. nodevet {__version__}",
        )
        return page.render(sheet, frame)
