"""Saved runs read back: json and jsonl, whole, cut short and broken."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run
from nodevet.sheet.errors import ReportError
from nodevet.vet import formats
from nodevet.vet.findings.counted import FINE
from nodevet.vet.formats import json as report_json
from nodevet.vet.formats import jsonl

QUICK = settings(deadline=None, max_examples=40)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SUBJECTS = st.builds(Subject, kind=TEXT, id=TEXT, uuid=st.none() | TEXT, bus_id=st.none() | TEXT)
FINDINGS = st.builds(
    Finding,
    verdict=st.sampled_from(Verdict),
    subject=SUBJECTS,
    expected=VALUES,
    actual=VALUES,
    unit=TEXT,
    why=TEXT,
    advice=TEXT,
    check=TEXT,
    severity=st.sampled_from(Severity),
    origin=TEXT,
    waiver=TEXT,
)
HOSTS = st.builds(
    HostReport,
    host=TEXT,
    status=st.sampled_from(Status),
    why=TEXT,
    baseline=TEXT,
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
    machine_id=st.none() | TEXT,
    boot_id=st.none() | TEXT,
    seconds=st.floats(0, 1e6),
    groups=st.lists(TEXT, max_size=2).map(tuple),
)
RUNS = st.builds(
    Run,
    nodevet=TEXT,
    started=TEXT,
    seconds=st.floats(0, 1e6),
    fail_on=st.sampled_from(Severity),
    interrupted=st.booleans(),
    baselines=st.dictionaries(TEXT, TEXT, max_size=2),
    hosts=st.lists(HOSTS, max_size=3, unique_by=lambda host: host.host).map(tuple),
)


@QUICK
@given(RUNS)
def test_json_reads_back(run):
    text = formats.render("json", run, everything=True)
    assert formats.read(text) == (run, ())
    assert formats.read(text.encode()) == (run, ())
    assert text.replace("\n", "").isprintable()


@QUICK
@given(RUNS)
def test_jsonl_reads_back(run):
    text = formats.render("jsonl", run, everything=True)
    assert formats.read(text) == (run, ())
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", ["json", "jsonl"])
@QUICK
@given(run=RUNS)
def test_without_all_only_passed_checks_are_omitted(form, run):
    back, notes = formats.read(formats.render(form, run))
    assert notes == ()
    assert troubles(back) == troubles(run)
    assert list(numbers(back)) == list(numbers(run))
    assert not {each.verdict for host in back.hosts for each in host.findings} & set(FINE)


def troubles(run):
    return [
        [each for each in (*host.findings, *(host.shadow or ())) if each.verdict not in FINE]
        for host in run.hosts
    ]


def numbers(run):
    """How many findings of each check have each verdict and severity, host by host."""
    for host in run.hosts:
        found = Counter(
            (each.check, each.verdict, each.severity)
            for each in (*host.findings, *(host.shadow or ()))
        )
        for each in host.counted or ():
            found[each.check, each.verdict, each.severity] += each.count
        yield found


@QUICK
@given(RUNS)
def test_every_format_renders_any_run(run):
    for name in formats.formats():
        formats.render(name, run).encode()


def test_lone_surrogates_become_visible(make):
    text = formats.render("json", make.run_of(make.failed("a\ud800", Status.TIMEOUT, "late")))
    run, _ = formats.read(text)
    assert run.hosts[0].host == "a\\ud800"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a saved run: "),
        ("{", "not a saved run: "),
        ("[]", "not a saved run: Expected `object`, got `array`"),
        ("{}", "not a saved run: Object missing required field `schema`"),
        ('{"schema": 4}', "schema 4, this nodevet reads 3; read it with a newer nodevet, or"),
        ('{"schema": 2}', "schema 2, this nodevet reads 3; read it with the version of"),
        ('{"schema": 3}', "not a saved run: Object missing required field `id`"),
        (b"\xff\xfe", "not a saved run: "),
        ("[" * 100_000, "not a saved run: "),
        ('{"record": "run", "schema": 9}\n', "schema 9"),
        ('{"record": "run", "schema": 3}\n', "run, line 1: Object missing"),
    ],
)
def test_a_file_that_is_not_a_saved_run_is_refused(text, message):
    with pytest.raises(ReportError, match=message):
        formats.read(text)


def of_schema_2(document):
    """As an invented schema 2 had it: without an id, and with another word for a failure."""
    if isinstance(document, list):
        return [of_schema_2(item) for item in document]
    if not isinstance(document, dict):
        return "amiss" if document == "fail" else document
    return {key: of_schema_2(item) for key, item in document.items() if key != "id" or item != ID}


ID = "20260714T000000.000Z-00000000"


def from_2(document):
    def renamed(item):
        if isinstance(item, list):
            return [renamed(part) for part in item]
        if isinstance(item, dict):
            return {key: renamed(part) for key, part in item.items()}
        return "fail" if item == "amiss" else item

    return {**renamed(document), "id": ID}


def test_a_run_of_the_previous_schema_is_upgraded_when_read(cases):
    run = replace(cases["mixed"], id=ID)
    older = of_schema_2(json.loads(formats.render("json", run, everything=True))) | {"schema": 2}
    assert report_json.parse(json.dumps(older), {2: from_2}) == run
    with pytest.raises(ReportError, match="schema 2, this nodevet reads 3; "):
        report_json.parse(json.dumps(older))
    with pytest.raises(ReportError, match="not a saved run of schema 2: "):
        report_json.parse(json.dumps(older), {2: lambda document: document})
    with pytest.raises(ReportError, match="schema 1, this nodevet reads 3; "):
        report_json.parse(json.dumps(older | {"schema": 1}), {2: from_2})


def test_jsonl_of_the_previous_schema_is_upgraded_when_read_even_if_cut_short(cases):
    run = replace(cases["mixed"], id=ID)
    rows = [
        of_schema_2(json.loads(row))
        for row in formats.render("jsonl", run, everything=True).splitlines()
    ]
    rows[0]["schema"] = 2
    lines = [json.dumps(row) + "\n" for row in rows]
    assert jsonl.parse("".join(lines), {2: from_2}) == (run, ())
    cut, notes = jsonl.parse("".join(lines[:-2]), {2: from_2})
    assert cut.interrupted and len(cut.hosts) == len(run.hosts)
    assert cut.hosts[-1].status is Status.INTERRUPTED and len(notes) == 2
    with pytest.raises(ReportError, match="line 2: no record is named 'fleet'"):
        jsonl.parse(lines[0] + '{"record": "fleet"}\n', {2: from_2})


def test_jsonl_is_the_run_then_a_line_per_host_then_totals(cases):
    first, *hosts, last = map(json.loads, formats.render("jsonl", cases["mixed"]).splitlines())
    assert first["record"] == "run"
    assert first["hosts"] == [f"gpu{n:03d}" for n in range(1, 129)]
    assert [host["record"] for host in hosts] == ["host"] * 128
    assert (last["record"], last["hosts"]["ok"], last["exit_code"]) == ("totals", 81, 1)


def test_lines_can_be_streamed(cases):
    run = cases["healthy"]
    begun = report_json.parse(formats.render("json", run, everything=True))
    text = jsonl.head(begun, ["gpu001", "gpu002"])
    text += "".join(jsonl.line(host) for host in run.hosts) + jsonl.tail(run)
    assert formats.read(text) == (run, ())


def test_a_file_cut_short_accounts_for_every_host(cases):
    whole = formats.render("jsonl", cases["healthy"])
    for end in range(whole.index("\n") + 1, len(whole) - 1):
        run, notes = formats.read(whole[:end])
        assert [host.host for host in run.hosts] == ["gpu001", "gpu002"]
        lines = whole[:end].count("\n") + (whole[end] == "\n")
        if lines < 4:
            assert run.interrupted
            assert notes[-1 if lines > 2 else -2] == "the file has no totals: the run was cut short"
        if lines < 3:
            assert run.exit_code == 3
            assert run.hosts[-1].status is Status.INTERRUPTED
            assert notes[-1] == f"{3 - lines} of 2 hosts are not in the file"


def test_a_broken_line_in_the_middle_is_an_error(cases):
    rows = formats.render("jsonl", cases["healthy"]).splitlines(keepends=True)
    rows[1] = rows[1][:50] + "\n"
    with pytest.raises(ReportError, match="line 2"):
        formats.read("".join(rows))
    rows[1] = '{"record": "cheese"}\n'
    with pytest.raises(ReportError, match="line 2: no record is named 'cheese'"):
        formats.read("".join(rows))
