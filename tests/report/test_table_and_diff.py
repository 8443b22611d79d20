"""The terminal table at any width, and diffs that really turn wanted into actual."""

import difflib
import random
import re

import pytest
from ClusterShell.NodeSet import expand
from msgspec.structs import replace
from remembered import remembered

from nodevet.base.printable import cells
from nodevet.model import Severity, Status, Subject, Verdict, fail, unknown
from nodevet.sheet.hunks import hunks
from nodevet.vet import formats
from nodevet.vet.formats import diff


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_the_table_fits_its_width_and_names_every_host_that_is_not_ok(width, cases):
    text = formats.render("table", cases["mixed"], width=width)
    assert all(cells(row) <= width for row in text.splitlines())
    told = {host for part in re.findall(r"gpu[\[\]\d,-]+", text) for host in expand(part)}
    assert told == {h.host for h in cases["mixed"].hosts if h.verdict is not Verdict.OK}


def test_a_long_host_list_continues_over_more_lines(make):
    hosts = [
        make.vetted(f"gpu{n * 7}", (fail(check="c", expected=1, actual=2),)) for n in range(200)
    ]
    wide = formats.render("table", make.run_of(*hosts))
    narrow = formats.render("table", make.run_of(*hosts), width=80)
    assert "".join(narrow.split()) == "".join(wide.split())
    assert max(map(cells, narrow.splitlines())) <= 80


def test_columns_are_aligned(cases):
    head, _, *rows = formats.render("table", cases["mixed"]).splitlines()
    assert head == "baseline: nvidia-h100-sxm"
    rows = [row for row in rows[:-4] if not row.startswith(" ")]
    assert len(rows) == 10
    assert {row.index("gpu") for row in rows} == {71}
    assert [row[61:69] for row in rows][:4] == [" 5 hosts", " 1 host ", " 1 host ", "32 hosts"]


def test_colour_is_only_there_when_asked_for(cases):
    plain = formats.render("table", cases["mixed"])
    coloured = formats.render("table", cases["mixed"], colour=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert "\x1b[31mFAIL" in coloured


def test_hostile_text_colours_nothing(cases):
    coloured = formats.render("table", cases["hostile"], colour=True)
    assert set(re.findall(r"\x1b.{5}", coloured)) <= {
        "\x1b[31mF",
        "\x1b[35mU",
        "\x1b[0m  ",
        "\x1b[1m24",
        "\x1b[2m  ",
    }


def test_all_ok_is_one_line_below_the_baseline(cases):
    text = formats.render("table", cases["healthy"])
    total = "All ok: 2 hosts · 26 findings judged, 2 not applicable · 4.1 s\n"
    assert text == f"baseline: nvidia-h100-sxm\n\n{total}"
    assert formats.render("table", cases["healthy"], quiet=True) == total


def test_findings_below_fail_on_and_expired_waivers_are_reported(cases):
    assert "info: below fail-on warning" in formats.render("table", cases["one"])
    assert "waiver expired 2026-06-30" in formats.render("table", cases["mixed"])


def test_the_table_marks_new_failures(cases, previous):
    text = formats.render("table", remembered(cases["mixed"], previous))
    assert "40 GPUs  NEW: 32 of 40" in text
    assert "new since last run: 73, changed: 8, fixed: 1" in text


def patched(wanted, hunks):
    """What `patch` makes of a document; fails where a hunk does not fit."""
    out, at = [], 0
    for line in hunks:
        head = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line)
        if head:
            start = int(head[1]) - (head[2] != "0")
            out += wanted[at:start]
            at = start
            assert len(out) == int(head[3]) - (head[4] != "0")
        elif line[0] == "+":
            out.append(line[1:])
        else:
            assert wanted[at] == line[1:]
            out += [line[1:]] if line[0] == " " else []
            at += 1
    return out + wanted[at:]


@pytest.mark.parametrize("case", ["healthy", "mixed", "one", "hostile"])
def test_the_diff_turns_expected_into_actual(case, cases):
    for host in cases[case].hosts:
        wanted, actual = diff.documents(host)
        assert patched(wanted, diff.hunks(host)) == actual


def test_every_host_with_a_difference_has_a_diff(cases):
    for run in cases.values():
        diffed = {host for group in diff.groups(run) for host in group.hosts}
        fine = (Verdict.OK, Verdict.NOT_APPLICABLE)
        assert diffed == {
            host.host for host in run.hosts if any(f.verdict not in fine for f in host.findings)
        }


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(None, None), ([1], ["1"]), ({"a": 1}, {"a": "1"}), (1, 1), ([], None), ([1, 2], [1, 2])],
)
def test_a_failure_always_shows_in_the_diff(expected, actual, make):
    host = make.vetted("a", (fail(Subject(), check="c", expected=expected, actual=actual),))
    assert any(line[0] == "+" for line in diff.hunks(host))


TOLD = "drain the node, " + "look at this and that, " * 20 + "and keep the report for an RMA"


