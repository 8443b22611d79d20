"""No file of nodevet imports one that imports it, by whatever way: also not inside of functions,
nor for its types alone."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from runpy import run_path

import grimp
import pytest


def cycle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of a cycle, the first one again at the end; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", ["nodevet", "nodevet_sim"])
def test_no_cycle_of_imports(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    assert len(imports) > 10
    found = cycle(imports)
    assert not found, f"{' -> '.join(found)}: move what they share into a file below both"


def test_a_cycle_is_named() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) in (
        ["a", "c", "b", "a"],
        ["b", "a", "c", "b"],
        ["c", "b", "a", "c"],
    )


def test_a_feature_that_others_import_is_named() -> None:
    """As `make lint` calls the contract in .ci/import_contracts.py."""
    contracts = run_path(str(Path(__file__).parents[1] / ".ci/import_contracts.py"))
    options = {"package": "n", "shared": ["n.vet"], "importers": ["n.main"]}
    contract = contracts["FeaturesContract"]("", {}, options)
    graph = grimp.ImportGraph()
    graph.add_module("n")
    for name in ("base", "base.commands", "main", "vet.command", "a.commands", "a.commands.x"):
        graph.add_module(f"n.{name}")
    graph.add_module("n.a")
    graph.add_module("n.vet")
    for importer, imported in (("a.commands.x", "vet.command"), ("a", "a.commands"), ("main", "a")):
        graph.add_import(importer=f"n.{importer}", imported=f"n.{imported}")
    graph.add_import(importer="n.vet.command", imported="n.base.commands")  # no folder: no feature
    assert contract.check(graph, verbose=False).kept
    graph.add_import(importer="n.base", imported="n.a")
    check = contract.check(graph, verbose=False)
    assert (check.kept, check.metadata["imports"]) == (False, ["n.base imports n.a"])
