"""Decoding is validation: what cannot be one machine's evidence is not taken for it."""

import json
from typing import Any

import pytest

from nodevet.evidence import decode

GPUS = [
    {"index": 0, "uuid": "GPU-1", "bus_id": "0000:19:00.0"},
    {"index": 1, "uuid": "GPU-2", "bus_id": "0000:3b:00.0"},
    {"index": 2},
    {"index": 3},
]
SECTIONS: dict[str, Any] = {
    "gpu": {"gpus": GPUS},
    "pci": {"functions": [{"address": "0000:19:00.0"}, {"address": "0000:3b:00.0"}]},
    "numa": {"nodes": [{"id": 0}, {"id": 1}]},
    "processes": {"processes": [{"pid": 1}, {"pid": 2}]},
    "filesystems": {"filesystems": [{"path": "/"}, {"path": "/var"}]},
}


def section(name: str, data: Any) -> Any:
    sections = {name: {"status": "ok", "data": data}}
    return getattr(decode(json.dumps({"schema": 1, "probe": "", "sections": sections})), name)


def test_a_list_of_gpus_that_no_machine_has() -> None:
    gpus = [{"index": index} for index in range(1025)]
    assert section("gpu", {"gpus": gpus[:1024]}).status == "ok"
    found = section("gpu", {"gpus": gpus})
    assert found.why == "the probe's answer is not valid: more than 1024 GPUs"


@pytest.mark.parametrize(
    ("name", "listed", "key", "words"),
    [
        ("gpu", "gpus", "uuid", "two gpus with the uuid GPU-1"),
        ("gpu", "gpus", "bus_id", "two gpus with the bus_id 0000:19:00.0"),
        ("pci", "functions", "address", "two functions with the address 0000:19:00.0"),
        ("numa", "nodes", "id", "two nodes with the id 0"),
        ("processes", "processes", "pid", "two processes with the pid 1"),
        ("filesystems", "filesystems", "path", "two filesystems with the path /"),
    ],
)
def test_two_things_are_not_one(name: str, listed: str, key: str, words: str) -> None:
    good = section(name, SECTIONS[name])
    assert (good.status, len(getattr(good.data, listed))) == ("ok", len(SECTIONS[name][listed]))
    first, second, *rest = SECTIONS[name][listed]
    bad = section(name, {listed: [first, {**second, key: first[key]}, *rest]})
    assert (bad.status, bad.data) == ("error", None)
    assert bad.why == f"the probe's answer is not valid: {words}"
