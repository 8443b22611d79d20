"""Losing evidence never makes a check say ok.

Every value of every case is taken away, spoiled and changed in turn, in the JSON that
the probe sends. A value is decisive for a subject that is ok when some other value in
its place would make it not ok; then the check may not say ok without knowing it.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from nodevet.evidence import Evidence
from nodevet.model import Verdict

WORDS = ("other", "", "0", "1", "ff", "a1", "none", "kvm", "0-1", "10de", "030200", "/dev/nvidia7")
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 8, 16, 32)
REASONS = ("EIO", "NVML_ERROR_UNKNOWN", "NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_GPU_IS_LOST")
SECTIONS = [name for name in Evidence.__struct_fields__ if name not in ("schema", "probe")]
IDENTITIES = ("index", "address", "id", "pid", "path", "policies")  # a record needs it
GONE = object()


class Place(NamedTuple):
    """A value in the document, and its name as `reads` spells it."""

    keys: tuple[Any, ...]
    name: str


def places(value: Any, keys: tuple[Any, ...], name: str) -> Iterator[Place]:
    """Every value below, containers too; `errors` are reasons, not evidence."""
    items: Any = ()
    if isinstance(value, dict):
        items = [(key, f"{name}.{key}", below) for key, below in value.items() if key != "errors"]
    elif isinstance(value, list):
        items = [(index, f"{name}[]", below) for index, below in enumerate(value)]
    for key, below_name, below in items:
        place = Place((*keys, key), below_name)
        if not isinstance(key, int) or not isinstance(below, dict):
            yield place
        yield from places(below, place.keys, place.name)


def evidence_places(document: dict[str, Any]) -> list[Place]:
    return [
        place
        for name, section in document["sections"].items()
        if section["status"] == "ok"
        for place in places(section["data"], ("sections", name, "data"), name)
    ]


def with_section(document: dict[str, Any], name: str, section: Any) -> dict[str, Any]:
    """A copy with another section."""
    return {**document, "sections": {**document["sections"], name: section}}


def at(document: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        document = document[key]
    return document


def changed(document: dict[str, Any], place: Place, value: Any, why: str = "") -> dict[str, Any]:
    """A copy with another value in the place, or with none."""
    copied = parent = copy.copy(document)
    for key in place.keys[:-1]:  # what is beside the way is shared
        parent[key] = copy.copy(parent[key])
        parent = parent[key]
    if value is not GONE:
        parent[place.keys[-1]] = value
    elif isinstance(parent, dict):
        del parent[place.keys[-1]]
    if why and isinstance(parent, dict):
        parent["errors"] = {**parent.get("errors", {}), place.keys[-1]: why}
    return copied


def lost(document: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The document without the value: null, removed, of another type, failed to be read."""
    value = at(document, place.keys)
    yield changed(document, place, None)
    yield changed(document, place, [["spoiled"]])
    yield changed(document, place, {"spoiled": 1})
    yield changed(document, place, 7 if isinstance(value, str) else "spoiled")
    if not isinstance(place.keys[-1], int):
        yield changed(document, place, GONE)
        for why in REASONS:
            yield changed(document, place, None, why)


