"""What checks learn of a node: the node passes by it, and it names no part."""

from collections.abc import Iterator
from typing import Any

import msgspec

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.learn.learn import learn
from nodevet.model import Verdict
from tests.checks.every_case import every_case

CATALOG = Catalog()
IDENTITY = ("uuid", "serial", "machine_id", "boot_id", "hostname", "mac", "node_guid", "sys_guid")


def fields_learnt(case) -> dict[str, Any] | None:
    """By way of what leaves out nonsense that a node says."""
    evidence = decode(msgspec.json.encode(case.document))
    lesson = learn(evidence, CATALOG, [case.check_id])[case.check_id]
    assert "failed" not in lesson.why, lesson.why
    return lesson.fields if case.check.learn else None


@every_case
def test_a_node_that_passes_also_passes_the_params_learnt_from_it(case, ask):
    fields = fields_learnt(case)
    good = {finding.verdict for finding in case.said} <= {Verdict.OK, Verdict.NOT_APPLICABLE}
    if fields is None or not good:
        return
    params = params_of(case.check, fields)
    after = ask(case.check_id, params, case.document)
    assert [finding for finding in after if finding.verdict is Verdict.FAIL] == []


@every_case
def test_learnt_params_contain_no_ids_of_parts(case):
    learnt = str(fields_learnt(case))
    for text in identities(case.document):
        assert text not in learnt


def identities(value: Any) -> Iterator[str]:
    """What tells one part or one machine from another of its kind."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in IDENTITY and isinstance(inner, str) and len(inner) > 5:
                yield inner
            yield from identities(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from identities(inner)


def test_without_a_single_section_nothing_is_learnt(check_id, catalog, make_document):
    check = catalog.check(check_id)
    if check.learn is not None:
        assert check.learn(decode(msgspec.json.encode(make_document({})))) is None
