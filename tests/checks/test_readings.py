"""What a check passes without any reading, it passes whatever they are: `nodevet history backtest`
judges it again once other values change (nodevet/past/use/host_nights.py)."""

from collections.abc import Iterator
from typing import Any

import msgspec

from nodevet.model import Verdict
from nodevet.store.documents import join_document, split_document
from tests.checks.every_case import every_case
from tests.checks.test_soundness import evidence_places, others

PASSES = {Verdict.OK, Verdict.NOT_APPLICABLE}


@every_case
def test_no_reading_fails_a_check_that_passes_without_readings(case):
    whole = {name: part for name, part in case.document.items() if name != "since"}
    steady = without_readings(whole)
    if {finding.verdict for finding in case.ask(steady)} <= PASSES:
        for document in with_other_readings(whole, steady):
            assert Verdict.FAIL not in {finding.verdict for finding in case.ask(document)}


def without_readings(document: dict[str, Any]) -> dict[str, Any]:
    """A document as if no volatile value had been read."""
    split = split_document(msgspec.json.encode(document))
    assert split is not None
    rest = msgspec.json.decode(split.volatile)
    none = {
        name: ({} if value and name in ("sections", "earlier") else value)
        for name, value in rest.items()
    }
    names = list(split.steady)
    joined = join_document(names, split.steady, msgspec.json.encode(none))
    found: dict[str, Any] = msgspec.json.decode(joined)
    return found


def with_other_readings(whole: dict[str, Any], steady: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document, and it with each of its readings changed."""
    yield whole
    kept = {place.keys for place in evidence_places(steady)}
    for place in evidence_places(whole):
        if place.keys not in kept:
            yield from others(whole, place)
