"""Words that a shell may complete, found with as little reading as possible.

Files that cannot be read are left out. No code of a project runs.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from nodevet.base.files import read_input

YAML = (".yaml", ".yml")
INVENTORIES = (*YAML, ".json")  # not those that are programs
MOST_BYTES = 256 << 10  # of an inventory that is read between two keys
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no pattern
HEAD = 256  # characters of a file that say what it is
PLAIN = re.compile(r"[A-Za-z0-9_./+%~-]+")  # file names that no shell need quote


class Suggestion(NamedTuple):
    """A word, and its description if it has one."""

    word: str
    about: str = ""


def checks(project: Path) -> Iterator[Suggestion]:
    """Every check with its title."""
    yield from _modules("nodevet.checks", project / "checks")


def fixes(project: Path) -> Iterator[Suggestion]:
    """Every fix with its title."""
    yield from _modules("nodevet.fixes", project / "fixes")


def baselines(project: Path) -> Iterator[Suggestion]:
    """Every baseline that has a name, then the YAML files here."""
    names: dict[str, str] = {}
    for folder in (project / "baselines", *_folders("nodevet.baselines")):
        for path in _listed(folder):
            if path.suffix in YAML:
                names.setdefault(path.stem, _title(path))
    for name in sorted(names):
        yield Suggestion(name, names[name])
    for path in _listed(Path()):
        if path.suffix in YAML and _head(path).find("\nhosts:") < 0:
            yield Suggestion(path.name)


def plans() -> Iterator[Suggestion]:
    """The plans in this folder."""
    for path in _listed(Path()):
        if path.suffix == ".json" and '"nodevet_plan"' in _head(path):
            yield Suggestion(path.name)


def saved_runs() -> Iterator[Suggestion]:
    """The saved runs of checks in this folder."""
    for path in _listed(Path()):
        if path.suffix in (".json", ".jsonl") and re.search(r'"schema"|"nodevet"', _head(path)):
            yield Suggestion(path.name)


def runs(project: Path) -> Iterator[Suggestion]:
    """The runs of fixes that the project keeps, the latest first."""
    folder = project / "runs"
    folders = [path for path in _listed(folder, files=False) if (path / "journal.jsonl").exists()]
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        yield Suggestion(str(path))


def hosts(inventories: Sequence[str]) -> Iterator[Suggestion]:
    """@local, and the groups and hosts of these inventories, if they are data and small; without
    an inventory the names that ~/.ssh/config knows."""
    yield Suggestion("@local", "this machine")
    if not inventories:
        yield from _ssh_hosts()
    for name in inventories:
        path = Path(name)
        with suppress(Exception):  # one that is not valid names nothing
            if path.suffix not in INVENTORIES or path.stat().st_size > MOST_BYTES:
                continue
            from nodevet.inventory.sources import read

            document = read(name)
            yield from (Suggestion(f"@{group}", "group") for group in sorted(document.groups))
            yield from (Suggestion(entry.name) for entry in document.entries)


def files(start: str) -> Iterator[Suggestion]:
    """The files and folders whose path begins so; a folder ends with a slash."""
    folder, _, _ = start.rpartition("/")
    at = Path(f"{folder}/" if start.startswith("/") else folder)
    for path in sorted(at.iterdir()) if at.is_dir() else ():
        if PLAIN.fullmatch(path.name) and str(path).startswith(start.removeprefix("./")):
            yield Suggestion(f"{path}/" if path.is_dir() else str(path))


def _ssh_hosts() -> Iterator[Suggestion]:
    with suppress(OSError, RuntimeError):
        path = Path.home() / ".ssh" / "config"
        text = read_input(path, MOST_BYTES).decode("utf-8", "replace")
        lines = re.findall(r"(?im)^[ \t]*host[ \t=]+(.+)$", text)
        names = {name for line in lines for name in line.split() if HOST.fullmatch(name)}
        yield from map(Suggestion, sorted(names))


def _modules(package: str, own: Path) -> Iterator[Suggestion]:
    files_by_name: dict[str, Path] = {}
    for folder in (*_folders(package), own):
        for path in _listed(folder):
            if path.suffix == ".py" and path.stem.isidentifier() and path.stem[0] != "_":
                files_by_name.setdefault(path.stem, path)
    for name in sorted(files_by_name):
        yield Suggestion(name, _head(files_by_name[name]).partition("\n")[0].strip('"'))


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _listed(folder: Path, *, files: bool = True) -> list[Path]:
    """The files of a folder, or its folders; those that no shell need quote."""
    with suppress(OSError):
        return sorted(
            path
            for path in folder.iterdir()
            if PLAIN.fullmatch(path.name) and (path.is_file() if files else path.is_dir())
        )
    return []


def _title(baseline: Path) -> str:
    title = re.search(r"^title: *(.+)$", _head(baseline), re.MULTILINE)
    return title[1] if title else ""


def _head(path: Path) -> str:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(HEAD)
    return ""
