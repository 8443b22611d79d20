"""The numbers, names and units of Xids are those of NVIDIA's own tables."""

import csv
import json
from pathlib import Path

import pynvml
import pytest

from nodevet.checking.recovery import RECOVERIES, Remedy
from nodevet.checking.xids import MILD, NAMES, NVLINK5, TOLERATED, link_error, remedy_of

TABLES = Path(__file__).parents[2] / ".." / "shared" / "captures" / "tables"
pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason=f"no captures at {TABLES}")
RESERVED = {23, 91, 174}  # no error, or reserved


def catalogue():
    return json.loads((TABLES / "oci-xid-catalog.json").read_text())


def test_every_xid_of_the_driver_has_its_name():
    with (TABLES / "nverror-xid-codes.csv").open() as file:
        rows = [(int(row["code"]), row["name"].removeprefix("ROBUST_CHANNEL_"))
                for row in csv.DictReader(file)]  # fmt: skip
    names = {code: name for code, name in rows if code > 7 and code not in RESERVED}
    assert names.keys() <= NAMES.keys()


def test_xids_that_need_more_than_a_restart_are_not_tolerated():
    grave = {"RESET_GPU", "RESTART_BM", "RESTART_VM", "CHECK_MECHANICALS", "WORKFLOW_XID_48"}
    for code, said in catalogue()["xid_error_catalog"].items():
        if said["action"] in grave:
            assert int(code) not in TOLERATED, code
            assert remedy_of(int(code)).rank < Remedy.SUPPORT.rank, code


def test_e15_the_table_of_milder_actions_agrees_with_nvidias_catalogue():
    actions = {int(code): said["action"] for code, said in catalogue()["xid_error_catalog"].items()}
    mild = {code: each for code, each in actions.items() if each in ("IGNORE", "RESTART_APP")}
    assert mild == MILD
    assert mild.keys() <= NAMES.keys()
    assert set(TOLERATED) - mild.keys() == {45}  # of which NVIDIA asks whether it came alone


def test_e12_the_table_of_recovery_actions_agrees_with_nvml():
    prefix = "NVML_GPU_RECOVERY_ACTION_"
    constants = {name.removeprefix(prefix): getattr(pynvml, name) for name in dir(pynvml)
                 if name.startswith(prefix)}  # fmt: skip
    assert {each.name: each.number for each in RECOVERIES} == constants


def rules():
    for code, some in catalogue()["nvl5_decoding_rules"].items():
        for rule in some:
            yield int(code), rule["mnemonic"], rule


def test_e11_the_error_status_of_a_link_unit_says_whether_it_is_a_fault():
    judged = 0
    for code, unit, rule in rules():
        assert code in NVLINK5
        numbers = int(rule["intr_info_binary_r575"].replace("-", "0"), 2)
        for status in rule["error_status_hex"]:
            for name in (unit, *unit.split("/")):  # a line has both names, or one of them
                found = link_error("nonfatal", f"{name} link 0 {numbers:#010x} {status}")
                assert found.fatal is (rule["resolution"] == "RESET_GPU"), (name, rule)
                judged += 1
    assert judged > 150


def test_why_a_link_went_down_says_whether_it_is_a_fault():
    judged = 0
    for _, unit, rule in rules():
        if unit.startswith("NETIR_LINK"):
            reason = int(rule["intr_info_binary_r575"][6:12], 2)
            found = link_error("fatal", f"{unit} link 0 {reason << 20 | 0x11:#010x} 0x00000000")
            assert found.fatal is (rule["resolution"] == "RESET_GPU"), rule
            judged += 1
    assert judged > 15
