"""The report of a run, in every format: nothing lost, nothing forged by text from a node."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from junitparser import JUnitXml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from nodevet.fix import result_text
from nodevet.fix.formats import FixRun, endings, formats
from nodevet.fix.formats import render as rendered
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Approval, HostResult, Outcome, Ran, Refusal, Result, StepResult
from nodevet.resource import Resource, RunCommand, State, to_stored
from nodevet.resource.file import WriteFile

UNIT = "/etc/systemd/system/nodevet-power-limit.service"
KEY = "SHA256:abc"
SHOWN = r"\x1b[2K<script>alert(1)</script>|`\n]]>&\u202e"
HOSTILE = "\x1b[2K<script>alert(1)</script>|`\n]]>&\u202e"


def render(
    form: str, result: Result, *, colour: bool = False, width: int | None = None, **run: Any
) -> str:
    return rendered(form, result, FixRun(**run), colour=colour, width=width)


def seen(kind: str, name: str, value: Any, *, why: str = "") -> State:
    return State(
        resource=Resource(kind=kind, name=name), exists=value is not None, value=value, why=why
    )


def file(text: str | bytes | None, mode: int = 0o644) -> State:
    raw = text.encode() if isinstance(text, str) else text
    content = None if raw is None else base64.b64encode(raw).decode()
    value = None if raw is None else {"content": content, "mode": mode, "owner": 0, "group": 0}
    return seen("file", UNIT, value)


LIMIT = "GPU-1:power_limit_mw"
SET = Ran(action=RunCommand(words=("nvidia-smi", "-pl", "700")), ok=True, code=0)
WROTE = Ran(action=WriteFile(path=UNIT, content="[Unit]\nB\n"), ok=True)
BEFORE = (file("[Unit]\nA\n"), seen("gpu", LIMIT, 500000))
AFTER = (file("[Unit]\nB\n"), seen("gpu", LIMIT, 700000))


def step(outcome: Outcome, **rest: Any) -> StepResult:
    given: dict[str, Any] = {
        "id": "1", "fix": "power_limit", "subjects": ("GPU 0",), "expected": 700, "actual": 500,
        "unit": "W", "risk": Risk.LIVE, "outcome": outcome,
    }  # fmt: skip
    return StepResult(**given | rest)


def host(name: str, outcome: Outcome, **rest: Any) -> HostResult:
    return HostResult(host=name, outcome=outcome, seconds=2.5, **rest)


DONE = step(
    Outcome.CHANGED,
    before=BEFORE,
    after=AFTER,
    ran=(WROTE, SET),
    verdicts={"GPU 0": "ok", "GPU 1": "fail"},
)
FAILED = step(
    Outcome.FAILED,
    why="the driver refused",
    before=BEFORE,
    after=BEFORE,
    ran=(WROTE, replace(SET, ok=False, code=6, output=f"no {HOSTILE}")),
)
HOSTS = (
    host("gpu1", Outcome.CHANGED, steps=(DONE,), canary=True),
    host("gpu2", Outcome.CHANGED, steps=(DONE,)),
    host("gpu3", Outcome.FAILED, why="the driver refused", steps=(FAILED,)),
    host("gpu4", Outcome.REFUSED, why=HOSTILE, refusal=Refusal.STALE,
         steps=(step(Outcome.NOT_ATTEMPTED),)),
    host("gpu5", Outcome.NOT_ATTEMPTED, why="1 node failed, but none may",
         steps=(step(Outcome.NOT_ATTEMPTED),)),
    host("gpu6", Outcome.UNKNOWN, why="the node could not be reached again",
         steps=(step(Outcome.UNKNOWN, ran=(replace(SET, ok=None, code=None),)),)),
    host("gpu7", Outcome.UNCHANGED, steps=(step(Outcome.UNCHANGED),)),
    host("gpu8", Outcome.VERIFIED_AFTER_REBOOT, rebooted=True,
         steps=(replace(DONE, outcome=Outcome.VERIFIED_AFTER_REBOOT),)),
)  # fmt: skip
RESULT = Result(
    nodevet="0.1",
    plan="p1",
    digest="d" * 64,
    author="ann",
    approvals=(Approval(who="bob@example.com", key=KEY, file="plan.bob.sig"),),
    started="2026-01-02T03:04:05+00:00",
    seconds=61.5,
    stopped="1 node failed, but none may",
    hosts=HOSTS,
)
WORDS = [name for name in formats() if name not in ("json", "jsonl")]


def test_no_two_formats_share_the_ending_of_a_file() -> None:
    assert set(endings()) == set(formats())
    assert len(set(endings().values())) == len(formats())


@pytest.mark.parametrize("form", formats())
def test_every_format_accounts_for_every_node(form: str) -> None:
    text = render(form, RESULT)
    for each in HOSTS:
        assert each.host in text or "gpu[1-2]" in text
        word = each.outcome.words
        assert any(w in text for w in (word, word.upper(), each.outcome.value))


@pytest.mark.parametrize("form", [name for name in formats() if name != "prometheus"])
def test_every_format_says_who_approved_what_was_stopped_and_why(form: str) -> None:
    text = render(form, RESULT)
    for word in ("bob@example.com", KEY, "ann", "d" * 64, "1 node failed, but none may"):
        assert word in text
    nobody = render(form, replace(RESULT, approvals=()))
    assert "not required" in nobody if form in WORDS else '"approvals":' in nobody


@pytest.mark.parametrize("form", sorted({*formats()} - {"prometheus", "nagios"}))
def test_every_format_shows_before_after_and_the_commands(form: str) -> None:
    text = render(form, RESULT)
    for word in ("500", "700", LIMIT, "power_limit", UNIT):
        assert word in text
    assert ("fail: GPU 1; ok: GPU 0" if form in WORDS else '"GPU 1"') in text
    command = "nvidia-smi -pl 700" if form in WORDS else '"-pl"'
    assert command in text
    assert ("its end is not known" if form in WORDS else "null") in text


@pytest.mark.parametrize("form", formats())
def test_text_from_a_node_stays_text(form: str) -> None:
    odd = replace(HOSTS[3], host="n\udcff\x1b", why="\udcff" + HOSTILE)
    text = render(form, replace(RESULT, hosts=(*HOSTS, odd)))
    assert all(line.isprintable() for line in text.split("\n"))
    text.encode()  # no lone surrogate
    if form == "html":
        assert "<script>alert" not in text


def test_json_reads_back_and_jsonl_has_the_same() -> None:
    assert msgspec.json.decode(render("json", RESULT), type=Result) == RESULT
    rows = [json.loads(row) for row in render("jsonl", RESULT).splitlines()]
    assert [row.pop("record") for row in rows] == ["run", *["host"] * len(HOSTS), "totals"]
    assert rows[0].pop("hosts") == [each.host for each in HOSTS]
    hosts = msgspec.convert(rows[1:-1], tuple[HostResult, ...])
    totals = rows[-1]
    joined = {**rows[0], "seconds": totals["seconds"], "stopped": totals["stopped"]}
    assert msgspec.convert(joined, Result) == replace(RESULT, hosts=())
    assert hosts == HOSTS and totals["exit_code"] == 3
    outcomes = [each.outcome.value for each in HOSTS]
    assert totals["hosts"] == {word: outcomes.count(word) for word in outcomes}


def test_the_table_shows_failed_hosts_first() -> None:
    assert (
        render("table", replace(RESULT, hosts=(HOSTS[0], HOSTS[2])))
        == f"""\
