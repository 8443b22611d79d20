"""docs/coverage.yaml: every row is judged by checks that are tested, or says why none does."""

from pathlib import Path

import pytest
import yaml

from nodevet.checking.catalog import Catalog

REPO = Path(__file__).parents[1]
GROUPS = yaml.safe_load((REPO / "docs/coverage.yaml").read_text(encoding="utf-8"))
ROWS = [row for group in GROUPS for row in group["rows"]]
BY_HAND = 28
OF_OTHER_TOOLS = 158


def test_no_row_is_omitted() -> None:
    by_hand = [row for group in GROUPS[:2] for row in group["rows"]]
    others = [group for group in GROUPS if group["title"].startswith("What other tools check")]
    assert len(by_hand) == BY_HAND
    assert sum(len(group["rows"]) for group in others) == OF_OTHER_TOOLS


@pytest.mark.parametrize("row", ROWS, ids=[row["ask"] for row in ROWS])
def test_a_row_is_judged_by_checks_that_are_tested_or_says_why_not(row: dict) -> None:
    assert set(row) <= {"ask", "by", "how"}
    assert row.get("by") or row.get("how")
    for check in row.get("by", ()):
        assert check in Catalog().ids
        assert list((REPO / "tests/checks" / check).glob("*.yaml")), check


def test_a_command_that_a_site_writes_covers_no_row() -> None:
    assert [row["ask"] for row in ROWS if "command" in row.get("by", ())] == []
