"""What no fix answers has advice: every wrong finding of every case that its fix does not take."""

import copy

import msgspec

from nodevet.evidence.document import decode
from nodevet.fixing.model import FixError
from nodevet.model import Verdict
from nodevet.vet.findings.words import ADVICE
from tests.checks.every_case import every_case

SENTENCES = 3
LEFT_OUT = ("not in the evidence", "did not read", "could not be read")
"""Of a fix that needs more than the case holds, since its check does not."""
LATER = frozenset({"kernel_modules", "numa_binding", "swap"})  # theirs comes with their fixes


def left(catalog, case, findings, make_params):
    """The wrong findings that stay when the check's fix has planned what it can."""
    wrong = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    fix = catalog.fix(case.check_id)
    if fix is None or not wrong:
        return wrong
    evidence = decode(msgspec.json.encode(case.document))
    try:
        changes = list(fix.changes(evidence, wrong, make_params(case.check_id, case.params)))
    except FixError as error:  # the plan tells the advice of all that it refuses as one
        told = any(finding.advice for finding in wrong)
        return [] if told or any(words in str(error) for words in LEFT_OUT) else wrong
    answered = {label for change in changes for label in change.subjects}
    return [finding for finding in wrong if finding.subject.label not in answered]


def identified(document):
    """The document with what tells GPUs apart, which most cases leave out."""
    document = copy.deepcopy(document)
    data = document["sections"].get("gpu", {}).get("data") or {}
    for gpu in data.get("gpus") or ():
        gpu.setdefault("uuid", f"GPU-{gpu['index']:08x}-0000-0000-0000-000000000000")
    return document


@every_case
def test_failures_without_a_fix_have_advice(case, catalog, make_params):
    case = case._replace(document=identified(case.document))
    for finding in left(catalog, case, case.said, make_params):
        assert finding.advice or case.check_id in LATER, (
            f"has no advice: add `advice` to what checks/{case.check_id}.py says of {finding}"
        )


@every_case
def test_advice_is_short_and_one_line(case):
    for finding in case.said:
        assert finding.advice.isprintable(), f"has advice that cannot be printed: {finding}"
        assert len(finding.advice) <= ADVICE, f"has advice over {ADVICE} characters: {finding}"
        assert finding.advice.count(". ") < SENTENCES, f"has advice to shorten: {finding}"
        assert not finding.advice.endswith((".", " ", ";")), f"has advice with an end: {finding}"
