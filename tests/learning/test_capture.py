"""A baseline from good nodes: each of them passes by it, and it says what they do not agree on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from like_nodes import node

from nodevet.base.errors import UserError
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.document.parse import parse
from nodevet.document.text import Source
from nodevet.document.tree import plain
from nodevet.learn.text import flow
from nodevet.learn.use.capture import capture
from nodevet.model import Verdict
from planned_fleet import NOW, capped

CATALOG = Catalog()


def loaded(text: str, folder: Path):
    file = folder / "captured.yaml"
    file.write_text(text)
    (baseline,) = load([str(file)], catalog=CATALOG)
    return baseline


def test_every_host_passes_the_baseline_captured_from_it(tmp_path: Path) -> None:
    nodes = {name: node(name) for name in ("gpu1", "gpu2", "gpu3")}
    baseline = loaded(capture(nodes, CATALOG).text, tmp_path)
    assert {wish.check for wish in baseline.expectations} >= {"power_limit", "cpu_governor"}
    for name, read in nodes.items():
        found = judge(read, baseline, CATALOG, host=name, today=NOW.date())
        assert {each.verdict for each in found} <= {Verdict.OK, Verdict.NOT_APPLICABLE}
    assert baseline.applies and baseline.applies.gpu
    assert baseline.applies.gpu.devices == ("10de:2330",)
    assert baseline.applies.gpu.count == 8


def test_a_value_that_differs_between_hosts_becomes_a_comment(tmp_path: Path) -> None:
    nodes = {name: node(name) for name in ("gpu1", "gpu2", "gpu3")}
    nodes["gpu4"] = node("gpu4", governor="powersave", **capped(500_000))
    text = capture(nodes, CATALOG).text
    assert "# cpu_governor: governor: performance on gpu[1-3], powersave on gpu4" in text
    assert "# power_limit: watts: 700 on gpu[1-3], 500 on gpu4" in text
    expected = {wish.check for wish in loaded(text, tmp_path).expectations}
    assert expected.isdisjoint({"cpu_governor", "power_limit"})
    assert "persistence_mode" in expected


def test_fields_of_a_check_that_agree_are_kept(tmp_path: Path) -> None:
    nodes = {"gpu1": node("gpu1"), "gpu2": node("gpu2", pages="always")}
    text = capture(nodes, CATALOG).text
    assert "# left out, since it is not the same: enabled: madvise on gpu1, always on gpu2" in text
    wishes = {wish.check: wish.params for wish in loaded(text, tmp_path).expectations}
    assert wishes["transparent_hugepage"].enabled is None
    assert wishes["transparent_hugepage"].defrag == ("madvise",)


def test_hosts_of_different_hardware_are_refused() -> None:
    nodes = {"gpu1": node("gpu1"), "gpu2": node("gpu2", pci_device="10de:20b2", name="A100")}
    with pytest.raises(UserError, match="2 kinds"):
        capture(nodes, CATALOG)


def test_capture_without_a_host_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to capture"):
        capture({}, CATALOG)


def test_a_fault_is_not_captured_as_an_expectation(tmp_path: Path) -> None:
    """Its check fails by whatever is learnt, so it is left out, and the file says why."""
    text = capture({"gpu1": node("gpu1", recovery_action="GPU_RESET")}, CATALOG).text
    assert "gpu_lost" not in {wish.check for wish in loaded(text, tmp_path).expectations}
    assert "# gpu_lost: GPU 0: " in text


HOSTILE = "a'b\"c: d #e\n- f {g} \u202e\x1b[31m"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = capture({"gpu1": node("gpu1", name=HOSTILE)}, CATALOG, title=HOSTILE).text
    assert loaded(text, tmp_path).title
    assert "\x1b" not in text
    assert "\u202e" not in text


values = st.recursive(
    st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc./_ -", min_size=1), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(values)
def test_a_value_is_read_back_as_it_was_written(value: object) -> None:
    text = f"value: {flow(value)}\n"
    tree = parse(Source(path=Path("x"), shown="x", text=text, sha256=""))
    assert tree.problems == ()
    assert tree.root is not None
    assert plain(tree.root) == {"value": value}
