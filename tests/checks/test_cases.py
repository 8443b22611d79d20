"""Every check against its cases; adding one needs no Python."""

from pathlib import Path

import msgspec

from nodevet.model import Finding, Verdict
from tests.checks.every_case import every_case

CASES = Path(__file__).parent
DEFAULTS = {
    field.name: field.default
    for field in msgspec.structs.fields(Finding)
    if field.default not in (msgspec.NODEFAULT, msgspec.UNSET)
}


@every_case
def test_each_case_has_the_expected_findings(case):
    told = [fields(finding) | {"subject": finding.subject.label} for finding in case.said]
    given = [
        {key: said(finding[key], wanted[key]) for key in wanted}
        for finding, wanted in zip(told, case.findings, strict=False)
    ]
    assert given == case.findings
    assert len(told) == len(case.findings)


def fields(finding):
    """Every field, as JSON has it where it is not left out."""
    return DEFAULTS | msgspec.to_builtins(finding)


def said(text, wanted):
    """Of a text that is wanted as a list of parts those that are in it, else all of it."""
    if isinstance(wanted, list) and isinstance(text, str):
        return [part for part in wanted if part in text]
    return text


def test_every_check_has_an_ok_a_fail_and_an_unknown_case(check_id, own_cases):
    seen = {finding["verdict"] for case in own_cases for finding in case.findings}
    lacking = {"ok", "fail", "unknown"} - seen
    assert not lacking, f"{check_id}: add a case to tests/checks/{check_id}/ of each of {lacking}"


def test_every_case_belongs_to_a_check(catalog):
    strangers = {path.parent.name for path in CASES.glob("*/*.yaml")} - set(catalog.ids)
    assert not strangers, "no check has these names: rename or delete the folders"


@every_case
def test_unknown_and_not_applicable_findings_say_why(case):
    for finding in case.said:
        if finding.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE):
            assert finding.why, f"has no reason: add `why` to {finding}"
        if finding.verdict is Verdict.FAIL:
            assert finding.expected != finding.actual, f"fails by what is expected: {finding}"


@every_case
def test_an_empty_document_is_never_ok(case, make_document):
    found = case.ask(make_document({}))
    assert found, "says nothing of an empty document: it is unknown"
    assert {finding.verdict for finding in found} == {Verdict.UNKNOWN}
