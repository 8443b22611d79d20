"""Inventories on a disk: one file per source, which says what it recognizes.

A source exists because its file does. It has `KIND`, what it reads in words; `ENDINGS` of the
names of its files; `read(path) -> Found`, which raises InventoryError; and if no ending tells its
files, `recognizes(path)`, which is asked if no source knows the ending.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from nodevet.base.printable import brief
from nodevet.base.problems import Problem, either
from nodevet.document.kinds import DocumentKind, mistaken
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import Found
from nodevet.inventory.errors import InventoryError

FOR_ANSIBLE = "for Ansible's YAML run: ansible-inventory -i FILE --list > FILE.json"


def sources() -> Iterator[ModuleType]:
    """Every source, by name."""
    for name in sorted(found.name for found in iter_modules(__path__)):
        yield import_module(f"{__name__}.{name}")


def read(name: str) -> Found:
    """The hosts of one inventory file. Raises InventoryError."""
    path = Path(name)
    if name == "-":
        advice = "leave out -i, and give - as a target"
        raise InventoryError([Problem("-i -", "", "standard input is a target", advice)])
    if "[" in name and not path.exists():
        advice = "give a nodeset as a target, without -i"
        raise InventoryError([Problem(brief(name), "", "there is no such file", advice)])
    source = _source(path)
    if source is None:
        if wrong := _wrong_kind(path):
            raise wrong
        read_text(path)  # a file that does not exist is said first
        kinds = either(found.KIND for found in sources())
        text = f"not an inventory that nodevet reads: {kinds}"
        raise InventoryError([Problem(brief(name), "", text, FOR_ANSIBLE)])
    try:
        found: Found = source.read(path)
    except InventoryError as error:
        raise _wrong_kind(path) or error from error
    return found


def is_program(path: Path) -> bool:
    """Whether reading this inventory runs it."""
    source = _source(path)
    return source is not None and source.__name__.rpartition(".")[2] in ("pyinfra", "script")


def _wrong_kind(path: Path) -> InventoryError | None:
    """What the file is, if it is of another kind: that says more than its keys do."""
    wrong = mistaken(path, DocumentKind.INVENTORY)
    return InventoryError([Problem(brief(path), "", wrong)]) if wrong else None


def _source(path: Path) -> ModuleType | None:
    """The source of a file: by its ending, or else the first that recognizes it."""
    every = tuple(sources())
    named = (each for each in every if path.suffix.lower() in each.ENDINGS)
    asked = (each for each in every if hasattr(each, "recognizes") and each.recognizes(path))
    return next(named, None) or next(asked, None)
