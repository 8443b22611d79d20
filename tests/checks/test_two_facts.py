"""Every fact of a part is judged by itself: who accepts one accepts no other.

Values of a case in which a part is ok are changed so that it fails, in two places at once. Under a
waiver of what the first change alone makes it fail, it must still fail, for the second.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import combinations, islice
from typing import Any, NamedTuple

import pytest

from nodevet.model import Finding, Verdict, show
from tests.checks import test_soundness as soundness
from tests.checks.one_fact import ALONE, is_one_fact
from tests.checks.test_waivers import waived

pytestmark = pytest.mark.timeout(600)
EACH = 2  # pairs of places that are tried of each pair of names, and values that fail of each place
FEW = 80  # judgements of unchanged cases
VALUES = 12  # values of other cases that are tried in a place
NAMES_PARTS = ("address", "index", "name", "id", "pid", "path", "size_kb", "link", "test")
"""What names a part: with another name it is another part."""


class Fault(NamedTuple):
    """A change by which a part fails that did not."""

    place: Any
    value: Any
    subject: str
    findings: list[Finding]


def failed(findings: list[Finding], subject: str) -> list[Finding]:
    return [
        each for each in findings if each.verdict is Verdict.FAIL and each.subject.label == subject
    ]


def failing(findings: list[Finding]) -> set[str]:
    return {each.subject.label for each in findings if each.verdict is Verdict.FAIL}


def facts(findings: list[Finding], subject: str) -> set[str]:
    """The names of the facts that fail, where a check names them."""
    named = [each.expected for each in failed(findings, subject)]
    return {name for each in named if isinstance(each, Mapping) for name in each}


def values_of(cases: list[Any]) -> dict[str, list[Any]]:
    """By place, the values that it has in the cases of a check; by list, its items."""
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        for place in soundness.evidence_places(case.document):
            value = soundness.at(case.document, place.keys)
            found.setdefault(place.name, {})[repr(value)] = value
            for item in value if isinstance(value, list) else ():
                found.setdefault(f"{place.name}[]", {})[repr(item)] = item
    return {name: list(values.values()) for name, values in found.items()}


def others(document: Any, place: Any, values: Mapping[str, list[Any]]) -> Iterator[tuple[Any, Any]]:
    """What else may be in a place; of a list of records one more, in a place of its own, or one
    less."""
    now = soundness.at(document, place.keys)
    items = values.get(f"{place.name}[]", [])
    if isinstance(now, list) and any(isinstance(each, dict) for each in (*now, *items)):
        for at, item in enumerate(islice(items, VALUES)):
            if item not in now and not is_there(item, now):
                keys = (*place.keys, len(now) + at)
                yield soundness.Place(keys, f"{place.name}[]"), item
        if not place.name.startswith("earlier."):
            yield from ((place, now[:at] + now[at + 1 :]) for at in range(min(len(now), EACH)))
    elif not isinstance(now, dict):
        known = islice(values.get(place.name, []), VALUES)
        yield from ((place, each) for each in known if each != now)
        for other in soundness.others(document, place) if not isinstance(now, list) else ():
            yield place, soundness.at(other, place.keys)


def is_there(item: Any, items: list[Any]) -> bool:
    """Whether one of them has its name."""
    named = [{key: each[key] for key in NAMES_PARTS if key in each} for each in (item, *items)]
    return bool(named[0]) and named[0] in named[1:]


def changed(document: Any, place: Any, value: Any) -> Any:
    """A copy with this value in the place; behind the end of a list it is one item more."""
    *way, last = place.keys
    parent = soundness.at(document, way)
    if isinstance(parent, list) and last >= len(parent):
        return soundness.changed(document, soundness.Place(tuple(way), ""), [*parent, value])
    return soundness.changed(document, place, value)


def faults(case: Any, say: Any, values: Mapping[str, list[Any]]) -> Iterator[Fault]:
    """Changes of one value by which a part fails that does not fail in the case."""
    before = failing(say(case.document))
    for place in soundness.evidence_places(case.document):
        if not soundness.is_read(place.name, case.check.reads) or names_a_part(place.name):
            continue
        seen: dict[str, set[str]] = {}
        for where, value in others(case.document, place, values):
            findings = say(changed(case.document, where, value))
            for subject in failing(findings) - before:
                said = repr([each.actual for each in failed(findings, subject)])
                known = seen.setdefault(subject, set())
                if said not in known and len(known) < EACH:
                    known.add(said)
                    yield Fault(where, value, subject, findings)


def shown(fault: Fault) -> list[str]:
    return [show(each.actual) for each in failed(fault.findings, fault.subject)]


def asked(check_id: str, own: list[Any], make_params: Any) -> Iterator[tuple[Any, Any]]:
    """Every case with what it expects; of few cases with what the others expect, too."""
    wanted = {repr(each.params): make_params(check_id, each.params) for each in own}
    few = len(own) * len(wanted) <= FEW
    for case in own:
        yield case, wanted[repr(case.params)]
        yield from (
            (case, each) for key, each in wanted.items() if few and key != repr(case.params)
        )


def names_a_part(name: str) -> bool:
    return name.rpartition(".")[2] in NAMES_PARTS


def apart(one: Fault, other: Fault) -> bool:
    """Whether neither place lies in the other."""
    shortest = min(len(one.place.keys), len(other.place.keys))
    return bool(one.place.keys[:shortest] != other.place.keys[:shortest])


def one_comparison(one: Fault, other: Fault, both: list[Finding]) -> bool:
    """Whether the one changed what is there, and the other what is expected of the same thing."""
    there = {show(each.actual) for each in failed(one.findings, one.subject)}
    wanted = {show(each.expected) for each in failed(other.findings, one.subject)}
    own = {show(each.expected) for each in failed(one.findings, one.subject)}
    return wanted != own and all(
        show(each.actual) in there and show(each.expected) in wanted
        for each in failed(both, one.subject)
    )


def pairs(case: Any, say: Any, values: Any, tried: dict[Any, int]) -> Iterator[tuple[Fault, Fault]]:
    found = list(faults(case, say, values))
    for one, other in combinations(found, 2):
        names = one.place.name, other.place.name, one.subject == other.subject
        if apart(one, other) and tried.get(names, 0) < EACH:
            tried[names] = tried.get(names, 0) + 1
            yield one, other
            yield other, one


def said(case: Any, one: Fault, other: Fault, both: list[Finding]) -> str:
    values = [
        [(each.expected, each.actual) for each in failed(findings, other.subject)]
        for findings in (one.findings, other.findings, both)
    ]
    return (
        f"{case.name}: {other.subject}: who accepts {one.place.name} {values[0]} accepts"
        f" {other.place.name} {values[1]}: {values[2]}"
    )


def hidden(check_id: str, own: list[Any], ask: Any, make_params: Any) -> tuple[int, list[str]]:
    """How many pairs of faults were tried, and those of which the second is hidden."""
    values, tried, count, wrong = values_of(own), {}, 0, []
    for case, params in asked(check_id, own, make_params):

        def say(document: Any, params: Any = params) -> list[Finding]:
            found: list[Finding] = ask(check_id, params, document)
            return found

        for one, other in pairs(case, say, values, tried):
            once = changed(case.document, one.place, one.value)
            both = say(changed(once, other.place, other.value))
            same = one.subject == other.subject
            if same and facts(one.findings, one.subject) & facts(other.findings, one.subject):
                continue
            if other.subject not in failing(both) or one_comparison(one, other, both):
                continue
            alike = shown(one) == shown(other)
            names = one.place.name, other.place.name
            why = "".join(each.why for each in failed(both, one.subject))
            if same and is_one_fact(check_id, *names, alike=alike, told=why):
                continue
            count += 1
            accepted = soundness.waivers(failed(one.findings, one.subject))
            if other.subject not in failing(soundness.waived(both, accepted)):
                wrong.append(said(case, one, other, both))
    return count, wrong


def test_e06_a_waiver_for_one_fact_of_a_part_covers_no_other(
    check_id: str, own_cases: list[Any], ask: Any, make_params: Any, catalog: Any
) -> None:
    count, wrong = hidden(check_id, own_cases, ask, make_params)
    assert not wrong, "\n".join(wrong)
    is_alone = check_id in ALONE or len(catalog.check(check_id).reads) == 1
    assert bool(count) is not is_alone, (
        f"{check_id}: {count} pairs of values that fail were found. Without any, add a case that "
        "gives values to two facts of a part; if it judges one fact, name it in ALONE of "
        "tests/checks/one_fact.py"
    )


@pytest.mark.parametrize(("later", "shown"), [(60.0, [48]), (3600.0, [48, 64])])
def test_e06_an_accepted_xid_does_not_hide_a_much_later_one(
    later: float, shown: list[int], find_case: Any, make_params: Any, ask: Any
) -> None:
    case = find_case("xid", "cascades")
    document = deepcopy(case.document)
    at = 600.0 + later
    remap = {"kind": "xid", "code": 64, "bus_id": "0000:3b:00.0", "count": 1}
    document["sections"]["kernel_log"]["data"]["events"] += [
        {**remap, "first_s": at, "last_s": at, "times_s": [at]}
    ]
    (found,) = failed(ask("xid", make_params("xid", {}), document), "GPU 1")
    assert found.actual == shown


def test_e06_an_accepted_power_limit_does_not_hide_a_lower_enforced_one(
    find_case: Any, make_params: Any, catalog: Any
) -> None:
    case = find_case("power_limit", "lowered")
    case = case._replace(document=deepcopy(case.document))
    params = make_params("power_limit", 700)
    gpu = case.document["sections"]["gpu"]["data"]["gpus"][0]
    gpu |= {"power_limit_mw": 500_000, "power_limit_enforced_mw": 500_000}
    (accepted, *_) = waived(case, params, catalog, "500")
    assert accepted.verdict is Verdict.WAIVED
    gpu |= {"power_limit_enforced_mw": 60_000}
    accepted, held, *_ = waived(case, params, catalog, "500")
    assert (accepted.verdict, held.verdict) == (Verdict.WAIVED, Verdict.FAIL)
    assert (held.expected, held.actual, held.unit) == (500, 60, "W")
