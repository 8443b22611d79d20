"""The corpus of incidents: labels, and the tables of docs/diagnosis.md."""

import dataclasses
from collections import Counter

import pytest

from nodevet.diagnose.model import Cause, Confidence
from tests.corpus.calibrate import (
    PAGE,
    Judged,
    as_cases,
    is_confident_miss,
    judge_all,
    page,
    tables,
    wilson,
)
from tests.corpus.kind import BACKGROUNDS, BUNDLES, kind, names, parts
from tests.corpus.repeat import flips

LARGEST = 2_700_000  # bytes of all bundles: 6 of each of 90 kinds, about 5 kB each
UNCLEAR = Cause.UNCLEAR.value
CAUSES = {cause.value for cause in Cause} - {Cause.MIXED.value}


@pytest.mark.parametrize("name", names())
def test_every_kind_has_valid_causes_as_labels_and_an_action(name: str) -> None:
    known = kind(name)
    for background in BACKGROUNDS:
        for label in known.labels(background):
            assert set(label.split(" + ")) <= CAUSES, label
    assert known.action and set(known.backgrounds) <= set(BACKGROUNDS)


def test_at_least_a_quarter_of_the_kinds_is_kept_out_and_every_bundle_has_a_kind() -> None:
    held = [name for name in names() if kind(name).kept_out]
    assert len(held) * 4 >= len(names())
    bundles = list(BUNDLES.glob("*.json.gz"))
    for path in bundles:
        name, background, _ = parts(path)
        assert background in kind(name).backgrounds, path.name
    assert sum(path.stat().st_size for path in bundles) < LARGEST


def test_the_tables_on_the_page_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, tables(judge_all())) == text, "run `make calibrate`, then read the difference"


CASE = Judged(
    kind="reads",
    background="quiet",
    seconds=5,
    kept_out=False,
    label="storage-bound",
    second="memory-pressure",
    action="larger reads",
    answer="storage-bound",
    confidence=Confidence.HIGH,
    sentence="",
)


def test_recordings_of_one_load_with_different_lengths_are_one_case() -> None:
    longer = dataclasses.replace(CASE, seconds=10)
    assert len(as_cases([CASE, longer])) == 1
    loaded = dataclasses.replace(CASE, background="loaded", answer="stuck")
    assert len(as_cases([CASE, longer, loaded])) == 2


def test_a_mixture_is_right_in_any_order_and_the_second_best_cause_is_not_a_miss() -> None:
    label = "storage-bound + stuck"
    mixed = dataclasses.replace(CASE, label=label, answer="stuck + storage-bound")
    assert mixed.right
    second = dataclasses.replace(CASE, answer="memory-pressure")
    assert not second.right and second.second_best and not is_confident_miss(second)
    wrong = dataclasses.replace(CASE, answer="stuck")
    assert is_confident_miss(wrong)
    assert not is_confident_miss(dataclasses.replace(wrong, confidence=Confidence.LOW))
    assert not is_confident_miss(dataclasses.replace(wrong, answer="not enough evidence"))


def test_the_tables_count_what_was_kept_out_apart() -> None:
    held = dataclasses.replace(CASE, kind="maps", kept_out=True, answer="stuck")
    text = tables([CASE, held])
    assert "| **all high** (aim 95 %) | 2 | 1 | 0 | 9-91 % | 1 | 0 | 0 | 0-79 % |" in text
    assert "| `maps` | quiet | stuck, high | storage-bound | larger reads |" in text


def test_only_two_confident_answers_with_different_causes_are_a_flip() -> None:
    unsure = Counter({("storage-bound", "high"): 3, ("stuck", "low"): 9, (UNCLEAR, "low"): 1})
    assert not flips(unsure)
    assert flips(unsure + Counter({("stuck", "medium"): 1}))


@pytest.mark.parametrize(
    ("right", "cases", "low"), [(73, 73, 95.0), (72, 72, 94.9), (16, 16, 80.6), (108, 110, 93.6)]
)
def test_the_interval_is_wilsons(right: int, cases: int, low: float) -> None:
    """73 cases without a miss show 95 %."""
    assert round(wilson(right, cases)[0], 1) == low
