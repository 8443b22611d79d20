"""Every check by its table of changes: tests/changed/<check id>.yaml, each part where there is one.

`changes`: a case with other values in these places, or with other params, and what is found then. A
finding is compared as in a case. `same`, `other` and `none` tell of the texts that they name
whether they are as in the case without the change.
`learnt`: what a baseline learns of a case's evidence, changed like that.
`asked`: what the probe must read for params, and what else follows from them.
`refused` and `taken`: what a baseline may not say, and what it may.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from nodevet.evidence.document import decode
from nodevet.model import Finding
from tests.checks.test_cases import fields, said
from tests.checks.test_soundness import Place, changed

TABLES = Path(__file__).parents[1] / "changed"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PARTS = {"changes", "learnt", "asked", "refused", "taken"}
RELATIONS = ("same", "other", "none")


class Change(NamedTuple):
    """A row of the table: a case, what is changed in it, and what is found then."""

    case: str
    findings: list[dict[str, Any]]
    set: Mapping[str, Any] = MappingProxyType({})
    params: Any = None


@cache
def table(check_id: str) -> dict[str, Any]:
    path = TABLES / f"{check_id}.yaml"
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER) if path.exists() else {}
    assert set(found) <= PARTS, path
    return found


def keys_of(path: str) -> tuple[Any, ...]:
    """Where `gpu.gpus.0.pstate`, or with `earlier.` or `since.` before it, is in a document."""
    names = [int(name) if name.isdigit() else name for name in path.split(".")]
    above = {"earlier": ["earlier"], "since": ["since", "sections"]}.get(str(names[0]))
    section, *below = names[1:] if above else names
    return (*(above or ["sections"]), section, *(["data", *below] if below else []))


def with_changes(document: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    for path, value in values.items():
        document = changed(document, Place(keys_of(path), path), deepcopy(value))
    return document


def relation(finding: dict[str, Any], before: dict[str, Any], text: str) -> str:
    if not finding.get(text):
        return "none"
    return "same" if finding.get(text) == before.get(text) else "other"


def told(finding: dict[str, Any], before: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Of a finding what a row wants to know."""
    return {
        key: [text for text in wanted[key] if relation(finding, before, text) == key]
        if key in RELATIONS
        else said(finding.get(key), wanted[key])
        for key in wanted
    }


def in_full(findings: list[Finding]) -> list[dict[str, Any]]:
    return [fields(each) | {"subject": each.subject.label} for each in findings]


def test_a_changed_case_is_judged_as_its_table_says(check_id, find_case, make_params, ask):
    wrong = []
    for row in table(check_id).get("changes", ()):
        change = Change(**row)
        case = find_case(check_id, change.case)
        params = case.params if change.params is None else change.params
        document = with_changes(case.document, change.set)
        findings = in_full(ask(check_id, make_params(check_id, params), document))
        before = in_full(case.said) + [{}] * len(findings)
        given = [told(*each) for each in zip(findings, before, change.findings, strict=False)]
        if given != change.findings or len(findings) != len(change.findings):
            wrong.append(f"{row}\n  gives {given}, {len(findings)} findings")
    assert not wrong, "\n".join(wrong)


def test_each_case_learns_the_value_of_its_table(check_id, catalog, find_case):
    for row in table(check_id).get("learnt", ()):
        document = with_changes(find_case(check_id, row["case"]).document, row.get("set", {}))
        learnt = catalog.check(check_id).learn(decode(msgspec.json.encode(document)))
        assert msgspec.to_builtins(learnt) == row["value"], row


def test_params_ask_for_what_the_table_lists(check_id, catalog, make_params):
    check = catalog.check(check_id)
    for row in table(check_id).get("asked", ()):
        params = make_params(check_id, row["params"])
        answers = {name: getattr(check, name)(params) for name in row if name != "params"}
        assert msgspec.json.decode(msgspec.json.encode(answers)) | {"params": row["params"]} == row


def test_params_accept_and_refuse_the_values_of_the_table(check_id, make_params):
    for value in table(check_id).get("taken", ()):
        make_params(check_id, value)
    for value in table(check_id).get("refused", ()):
        with pytest.raises(msgspec.ValidationError):
            make_params(check_id, value)


def test_every_table_belongs_to_a_check(catalog):
    assert {path.stem for path in TABLES.glob("*.yaml")} <= set(catalog.ids)
