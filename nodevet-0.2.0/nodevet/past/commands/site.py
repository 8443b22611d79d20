"""`nodevet site`: the history as a folder of linked pages."""

from pathlib import Path

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.past import terminal as recalled


@click.command(
    "site",
    cls=Command,
    group="History",
    order=10,
    examples=(
        ("The folder `site` of nodevet.toml", "nodevet site"),
        ("Another folder", "nodevet site public/"),
    ),
)
@click.argument("folder", required=False, type=options.FolderParam())
@sheets.formats(("table", "json"))
@recalled.store
@display_options()
def command(
    folder: Path | None,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Write the history as web pages into FOLDER.

    It writes linked pages, with a search, for the fleet, each host, run and failing check, and each
    part that moved or failed. Any web server can serve the folder; a browser can open index.html
    from disk. nodevet replaces only pages that changed, and deletes its own old pages. With `site =
    "public/"` in nodevet.toml, each sweep writes the site.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, nothing recorded, or nothing written
    """
    from nodevet.base.errors import UserError
    from nodevet.base.processes import cores
    from nodevet.past.site.sheets import written_sheet
    from nodevet.past.use.site.write import write_site
    from nodevet.settings import settings
    from nodevet.vet.use.stores import open_history, read_from

    site = settings()
    if folder is None and site.settings.site is None:
        raise UserError('name a FOLDER, or write site = "public/" into nodevet.toml')
    target = folder or site.path(site.settings.site or "")
    with open_history(store):  # its error says what is wrong
        pass
    written = write_site(read_from(store), target, processes=cores())
    sheets.show(written, written_sheet(written), form, display)
