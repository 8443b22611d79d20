"""Every report says what a failure needs, and how many failures need what."""

import json

import pytest
from msgspec.structs import replace

from nodevet.base.printable import cells
from nodevet.model import NeededAction, Subject, fail, unknown
from nodevet.vet import formats
from nodevet.vet.findings.fold import lines
from nodevet.vet.findings.needs import needs_of, to_do
from tests.report import conftest as make

NEEDED = [action for action in NeededAction if action is not NeededAction.NONE]


def failure(action, advice="", check="site", **rest):
    subject = Subject(kind="part", id=action.value)
    return fail(subject, check=check, why="broken", advice=advice, action=action, **rest)


def run_with(*findings):
    return make.run_of(make.vetted("gpu001", findings))


EACH = run_with(*(failure(action, check=f"c_{action.value}") for action in NEEDED))


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([], ""),
        ([NeededAction.LIVE_FIX], "fixable now"),
        ([NeededAction.RMA, NeededAction.REBOOT], "needs a reboot, a new part"),
        ([NeededAction.SITE, NeededAction.DRAIN_FIX], "fixable after draining · needs a person"),
    ],
)
def test_what_one_difference_needs(actions, words):
    assert needs_of(actions) == words


def test_how_many_failures_need_what():
    assert to_do(lines(EACH)) == (
        "fixable now: 1, after draining: 1 · needs a GPU reset: 1, a reboot: 1, a power cycle: 1, "
        "a new part: 1, a person: 1"
    )


def test_what_follows_from_another_failure_is_not_counted():
    cause = failure(NeededAction.GPU_RESET, check="ecc_errors")
    effect = replace(cause, check="xid", action=NeededAction.REBOOT, cause="ecc_errors")
    assert to_do(lines(run_with(cause, effect))) == "needs a GPU reset: 1"


def test_a_run_saved_without_actions_shows_no_needs():
    old = run_with(fail(check="site", why="broken", advice="look at it"))
    assert to_do(lines(old)) == ""
    assert "advice: look at it: `nodevet explain site`" in formats.render("table", old)


def test_an_unknown_finding_has_advice_and_no_need():
    text = formats.render("table", run_with(unknown(check="site", why="EIO", advice="ask again")))
    assert "advice: ask again" in text and "needs" not in text


def test_the_table_says_what_each_failure_needs_within_80_columns():
    text = formats.render("table", EACH, width=80)
    for action in NEEDED:
        assert f"  {action.words}: `nodevet explain c_{action.value}`\n" in text
    assert max(map(cells, text.splitlines())) <= 80


def test_the_need_is_shown_even_if_the_command_does_not_fit():
    text = formats.render("table", run_with(failure(NeededAction.RMA, check="c" * 30)), width=40)
    assert "needs a new part\n" in text


def test_the_need_precedes_the_advice():
    run = run_with(failure(NeededAction.RMA, "have it replaced"))
    assert "needs a new part: have it replaced: `nodevet" in formats.render("table", run)
    assert "- `site`: needs a new part: `have it replaced`" in formats.render("markdown", run)
    assert "needs a new part: have it replaced" in formats.render("diff", run)
    assert "<b>Needs a new part: </b>have it replaced" in formats.render("html", run)


@pytest.mark.parametrize("format", ["markdown", "html", "table"])
def test_every_format_counts_failures_by_need(format):
    assert "fixable now: 1, after draining: 1 · needs a GPU reset: 1," in "".join(
        formats.render(format, EACH)
    )


def test_machines_read_the_action():
    run = run_with(failure(NeededAction.POWER_CYCLE))
    (host,) = json.loads(formats.render("json", run))["hosts"]
    assert [finding["action"] for finding in host["findings"]] == ["power_cycle"]
    rows = [json.loads(row) for row in formats.render("jsonl", run).splitlines()]
    assert rows[1]["findings"][0]["action"] == "power_cycle"
    assert "action: power_cycle" in formats.render("junit", run)
