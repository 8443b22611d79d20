"""What a report shows of a finding can be accepted as it stands, and nothing else with it."""

from collections.abc import Callable
from copy import deepcopy
from datetime import date
from typing import Any

import msgspec
import pytest

from nodevet.checking.judge import judge
from nodevet.evidence.document import decode
from nodevet.model import Finding, Severity, Verdict
from nodevet.model.baseline import Baseline, Expectation, Waiver
from tests.checks.every_case import every_case


def shown(finding: Finding) -> str:
    bare = finding.expected is finding.actual is None
    return finding.why if bare else finding.text(finding.actual)


def waived(case: Any, params: Any, catalog: Any, accepts: str) -> list[Finding]:
    """The case's findings under a waiver for this value."""
    wish = Expectation(check=case.check_id, params=params, severity=Severity.CRITICAL, origin="b:1")
    until = date(2026, 12, 31)
    waiver = Waiver(check=case.check_id, owner="a", reason="b", until=until, accepts=accepts)
    baseline = Baseline(name="b", path="b", expectations=(wish,), waivers=(waiver,))
    evidence = decode(msgspec.json.encode(case.document))
    return list(judge(evidence, baseline, catalog, host="n", today=until, most=None))


@every_case
def test_d12_a_waiver_covers_only_findings_with_the_accepted_value(
    case: Any, make_params: Callable[..., Any], catalog: Any
) -> None:
    params = make_params(case.check_id, case.params)
    wrong = [f for f in waived(case, params, catalog, "") if f.verdict is Verdict.FAIL]
    for accepts in {shown(finding) for finding in wrong}:
        for before, after in zip(
            waived(case, params, catalog, ""), waived(case, params, catalog, accepts), strict=True
        ):
            covered = before.verdict is Verdict.FAIL and shown(before) == accepts
            assert (after.verdict is Verdict.WAIVED) is covered, (accepts, before)


def test_d12_a_link_that_was_accepted_at_x8_fails_at_gen1_x1(
    find_case: Callable[..., Any], make_params: Callable[..., Any], catalog: Any
) -> None:
    case = find_case("pcie_link", "lanes-lost-on-one-of-two")
    params = make_params("pcie_link", case.params)
    told = [f for f in waived(case, params, catalog, "x8") if f.verdict is not Verdict.OK]
    assert {f.verdict for f in told} == {Verdict.WAIVED}
    case = case._replace(document=deepcopy(case.document))
    for gpu in case.document["sections"]["gpu"]["data"]["gpus"]:
        gpu |= {"pcie_width": 1, "pcie_generation": 3}
    told = [f for f in waived(case, params, catalog, "x8") if f.verdict is not Verdict.UNKNOWN]
    assert {f.verdict for f in told} == {Verdict.FAIL}
    assert all(f.waiver == "waiver covers x8, not this; until 2026-12-31 (a: b)" for f in told)


@pytest.mark.parametrize(
    ("check", "name", "accepts"),
    [
        ("row_remapping", "failed-and-pending-unread", "failure: on"),
        ("ecc_errors", "unread-and-lost", "volatile_uncorrected: 2"),
        ("pcie_link", "lanes-lost-on-one-of-two", "x8"),
    ],
)
def test_d12_a_waiver_does_not_cover_unread_values(
    find_case: Callable[..., Any],
    make_params: Callable[..., Any],
    catalog: Any,
    check: str,
    name: str,
    accepts: str,
) -> None:
    case = find_case(check, name)
    case = case._replace(document=deepcopy(case.document))
    for gpu in case.document["sections"]["gpu"]["data"]["gpus"]:
        if check == "pcie_link":
            gpu |= {"pcie_generation": None, "errors": {"pcie_generation": "NVML_ERROR_UNKNOWN"}}
    told = waived(case, make_params(check, case.params), catalog, accepts)
    (accepted,) = [finding for finding in told if finding.verdict is Verdict.WAIVED]
    beside = [f.verdict for f in told if f.subject == accepted.subject and f is not accepted]
    assert beside == [Verdict.UNKNOWN]
