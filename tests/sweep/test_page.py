"""docs/sweep.md: its nodevet.toml can be used as it is."""

import re
from pathlib import Path

from nodevet.settings import settings
from nodevet.vet.use.sweep_order import choose_sweep

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "sweep.md").read_text(encoding="utf-8")


def test_the_example_of_nodevet_toml_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "nodevet.toml").write_text(example)
    sweep = choose_sweep(settings(tmp_path / "nodevet.toml"), None, {})
    assert sweep.name == "nightly"
    assert sweep.inventories == (str(tmp_path / "fleet.yaml"),)
    budget = sweep.budget
    assert budget and f"{budget.percent:g} % of the hosts, and at least five" in PAGE
    assert budget.hosts == 5
