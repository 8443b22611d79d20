"""A word by which the kernel says that it does not know is a value that was not read."""

from typing import Any

import pytest

from nodevet.model import Verdict

WORDS = ("<unknown>", "unknown", "UNKNOWN", "Unknown", "unknown state", "N/A")
PORT = {"number": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "phys_state": "LinkUp"}


def port(**said: str) -> dict[str, Any]:
    device = {"name": "mlx5_0", "physfn": "", "driver": "efa", "ports": [{**PORT, **said}]}
    return {"infiniband": {"found": ["mlx5_0"], "devices": [device]}}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("field", ["state", "phys_state", "link_layer"])
def test_e18_a_port_in_an_unknown_state_is_unknown(
    field: str, word: str, ask: Any, make_params: Any, make_document: Any
) -> None:
    if (field, word) == ("link_layer", "Unknown"):
        return  # what the kernel calls the link layer of EFA
    document = make_document(port(**{field: word}))
    found = ask("infiniband", make_params("infiniband", 1), document)
    assert {each.verdict for each in found} <= {Verdict.OK, Verdict.UNKNOWN}
    assert any(each.why == f"{field}: it says {word}" for each in found)


@pytest.mark.parametrize("word", WORDS)
def test_e18_a_link_that_is_down_fails_whatever_else_is_unread(
    word: str, ask: Any, make_params: Any, make_document: Any
) -> None:
    document = make_document(port(state="DOWN", phys_state=word))
    found = ask("infiniband", make_params("infiniband", 1), document)
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.FAIL]


DRIVE = {"name": "nvme0", "transport": "pcie", "address": "0000:1b:00.0", "state": "live"}


@pytest.mark.parametrize("word", WORDS)
def test_e18_a_drive_in_an_unknown_state_is_unknown(
    word: str, ask: Any, make_params: Any, make_document: Any
) -> None:
    sections = {"nvme": {"controllers": [{**DRIVE, "state": word}]}}
    found = ask("nvme_health", make_params("nvme_health", {}), make_document(sections))
    assert Verdict.FAIL not in {each.verdict for each in found}
    assert any("state: it says" in each.why for each in found)