def others(document: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The document with other values of the same type in the place."""
    value = at(document, place.keys)
    values: list[Any] = []
    if isinstance(value, bool):
        values = [not value]
    elif isinstance(value, (int, float)):
        values = [*NUMBERS, value + 1, value * 2, value // 2, value * 1000]
    elif isinstance(value, str):
        values = [*WORDS, f"{value}0", value[:-1]]
    for other in values:
        if other != value:
            yield changed(document, place, other)


def oks(findings: list[Any]) -> set[str]:
    """The subjects that are ok and nothing else; a process and its node are two."""
    return {f.subject.label for f in findings if f.verdict is Verdict.OK} - {
        f.subject.label for f in findings if f.verdict is not Verdict.OK
    }


def verdicts(findings: list[Any]) -> list[tuple[str, str]]:
    return sorted((finding.subject.label, finding.verdict.value) for finding in findings)


@pytest.fixture
def say(case, ask, make_want):
    """What the case's check says of a document."""
    want = make_want(case.check_id, case.want)
    return lambda document: ask(case.check_id, want, document)


def decisive(document: dict[str, Any], place: Place, say: Any, fine: set[str]) -> set[str]:
    """The subjects that are ok, and would not be with another value in the place."""
    return {subject for other in others(document, place) for subject in fine - oks(say(other))}


def test_no_ok_without_a_decisive_value(case, say):
    fine = oks(say(case.document))
    if not fine:
        return
    every = evidence_places(case.document)
    needs = {place: decisive(case.document, place, say, fine) for place in every}
    for place in every:
        needed = needed_below(place.keys, needs)
        for document in lost(case.document, place) if needed else ():
            assert not needed & oks(say(document)), (place.name, document)
    for name in case.document["sections"]:
        needed = needed_below(("sections", name), needs)
        for section in broken_sections():
            document = with_section(case.document, name, section)
            assert not needed & oks(say(document)), (name, section)


def needed_below(keys: tuple[Any, ...], needs: dict[Place, set[str]]) -> set[str]:
    """The subjects for which this value, or one inside it, is decisive."""
    inside = (subjects for place, subjects in needs.items() if place.keys[: len(keys)] == keys)
    return set().union(*inside)


def test_losing_evidence_never_makes_ok(case, say):
    fine = oks(say(case.document))
    for place in evidence_places(case.document):
        for document in lost(case.document, place):
            assert oks(say(document)) <= fine, (place.name, document)


def test_a_failed_section_never_makes_ok(case, say):
    fine = oks(say(case.document))
    for name in SECTIONS:
        for section in broken_sections():
            document = with_section(case.document, name, section)
            assert oks(say(document)) <= fine, (name, section)
        document = copy.deepcopy(case.document)
        document["sections"].pop(name, None)
        assert oks(say(document)) <= fine, name


def broken_sections() -> list[Any]:
    return [
        *(
            {"status": status, "why": "spoiled"}
            for status in ("absent", "denied", "error", "timeout")
        ),
        {"status": "ok"},
        {"status": "ok", "data": None},
        {"status": "ok", "data": []},
        {"status": "ok", "data": {}},
        {"status": "splendid", "data": {}},
        {"status": "error"},
        "spoiled",
        None,
    ]


def test_nothing_outside_reads_changes_a_verdict(case, say):
    told = [finding.verdict for finding in say(case.document)]
    for place in evidence_places(case.document):
        if is_read(place.name, case.check.reads):
            continue
        documents = list(others(case.document, place))
        if place.keys[-1] not in IDENTITIES and not isinstance(place.keys[-1], int):
            documents.append(changed(case.document, place, None))
        for document in documents:
            after = [finding.verdict for finding in say(document)]
            assert after == told, (place.name, document)


def is_read(name: str, reads: tuple[str, ...]) -> bool:
    """Whether `reads` names this place or something in it."""
    return any(read == name or read.startswith((f"{name}.", f"{name}[")) for read in reads)


def test_everything_in_reads_changes_a_verdict(check_id, cases, ask, make_want):
    own = [case for case in cases if case.check_id == check_id]
    needed = set()
    for case in own:
        want = make_want(check_id, case.want)
        told = verdicts(ask(check_id, want, case.document))
        for place in evidence_places(case.document):
            if place.name not in needed and any(
                verdicts(ask(check_id, want, other)) != told
                for other in others(case.document, place)
            ):
                needed.add(place.name)
    assert set(own[0].check.reads) <= needed


def test_a_gpu_without_a_handle_is_never_ok(case, say):
    fine = oks(say(case.document))
    gpus = case.document["sections"].get("gpu", {}).get("data", {}).get("gpus") or []
    for index in range(len(gpus)):
        for why in REASONS:
            document = copy.deepcopy(case.document)
            gpu = document["sections"]["gpu"]["data"]["gpus"][index]
            gpu["errors"] = {**gpu.get("errors", {}), "handle": why}
            after = oks(say(document))
            assert after <= fine
            assert f"GPU {gpu['index']}" not in after
