"""Every check fails on some simulated node because of a fault that a scenario names, or there is a
reason why none can make it."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodevet.checking.catalog import Catalog

WITHOUT: dict[str, str] = {
    "feed": "it judges a workload of the baseline: no fault of a node makes it fail for every one",
}
"""Check -> why no simulated node can have such a fault."""
TABLES = ("FOUND", "OF_A_T4", "SEEN", "WRONG")
"""In the tests of faults: what each of them makes fail, as those tests hold it."""


def failing(table: Any) -> Iterator[str]:
    """The checks in a table: (check, subject) in sets, or subjects by check; both by fault."""
    for entry in table.values() if isinstance(table, dict) else [table]:
        for each in entry:
            yield each if isinstance(each, str) else each[0]


def broken() -> set[str]:
    """The checks that a fault makes fail, by the tables of the tests in this folder."""
    folder = Path(__file__).parent
    files = [*folder.glob("test_*fault*.py"), *folder.glob("test_*_on_nodes.py")]
    tests = [runpy.run_path(str(path)) for path in files]
    return {
        check for test in tests for name in TABLES if name in test for check in failing(test[name])
    }


def test_every_check_has_a_fault_that_breaks_it_or_a_reason() -> None:
    checks, found = set(Catalog().ids), broken()
    assert found <= checks
    assert checks - found == WITHOUT.keys(), (
        "a check needs a fault in sim/nodevet_sim/faults and its line in a table here; one that "
        "has it is not listed in WITHOUT"
    )
    assert all(len(why) > 10 for why in WITHOUT.values())
