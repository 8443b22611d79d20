"""Find baselines by name: a path, the user's folders, then the shipped ones."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import nodevet.baselines
from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean, nearest

ENDINGS = (".yaml", ".yml")


class NotFoundError(Exception):
    """No baseline has the name: the message and advice."""

    def __init__(self, message: str, advice: str) -> None:
        self.message = message
        self.advice = advice
        super().__init__(f"{message}; {advice}" if advice else message)


def shipped_folder() -> Path:
    """The folder of the shipped baselines."""
    return Path(nodevet.baselines.__path__[0])


def has_shipped(name: str) -> bool:
    """Whether a shipped baseline has this name."""
    return any(_in_folder(shipped_folder(), name))


def available(folders: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """Every baseline with a name, sorted by name; a user's own hides a shipped one."""
    paths: dict[str, Path] = {}
    for folder in (*folders, shipped_folder()):
        for path in sorted(path for ending in ENDINGS for path in folder.glob(f"*{ending}")):
            paths.setdefault(path.stem, path)
    return tuple(sorted(paths.items()))


def find(name: str, folders: Sequence[Path], *, extending: Path | None = None) -> Path:
    """The file of a name. Raises NotFoundError.

    `extending`: the file that extends the baseline. Its folder comes first, paths are relative to
    it, and it never finds itself. In a file with the name of a shipped baseline this name means the
    shipped one: a user's `generic` can extend `generic`.
    """
    if not name:
        raise NotFoundError("a baseline's name is missing here", "give a name or a file")
    if is_file_name(name):
        return _existing_path((extending.parent if extending else Path()) / name, folders)
    own = (extending.parent,) if extending else ()
    first = (shipped_folder(),) if extending and extending.stem == name else ()
    for folder in (*first, *own, *folders, shipped_folder()):
        paths = [path for path in _in_folder(folder, name) if not _is_same_file(path, extending)]
        if len(paths) > 1:
            raise NotFoundError(
                f"both {paths[0]} and {paths[1]} have this name", "rename one of them"
            )
        if paths:
            return paths[0]
    if extending is None and (wrong := other_kind_text(Path(name))):
        raise NotFoundError(wrong, "")
    advice = "`nodevet list baselines` names them"
    if extending is None and os.path.isdir(name):  # noqa: PTH112
        advice = f"{name} is a folder: name a file in it"
    elif extending is None and os.path.isfile(name):  # noqa: PTH113
        advice = f"if the file of this name is meant: ./{name}"
    elif extending is None and os.path.exists(name):  # noqa: PTH110
        advice = f"{name} is not a regular file: name a YAML file"
    names = [
        other_name
        for other_name, path in available((*own, *folders))
        if not _is_same_file(path, extending)
    ]
    raise NotFoundError("no baseline has this name", did_you_mean(name, names, advice))


def other_kind_text(path: Path) -> str:
    """`this is an inventory; use it with -i fleet.yaml`; "" if the file is a baseline, or not one
    of nodevet's."""
    from nodevet.document.kinds import DocumentKind, wrong_kind_text  # only for problems

    return wrong_kind_text(path, DocumentKind.BASELINE)


def identity(path: Path) -> Path:
    """The canonical path, which is the same for every spelling of a path to a file."""
    return Path(os.path.realpath(path))


def _existing_path(path: Path, folders: Sequence[Path]) -> Path:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        advice = _nearest_advice(path, folders) or "check the path"
        raise NotFoundError("there is no such file", advice) from error
    except OSError:
        return path  # reading it reports the error
    return path


def is_file_name(name: str) -> bool:
    """Whether a name is a path: it contains a slash or ends like a YAML file."""
    return "/" in name or name.endswith(ENDINGS)


def _in_folder(folder: Path, name: str) -> Iterator[Path]:
    for ending in ENDINGS:
        path = folder / f"{name}{ending}"
        if os.path.lexists(path):  # False, too, for a name that no file can have
            yield path  # reading it says if it is a pipe


def _is_same_file(path: Path, other: Path | None) -> bool:
    return other is not None and identity(path) == identity(other)


def _nearest_advice(path: Path, folders: Sequence[Path]) -> str:
    """Advice with the most similar file beside `path`, or baseline name. Compares stems."""
    near = {file.stem: str(file) for end in ENDINGS for file in path.parent.glob(f"*{end}")}
    near.update((name, name) for name, _ in available(folders) if name not in near)
    stem = nearest(path.stem, near)
    return f"did you mean {brief(near[stem])}?" if stem else ""
