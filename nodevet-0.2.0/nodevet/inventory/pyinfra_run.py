"""Run a pyinfra inventory and the group data beside it, and print their definitions as JSON.

A program of its own; its arguments are the inventory's path and folders of modules. An inventory is
Python that may print, exit, change folder or import anything, so it does not run inside nodevet.
Its prints go to standard error. Standard library only.
"""

import ast
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

MAX_DEPTH = 6


class FailedError(Exception):
    """A user's file cannot be used: file, line, column, message."""


def main(file: str, *modules: str) -> None:
    answer = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    current = Path.cwd()
    sys.path += modules
    folders = dict.fromkeys([current / "group_data", Path(file).resolve().parent / "group_data"])
    result: dict[str, Any]
    try:
        names = execute(file)
        result = {
            "inventory": {name: tagged(item) for name, item in names.items() if name[:1] != "_"},
            "group_data": [data for data_folder in folders for data in group_data(data_folder)],
        }
    except FailedError as failure:
        result = {"failed": failure.args}
    with answer:
        json.dump(result, answer)


def execute(file: str) -> dict[str, Any]:
    """The names that a Python file defines, in order of definition. Raises FailedError."""
    names: dict[str, Any] = {"__file__": file}
    try:
        source = Path(file).read_text(encoding="utf-8-sig")
        exec(compile(source, file, "exec"), names)  # noqa: S102  (an inventory is a program)
    except SyntaxError as error:
        place = error.filename or file, error.lineno or 1, error.offset or 1
        raise FailedError(*place, f"not Python: {error.msg}") from None
    except BaseException as error:
        message = str(error)
        text = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise FailedError(file, raised_at(error, file), 1, text) from None
    return names


def raised_at(error: BaseException, file: str) -> int:
    """The innermost line of `file` that led to the error."""
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == file
    ]
    return lines[-1] if lines else 1


def group_data(data_folder: Path) -> list[tuple[str, str, Any]]:
    """Group, file and data of each group data file in a folder, in the order of their names."""
    data_files = []
    for path in sorted(data_folder.glob("*.py")):
        names = execute(str(path))
        exported = names.get("__all__") or set(names) - imported(path)
        data = {
            name: tagged(item)
            for name, item in names.items()
            if name in exported and not name.startswith("__")
        }
        data_files.append((path.stem, str(path), data))
    return data_files


def imported(path: Path) -> set[str]:
    """The names that `import` statements bind, which are not data."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8-sig")).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                names.add(alias.asname or alias.name.split(".")[0])
    return names


def tagged(item: Any, depth: int = 0) -> Any:
    """A value as JSON that tells lists, tuples and dicts apart, and names the type of others."""
    if item is None or type(item) in (str, int, float, bool):
        return item
    if isinstance(item, str):
        return str(item)
    if depth < MAX_DEPTH:
        if isinstance(item, (list, tuple)):
            kind = "list" if isinstance(item, list) else "tuple"
            return {kind: [tagged(part, depth + 1) for part in item]}
        if isinstance(item, dict):
            parts = item.items()
            return {"dict": [[str(key), tagged(part, depth + 1)] for key, part in parts]}
    return {"other": type(item).__name__}


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # whatever threads the inventory left behind
