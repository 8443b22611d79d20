"""What came since the last look: no check may be better off by a look that says nothing, and none
whose verdict is about a state by any look."""

import copy
from typing import Any

from nodevet.model import Verdict
from tests.checks.every_case import every_case

COUNTED = frozenset(
    {
        *("ecc_errors", "infiniband", "kernel_faults", "machine_check", "memory_errors"),
        *("network_link", "nfs", "nvlink", "pcie_errors", "pcie_replays", "storage_errors", "xid"),
    }
)
"""The checks of counters and of the kernel log. All others are about what a node is."""
DAY = 86400.0


def look(sections: dict[str, Any]) -> dict[str, Any]:
    return {"before_s": DAY, "sections": sections}


def without_look(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("since", "earlier")}


def told(findings: list[Any]) -> list[tuple[str, str]]:
    return sorted((finding.subject.label, finding.verdict.value) for finding in findings)


@every_case
def test_an_earlier_run_without_readings_changes_no_finding(case):
    document = without_look(case.document)
    broken = {name: {"status": "error", "why": "spoiled"} for name in document["sections"]}
    for sections in ({}, broken):
        assert told(case.ask({**document, "since": look(sections)})) == told(case.ask(document))


@every_case
def test_checks_of_states_ignore_the_earlier_run(case):
    if case.check_id in COUNTED:
        return
    document = without_look(case.document)
    same = copy.deepcopy(document["sections"])
    assert told(case.ask({**document, "since": look(same)})) == told(case.ask(document))


@every_case
def test_counters_that_were_0_at_the_earlier_run_still_fail(case):
    """At the last look every counter was 0, and the log was read and empty."""
    document = without_look(case.document)
    then = zeroed(copy.deepcopy(document["sections"]))
    if then.get("kernel_log", {}).get("data"):
        then["kernel_log"]["data"] |= {"events": [], "crashes": [], "links": []}
    uptime = (then.get("host", {}).get("data") or {}).get("uptime_s") or 2 * DAY
    covered = (then.get("kernel_log", {}).get("data") or {}).get("covered_s") or uptime
    since = {**look(then), "before_s": min(uptime, covered) / 2}
    before, after = case.ask(document), case.ask({**document, "since": since})
    ok = {finding.subject.label for finding in after if finding.verdict is Verdict.OK}
    failed = {finding.subject.label for finding in before if finding.verdict is Verdict.FAIL}
    assert not failed & (
        ok - {each.subject.label for each in after if each.verdict is Verdict.FAIL}
    )


COUNTERS = (
    *("value", "count", "pcie_replay_counter", "correctable", "nonfatal", "fatal"),
    *("corrected", "uncorrected", "operations", "retransmissions", "queue_ms", "rtt_ms"),
    *("crc_flit_errors", "crc_data_errors", "replay_errors", "recovery_errors"),
)


def zeroed(value: Any) -> Any:
    if isinstance(value, list):
        return [zeroed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: 0
        if isinstance(each, int)
        and not isinstance(each, bool)
        and (key in COUNTERS or key.startswith(("volatile_", "aggregate_")))
        else zeroed(each)
        for key, each in value.items()
    }
