"""A saved visit with a field that is nonsense is unreadable with its cause; others are judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.identity import is_same_name, judge_hostname
from nodevet.checking.machines import machine, one_machine
from nodevet.evidence.document import open_evidence
from nodevet.model import Host, Status, Verdict
from nodevet.vet.use.saved import replay

EVIDENCE = {"schema": 1, "probe": "", "sections": {"host": {"status": "ok", "data": {}}}}
VISIT: dict[str, Any] = {
    "host": "n2",
    "status": "vetted",
    "why": "",
    "seconds": 1.0,
    "groups": ["h100"],
    "arrived": "2026-11-23T08:00:00+00:00",
    "expect_hostname": False,
    "evidence": EVIDENCE,
}
WRONG = [
    ("arrived", 5, "$.arrived"),
    ("arrived", "yesterday", "$.arrived"),
    ("arrived", "2026-13-45T00:00:00Z", "$.arrived"),
    ("arrived", "2026-11-23T08:00:00", "$.arrived"),
    ("arrived", True, "$.arrived"),
    ("status", 5, "$.status"),
    ("status", "splendid", "$.status"),
    ("status", None, "$.status"),
    ("status", [], "$.status"),
    ("status", "unreachable", "contradict"),
    ("seconds", "long", "$.seconds"),
    ("seconds", -5, "$.seconds"),
    ("seconds", 1e300, "$.seconds"),
    ("groups", "h100", "$.groups"),
    ("groups", [" "], "$.groups"),
    ("why", None, "$.why"),
    ("expect_hostname", 5, "$.expect_hostname"),
    ("expect_hostname", " ", "expect_hostname is"),
    ("evidence", 5, "not an object"),
    ("evidence", [], "not an object"),
    ("host", 5, "$.host"),
    ("host", "", "names no host"),
    ("host", " \t", "names no host"),
    ("host", "n1\nn2", "names no host"),
]


@pytest.mark.parametrize(("field", "value", "cause"), WRONG)
def test_e20_a_field_that_is_nonsense_makes_its_own_host_unreadable(
    tmp_path: Path, field: str, value: object, cause: str
) -> None:
    (tmp_path / "n1.json").write_text(json.dumps({**VISIT, "host": "n1"}))
    (tmp_path / "n2.json").write_text(json.dumps({**VISIT, field: value}))
    (good, _), (bad, host) = replay([tmp_path])
    assert (good.host, good.status) == ("n1", Status.VETTED)
    assert (bad.host, host.name, bad.status) == ("n2", "n2", Status.UNREADABLE)
    assert bad.why.startswith(f"{tmp_path}/n2.json: ") and cause in bad.why


@pytest.mark.parametrize("field", ["host", "status", "evidence"])
def test_e20_a_field_that_is_missing_is_named(tmp_path: Path, field: str) -> None:
    left = {key: value for key, value in VISIT.items() if key != field}
    (tmp_path / "n2.json").write_text(json.dumps(left))
    ((bad, _),) = replay([tmp_path])
    assert bad.status is Status.UNREADABLE and f"`{field}`" in bad.why


@pytest.mark.parametrize("name", ["%20.json", "%0A.json", "%00.json"])
def test_e20_evidence_without_a_host_name_is_named_after_its_file(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(json.dumps(EVIDENCE))
    ((visit, host),) = replay([tmp_path])
    assert (visit.host, host.name) == (name, name)


def test_e20_hosts_without_a_name_are_not_taken_for_one_machine() -> None:
    boots = [f"5e7a1c90-44b1-4d7e-9c11-2f6d03a8b7e{number}" for number in range(3)]
    gpus = [(f"GPU-1c905e7a-44b1-4d7e-9c11-2f6d03a8b7e{number}",) for number in range(3)]
    apart = [machine("", None, boot, own) for boot, own in zip(boots, gpus, strict=True)]
    assert one_machine(apart) == ()
    joined = [*apart, machine("n1", None, None, gpus[0])]
    (found,) = one_machine(joined)
    assert (found.hosts, found.shared) == (("", "n1"), f"{gpus[0][0]} in common")


@pytest.mark.parametrize("name", ["", " ", ".", ".example.com", "\t"])
def test_e20_the_hostname_of_a_node_without_a_name_is_unknown(
    name: str,
) -> None:
    document = {"status": "ok", "data": {"hostname": name}}
    evidence = open_evidence(json.dumps({**EVIDENCE, "sections": {"host": document}}).encode())
    for host in (Host(name="gpu1"), Host(name="gpu1", expect_hostname="gpu1.example.com")):
        finding = judge_hostname(host, evidence)
        assert finding is not None and finding.verdict is Verdict.UNKNOWN
    assert not is_same_name("", name, exact=False)
