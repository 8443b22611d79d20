"""What failures of the cases need, by `Check.actions` and the fixes."""

import pytest

from nodevet.checking.needed import needed_action
from nodevet.checking.recovery import ACTIONS
from nodevet.model import Verdict


def failures(case):
    return [finding for finding in case.said if finding.verdict is Verdict.FAIL]


def test_each_advice_of_a_check_appears_in_a_failure_of_a_case(check_id, catalog, own_cases):
    advice = [finding.advice for case in own_cases for finding in failures(case)]
    own = catalog.check(check_id).actions.keys() - ACTIONS.keys()
    unseen = [text for text in own if not any(text in each for each in advice)]
    assert not unseen, f"{check_id}: no failure of tests/checks/{check_id}/ has this advice"


CASES = [
    ("cpu_governor", "powersave", ["live_fix"]),
    ("cpu_governor", "not-offered", ["site"]),
    ("ecc_errors", "uncorrected-on-one", ["gpu_reset"]),
    ("ecc_errors", "sram-threshold", ["rma"]),
    ("ecc_mode", "off", ["reboot"]),
    ("ecc_mode", "board-without-ecc", ["site"]),
    ("fabric", "in-a-container", ["drain_fix"]),
    ("fabric", "not-registered", ["gpu_reset", "site"]),
    ("fabric", "unhealthy", ["gpu_reset"]),
    ("fabric", "required-and-none", ["site"]),
    ("fabric", "manager-of-another-version", ["site"]),
    ("gpu_lost", "off-the-bus-and-forgotten-by-nvml", ["power_cycle"]),
    ("gpu_lost", "wants-a-reboot", ["reboot"]),
    ("gpu_lost", "a-call-says-so", ["gpu_reset", "reboot"]),
    ("leftover_processes", "left-behind", ["drain_fix"]),
    ("leftover_processes", "memory-of-no-process", ["gpu_reset"]),
    ("memory_errors", "uncorrected", ["rma"]),
    ("nvswitch", "none-of-four", ["power_cycle"]),
    ("power_limit", "lowered", ["live_fix"]),
    ("power_limit", "another-limiter", ["site"]),
    ("power_limit", "outside-what-the-board-allows", ["site"]),
    ("bios", "older", ["site"]),
]


@pytest.mark.parametrize(("check", "name", "actions"), CASES)
def test_failures_of_a_case_need_the_listed_actions(check, name, actions, find_case, catalog):
    own = catalog.check(check).actions
    found = {
        needed_action(each, check, own, catalog).value for each in failures(find_case(check, name))
    }
    assert sorted(found) == sorted(actions)
