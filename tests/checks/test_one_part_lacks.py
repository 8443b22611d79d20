"""What every GPU of a node has, no GPU of the same model lacks: it was not read."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodevet.model import Verdict
from tests.checks.every_case import every_case

Ask = Callable[[dict[str, Any]], list[Any]]
Keys = tuple[str, ...]
ALONE = ("index", "pid", "uuid", "bus_id", "minor_number", "module_id", "serial", "errors")


def fields(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Every value of a record and of the records in it; of a list, of all its items together."""
    for key, below in value.items():
        if key in ALONE or key == "mig_devices":
            continue
        if isinstance(below, dict):
            yield from fields(below, (*keys, key))
        elif isinstance(below, list) and below and isinstance(below[0], dict):
            for item in {name for each in below for name in each} - {"link", *ALONE}:
                yield (*keys, key, item)
        elif below is not None:
            yield (*keys, key)


def without(gpu: dict[str, Any], keys: Keys, why: str) -> None:
    """Take a value away: NVML says that there is none."""
    *path, name = keys
    records = [gpu]
    for key in path:
        below = [each[key] for each in records]
        records = [item for each in below for item in (each if isinstance(each, list) else [each])]
    for record in records:
        record.pop(name, None)
        record["errors"] = {**record.get("errors", {}), name: why}


def three(case: Any, ask: Ask) -> dict[str, Any] | None:
    """The case's evidence with three GPUs like its first one that is ok; only one is on the bus."""
    found = ask(case.document)
    fine = [index for index in range(64) if of_gpu(found, index) == {Verdict.OK}]
    section = case.document["sections"].get("gpu", {}).get("data") or {}
    first = next((gpu for gpu in section.get("gpus") or () if gpu["index"] in fine), None)
    if first is None or first.get("mig_current"):  # in MIG mode there is no NVLink
        return None
    document = copy.deepcopy(case.document)
    gpus = [copy.deepcopy(first) for _ in range(3)]
    for index, gpu in enumerate(gpus):
        gpu |= {"index": index, "pci_device": "10de:2330"}
        for name in ("uuid", "serial", *(("bus_id",) if index else ())):
            gpu.pop(name, None)
    document["sections"]["gpu"]["data"] |= {"gpus": gpus, "count": 3}
    document.pop("since", None)
    document.pop("earlier", None)
    return document


def lacking(document: dict[str, Any], keys: Keys, why: str, gpus: range) -> dict[str, Any]:
    """A copy in which NVML says of these GPUs that there is no such value."""
    copied = copy.deepcopy(document)
    for index in gpus:
        without(copied["sections"]["gpu"]["data"]["gpus"][index], keys, why)
    return copied


def of_gpu(findings: list[Any], index: int) -> set[Verdict]:
    return {
        each.verdict
        for each in findings
        if each.subject.kind == "gpu" and each.subject.id == str(index)
    }


@pytest.mark.parametrize("why", ["NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND"])
@every_case
def test_e08_a_feature_that_only_one_gpu_lacks_is_unknown_or_fails(case: Any, why: str) -> None:
    said = case.ask
    document = three(case, said)
    if document is None or of_gpu(said(document), 0) != {Verdict.OK}:
        return
    for keys in set(fields(document["sections"]["gpu"]["data"]["gpus"][0])):
        if of_gpu(said(lacking(document, keys, why, range(3))), 0) != {Verdict.OK}:
            alone = of_gpu(said(lacking(document, keys, why, range(1))), 0)
            assert alone & {Verdict.UNKNOWN, Verdict.FAIL}, (keys, alone)


def test_e08_boards_of_another_model_may_lack_a_feature(ask: Any, make_params: Any) -> None:
    gpus: list[dict[str, Any]] = [
        {"index": 0, "pci_device": "10de:2330", "ecc_current": True, "ecc_pending": True},
        {"index": 1, "pci_device": "10de:2684"},
        {"index": 2, "pci_device": "10de:2330", "mig_current": True},
    ]
    for gpu in gpus[1:]:
        gpu["errors"] = {"power_limit_mw": "NVML_ERROR_NOT_SUPPORTED"}
    gpus[0] |= {"power_limit_mw": 700000, "power_limit_enforced_mw": 700000}
    gpus[0] |= {"power_limit_default_mw": 700000}
    document = {
        "schema": 1,
        "probe": "0",
        "sections": {"gpu": {"status": "ok", "data": {"count": 3, "gpus": gpus}}},
    }
    found = ask("power_limit", make_params("power_limit", "default"), document)
    assert [of_gpu(found, index) for index in range(3)] == [
        {Verdict.OK},
        {Verdict.NOT_APPLICABLE},
        {Verdict.NOT_APPLICABLE},
    ]
