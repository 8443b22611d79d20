"""Every format, rendered from every case, against its golden file; and the front door."""

import json as stdlib_json
import re

import pytest
from ClusterShell.NodeSet import NodeSet
from msgspec.structs import replace
from remembered import remembered

from nodevet.fix.formats import render as rendered
from nodevet.model import Subject, fail
from nodevet.sheet.errors import ReportError
from nodevet.vet import formats

CASES = ("healthy", "mixed", "one", "empty", "interrupted", "hostile")
FORMATS = formats.formats()
OF_CHECKS = (("fixes", "nico"), ("fixes", "npd"))  # no run of fixes is a condition of a node
FOLDED = ("table", "diff", "nagios", "markdown")  # those that stay small when many hosts are alike
PARTIAL = ("json", "jsonl", "nico", "npd")  # they leave out hosts, or name them in other ways
SUFFIX = {
    "table": "txt",
    "markdown": "md",
    "junit": "xml",
    "prometheus": "prom",
    "nagios": "txt",
    "nico": "txt",
    "npd": "txt",
}


def file_of(case, name):
    return f"{case}.{name}" + (f".{SUFFIX[name]}" if name in SUFFIX else "")


def test_all_formats_are_listed():
    assert FORMATS == (
        "diff",
        "html",
        "json",
        "jsonl",
        "junit",
        "markdown",
        "nagios",
        "nico",
        "npd",
        "prometheus",
        "table",
    )


@pytest.mark.parametrize(
    ("case", "name"),
    [(c, n) for c in CASES for n in FORMATS if n != "html" and (c != "mixed" or n in FOLDED)],
)
def test_golden(name, case, cases, golden):
    text = formats.render(name, cases[case])
    golden(file_of(case, name), text)


@pytest.mark.parametrize("case", ["one", "interrupted"])
def test_golden_html_data(case, cases, golden):
    """The page's data and summary; its style and script are tested in a browser."""
    page = formats.render("html", cases[case])
    start = page.index('<script type="application/json" id="data">') + 42
    data = stdlib_json.loads(page[start : page.index("</script>", start)])
    golden(f"{case}.html.json", stdlib_json.dumps(data, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("html", "nico", "npd")])
def test_golden_of_a_run_of_fixes(name, fixed, golden):
    golden(file_of("fixes", name), rendered(name, fixed))


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_golden_with_an_earlier_run(name, cases, previous, golden):
    golden(
        f"since.{name}.{SUFFIX[name]}", formats.render(name, remembered(cases["mixed"], previous))
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("checks", "fixes")
        for name in FORMATS
        if (kind, name) not in OF_CHECKS
    ],
)
def test_every_text_can_be_written_and_holds_no_control_character(kind, name, cases, fixed):
    hostile = cases["hostile"]
    checks = kind == "checks"
    text = formats.render(name, hostile) if checks else rendered(name, fixed)
    text.encode("utf-8")
    assert text.endswith("\n")
    assert not [
        c for c in text if (ord(c) < 32 and c != "\n") or c in "\x7f\u202e\u2066\u200b\ufeff"
    ]


UNSEEN = "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe00\ufe0f\uffa0"
"""Characters that Python calls printable and that show nothing."""


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("unseen", UNSEEN)
def test_a_character_that_shows_nothing_is_escaped(name, unseen, cases):
    host, *_ = cases["one"].hosts
    finding = fail(
        Subject(kind="gpu", id=f"0{unseen}"), expected="A100", actual=f"A100{unseen}", why=unseen
    )
    run = replace(cases["one"], hosts=(replace(host, findings=(finding,)),))
    text = formats.render(name, run, everything=True)
    assert unseen not in text and (name == "prometheus" or ascii(unseen)[1:-1] in text)


@pytest.mark.parametrize("name", FORMATS)
def test_rendering_a_run_twice_gives_the_same_text(name, cases):
    assert formats.render(name, cases["mixed"]) == formats.render(name, cases["mixed"])


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in ("json", "jsonl", "nico", "npd")]
)
def test_every_host_that_is_not_ok_is_named(name, cases):
    from ClusterShell.NodeSet import expand

    text = formats.render(name, cases["mixed"])
    if name in ("table", "diff", "markdown", "nagios"):
        import re

        named = {host for part in re.findall(r"gpu[\[\]\d,-]+", text) for host in expand(part)}
    else:
        named = {host.host for host in cases["mixed"].hosts if host.host in text}
    troubled = {host.host for host in cases["mixed"].hosts if host.verdict.value != "ok"}
    assert troubled <= named


def test_an_unknown_format_is_refused_with_a_suggestion(cases):
    with pytest.raises(ReportError, match=r"named 'tabel'; did you mean table\?"):
        formats.render("tabel", cases["empty"])
    with pytest.raises(ReportError, match=r"there are diff, html, json"):
        formats.render("excel", cases["empty"])


def test_shared_code_of_formats_is_not_a_format(cases):
    with pytest.raises(ReportError):
        formats.render("parts", cases["empty"])


def test_a_format_is_imported_only_when_asked_for():
    import subprocess
    import sys

    code = (
        "import sys, nodevet.vet.formats as r; r.formats();"
        "print([m for m in sys.modules if m.startswith(('jinja2', 'junitparser', 'prometheus'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["table", "markdown", "html", "diff", "nagios", "junit"])
def test_no_report_calls_a_host_ok_that_nobody_judged(name, cases, make):
    """Vetted, but without a finding, or with exempt ones alone: never all ok."""
    silent = make.run_of(make.vetted("gpu001", ()))
    exempt_only = make.run_of(
        make.vetted("gpu001", tuple(f for f in make.findings("gpu001") if f.check == "mig_mode"))
    )
    for run in (silent, exempt_only):
        text = formats.render(name, run)
        assert "All ok" not in text
        assert "nothing was judged" in text


def test_a_changed_run_changes_the_report(cases):
    run = cases["healthy"]
    assert formats.render("table", run) != formats.render("table", replace(run, seconds=9.0))


def test_markdown_has_room_in_a_comment_on_github(make):
    """It is cut by host, and says which ones are left out."""
    findings = {
        n: tuple(
            fail(Subject(kind="pci", id=f"x{n}.{k}"), check=f"c{n}", expected=1, actual=f"v{n}.{k}")
            for k in range(20)
        )
        for n in range(200)
    }
    hosts = [make.vetted(f"gpu{n:03}", found) for n, found in findings.items()]
    text = formats.render("markdown", make.run_of(*hosts))
    assert 50_000 < len(text) < 65_536
    (rows,) = re.findall(r"Left out: ([\d,]+) differences on \d+ hosts, `gpu\[", text)
    shown = text.count("| FAIL |")
    assert shown + int(rows.replace(",", "")) == 200 * 20
    told = r"groups of hosts have no room here: (\d+) hosts, `(.*?)`"
    (number, left) = re.findall(told, text)[0]
    assert text.count("\n## gpu") + int(number) == 200
    assert len(NodeSet(left)) == int(number)


def test_markdown_shows_equal_advice_once(make):
    findings = tuple(
        fail(make.gpu(n), check="c", expected=1, actual=n + 2, advice="swap it") for n in range(3)
    )
    text = formats.render("markdown", make.run_of(make.vetted("gpu1", findings)))
    before = text.partition("## gpu1")[0]
    assert before.count("swap it") == 1
    assert "- `c`: `swap it`" in before
