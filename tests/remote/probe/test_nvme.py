"""NVMe controllers, and what their drives say of themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote import program
from nodevet.remote.probe.collectors import nvme
from nodevet.remote.probe.files import Absent
from nodevet.remote.probe.smart import FIELDS, SMARTCTL_LOG, parse_log

Check = Callable[[str, dict[str, Any]], Any]
OF_NVME_CLI = {
    "critical_warning": 0,
    "temperature": 311,
    "avail_spare": 100,
    "spare_thresh": 10,
    "percent_used": 3,
    "endurance_grp_critical_warning_summary": 0,
    "data_units_read": 9511859,
    "media_errors": 0,
    "unsafe_shutdowns": 34,
    "power_on_hours": 2401,
    "num_err_log_entries": 0,
    "warning_temp_time": 0,
    "critical_comp_time": 0,
    "temperature_sensor_1": 311,
}
ASKED = {"asks": {"nvme": ["health"]}}


def put(root: Path, name: str, **files: str) -> Path:
    place = root / "sys/class/nvme" / name
    place.mkdir(parents=True)
    for file, text in files.items():
        (place / file).write_text(text + "\n")
    return place


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Programs of these names, instead of those of this machine."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(program, "FOLDERS", (str(folder),))

    def put_tool(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put_tool


def test_nvme_controllers_are_read_from_sysfs(tmp_path: Path, check: Check) -> None:
    put(tmp_path, "nvme10", model="B", state="resetting", transport="tcp", address="traddr=::1")
    put(
        tmp_path, "nvme2", model="SAMSUNG MZQL21T9HCJR-00A07   ", serial="S64G",
        firmware_rev="GDC7302Q", state="live", transport="pcie", address="0000:1b:00.0",
        numa_node="1",
    )  # fmt: skip
    put(tmp_path, "nvme-subsys0", model="B")
    found = check("nvme", nvme.collect(str(tmp_path.resolve()), {}))
    assert [each.name for each in found.controllers] == ["nvme2", "nvme10"]
    drive, remote = found.controllers
    assert (drive.model, drive.serial) == ("SAMSUNG MZQL21T9HCJR-00A07", "S64G")
    assert (drive.firmware, drive.state, drive.transport) == ("GDC7302Q", "live", "pcie")
    assert (drive.address, drive.numa_node) == ("0000:1b:00.0", 1)
    assert drive.health is None
    assert drive.errors["health"] == "the probe was not asked for it"
    assert (remote.state, remote.serial, remote.errors["serial"]) == ("resetting", None, "ENOENT")


def test_no_controller(tmp_path: Path, check: Check) -> None:
    (tmp_path / "sys/class/nvme").mkdir(parents=True)
    assert check("nvme", nvme.collect(str(tmp_path.resolve()), ASKED)).controllers == ()


def test_no_driver(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no NVMe driver"):
        nvme.collect(str(tmp_path.resolve()), ASKED)


def test_the_drive_is_asked_only_while_it_is_live(tmp_path: Path, check: Check) -> None:
    live = put(tmp_path, "nvme0", state="live")
    (live / "hwmon3").mkdir()
    (live / "hwmon3/temp1_input").write_text("38850\n")
    put(tmp_path, "nvme1", state="dead")
    first, second = check("nvme", nvme.collect(str(tmp_path.resolve()), ASKED)).controllers
    assert first.temperature_c == 39
    assert first.errors["health"] == "drives are asked on a running machine only"
    assert second.errors["temperature_c"] == "the controller is not live: it is not asked"


@pytest.fixture
def ask(check: Check) -> Callable[[], Any]:
    """What is found of nvme0, as on a running machine."""

    def asked() -> Any:
        record: Any = nvme.controller("/nowhere", 0)
        record["state"] = "live"
        nvme.take_health(record, "/", True)
        (found,) = check("nvme", {"controllers": [record]}).controllers
        return found

    return asked


def test_nvme_cli_is_asked_first(tools: Callable[..., None], ask: Callable[[], Any]) -> None:
    told = json.dumps(OF_NVME_CLI)
    tools("nvme", f"test \"$*\" = 'smart-log /dev/nvme0 --output-format=json' && echo '{told}'")
    tools("smartctl", "exit 9")
    health = ask().health
    assert (health.tool, health.temperature_c, health.spare_percent) == ("nvme", 38, 100)
    assert (health.percentage_used, health.unsafe_shutdowns) == (3, 34)


def test_smartctl_is_asked_if_nvme_cli_fails(
    tools: Callable[..., None], ask: Callable[[], Any]
) -> None:
    log = {"critical_warning": 4, "temperature": 36, "available_spare": 9, "media_errors": 2}
    told = json.dumps({"smartctl": {"exit_status": 8}, SMARTCTL_LOG: log})
    tools("nvme", "echo 'invalid command' >&2; exit 22")
    tools("smartctl", f"echo '{told}'; exit 8")  # the drive is failing
    health = ask().health
    assert (health.tool, health.critical_warning, health.media_errors) == ("smartctl", 4, 2)
    assert health.errors["percentage_used"] == "smartctl does not tell it"


def test_why_a_drive_did_not_answer(tools: Callable[..., None], ask: Callable[[], Any]) -> None:
    assert ask().errors["health"] == "neither nvme nor smartctl is on this node"
    tools("nvme", "echo '/dev/nvme0: Permission denied' >&2; exit 1")
    told = {"smartctl": {"messages": [{"string": "Smartctl open device: /dev/nvme0 failed"}]}}
    tools("smartctl", f"echo '{json.dumps(told)}'; exit 2")
    assert ask().errors["health"] == (
        "nvme: ended with 1: '/dev/nvme0: Permission denied'; "
        "smartctl: Smartctl open device: /dev/nvme0 failed"
    )


def test_the_spellings_of_nvme_cli_and_smartctl_are_both_parsed() -> None:
    found = parse_log('{"critical_warning": "0x4", "percentage_used": "7%", "temperature": 311}')
    told = found["critical_warning"], found["percentage_used"], found["temperature_c"]
    assert told == (4, 7, 38)


def test_a_warning_of_smartctl_is_not_the_reason_for_a_missing_log(
    tools: Callable[..., None], ask: Callable[[], Any]
) -> None:
    warned = [{"string": "Warning: an Attribute check", "severity": "warning"}]
    told = {"smartctl": {"messages": warned}, "ata_smart_attributes": {}}
    tools("smartctl", f"echo '{json.dumps(told)}'; exit 4")
    assert ask().errors["health"] == "smartctl: the output has no health log"


def test_a_drive_that_hangs_has_no_health_log(
    tools: Callable[..., None], ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvme, "SECONDS", 0.2)
    tools("nvme", "sleep 60")
    assert ask().errors["health"] == "nvme: nvme timed out after 0.2 s"


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (5, 5),
        (5.0, 5),
        ("5", 5),
        ("1,234", 1234),
        ("3%", 3),
        ({"value": 5, "available_spare": 0}, 5),
        (1 << 100, (1 << 63) - 1),
        (-7, -1),
        (5.5, None),
        (True, None),
        ("many", None),
        (float("inf"), None),
        (None, None),
        ([5], None),
    ],
)
def test_numbers_as_programs_write_them(written: Any, number: int | None) -> None:
    log = {**OF_NVME_CLI, "media_errors": written}
    assert parse_log(json.dumps(log))["media_errors"] == number


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"smartctl": 5}', "{" * 10000, "NaN"])
def test_an_invalid_health_log_is_unknown(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|no health log"):
        parse_log(text)


@given(
    st.dictionaries(
        st.sampled_from([name for names in FIELDS for name in names]),
        st.none() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
    )
)
def test_any_log_is_parsed_or_refused(log: dict[str, Any]) -> None:
    try:
        found = parse_log(json.dumps(log))
    except ValueError:
        return
    assert all(value is None or -400 <= value < 1 << 63 for value in found.values())


def test_drives_of_many_kinds(captures: Path) -> None:
    """Every log of smartctl says what MANIFEST.md says of it; see there for the SATA drive."""
    found = {}
    for path in sorted((captures / "smart").glob("*.json")):
        text = path.read_text()
        told = json.loads(text)
        log = told.get("nvme_smart_health_information_log")
        if log is None:
            with pytest.raises(ValueError, match="no health log"):
                parse_log(text)  # a SATA disk
            continue
        found[path.name] = parse_log(text)
        for field, name, _ in FIELDS[:8]:
            assert found[path.name][field] == log[name], (path.name, field)
    assert len(found) >= 40
    rows = (captures / "MANIFEST.md").read_text().split("\n")
    for name, log in found.items():
        row = next(row for row in rows if row.startswith(f"| {name} |"))
        if "pct_used" in row:
            spare = f"spare={log['spare_percent']}/{log['spare_threshold_percent']}"
            for part in (
                f"critical_warning={log['critical_warning']}",
                f"pct_used={log['percentage_used']}",
                spare,
                f"media_errors={log['media_errors']}",
                f"temp={log['temperature_c']}",
            ):
                assert part in row, (name, part)


def test_a_captured_controller(capture: Callable[[str], str], check: Check) -> None:
    found = check("nvme", nvme.collect(capture("sysfs/procfs-fixtures.ttar"), {}))
    (drive,) = found.controllers
    assert (drive.name, drive.model) == ("nvme0", "Samsung SSD 970 PRO 512GB")
    assert (drive.firmware, drive.state) == ("1B2QEXP7", "live")
