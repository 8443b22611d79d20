"""The docstring of a fix is its page: `nodevet explain` shows it before anybody approves."""

import pytest

from nodevet.checking.catalog import Catalog

CATALOG = Catalog()
PARTS = ("**Now** ", "**At every boot** ", "**Risk** ", "**Rollback** ", "**What it cannot do.** ")


@pytest.mark.parametrize("fix", CATALOG.fixes)
def test_the_page_of_each_fix_has_every_section_in_order(fix):
    page = CATALOG.fix_page(fix)
    title, gap, _ = page.split("\n", 2)
    assert title.endswith(".") and gap == ""
    places = [page.find(f"\n\n{part}") for part in PARTS]
    assert -1 not in places and places == sorted(places)


@pytest.mark.parametrize("fix", CATALOG.fixes)
def test_each_fix_belongs_to_a_check_and_its_page_names_the_highest_risk(fix):
    assert fix in CATALOG.ids
    found = CATALOG.fix(fix)
    assert found is not None
    risk = CATALOG.fix_page(fix).split("**Risk** ", 1)[1].split("\n\n", 1)[0]
    assert found.risk.value in risk
