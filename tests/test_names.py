"""Names in the code: one class name, one thing."""

import ast
from collections import defaultdict
from pathlib import Path

REPO = Path(__file__).parents[1]
SOURCES = ("nodevet", "checks", "fixes", "sim/nodevet_sim")
EVERY_CHECKS_OWN = {"Params"}  # the catalog finds it by this name in each check


def test_no_class_name_is_defined_twice() -> None:
    defined = defaultdict(list)
    for path in (path for source in SOURCES for path in sorted((REPO / source).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(path.relative_to(REPO)))
    assert {"Check", "Fix", "Params"} <= set(defined)
    twice = {name: files for name, files in defined.items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in EVERY_CHECKS_OWN} == {}
    assert all(file.startswith("checks/") for name in EVERY_CHECKS_OWN for file in twice[name])
