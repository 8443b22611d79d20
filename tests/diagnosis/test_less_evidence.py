"""Less evidence is never more certain: any one value of any one record can be missing.

NODEVET_ALL_PLACES=1 tries every value of every record, which takes minutes.
"""

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodevet.diagnose import incident
from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from nodevet.evidence.document import decode
from tests.diagnosis.samples import CASES, KEYS, LOOKS, OTHERS, gpu, sections

ORDER = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)
INCIDENTS = sorted(Path(__file__).parents[2].glob("docs/incidents/*.json.gz"))
WATCHED = ("gpu_activity", "process_activity", "host_activity")
NEEDED = (*WATCHED, "cpu", "gpu", "numa", "pci")
Place = tuple[str | int, ...]


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Where every value of every record is; of the looks' series, the whole series."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in (*KEYS, "errors", "look", "call", "looks"):
                yield (*above, key)
                if key not in ("pages", "waits", "pages_b"):
                    yield from places(inner, (*above, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            if isinstance(inner, dict):
                yield from places(inner, (*above, at))


def each_kind(found: Iterator[Place]) -> list[Place]:
    """Of each field of each kind of record one place, by chance; the same at each run."""
    kinds: dict[Place, list[Place]] = {}
    for place in found:
        kinds.setdefault(tuple(step for step in place if isinstance(step, str)), []).append(place)
    chance = random.Random(1)
    if os.environ.get("NODEVET_ALL_PLACES"):
        return [place for listed in kinds.values() for place in listed]
    return [chance.choice(listed) for listed in kinds.values()]


@contextmanager
def missing(sections: Any, place: Place) -> Iterator[None]:
    """While the value is null."""
    record = sections
    for step in place[:-1]:
        record = record[step]
    value, record[place[-1]] = record[place[-1]], None
    yield
    record[place[-1]] = value


def told(sections: Mapping[str, Any]) -> tuple[GpuDiagnosis, ...]:
    answer = diagnose(decode(json.dumps({"schema": 1, "probe": "", "sections": sections})))
    return () if isinstance(answer, str) else answer


def check(sections: Mapping[str, Any], names: Sequence[str] = WATCHED) -> list[str]:
    """What is as certain as before of another cause, or more certain, without one value."""
    before = told(sections)
    wrong = []
    watched = {name: sections[name]["data"] for name in names}
    for place in each_kind(places(watched)):
        with missing(sections, (place[0], "data", *place[1:])):
            after = told(sections)
        for old, new in zip(before, after, strict=False):
            if new.cause is Cause.UNCLEAR:
                continue
            less = ORDER.index(new.confidence) - ORDER.index(old.confidence)
            moved = set(new.causes) != set(old.causes) and new.confidence is not Confidence.LOW
            if moved or less > 0:
                name = ".".join(map(str, place))
                wrong.append(
                    f"{name}: {[each.value for each in old.causes]} ({old.confidence.value}) -> "
                    f"{[each.value for each in new.causes]} ({new.confidence.value})"
                )
    return wrong


@pytest.mark.parametrize("node", [*CASES, *OTHERS])
def test_g12_a_missing_value_of_a_made_up_node_never_raises_confidence(node: str) -> None:
    data = {**CASES, **OTHERS}[node]
    assert not check({name: {"status": "ok", "data": section} for name, section in data.items()})


GPM = {"sm_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.3}
BUSY = {"power_mw": [600000] * LOOKS, "gpm_supported": True}
GPUS = {"polls": gpu(97, gpm=[GPM], **BUSY), "unread": gpu(97, **BUSY), "old": gpu(97)}


@pytest.mark.parametrize("name", GPUS)
def test_g12_two_missing_values_of_a_gpu_never_raise_confidence(name: str) -> None:
    found = {key: {"status": "ok", "data": data} for key, data in sections([GPUS[name]]).items()}
    record = found["gpu_activity"]["data"]["gpus"][0]
    wrong = []
    for field in [key for key, value in record.items() if value is not None and key not in KEYS]:
        with missing(record, (field,)):
            wrong += [f"{field}, {text}" for text in check(found, ("gpu_activity",))]
    assert not wrong


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.name)
def test_g12_a_missing_value_of_an_incident_never_raises_confidence(path: Path) -> None:
    for visit, _ in incident.read(path):
        assert visit.evidence is not None
        sections = json.loads(bytes(visit.evidence))["sections"]
        assert not check({name: sections[name] for name in sections if name in NEEDED})
