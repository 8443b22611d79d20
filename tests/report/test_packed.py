"""Many hosts in little room: what is packed reads, and renders, as what was put there."""

import tracemalloc
from itertools import islice

import pytest
from msgspec.structs import replace

from nodevet.base import age
from nodevet.model import Severity, compare
from nodevet.model.run import exit_code
from nodevet.sheet.packed import PackedText
from nodevet.vet import formats
from nodevet.vet.packed import FEW, PackedHosts

CASES = ("healthy", "mixed", "one", "empty", "interrupted", "hostile")


def many(run, make):
    """The run with more hosts than are kept as they are."""
    more = [make.vetted(f"more{number}") for number in range(2 * FEW)]
    return replace(run, hosts=(*more, *run.hosts))


@pytest.mark.parametrize("case", CASES)
def test_every_format_renders_packed_hosts_like_unpacked_ones(case, cases, make):
    run = many(cases[case], make)
    hosts = PackedHosts(run.hosts)
    kept = replace(run, hosts=hosts.ordered(hosts.names))
    assert isinstance(kept.hosts, PackedHosts)
    assert kept.exit_code == run.exit_code == exit_code(run.hosts, run.fail_on)
    for name in formats.formats():
        assert "".join(formats.pieces(name, kept)) == formats.render(name, run), name


def test_the_last_report_of_a_host_replaces_earlier_ones(make):
    hosts = PackedHosts(make.vetted(f"n{number}") for number in range(2 * FEW))
    for number in (0, 2 * FEW - 1):
        hosts.put(make.failed(f"n{number}", "timeout", "late"))
    names = [f"n{number}" for number in reversed(range(2 * FEW))]
    ordered = hosts.ordered(["absent", *names])
    assert [host.host for host in ordered] == names == [host.host for host in ordered.summaries]
    assert [host.why for host in (ordered[0], ordered[1], ordered[-1])] == ["late", "", "late"]
    assert [host.summary for host in ordered] == ordered.summaries
    assert hosts.get("n5") == make.vetted("n5") and hosts.get("absent") is None


def test_few_hosts_are_a_tuple(make):
    few = tuple(make.vetted(f"n{number}") for number in range(FEW))
    assert PackedHosts(few).ordered([host.host for host in few]) == few


def test_data_that_cannot_be_packed_is_kept_unchanged(make):
    odd = [
        compare(make.gpu(0), expected=1, actual=value) for value in ("\ud800", 1 << 70, object())
    ]
    hosts = PackedHosts(make.vetted(f"n{number}") for number in range(FEW))
    for number, finding in enumerate(odd):
        hosts.put(make.vetted(f"odd{number}", (finding,)))
    assert [host.findings for host in hosts][-3:] == [(finding,) for finding in odd]


def test_a_thousand_hosts_take_little_room(make):
    tracemalloc.start()
    try:
        hosts = PackedHosts(make.vetted(f"gpu{number:04d}") for number in range(1000))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(hosts) == 1000
    assert taken < 4e6  # as findings they take more than ten times that


def test_hosts_with_the_same_findings_hold_their_numbers_once(make):
    first, second = (make.vetted(f"n{number}").summary for number in range(2))
    assert first.findings is second.findings
    assert age.instant(60.1) is age.instant(60.9)


def test_json_has_the_severity_of_every_finding(cases):
    text = formats.render("json", cases["one"], everything=True)
    run, _ = formats.read(text)
    assert run == cases["one"]
    findings = [finding for host in run.hosts for finding in host.findings]
    assert text.count('"severity": "') == len(findings)
    assert any(finding.severity is Severity.CRITICAL for finding in findings)
    assert '"unit": ""' not in text and '"expected": null' not in text


def test_a_long_text_comes_back_in_order():
    text = PackedText()
    pieces = [f"{number} \ud800 é " * 1000 for number in range(200)]
    for piece in pieces:
        text.add(piece)
    assert "".join(text) == "".join(pieces)
    assert len(list(islice(text, 3))) == 3
    assert "".join(PackedText()) == ""
