"""SATA and SAS drives, and what they say of themselves by `smartctl --json`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote import program
from nodevet.remote.probe.collectors import drives
from nodevet.remote.probe.files import Absent
from nodevet.remote.probe.smart import NOT_REPORTED, parse_drive

Check = Callable[[str, dict[str, Any]], Any]
ASKED = {"asks": {"drives": ["health"]}}
CAPTURES = Path(__file__).parents[4] / "shared/captures/smart"


def attribute(number: int, name: str, raw: int, when_failed: str = "") -> dict[str, Any]:
    return {"id": number, "name": name, "when_failed": when_failed, "raw": {"value": raw}}


SATA: dict[str, Any] = {
    "smartctl": {"version": [7, 3], "exit_status": 0},
    "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
    "model_name": "SAMSUNG MZ7L3480HCHQ",
    "serial_number": "S6ES",
    "firmware_version": "JXTC304Q",
    "smart_status": {"passed": True},
    "ata_smart_attributes": {
        "table": [
            attribute(5, "Reallocated_Sector_Ct", 2),
            attribute(197, "Current_Pending_Sector", 1),
            attribute(190, "Airflow_Temperature_Cel", 34, "past"),
            attribute(241, "Total_LBAs_Written", 3, "now"),
        ]
    },
    "temperature": {"current": 31},
    "power_on_time": {"hours": 9001, "minutes": 3},
}
SAS: dict[str, Any] = {
    "smartctl": {"version": [7, 2], "exit_status": 0},
    "device": {"name": "/dev/sdb", "type": "scsi", "protocol": "SCSI"},
    "scsi_model_name": "SEAGATE ST1200MM0099",
    "revision": "ST31",
    "smart_status": {"passed": False, "scsi": {"asc": 93, "ascq": 16}},
    "scsi_grown_defect_list": 7,
    "scsi_percentage_used_endurance_indicator": 4,
    "scsi_error_counter_log": {
        "read": {"total_uncorrected_errors": 2},
        "write": {"total_uncorrected_errors": 1},
        "verify": {},
    },
}


def put(root: Path, name: str, *, parent: str = "", **files: str) -> None:
    place = root / "sys/devices" / (parent or "pci0000:00/ata1/host0/target0:0:0/0:0:0:0") / name
    (place / "device").mkdir(parents=True)
    (root / "sys/block").mkdir(parents=True, exist_ok=True)
    told = {"removable": "0", "size": "937703088", "state": "running", "model": "X", **files}
    for file, text in told.items():
        folder = place if file in ("removable", "size") else place / "device"
        (folder / file).write_text(f"{text}\n")
    steps = "../" * 2
    (root / "sys/block" / name).symlink_to(
        f"{steps}sys/devices/{place.relative_to(root / 'sys/devices')}"
    )


def test_disks_are_read_from_sysfs(tmp_path: Path, check: Check) -> None:
    put(tmp_path, "sdaa", state="offline", parent="a")
    put(tmp_path, "sdb", model="MZ7L3480", vendor="ATA", parent="b")
    put(tmp_path, "sdc", removable="1", parent="c")  # the BMC's virtual medium
    put(tmp_path, "sdd", size="0", parent="d")  # a card reader
    put(tmp_path, "sde", parent="pci0000:00/usb2/2-1/host9")
    put(tmp_path, "nvme0n1", parent="e")
    found = check("drives", drives.collect(str(tmp_path.resolve()), {}))
    assert found.found == 2
    one, other = found.drives
    assert (one.name, one.model, one.vendor, one.state) == ("sdb", "MZ7L3480", "ATA", "running")
    assert (other.name, other.state, other.why("vendor")) == ("sdaa", "offline", "ENOENT")
    assert one.why("health") == "the probe was not asked for it" and not drives.ALONE({})
    found = check("drives", drives.collect(str(tmp_path.resolve()), ASKED))
    assert found.drives[0].why("health") == "drives are asked on a running machine only"


def test_no_block_devices(tmp_path: Path, check: Check) -> None:
    with pytest.raises(Absent, match="/sys/block does not exist"):
        drives.collect(str(tmp_path.resolve()), {})
    (tmp_path / "sys/block").mkdir(parents=True)
    assert check("drives", drives.collect(str(tmp_path.resolve()), ASKED)).found == 0


def test_the_smartctl_output_of_a_sata_drive_is_parsed() -> None:
    told = parse_drive(json.dumps(SATA), 64)
    assert (told["passed"], told["failing"], told["exit_bits"]) == (
        True,
        "Total_LBAs_Written",
        64,
    )
    assert (told["reallocated"], told["pending"], told["uncorrectable"]) == (2, 1, None)
    assert (told["temperature_c"], told["power_on_hours"], told["percentage_used"]) == (
        31,
        9001,
        None,
    )


def test_attributes_that_a_sata_drive_did_not_give_are_not_above_their_thresholds() -> None:
    told = parse_drive(json.dumps({**SATA, "ata_smart_attributes": {}}), 4)
    assert (told["passed"], told["failing"]) == (True, None)


def test_the_smartctl_output_of_a_sas_drive_is_parsed() -> None:
    told = parse_drive(json.dumps(SAS), 8)
    assert (told["passed"], told["failing"], told["firmware"]) == (False, "", "ST31")
    assert (told["reallocated"], told["pending"], told["uncorrectable"]) == (7, None, 3)
    assert told["percentage_used"] == 4 and told["model"] == "SEAGATE ST1200MM0099"


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ('{"smartctl": {"messages": [{"string": "Permission denied"}]}}', 2, "Permission denied"),
        (json.dumps(SATA), 2, "smartctl ended with 2: it could not be opened, or is asleep"),
        ("{}", 0, "smartctl ended with 0"),
        ("[]", 0, "not a JSON object"),
        ("smartctl 6.6", 1, "not JSON"),
    ],
)
def test_an_invalid_answer_of_a_drive_is_unknown(text: str, code: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_drive(text, code)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["passed", "table", "id", "raw", "value", "current", "read", "when_failed", "name"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*SATA, *SAS]), VALUES))
def test_every_answer_is_typed_or_refused(told: dict[str, Any]) -> None:
    try:
        found = parse_drive(json.dumps(told), 0)
    except ValueError:
        return
    assert isinstance(found["passed"], (bool, type(None)))
    numbers = (value for field, value in found.items() if field.endswith(("ed", "_c", "le")))
    assert all(isinstance(each, (int, type(None))) for each in numbers)


def test_a_captured_drive_behind_a_raid_controller() -> None:
    path = CAPTURES / "scrutiny-smart-megaraid0.json"
    if not path.is_file():
        pytest.skip("the captures of real machines are not here")
    told = parse_drive(path.read_text(), 4)
    assert (told["passed"], told["model"], told["temperature_c"]) == (True, "WD4000FYYX", 36)
    assert (told["reallocated"], told["pending"], told["uncorrectable"]) == (0, 0, 0)
    assert told["power_on_hours"] == 37787 and told["failing"] == ""


@pytest.fixture
def smartctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A smartctl that answers with the file of the device that it is asked for."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(program, "FOLDERS", (str(folder),))
    script = folder / "smartctl"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --scan ] && exec /bin/cat "$0.scan"\n'
        'for last in "$@"; do :; done\n'
        '/bin/cat "$0.${last##*/}"; exit $(/bin/cat "$0.${last##*/}.code")\n'
    )
    script.chmod(0o755)

    def answer(name: str, told: object, code: int = 0) -> None:
        (folder / f"smartctl.{name}").write_text(json.dumps(told))
        (folder / f"smartctl.{name}.code").write_text(str(code))

    refused = (
        "Smartctl open device: /dev/sdc failed: DELL or MegaRaid controller, "
        "please try adding '-d megaraid,N'"
    )
    answer("scan", {"devices": [
        {"name": "/dev/sda", "type": "scsi"}, {"name": "/dev/sdc", "type": "sat+megaraid,0"},
        {"name": "/dev/bus/0", "type": "megaraid,8"}, {"name": "/dev/nvme0", "type": "nvme"},
        {"name": "--all", "type": "megaraid,9"}, {"name": "/dev/bus/1", "type": 3}, 4,
    ]})  # fmt: skip
    answer("sda", SATA, 64)
    answer("sdb", {**SATA, "smart_status": {}, "temperature": "hot"})
    answer("sdc", {"smartctl": {"messages": [{"string": refused}]}}, 2)
    answer("0", SAS, 8)
    return script


def test_drives_and_those_behind_a_controller_are_asked(
    smartctl: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(drives, "disks", lambda root: ["sda", "sdb", "sdc"])
    assert drives.ALONE(ASKED)
    found = check("drives", drives.collect("/", ASKED))
    assert found.found == 4
    one, two, volume, member = found.drives
    assert (one.serial, one.firmware, one.health.passed, one.volume) == (
        "S6ES",
        "JXTC304Q",
        True,
        False,
    )
    assert (one.health.exit_bits, one.health.uncorrectable) == (64, None)
    assert one.health.why("uncorrectable") == NOT_REPORTED
    assert (two.health.passed, two.health.why("passed")) == (None, NOT_REPORTED)
    assert two.health.temperature_c is None
    assert volume.health is None and volume.volume is True
    assert "DELL or MegaRaid controller" in volume.why("health")
    assert (member.name, member.volume) == ("/dev/bus/0 megaraid,8", False)
    assert (member.health.passed, member.health.uncorrectable) == (False, 3)


def test_without_smartctl_or_an_answer_drives_are_unknown(
    smartctl: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(drives, "disks", lambda root: ["sda"])
    (smartctl.parent / "smartctl.scan").write_text("nonsense")
    (one,) = check("drives", drives.collect("/", ASKED)).drives
    assert one.health is None and "not JSON" in one.why("health")
    smartctl.unlink()
    (one,) = check("drives", drives.collect("/", ASKED)).drives
    assert one.why("health") == "smartctl is not on this node"


def test_a_smartctl_without_json_is_reported_as_too_old(
    smartctl: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(drives, "disks", lambda root: ["sda"])
    smartctl.write_text("#!/bin/sh\necho '=======> UNRECOGNIZED OPTION: json'; exit 1\n")
    (one,) = check("drives", drives.collect("/", ASKED)).drives
    assert one.health is None and "too old: --json needs smartmontools 7.0" in one.why("health")
    smartctl.write_text("#!/bin/sh\necho 'no such bus'; exit 4\n")
    (one,) = check("drives", drives.collect("/", ASKED)).drives
    assert one.why("health") == "smartctl ended with 4: 'no such bus'"


def test_drives_of_this_machine_are_read(check: Check) -> None:
    assert check("drives", drives.collect("/", ASKED)).found >= 0
