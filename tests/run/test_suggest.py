"""What a baseline for the same GPUs says, and one's own does not."""

from pathlib import Path

from nodevet.author.use.suggest import as_written, suggest
from nodevet.baseline import available, load, params_of
from nodevet.checking.catalog import Catalog

CATALOG = Catalog()


def project(folder: Path, text: str) -> Path:
    (folder / "baselines").mkdir()
    (folder / "baselines/site.yaml").write_text("nodevet: 1\n" + text)
    return folder


def test_suggest_prints_missing_checks_as_baseline_lines(tmp_path: Path) -> None:
    text = 'applies: {gpu: {device: "10de:2330"}}\nexpect: {gpu_count: 8, swap: none}\n'
    (found,) = suggest((), project(tmp_path, text))
    assert found.like == "nvidia-h100-sxm"
    lines = {each.check: each.line for each in found.missing}
    assert lines["nvlink"] == "nvlink: 18"
    assert lines["power_limit"] == "power_limit: 700"
    assert {"gpu_count", "swap"}.isdisjoint(lines)


def test_a_baseline_without_gpus_is_compared_with_the_generic_one(tmp_path: Path) -> None:
    (found,) = suggest((), project(tmp_path, "expect: {gpu_count: 8}\n"))
    assert found.like == "generic"


def test_suggested_lines_mean_the_same_when_pasted() -> None:
    for baseline in load([name for name, _ in available([])], catalog=CATALOG):
        for wish in baseline.expectations:
            again = params_of(CATALOG.check(wish.check), as_written(wish))
            assert again == wish.params, (baseline.name, wish.check, as_written(wish))