@pytest.mark.parametrize("width", [60, 100, None])
def test_advice_is_shown_in_full_below_its_finding(width, make):
    finding = fail(check="c", expected=1, actual=2, why="because", advice=TOLD)
    run = make.run_of(make.vetted("gpu1", (finding,)))
    text = formats.render("table", run, width=width, advice=True)
    assert "".join(TOLD.split()) in "".join(text.split())
    rows = text.split("\n\n")[1].splitlines()
    assert rows[0].endswith("because") and rows[1].startswith("        advice: drain")
    assert width is None or max(map(cells, rows)) <= width


LONG = "drain the node and reboot: a reset does not help; if it stays, reseat the GPU. Then RMA it"


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (120, "drain the node and reboot: a reset does not help: `nodevet explain c`"),
        (72, "drain the node and reboot: `nodevet explain c`"),
        (60, "drain the node and reboot: `nodevet explain c`"[:25]),
        (40, "`nodevet explain c`"),
        (30, ""),
    ],
)
def test_short_advice_fits_the_width_and_is_shown_once_per_kind_of_fault(width, said, make):
    """Once for each kind of fault."""
    findings = (
        fail(make.gpu(0), check="c", expected=1, actual=2, advice=LONG),
        fail(make.gpu(1), check="c", expected=1, actual=3, advice=LONG),
    )
    text = formats.render("table", make.run_of(make.vetted("a", findings)), width=width)
    told = [line.strip() for line in text.splitlines() if "advice:" in line]
    assert told == ([f"advice: {said}"] if said else [])


WORDS = "none of nvidia-h100-sxm, nvidia-l40s fits: the GPUs are 8 × GeForce RTX 3090 (10de:2204); "
WORDS += "to judge what every GPU needs, `-b generic`; or write a baseline that fits them"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_reason_is_wrapped_and_not_cut(width, make):
    hosts = [make.vetted(f"gpu{n}", (unknown(check="baseline", why=WORDS),)) for n in range(3)]
    text = formats.render("table", make.run_of(*hosts), width=width)
    assert "".join(WORDS.split()) in "".join(text.split())
    assert "gpu[0-2]" in text and "…" not in text
    assert max(map(cells, text.splitlines())) <= width


def test_the_header_names_the_baseline_of_each_host(make):
    hosts = [
        replace(make.vetted(f"gpu{n:03}"), baseline="h100" if n < 6 else "site.yaml")
        for n in range(1, 9)
    ]
    first = formats.render("table", make.run_of(*hosts, make.failed("x", Status.TIMEOUT, "no")))
    assert first.startswith("baseline: h100 gpu[001-005], site.yaml gpu[006-008]\n\n")
    hosts[5:] = [replace(host, baseline="") for host in hosts[5:]]
    text = formats.render("table", make.run_of(*hosts))
    assert text.startswith("baseline: h100 gpu[001-005], none gpu[006-008]\n\n")


def test_a_warning_is_distinguished_from_a_failure_without_colour(make):
    findings = [
        fail(check=check, expected=1, actual=2, severity=severity)
        for check, severity in (("a", Severity.CRITICAL), ("b", Severity.WARNING))
    ]
    text = formats.render("table", make.run_of(make.vetted("gpu1", tuple(findings))))
    rows = [line.split() for line in text.splitlines()[2:4]]
    assert [row[5:] for row in rows] == [["gpu1"], ["gpu1", "warning"]]


@pytest.mark.parametrize(
    "name", [name for name in formats.formats() if name not in ("prometheus", "npd")]
)
def test_no_format_cuts_advice(name, make):
    finding = fail(check="c", expected=1, actual=2, advice=TOLD)
    options = {"advice": True} if name == "table" else {}
    text = formats.render(name, make.run_of(make.vetted("gpu1", (finding,))), **options)
    assert "".join(TOLD.split()) in re.sub(r"\s|\n[+ ]", "", text).replace("+", "")


@pytest.mark.parametrize("seed", range(60))
def test_d1_hunks_are_those_of_difflib(seed):
    """Of small documents; of larger ones they need not be the shortest, and are as quick."""
    draw = random.Random(seed)
    one = [draw.choice("abc") for _ in range(draw.randrange(20))]
    other = [line if draw.random() < 0.7 else draw.choice("abcd") for line in one]
    other += [draw.choice("abc")] * draw.randrange(3)
    context = draw.randrange(4)
    wanted = list(difflib.unified_diff(one, other, lineterm="", n=context))[2:]
    assert list(hunks([(one, other)], context)) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_d1_hunks_turn_one_document_into_the_other(seed):
    draw = random.Random(seed)
    pairs = []
    for _ in range(draw.randrange(1, 9)):
        one = [f"{draw.randrange(5)}" for _ in range(draw.choice((0, 1, 3, 60)))]
        other = [line for line in one if draw.random() < 0.9] + ["x"] * draw.randrange(2)
        pairs.append((one, other))
    before, after = ([line for pair in pairs for line in pair[side]] for side in (0, 1))
    assert patched(before, list(hunks(pairs, 1))) == after
