"""Inventories on disk: one file per source.

Each file here is a source. It has:

- `KIND`: a description of its input;
- `ENDINGS`: the endings of its files' names ("" for a name without an ending); none if it takes
  every ending that no other source takes;
- `read(path) -> InventoryHosts`, which raises InventoryError;
- `recognizes(path)`, if an ending does not identify its files.

The first source that matches, in the order of their names, reads a file.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from nodevet.base.problems import or_list
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.inventory.documents import read_text
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.errors import InventoryError, inventory_error


def sources() -> Iterator[ModuleType]:
    """Every source, by name."""
    for name in sorted(module.name for module in iter_modules(__path__)):
        yield import_module(f"{__name__}.{name}")


def read(name: str) -> InventoryHosts:
    """The hosts of one inventory file. Raises InventoryError."""
    path = Path(name)
    if name == "-":
        advice = "leave out -i, and give - as a target"
        raise inventory_error("-i -", "standard input is a target", advice)
    if "[" in name and not path.exists():
        advice = "give a nodeset as a target, without -i"
        raise inventory_error(name, "there is no such file", advice)
    source = _source(path)
    if source is None:
        if wrong := _wrong_kind(path):
            raise wrong
        read_text(path)  # refuses a file that does not exist
        kinds = or_list(source_module.KIND for source_module in sources())
        text = f"not an inventory that nodevet reads: {kinds}"
        raise inventory_error(name, text)
    try:
        hosts: InventoryHosts = source.read(path)
    except InventoryError as error:
        raise _wrong_kind(path) or error from error
    return hosts


def is_program(path: Path) -> bool:
    """Whether reading this inventory runs a program."""
    source = _source(path)
    return source is not None and source.__name__.rpartition(".")[2] in ("pyinfra", "script")


def _wrong_kind(path: Path) -> InventoryError | None:
    """The error about a file of another kind, which helps more than errors about its keys."""
    wrong = wrong_kind_text(path, DocumentKind.INVENTORY)
    return inventory_error(path, wrong) if wrong else None


def _source(path: Path) -> ModuleType | None:
    """The source of a file. Sources that take any ending come last."""
    modules = sorted(sources(), key=lambda module: not module.ENDINGS)
    return next((module for module in modules if _fits(module, path)), None)


def _fits(module: ModuleType, path: Path) -> bool:
    if module.ENDINGS and path.suffix.lower() not in module.ENDINGS:
        return False
    return not hasattr(module, "recognizes") or bool(module.recognizes(path))
