"""Read nodevet.toml, the settings of a site: typed, and each problem with its line."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from nodevet.base.files import open_regular
from nodevet.base.problems import Place, Problem, problems_text
from nodevet.base.trust import distrust
from nodevet.document.tree import Complaint, dotted
from nodevet.document.typed import MisfitError, typed
from nodevet.settings.model import Settings

NAME = "nodevet.toml"
SQLITE = "sqlite:///"
MOST_BYTES = 1 << 20


class SettingsError(Exception):
    """Invalid settings; the message has a line for each problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(problems_text(problems))


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and their file; without a file, the defaults."""

    settings: Settings = Settings()
    file: Path | None = None
    doubt: str = ""  # why others may change the named file

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.file.parent if self.file else Path()

    def path(self, text: str) -> Path:
        return self.folder / text

    @property
    def store_url(self) -> str | None:
        """The URL of the store. An SQLite path is relative to the folder of the file."""
        url = self.settings.store
        if url and self.file and url.startswith(SQLITE):
            return f"{SQLITE}{(self.file.parent / url.removeprefix(SQLITE)).absolute()}"
        return url


def find(start: Path) -> Path | None:
    """The nearest nodevet.toml in a folder or above it; None if there is none."""
    folder = start.resolve()
    for directory in (folder, *folder.parents):
        if (directory / NAME).is_file():
            return directory / NAME
    return None


def settings(file: Path | None = None, start: Path | None = None) -> SiteSettings:
    """The settings of `file`, or of the nearest file in `start` or above it. Raises SettingsError.

    A file that was not named must not be writable by other users, since it can name commands. For a
    named file `doubt` says if it is.
    """
    path = file or find(start or Path())
    if path is None:
        return SiteSettings()
    doubt = distrust(path, must_exist=file is None)
    if file is None and doubt:
        advice = (
            f"{path} can name commands: remove it, or name your own settings with --config FILE; "
            f"only if you trust who wrote it: --config {path}"
        )
        raise SettingsError((Problem(Place(), "", doubt, advice),))
    return SiteSettings(settings=read(path), file=path, doubt=doubt)


def read(file: Path) -> Settings:
    """The settings of a file. Raises SettingsError."""
    name = _display_name(file)
    try:
        with open_regular(file) as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        problem = Problem(Place(file=name), "", f"cannot be read: {error.strerror}")
        raise SettingsError((problem,)) from error
    if len(data) > MOST_BYTES:
        problem = Problem(Place(file=name), "", f"is larger than {MOST_BYTES >> 20} MiB")
        raise SettingsError((problem,))
    return decode(data, name)


def decode(data: bytes, name: str) -> Settings:
    """The settings in this text. Raises SettingsError."""
    from nodevet.settings.toml import TomlError, tree  # where there is no file, nobody pays for it

    try:
        return typed(tree(data, name), Settings)
    except TomlError as error:
        raise SettingsError((error.problem,)) from error
    except MisfitError as error:
        raise SettingsError(tuple(_problems(error.complaints, name))) from error


def _problems(complaints: tuple[Complaint, ...], name: str) -> Iterator[Problem]:
    for complaint in complaints:
        yield Problem(
            complaint.place.within(name),
            dotted(complaint.path),
            complaint.message,
            complaint.advice,
        )


def _display_name(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
