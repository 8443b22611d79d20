"""Every check against its cases; adding one needs no Python."""

import msgspec

from nodevet.model import Finding, Verdict

DEFAULTS = {
    field.name: field.default
    for field in msgspec.structs.fields(Finding)
    if field.default not in (msgspec.NODEFAULT, msgspec.UNSET)
}


def test_findings(case, ask, make_params):
    found = ask(case.check_id, make_params(case.check_id, case.params), case.document)
    told = [fields(finding) | {"subject": finding.subject.label} for finding in found]
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


def test_every_check_has_an_ok_a_wrong_and_an_unknown_case(check_id, cases):
    seen = {
        finding["verdict"]
        for case in cases
        if case.check_id == check_id
        for finding in case.findings
    }
    assert seen >= {"ok", "fail", "unknown"}


def test_every_case_belongs_to_a_check(cases, catalog):
    assert {case.check_id for case in cases} <= set(catalog.ids)


def test_unknown_and_exempt_say_why(case, ask, make_params):
    for finding in ask(case.check_id, make_params(case.check_id, case.params), case.document):
        if finding.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE):
            assert finding.why
        if finding.verdict is Verdict.FAIL:
            assert finding.expected != finding.actual


def test_an_empty_document_is_never_ok(check_id, cases, ask, make_params, make_document):
    for case in cases:
        if case.check_id == check_id:
            found = ask(check_id, make_params(check_id, case.params), make_document({}))
            assert found
            assert {finding.verdict for finding in found} == {Verdict.UNKNOWN}
