"""What a failed finding needs: by its advice, by the fix of its check, or by a person."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from nodevet.author.explain_sheet import explained
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import MOST, judge
from nodevet.checking.recovery import ACTIONS, Remedy
from nodevet.evidence.document import decode
from nodevet.model import MORE, CheckParams, Finding, NeededAction, Severity, Verdict
from nodevet.model.baseline import Baseline, Expectation, Waiver
from nodevet.sheet.json import encode
from nodevet.vet.command_fixes import read_fix

TODAY = date(2026, 11, 20)
CHECK = """
from nodevet.model import Check, CheckParams, NeededAction, fail, not_applicable, ok, unknown

def judge(evidence, params):
    {body}

CHECK = Check(params=CheckParams, reads=(), judge=judge, actions={actions})
"""
FIX = """
from nodevet.fixing.model import Fix, Risk
{lines}
FIX = Fix(plan=lambda evidence, findings, params: iter(()), risk={risk})
"""


def ask(
    folder: Path,
    body: str,
    *,
    actions: str = "{}",
    fix: str = "",
    ending: str = "py",
    waivers: tuple[Waiver, ...] = (),
) -> tuple[Finding, ...]:
    checks, fixes = folder / "checks", folder / "fixes"
    checks.mkdir()
    fixes.mkdir()
    (checks / "site.py").write_text(CHECK.format(body=body, actions=actions))
    if fix:
        (fixes / f"site.{ending}").write_text(fix)
    wish = Expectation(check="site", params=CheckParams(), severity=Severity.INFO, origin="b:3")
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,), waivers=waivers)
    evidence = decode(json.dumps({"schema": 1, "probe": "test", "sections": {}}))
    return judge(
        evidence,
        baseline,
        Catalog([checks], [fixes], read_fix=read_fix),
        host="gpu001",
        today=TODAY,
    )


def risk(risk: str, lines: str = "") -> str:
    return FIX.format(risk=risk, lines=lines)


@pytest.mark.parametrize(
    ("fix", "action"),
    [
        ("", "site"),
        (risk("Risk.LIVE"), "live_fix"),
        (risk("Risk.IDLE"), "drain_fix"),
        (risk("Risk.DRAIN"), "drain_fix"),
        (risk("Risk.REBOOT"), "reboot"),
        (risk("USUAL", "USUAL = Risk.LIVE"), "live_fix"),
        (risk("Risk.LIVE", "raise ValueError('no')"), "site"),
        ("FIX = (", "site"),
    ],
)
def test_a_failure_needs_the_fix_of_its_check_or_a_person(
    tmp_path: Path, fix: str, action: str
) -> None:
    (finding,) = ask(tmp_path, "yield fail()", fix=fix)
    assert finding.action.value == action


YAML = """
nodevet: 1
title: Set it
risk: idle
commands: {node: {read: [/bin/get], run: [/bin/set], undo: [/bin/set, "{before}"]}}
"""


@pytest.mark.parametrize(("text", "action"), [(YAML, "drain_fix"), ("nodevet: 1", "site")])
def test_a_fix_in_yaml_sets_the_needed_action(tmp_path: Path, text: str, action: str) -> None:
    (finding,) = ask(tmp_path, "yield fail()", fix=text, ending="yaml")
    assert finding.action.value == action


@pytest.mark.parametrize(
    ("advice", "action"),
    [
        ("reset it, then run it again", "gpu_reset"),
        ("Have it replaced. First reset it", "rma"),  # the first of the check's texts counts
        ("look at it", "live_fix"),
        ("", "live_fix"),
    ],
)
def test_the_advice_of_a_failure_takes_precedence_over_its_fix(
    tmp_path: Path, advice: str, action: str
) -> None:
    actions = "{'ave it replaced': NeededAction.RMA, 'reset it': NeededAction.GPU_RESET}"
    fix = risk("Risk.LIVE")
    (finding,) = ask(tmp_path, f"yield fail(advice={advice!r})", actions=actions, fix=fix)
    assert finding.action.value == action


@pytest.mark.parametrize("actions", ["{'x': 'a new part'}", "None", "{1: NeededAction.RMA}"])
def test_a_check_with_other_actions_is_unknown(tmp_path: Path, actions: str) -> None:
    (finding,) = ask(tmp_path, "yield fail(advice='x')", actions=actions)
    assert (finding.verdict, finding.action) == (Verdict.UNKNOWN, NeededAction.NONE)
    assert finding.why.startswith("the check itself failed: ")


@pytest.mark.parametrize("body", ["ok()", "unknown(why='EIO')", "not_applicable(why='no')"])
def test_findings_that_do_not_fail_need_nothing(tmp_path: Path, body: str) -> None:
    (finding,) = ask(tmp_path, f"yield {body}", actions="{'': NeededAction.RMA}")
    assert finding.action is NeededAction.NONE
    assert "action" not in json.loads(encode(finding))


def test_json_has_what_a_failure_needs(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "yield fail()", fix=risk("Risk.DRAIN"))
    assert json.loads(encode(finding))["action"] == "drain_fix"


def test_a_waived_failure_needs_nothing(tmp_path: Path) -> None:
    waiver = Waiver(check="site", owner="ops", reason="riser on order", until=TODAY, any=True)
    (finding,) = ask(tmp_path, "yield fail()", waivers=(waiver,))
    assert (finding.verdict, finding.action) == (Verdict.WAIVED, NeededAction.NONE)


def test_unlisted_findings_need_the_hardest_action_of_their_kind(tmp_path: Path) -> None:
    count, last = MOST + 2, MOST + 1
    body = f"yield from (fail(advice='x' if n == {last} else '') for n in range({count}))"
    *_, more = ask(tmp_path, body, actions="{'x': NeededAction.RMA}", fix=risk("Risk.LIVE"))
    assert (more.subject, more.action) == (MORE, NeededAction.RMA)


def test_the_file_of_every_shipped_fix_says_its_risk() -> None:
    catalog = Catalog()
    fixes: Mapping[str, object] = {name: catalog.fix(name) for name in catalog.fixes}
    assert {name: catalog.fix_risk(name) for name in fixes} == {
        name: fix.risk.value  # type: ignore[attr-defined]
        for name, fix in fixes.items()
    }


def test_every_remedy_maps_to_its_needed_action() -> None:
    told = {remedy.name: ACTIONS.get(remedy.value, NeededAction.SITE).value for remedy in Remedy}
    assert told == {
        "POWER": "power_cycle",
        "REBOOT": "reboot",
        "RESET": "gpu_reset",
        "LINK": "gpu_reset",
        "SYSTEM": "reboot",
        "PEERS": "site",
        "DOMAIN": "site",
        "SUPPORT": "site",
        "JOB": "site",
        "NOTHING": "site",
    }


def test_every_needed_action_has_its_own_text() -> None:
    words = [action.words for action in NeededAction if action is not NeededAction.NONE]
    assert all(words) and len(set(words)) == len(words)
    assert NeededAction.NONE.words == ""


@pytest.mark.parametrize(
    ("check", "sentence", "actions"),
    [
        ("bar1", "it needs a person.", ["site"]),
        ("power_limit", "it needs a person, if the advice says so; otherwise it is fixable now.",
         ["live_fix", "site"]),
        ("row_remapping", "it needs a GPU reset or a new part, if the advice says so; otherwise it "
         "needs a reboot.", ["gpu_reset", "reboot", "rma"]),
        ("gpu_lost", "it needs a GPU reset, a power cycle or a person, if the advice says so; "
         "otherwise it needs a reboot.", ["gpu_reset", "reboot", "power_cycle", "site"]),
    ],
)  # fmt: skip
def test_explain_says_what_failures_of_a_check_may_need(
    check: str, sentence: str, actions: list[str]
) -> None:
    told = explained(check, Catalog())
    assert f"**If it fails** {sentence}" in told.page
    assert [action.value for action in told.actions] == actions
