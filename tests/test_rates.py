"""How fast counters grow: two readings in one document, and what they allow to say."""

import json
from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.evidence.pci import Pci
from nodevet.evidence.rates import DAY, HOUR, earlier_sample, growth, is_above
from nodevet.evidence.sections import unknown_path
from nodevet.fleet import Options
from nodevet.remote.probe.sections import names, with_counters
from nodevet.vet.use.reach import fleet_options

DATA = {"functions": [{"address": "0000:19:00.0", "aer": {"correctable": 3}}]}
OK = {"status": "ok", "data": DATA}


def document(earlier: Any) -> str:
    return json.dumps({"schema": 1, "probe": "", "sections": {"pci": OK}, "earlier": earlier})


def test_evidence_without_a_sample_has_no_earlier_reading() -> None:
    evidence = decode(json.dumps({"schema": 1, "probe": "", "sections": {"pci": OK}}))
    assert evidence.earlier is None and earlier_sample(evidence, Pci) is None


def test_a_sample_restores_the_earlier_reading_of_a_section() -> None:
    found = earlier_sample(decode(document({"pci": {**OK, "before_s": 10.5}, "of_later": {}})), Pci)
    assert found is not None and found.data is not None and found.data.functions is not None
    assert (found.seconds, found.data.functions[0].aer.correctable) == (10.5, 3)


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        ({}, "the probe did not read this section"),
        ({"pci": {"status": "timeout", "why": "timed out"}}, "timed out"),
        ({"pci": {**OK}}, "how long before it was read is not known"),
        ({"pci": {**OK, "before_s": 0}}, "how long before it was read is not known"),
        ({"pci": {**OK, "before_s": -3.0}}, "how long before it was read is not known"),
        ({"pci": {**OK, "before_s": 2 * DAY}}, "how long before it was read is not known"),
        ({"pci": {"status": "ok", "data": {"functions": 7}}}, "the probe's answer is not valid"),
        ({"pci": {"status": "ok", "data": DATA, "before_s": "x"}}, "the probe's answer is not"),
    ],
)
def test_a_sample_that_cannot_be_used_says_why(earlier: Any, why: str) -> None:
    found = earlier_sample(decode(document(earlier)), Pci)
    assert found is not None and found.data is None and found.why.startswith(why)


@pytest.mark.parametrize(
    ("before", "now", "by"), [(3, 3, 0), (3, 5, 2), (5, 3, None), (None, 3, None), (3, None, None)]
)
def test_a_counter_that_decreased_or_was_not_read_has_no_rate(
    before: int | None, now: int | None, by: int | None
) -> None:
    found = growth(before, now, 10.0)
    assert found.by == by
    assert (found.why == "") is (by is not None)
    assert found.is_above(1.0) is None if by is None else True


@pytest.mark.parametrize(
    ("count", "seconds", "most", "above"),
    [
        (0, 10, 10, None),  # says nothing of the hour
        (1, 10, 10, None),  # may be the only one of its hour
        (2, 10, 10, True),
        (1, 10, 0, True),  # none is allowed
        (0, 10, 0, None),
        (0, HOUR, 10, False),
        (10, HOUR, 10, False),
        (11, HOUR, 10, None),
        (25, HOUR, 10, True),
        (10**9, 1.0, 10.0, True),
        (10**6, HOUR, 10**6, False),
        (10**6 + 100, HOUR, 10**6, None),
        (2 * 10**6, HOUR, 10**6, True),
    ],
)
def test_a_rate_is_above_the_maximum_only_if_chance_cannot_explain_it(
    count: int, seconds: float, most: float, above: bool | None
) -> None:
    assert is_above(count, seconds, most) is above


def test_checks_use_earlier_readings_only_of_sections_that_are_read_twice() -> None:
    catalog, twice = Catalog(), set(with_counters(names()))
    read = {path for check in catalog.ids for path in catalog.check(check).reads}
    earlier = {path.split(".")[1] for path in read if path.startswith("earlier.")}
    assert earlier and earlier - {"kernel_log"} <= twice  # whose lines the last look had
    assert unknown_path("earlier.pci.functions[].aer.correctabel").startswith("Aer has no field")


def reach(sample: float | None) -> Options:
    return fleet_options(
        parallel=1,
        connect_timeout=5,
        deadline=60,
        ssh_config=None,
        known_hosts=None,
        accept_new=False,
        sudo=False,
        sample=sample,
    )


def test_a_sample_extends_the_time_limits_of_a_visit_by_its_length() -> None:
    plain, sampling = reach(None), reach(30.0)
    assert (plain.deadline, plain.probe_seconds, plain.sample) == (60, 40, 0)
    assert (sampling.deadline, sampling.probe_seconds, sampling.sample) == (90, 70, 30)