FAILED AND ROLLED BACK  gpu3  the driver refused
CHANGED                 gpu1

gpu1 (canary)
  power_limit  500 W → 700 W on GPU 0: changed
    ran    write {UNIT}
    ran    nvidia-smi -pl 700
    check  fail: GPU 1; ok: GPU 0
    now    file {UNIT}: changed
    now    gpu {LIMIT}: 500 W → 700 W

    file {UNIT}
    @@ -1,2 +1,2 @@
     [Unit]
    -A
    +B

gpu3
  power_limit  500 W → 700 W on GPU 0: failed and rolled back
    why  the driver refused
    ran  write {UNIT}
    ran  nvidia-smi -pl 700: ended with 6: no {SHOWN}

plan         p1, sha256 {"d" * 64}
author       ann
approved by  bob@example.com ({KEY})
started      2026-01-02T03:04:05+00:00, took 1 min 2 s
stopped      1 node failed, but none may

2 hosts: 1 changed, 1 failed and rolled back

next: gpu3: remove the cause, then plan again: nodevet plan -i INVENTORY --limit gpu3 --again
"""
    )


def test_the_diff_shows_files_line_by_line_and_folds_nodes() -> None:
    text = render("diff", replace(RESULT, hosts=HOSTS[:3]))
    assert (
        text.partition("\n\n")[2]
        == f"""\
# gpu[1-2]: changed
#   power_limit 500 W → 700 W on GPU 0: changed
#     ran write {UNIT}
#     ran nvidia-smi -pl 700
#     the check says fail: GPU 1; ok: GPU 0
--- gpu[1-2] before
+++ gpu[1-2] after
@@ -2,3 +2,3 @@ power_limit
   [Unit]
