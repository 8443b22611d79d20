"""nodevet.toml: what a site's sweeps are, read once and typed, every slip with its line."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from nodevet.base.files import open_regular
from nodevet.base.problems import Place, Problem, problems_text
from nodevet.base.trust import distrust
from nodevet.document.tree import Complaint, dotted
from nodevet.document.typed import MisfitError, typed
from nodevet.settings.model import Settings
from nodevet.settings.toml import TomlError, tree

NAME = "nodevet.toml"
SQLITE = "sqlite:///"
MOST_BYTES = 1 << 20


class SettingsError(Exception):
    """Settings that cannot be used; the message has a line for each problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(problems_text(problems))


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and the file that they are from; without one, those of an empty file."""

    settings: Settings = Settings()
    file: Path | None = None
    doubt: str = ""  # why others may decide what the file holds, which was named

    @property
    def folder(self) -> Path:
        """What paths in the file are relative to."""
        return self.file.parent if self.file else Path()

    def path(self, text: str) -> Path:
        return self.folder / text

    @property
    def store_url(self) -> str | None:
        """The store's URL; the path of one in SQLite is relative to the folder, too."""
        url = self.settings.store
        if url and self.file and url.startswith(SQLITE):
            return f"{SQLITE}{(self.file.parent / url.removeprefix(SQLITE)).absolute()}"
        return url


def find(start: Path) -> Path | None:
    """The nearest nodevet.toml from a folder on upward."""
    folder = start.resolve()
    for each in (folder, *folder.parents):
        if (each / NAME).is_file():
            return each / NAME
    return None


def settings(file: Path | None = None, start: Path | None = None) -> SiteSettings:
    """The settings of `file`, or of the nearest file from `start` on upward. Raises SettingsError.

    Other users may not decide what a file holds that was found here and not named: it can name
    commands. For one that was named, `doubt` says so.
    """
    found = file or find(start or Path())
    if found is None:
        return SiteSettings()
    doubt = distrust(found)
    if file is None and doubt:
        advice = (
            f"{found} can name commands: remove it, or name your own settings with --config FILE; "
            f"only if you trust who wrote it: --config {found}"
        )
        raise SettingsError((Problem(Place(), "", doubt, advice),))
    return SiteSettings(settings=read(found), file=found, doubt=doubt)


def read(file: Path) -> Settings:
    """Raises SettingsError."""
    name = _shown(file)
    try:
        with open_regular(file) as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        problem = Problem(Place(file=name), "", f"cannot be read: {error.strerror}")
        raise SettingsError((problem,)) from error
    if len(data) > MOST_BYTES:
        problem = Problem(Place(file=name), "", f"is larger than {MOST_BYTES >> 20} MiB")
        raise SettingsError((problem,))
    return decoded(data, name)


def decoded(data: bytes, name: str) -> Settings:
    """The settings in this text. Raises SettingsError."""
    try:
        return typed(tree(data, name), Settings)
    except TomlError as error:
        raise SettingsError((error.problem,)) from error
    except MisfitError as error:
        raise SettingsError(tuple(_told(error.complaints, name))) from error


def _told(complaints: tuple[Complaint, ...], name: str) -> Iterator[Problem]:
    for each in complaints:
        yield Problem(each.place.within(name), dotted(each.path), each.message, each.advice)


def _shown(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
