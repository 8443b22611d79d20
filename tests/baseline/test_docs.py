"""Every example in docs/baselines.md is what it says."""

import re
from datetime import date
from pathlib import Path

import pytest

from nodevet.baseline import BaselineErrors, available, lint, load
from nodevet.baseline.format import AppliesPart, FilePart, GpuPart, WaiverPart
from nodevet.checking.catalog import Catalog
from nodevet.document.parse import MAX_DEPTH, MAX_NODES
from nodevet.document.text import MAX_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
GOOD = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
WRONG = re.findall(r"^```yaml wrong\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.M | re.S)


def test_there_are_examples():
    assert len(GOOD) >= 6
    assert len(WRONG) == 1


@pytest.mark.parametrize("text", GOOD)
def test_an_example_loads_without_a_warning(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert lint([str(path)], catalog=Catalog(), today=date(2026, 9, 1)) == ()


def test_the_wrong_example_gives_the_errors_shown_on_the_page(tmp_path):
    ((text, told),) = WRONG
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(BaselineErrors) as caught:
        load([str(path)], catalog=Catalog())
    assert [str(problem).replace(str(path), "FILE") for problem in caught.value.problems] == (
        told.splitlines()
    )


def test_every_key_has_an_example():
    for part in (FilePart, AppliesPart, GpuPart, WaiverPart):
        for key in part.__struct_fields__:
            assert any(re.search(rf"\b{key}:", text) for text in GOOD), key


def test_every_shipped_baseline_is_named():
    for name, _ in available([]):
        assert f"`{name}`" in PAGE


def test_the_page_states_the_limits_of_a_baseline_file():
    assert (MAX_BYTES, MAX_NODES, MAX_DEPTH) == (1 << 20, 20_000, 32)
    assert "20,000 values" in PAGE
    assert "1 MiB" in PAGE
    assert re.search(r"at most\s+32 levels", PAGE)