-  A
-gpu {LIMIT}: 500 W
+  B
+gpu {LIMIT}: 700 W

# gpu3: failed and rolled back: the driver refused
#   power_limit 500 W → 700 W on GPU 0: failed and rolled back
#     ran write {UNIT}
#     ran nvidia-smi -pl 700: ended with 6: no {SHOWN}

# 3 hosts: 2 changed, 1 failed and rolled back
"""
    )


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (None, "a\n", ["@@ -0,0 +1,2 @@ power_limit",
                       f"+file {UNIT}: mode 644, owner 0, group 0", "+  a"]),
        ("a\n", None, ["@@ -1,2 +0,0 @@ power_limit",
                       f"-file {UNIT}: mode 644, owner 0, group 0", "-  a"]),
        (b"\xff", b"\xfe", [
            "@@ -1,2 +1,2 @@ power_limit",
            f" file {UNIT}: mode 644, owner 0, group 0",
            "-  1 bytes, sha256 a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89",
            "+  1 bytes, sha256 aa687b58b0e73e2e383f8c500d75b591e188efe0168b3ffbcd3771caaa6dd4c7",
        ]),
    ],
    ids=["made", "removed", "no text"],
)  # fmt: skip
def test_the_diff_shows_files_created_removed_or_not_text(
    before: Any, after: Any, lines: list[str]
) -> None:
    changed = replace(DONE, before=(file(before),), after=(file(after),))
    result = replace(RESULT, hosts=(host("n1", Outcome.CHANGED, steps=(changed,)),))
    shown = render("diff", result).split("+++ n1 after\n")[1].split("\n\n")[0].split("\n")
    assert shown == lines


def test_what_a_file_held_is_compared_line_by_line() -> None:
    old, new = "[Unit]\nA\n\x1b[2K", "[Unit]\nB\n\x1b[2K"
    names = {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in (old, new)}
    before, after = to_stored([file(old)])[0], to_stored([file(new, 0o600)])[0]
    changed = replace(DONE, before=(*before, BEFORE[1]), after=(*after, AFTER[1]))
    esc = "\\x1b[2K  (no newline at its end)"
    assert result_text.diffs(changed, names.get) == {
        f"file {UNIT}": ("@@ -1,3 +1,3 @@", " [Unit]", "-A", "+B", f" {esc}")
    }
    assert result_text.diffs(changed, lambda name: None) == {}, "the contents are not here"
    made = replace(DONE, before=(file(None),), after=after)
    assert result_text.diffs(made, names.get) == {
        f"file {UNIT}": ("@@ -0,0 +1,3 @@", "+[Unit]", "+B", f"+{esc}")
    }
    odd = replace(DONE, before=(file(b"\xff"),), after=(file(b"\xfe"),))
    assert result_text.diffs(odd, names.get) == {}


def test_junit_counts_what_is_not_right_and_never_skips_a_whole_node() -> None:
    xml = JUnitXml.fromstring(render("junit", RESULT).encode())
    suites = {suite.name: suite for suite in xml}
    assert list(suites) == [each.host for each in HOSTS]
    amiss = {name: (s.failures, s.errors, s.skipped) for name, s in suites.items()}
    assert amiss == {
        "gpu1": (0, 0, 0), "gpu2": (0, 0, 0), "gpu3": (2, 0, 0), "gpu4": (1, 0, 1),
        "gpu5": (0, 1, 1), "gpu6": (0, 2, 0), "gpu7": (0, 0, 0), "gpu8": (0, 0, 0),
    }  # fmt: skip
    for each in Outcome:
        one = replace(RESULT, hosts=(host("n", each, steps=(step(each),)),))
        suite = next(iter(JUnitXml.fromstring(render("junit", one).encode())))
        assert bool(suite.failures + suite.errors) is not one.good(each)


@pytest.mark.parametrize("outcome", Outcome)
def test_nagios_says_critical_where_a_person_must_look(outcome: Outcome) -> None:
    one = replace(RESULT, hosts=(host("n", outcome),))
    word = {0: "OK", 1: "WARNING", 3: "CRITICAL"}[one.exit_code]
    text = render("nagios", one)
    assert text.startswith(f"NODEVET {word} - apply p1: 1 host: 1 {outcome.words} | hosts=1;;;0 ")
    assert text.split("\n")[0].count("|") == 1


def test_nagios_calls_a_run_of_no_node_unknown() -> None:
    assert render("nagios", replace(RESULT, hosts=())).startswith(
        "NODEVET UNKNOWN - apply p1: 0 hosts"
    )


def test_prometheus_reads_the_metrics() -> None:
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(render("prometheus", RESULT))
        for sample in family.samples
    }
    assert found["nodevet_fix_run_exit_code",] == 3
    assert found["nodevet_fix_run_timestamp_seconds",] == 1767323045
    assert found["nodevet_fix_run_approvals",] == 1
    assert found["nodevet_fix_run_stopped",] == 1
    assert found["nodevet_fix_run_info", "0.1", "ann", "apply", "d" * 64, "p1"] == 1
    assert found["nodevet_fix_run_hosts", "changed"] == 2
    assert found["nodevet_fix_run_hosts", "rollback_failed"] == 0
    assert found["nodevet_fix_host_outcome", "failed_and_rolled_back", "gpu3"] == 1
    assert found["nodevet_fix_steps", "gpu8", "power_limit", "verified_after_reboot"] == 1


def test_html_is_well_formed_and_names_each_outcome() -> None:
    opened: list[str] = []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "input", "br", "wbr"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Page().feed(render("html", RESULT))
    assert opened == []
    page = render("html", RESULT)
    ended = re.findall(
        r'<tr><td><span class="(?:t )?(\w+)">([^<]+)</span></td><td>([^<]+)</td>', page
    )
    assert [word for _, word, _ in ended] == [
        each.outcome.words for each in sorted(HOSTS, key=lambda host: host.outcome.rank)
        if each.host != "gpu2"
    ]  # fmt: skip
    assert ("warning", "failed and rolled back", "gpu3") in ended


def test_settings_are_reported_in_the_units_that_people_say() -> None:
    many = ("GPU-1", "GPU-2")
    policies = [f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in range(32)]
    done = step(
        Outcome.CHANGED,
        subjects=("GPU 0", "GPU 1"),
        before=(
            *(seen("gpu", f"{uuid}:power_limit_mw", 490500) for uuid in many),
            *(seen("kernel", policy, "powersave") for policy in policies),
        ),
        after=(
            *(seen("gpu", f"{uuid}:power_limit_mw", 700000) for uuid in many),
            *(seen("kernel", policy, "performance") for policy in policies),
        ),
    )
    page = render("html", replace(RESULT, hosts=(host("gpu1", Outcome.CHANGED, steps=(done,)),)))
    assert "<dd>gpu GPU-2:power_limit_mw: 490.5 W → 700 W</dd>" in page
    assert "policy0/scaling_governor and 31 more: powersave → performance</dd>" in page


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_html_has_the_content_of_files_that_everybody_may_read(mode: int) -> None:
    pair = to_stored((file("[Unit]\nA\n", mode), file("[Unit]\nB\n", mode)))
    done = step(Outcome.CHANGED, before=pair[0][:1], after=pair[0][1:])
    result = replace(RESULT, hosts=(host("gpu1", Outcome.CHANGED, steps=(done,)),))
    page, content = render("html", result, contents=pair[1].get), '<span class="before">-A</span>'
    assert (content in page) == (mode == 0o644)
    assert ("--format diff</code> shows its content" in page) == (mode == 0o640)
    assert "\n-A\n" in render("markdown", result, contents=pair[1].get)


def test_html_offers_the_rollback_of_an_apply() -> None:
    offered = "<code>nodevet rollback runs/p1-1</code>"
    assert offered in render("html", RESULT, folder="runs/p1-1")
    undone = replace(RESULT, kind="rollback")
    assert offered not in render("html", undone, folder="runs/p1-1")


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([Outcome.CHANGED, Outcome.CHANGED], "2 hosts changed"),
        ([Outcome.CHANGED, Outcome.UNCHANGED], "Done: 1 changed, 1 unchanged"),
        ([Outcome.PENDING], "1 host pending"),
        ([Outcome.CHANGED, Outcome.REFUSED], "1 of 2 hosts: refused"),
        ([Outcome.ROLLED_BACK], "1 of 1 host: rolled back"),
        ([], "No hosts: nothing to do"),
    ],
)
def test_html_says_in_its_headline_how_the_run_ended(outcomes: list[Outcome], words: str) -> None:
    hosts = tuple(host(f"gpu{n}", outcome) for n, outcome in enumerate(outcomes))
    assert f"<h1>{words}</h1>" in render("html", replace(RESULT, hosts=hosts))
    lost = replace(RESULT, hosts=hosts, unknown="its journal has no end")
    if hosts:
        assert "<h1>How this run ended is not known</h1>" in render("html", lost)
