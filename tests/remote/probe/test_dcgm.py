"""What dcgmi prints, in the versions that are known; anything else is an error, never a pass."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote import program
from nodevet.remote.probe.collectors import dcgm
from nodevet.remote.probe.dcgm_json import parse_diag, parse_health

Check = Callable[[str, dict[str, Any]], Any]

HEALTHY = '{"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}'
WATCH = {"value": "Warning", "overflow": ["Detected more than 8", "PCIe replays per minute"]}
INSIDE = {"GPU": {"0": {"value": "Failure", "Errors": {"PCIe system": WATCH}}}}
CHILDREN = {
    "GPU": {
        "children": {
            "0": {"value": "Failure", "children": {"Errors": {"children": {"PCIe system": WATCH}}}}
        }
    }
}
NEW = {
    "DCGM Diagnostic": {
        "test_categories": [
            {
                "category": "Hardware",
                "tests": [
                    {
                        "name": "pcie",
                        "results": [
                            {"entity_group": "GPU", "entity_id": 0, "status": "Pass"},
                            {
                                "entity_group": "GPU",
                                "entity_id": 1,
                                "status": "Fail",
                                "warnings": [{"error_id": 1, "warning": "PCIe\n replays"}],
                            },
                        ],
                        "test_summary": {"status": "Fail"},
                    },
                    {"name": "eud", "results": [{"status": "Skip"}]},
                ],
            }
        ]
    },
    "entity_groups": [
        {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entities": [
                {"device_id": "2330", "entity_id": 0, "serial_num": "1650"},
                {"device_id": "2330", "entity_id": 1, "serial_num": "1651"},
            ],
        },
        {"entity_group": "CPU", "entities": [{"entity_id": 0, "serial_num": "N/A"}]},
    ],
    "metadata": {"Driver Version Detected": "550.90.07", "version": "4.0.0"},
}
OLD = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {
                "category": "Integration",
                "tests": [
                    {
                        "name": "PCIe",
                        "results": [
                            {"gpu_id": "0", "status": "Pass", "info": "GPU to Host 24 GB/s"},
                            {"gpu_id": "1", "status": "Warn", "warnings": "slow"},
                        ],
                    }
                ],
            }
        ]
    },
    "DCGM Version": "3.3.8",
    "Driver Version Detected": "550.90.07",
    "GPU Device Serials": {"0": "1650", "1": "1651"},
}


def test_a_healthy_report() -> None:
    assert parse_health(HEALTHY) == ("Healthy", [])
    assert parse_health("a warning of the loader\n" + HEALTHY) == ("Healthy", [])


@pytest.mark.parametrize("parts", [INSIDE, CHILDREN])
def test_every_incident_is_reported(parts: dict[str, Any]) -> None:
    text = json.dumps({"body": {"Overall Health": {"value": "Failure"}, **parts}})
    why = "Detected more than 8; PCIe replays per minute"
    assert parse_health(text) == ("Failure", [("GPU 0", "PCIe system", "Warning", why)])


def test_a_part_without_a_watch_is_an_incident() -> None:
    parts = {"NvSwitch": {"9": {"value": "Warning"}, "10": {"value": "Healthy"}}}
    text = json.dumps({"body": {"Overall Health": {"value": "Warning"}, **parts}})
    assert parse_health(text) == ("Warning", [("NvSwitch 9", "", "Warning", "")])


@pytest.mark.parametrize(
    "text",
    ["", "Error: Health watches not enabled. Please enable watches. \n", "[]", "{}", '{"body": {}}',
     '{"body": {"Overall Health": "Healthy"}}', "{" * 5000],
)  # fmt: skip
def test_a_file_that_is_not_a_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_health(text)


def test_results_of_the_newer_and_the_older_form() -> None:
    found = parse_diag(json.dumps(NEW))
    assert (found["results"], found["passed"]) == (3, 1)
    assert [(each["part"], each["status"], each["ran"]) for each in found["not_passed"]] == [
        ("GPU 1", "Fail", True),
        ("", "Skip", False),
    ]
    assert found["not_passed"][0]["text"] == "PCIe replays"
    assert (found["driver_version"], found["dcgm_version"]) == ("550.90.07", "4.0.0")
    assert found["serials"] == ["1650", "1651"]
    found = parse_diag(json.dumps(OLD))
    assert (found["results"], found["passed"]) == (2, 1)
    assert (found["not_passed"][0]["part"], found["not_passed"][0]["text"]) == ("GPU 1", "slow")
    assert (found["driver_version"], found["dcgm_version"]) == ("550.90.07", "3.3.8")
    assert found["serials"] == ["1650", "1651"]


def test_a_summary_that_did_not_pass_is_reported_if_nothing_else_says_so() -> None:
    result = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    test = {"name": "nvlink", "results": [result], "test_summary": {"status": "Fail"}}
    whole = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [test]}]}}
    found = parse_diag(json.dumps(whole))
    assert (found["results"], found["passed"]) == (2, 1)
    assert [(each["test"], each["status"]) for each in found["not_passed"]] == [("nvlink", "Fail")]
    test["test_summary"]["status"] = "Pass"
    assert parse_diag(json.dumps(whole))["not_passed"] == []


def test_a_test_without_a_list_of_results_is_reported_as_not_passed() -> None:
    passed = {"name": "memory", "results": [{"status": "Pass"}]}
    for test, status, ran in (
        ({"name": "pcie", "results": {"status": "Fail"}}, "Fail", True),
        ({"name": "pcie", "results": [], "test_summary": {"status": "Fail"}}, "Fail", True),
        ({"name": "pcie", "results": [{"status": "NOT_RUN"}]}, "NOT_RUN", False),
        ({"name": "pcie"}, "Not Run", False),
    ):
        text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [passed, test]}]}})
        found = parse_diag("a warning {x}\n" + text)
        assert (found["results"], found["passed"]) == (2, 1)
        (other,) = found["not_passed"]
        assert (other["test"], other["status"], other["ran"]) == ("pcie", status, ran)


def test_a_diagnostic_that_did_not_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="the diagnostic did not run: 'no GPUs'"):
        parse_diag(json.dumps({"DCGM Diagnostic": {"runtime_error": "no GPUs"}}))
    for text in ("{}", '{"DCGM Diagnostic": {"test_categories": []}}', "Error: no host engine"):
        with pytest.raises(ValueError, match=r"."):
            parse_diag(text)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(
        st.sampled_from(["body", "Overall Health", "value", "children", "test_categories", "tests",
                         "results", "status", "GPU", "Errors", "name", "warnings"]),
        below, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_hostile_json_is_parsed_or_refused(value: Any) -> None:
    for text in (json.dumps({"body": value}), json.dumps({"DCGM Diagnostic": value})):
        for parse in (parse_health, parse_diag):
            try:
                parse(text)
            except ValueError:
                continue


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("gcm-diag-0.json", set()),
        ("gcm-diag-1.json", {"Fail", "Warn"}),
        ("gcm-diag-2.json", {"Warn"}),
    ],
)
def test_results_of_real_nodes(captures: Path, name: str, statuses: set[str], check: Check) -> None:
    place = captures / "dcgmi" / name
    data = check("dcgm", dcgm.collect("/", {"asks": {"dcgm": [str(place.resolve())]}}))
    (diag,) = data.diagnostics
    assert {each.status for each in diag.not_passed} == statuses
    assert diag.passed and diag.passed + len(diag.not_passed) == diag.results
    assert data.errors["overall"] == dcgm.NOT_ASKED


def test_results_of_a_file_from_the_future_have_a_negative_age(
    tmp_path: Path, check: Check
) -> None:
    file = tmp_path / "diag.json"
    file.write_text(json.dumps(NEW))
    ahead = time.time() + 86400
    os.utime(file, (ahead, ahead))
    (diag,) = check("dcgm", dcgm.collect("/", {"asks": {"dcgm": [str(file)]}})).diagnostics
    assert -86400 <= diag.age_s < -80000


def install(folder: Path, health: str, code: int = 0) -> None:
    script = folder / "dcgmi"
    script.write_text(
        f"#!/bin/sh\ncase \"$*\" in\n'health -c -j') cat <<'EOF'\n{health}\nEOF\nexit {code};;\n"
        "'discovery -l') echo '2 GPUs found.'; echo '+--------+';;\n*) exit 9;;\nesac\n"
    )
    script.chmod(0o755)


def test_the_host_engine_is_asked_only_if_the_baseline_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(program, "FOLDERS", (str(tmp_path),))
    ask = {"asks": {"dcgm": ["health", "relative", "/no/such/file"]}}
    data = check("dcgm", dcgm.collect("/", ask))
    assert data.errors["overall"] == "dcgmi is not on this node"
    assert [each.errors["results"] for each in data.diagnostics] == [
        "ENOENT",
        "not an absolute path",
    ]
    install(tmp_path, HEALTHY)
    data = check("dcgm", dcgm.collect("/", ask))
    assert (data.overall, data.incidents, data.gpus) == ("Healthy", (), 2)
    install(tmp_path, "Error: Health watches not enabled. Please enable watches.", 255)
    data = check("dcgm", dcgm.collect("/", ask))
    assert "Health watches not enabled" in data.errors["overall"]
    data = check("dcgm", dcgm.collect(str(tmp_path), ask))
    assert data.errors["overall"] == "dcgmi is run on a running machine only"
    assert check("dcgm", dcgm.collect("/", {})).errors["overall"] == dcgm.NOT_ASKED
