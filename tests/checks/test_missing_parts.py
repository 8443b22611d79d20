"""A list of which a member is missing is no reason for ok: something else counts its members."""

from typing import Any

import pytest

from nodevet.model import Verdict

DIMM = 65536  # MiB
COUNTED = {"correctable": 0, "nonfatal": 0, "fatal": 0}
LOG_CHECKS = ("kernel_faults", "storage_errors", "machine_check", "pcie_errors")


def verdicts(findings: list[Any]) -> set[Verdict]:
    return {finding.verdict for finding in findings}


def memory(missing: int | None) -> dict[str, Any]:
    controllers = [
        {
            "id": number,
            "corrected": 0,
            "uncorrected": 0,
            "dimms": [{"id": "dimm0", "size_mib": DIMM, "corrected": 0, "uncorrected": 0}],
        }
        for number in range(4)
        if number != missing
    ]
    node = {"id": 0, "cpulist": "0-7", "cpus_present": "0-7"}
    numa = {"online": "0", "nodes": [{**node, "memory_total_kb": int(4 * DIMM * 1024 * 0.985)}]}
    return {"edac": {"controllers": controllers}, "numa": numa}


@pytest.mark.parametrize("missing", [None, 0, 1, 2, 3])
def test_e10_a_missing_memory_controller_is_unknown(
    missing: int | None, ask: Any, make_params: Any, make_document: Any
) -> None:
    found = ask("memory_errors", make_params("memory_errors", {}), make_document(memory(missing)))
    assert (Verdict.UNKNOWN in verdicts(found)) is (missing is not None)


def test_a_memory_controller_of_a_huge_number_is_judged_at_once(
    ask: Any, make_params: Any, make_document: Any
) -> None:
    sections = memory(None)
    sections["edac"]["controllers"][3]["id"] = 1 << 40
    found = ask("memory_errors", make_params("memory_errors", {}), make_document(sections))
    assert any("mc3, mc4" in each.why for each in found)


def bus(ports: list[str]) -> dict[str, Any]:
    functions = [
        {"address": address, "upstream": above, "aer": COUNTED, "physfn": ""}
        for port in ("0000:17:01.0", "0000:5c:01.0")
        for address, above in ((port, []), (f"{port[:5]}{int(port[5:7], 16) + 2:02x}:00.0", [port]))
    ]
    return {
        "host": {"virtualization": "none"},
        "pci": {"aer_ports": ports, "firmware_sources": 0, "functions": functions},
        "kernel_log": {"complete": True, "events": []},
    }


@pytest.mark.parametrize(
    ("ports", "verdict"),
    [
        (["0000:17:01.0", "0000:5c:01.0"], Verdict.OK),
        (["0000:17:01.0"], Verdict.UNKNOWN),
        (["0000:5c:01.0"], Verdict.UNKNOWN),
    ],
)
def test_e10_a_port_missing_from_the_aer_ports_makes_pcie_errors_unknown(
    ports: list[str], verdict: Verdict, ask: Any, make_params: Any, make_document: Any
) -> None:
    params = make_params("pcie_errors", {})
    assert verdicts(ask("pcie_errors", params, make_document(bus(ports)))) == {verdict}


@pytest.mark.parametrize("judge", LOG_CHECKS)
def test_e10_a_kernel_log_with_dropped_lines_is_unknown(
    judge: str, ask: Any, make_params: Any, make_document: Any
) -> None:
    for dropped, sure in ((0, True), (3, False)):
        sections = bus(["0000:17:01.0", "0000:5c:01.0"])
        sections["kernel_log"] |= {"dropped": dropped, "crashes": [], "since_s": 0.0}
        found = ask(judge, make_params(judge, {}), make_document(sections))
        assert (Verdict.OK in verdicts(found)) is sure
        assert sure or Verdict.UNKNOWN in verdicts(found)
