"""Where a word stands in a Python file. Used once something is wrong. Pure."""

import ast
from dataclasses import dataclass

from nodevet.base.problems import Place


@dataclass(frozen=True, slots=True)
class PythonPlace:
    """The first of `words` that the file has as a text constant or assigns to; else its start."""

    text: str
    file: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        places = _index(self.text)
        for word in self.words:
            if word in places:
                return str(Place(*places[word], self.file))
        return str(Place(1, 1, self.file))


def _index(text: str) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return places
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            places.setdefault(node.value, (node.lineno, node.col_offset + 1))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            places.setdefault(node.id, (node.lineno, node.col_offset + 1))
    return places
