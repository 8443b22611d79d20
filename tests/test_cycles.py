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
    contract = contracts["FeaturesContract"]("", {}, {"package": "n", "shared": ["n.vet"]})
    graph = grimp.ImportGraph()
    for name in ("n", *(f"n.{each}" for each in ("base", "vet", "vet.command", "a", "a.commands"))):
        graph.add_module(name)
    graph.add_import(importer="n.a.commands", imported="n.vet.command")
    graph.add_import(importer="n.a", imported="n.a.commands")
    assert contract.check(graph, verbose=False).kept
    graph.add_import(importer="n.base", imported="n.a")
    check = contract.check(graph, verbose=False)
    assert (check.kept, check.metadata["imports"]) == (False, ["n.base imports n.a"])
