"""What runs on a node needs nothing but Python there: the standard library, and pynvml, which is
sent along."""

import ast
import sys
from pathlib import Path

import nodevet.remote

ROOT = Path(nodevet.remote.__file__).parent


def imported(path: Path) -> set[str]:
    """The modules that a file names, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def strangers(names: set[str]) -> set[str]:
    return {
        name
        for name in names
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "pynvml"}
        and f"{name}.".partition("nodevet.remote.")[0]
    }


def test_code_on_the_node_imports_only_the_standard_library_and_pynvml() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert {
        str(path): strangers(imported(path)) for path in files if strangers(imported(path))
    } == {}
    assert len(files) > 40
    assert strangers({"nodevet.model", "nodevet.remotely", "msgspec", ".files", "os.path"}) == {
        "nodevet.model",
        "nodevet.remotely",
        "msgspec",
        ".files",
    }


def loaded(tree: ast.AST) -> set[str]:
    """The modules that a file imports as it runs: not those below `if TYPE_CHECKING`."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return set()
    if isinstance(tree, ast.Import):
        return {alias.name for alias in tree.names}
    if isinstance(tree, ast.ImportFrom):
        return {tree.module or ""}
    return {name for below in ast.iter_child_nodes(tree) for name in loaded(below)}


def test_typing_is_for_the_type_checker_alone() -> None:
    """To import it takes longer than to read most sections."""
    files = [path for path in ROOT.rglob("*.py") if "typing" in imported(path)]
    assert len(files) > 40
    assert [path for path in files if "typing" in loaded(ast.parse(path.read_text()))] == []
