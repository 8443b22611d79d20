"""Folding: hosts as nodesets, subjects, totals, and hostile text made plain."""

import random

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevet.base.printable import cells, cut, plain
from nodevet.base.ranges import in_ranges
from nodevet.model import (
    Finding,
    HostReport,
    Severity,
    Status,
    Subject,
    Verdict,
    compare,
    fail,
    unknown,
)
from nodevet.model.run import Run, RunNews, StandingTrouble
from nodevet.sheet.text import cut_pair, name, nodeset, pad, wrap
from nodevet.vet import formats
from nodevet.vet.findings import fold, words
from nodevet.vet.findings.totals import totals

QUICK = settings(deadline=None, max_examples=50)
NAMES = st.from_regex(
    r"[a-z]{1,3}[0-9]{0,4}(-[a-z]?[0-9]{0,3})?(\.[a-z]{1,2}[0-9]?)?", fullmatch=True
)


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        (["gpu001", "gpu002", "gpu003", "gpu004", "gpu007"], "gpu[001-004,007]"),
        (["gpu1", "gpu01"], "gpu[1,01]"),
        (["b", "a", "a"], "a,b"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["gpu001", "x y", "a[1]"], 'gpu001, "a[1]", "x y"'),
        (["@all", "a,b", "a!b", "%s"], '"%s", "@all", "a!b", "a,b"'),
        (["a\nb", "a\\nb"], '"a\\\\nb", "a\\nb"'),
        ([], ""),
    ],
)
def test_nodeset(hosts, folded):
    assert nodeset(hosts) == folded


@QUICK
@given(st.sets(NAMES, max_size=30))
def test_a_nodeset_unfolds_to_the_same_hosts(hosts):
    assert set(NodeSet(nodeset(hosts), resolver=RESOLVER_NOGROUP)) == hosts


def test_a_large_nodeset_unfolds_to_the_same_hosts():
    some = random.Random(7)
    hosts = {f"rack{some.randrange(60)}-gpu{some.randrange(10):02d}" for _ in range(400)}
    hosts |= {"login", "r1", "r1-", *(f"gpu{some.randrange(999):03d}.a" for _ in range(300))}
    assert len(hosts) > 400
    assert set(NodeSet(nodeset(hosts), resolver=RESOLVER_NOGROUP)) == hosts


@QUICK
@given(st.lists(st.text(max_size=8), unique=True, max_size=6))
def test_any_host_name_folds_to_one_printable_line(hosts):
    text = nodeset(hosts)
    assert text.isprintable()
    assert all(name(host) in text or host.isascii() for host in hosts)


@QUICK
@given(st.text(), st.text())
def test_different_hosts_never_print_alike(one, other):
    assert one == other or name(one) != name(other)


@QUICK
@given(st.text())
def test_plain_text_is_printable_and_stays_as_it_is(text):
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)
    plain(text).encode()


@QUICK
@given(st.text(), st.integers(1, 40))
def test_cut_keeps_the_limit_and_says_that_it_cut(text, limit):
    short = cut(plain(text), limit)
    assert cells(short) <= limit
    assert short == plain(text) or short.endswith("…")


def test_two_long_values_are_cut_where_they_differ():
    one, other = "a" * 90 + "x", "a" * 90 + "y"
    first, second = cut_pair(one, other, 30)
    assert first != second
    assert cells(first) <= 30 >= cells(second)


@QUICK
@given(st.text(alphabet="ab,  [", max_size=80), st.integers(5, 30))
def test_wrapping_loses_nothing(text, room):
    rows = wrap(text, room)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")


def test_wide_characters_take_two_columns():
    assert cells("漢字") == 4
    assert pad("漢", 4) == "漢  "


def line_of(make, *hosts):
    (line,) = fold.lines(make.run_of(*hosts))
    return line


@pytest.mark.parametrize(
    ("per_host", "subjects", "named"),
    [
        ([[4]], "GPU 4", True),
        ([[0, 1, 2, 5]], "GPU 0-2,5", True),
        ([[4], [4]], "GPU 4", True),
        ([[0, 1], [0, 1]], "4 GPUs", False),
        ([[0], [1]], "2 GPUs", False),
    ],
)
def test_gpus_are_named_or_counted(make, per_host, subjects, named):
    hosts = [
        make.vetted(
            f"gpu{number}",
            tuple(fail(make.gpu(g), check="c", expected=1, actual=2) for g in gpus),
        )
        for number, gpus in enumerate(per_host)
    ]
    line = line_of(make, *hosts)
    assert (line.subjects, line.named) == (subjects, named)


@pytest.mark.parametrize(
    ("kind", "several"),
    [
        ("cpufreq", "3 cpufreq policies"),
        ("pci", "3 PCI devices"),
        ("process", "3 processes"),
        ("module", "3 modules"),
        ("nvlink", "3 nvlinks"),
        ("nvswitch", "3 nvswitches"),
        ("nic policy", "3 nic policies"),
        ("bay", "3 bays"),
    ],
)
def test_subjects_of_every_kind_are_counted_in_words(kind, several):
    members = [
        (f"gpu{number}", fail(Subject(kind=kind, id=f"{number}:x"), expected=1, actual=2))
        for number in range(3)
    ]
    assert words.subjects_of(members) == (several, False)


@pytest.mark.parametrize(
    ("status", "why", "what"),
    [
        (Status.TIMEOUT, "timed out after 10 s (connecting)", "after 10 s (connecting)"),
        (Status.TIMEOUT, "no answer within 30 s", "no answer within 30 s"),
        (Status.PROBE_FAILED, "probe failed: exit code 1", "exit code 1"),
        (Status.INTERRUPTED, "interrupted", "interrupted"),
        (Status.INTERRUPTED, "interrupted: ", "interrupted: "),
        (Status.UNREACHABLE, "unreachables are many", "unreachables are many"),
    ],
)
def test_a_reason_does_not_repeat_its_label(make, status, why, what):
    line = line_of(make, HostReport(host="gpu001", status=status, why=why))
    assert line.what == what


def test_equal_differences_of_other_severity_or_reason_are_not_folded(make):
    found = [
        fail(check="c", expected=1, actual=2),
        fail(check="c", expected=1, actual=2, why="because"),
        fail(check="c", expected=1, actual=2, unit="W"),
        fail(check="d", expected=1, actual=2),
        unknown(check="c", expected=1, why="because"),
    ]
    run = make.run_of(*(make.vetted(f"n{i}", (finding,)) for i, finding in enumerate(found)))
    assert len(fold.lines(run)) == len(found)


@pytest.mark.parametrize(
    ("expected", "actual", "text"),
    [
        ("x16", "x8", "x8, expected x16"),
        ("8", 8, '8, expected "8"'),
        (True, False, "off, expected on"),
        (8, None, "none, expected 8"),
        (list("ab") * 40, [*list("ab") * 40, "c"], "not expected c"),
        (
            {str(n): n for n in range(40)},
            {**{str(n): n for n in range(40)}, "7": 8},
            "7: 8, expected 7",
        ),
    ],
)
def test_a_difference_in_words(expected, actual, text):
    assert words.difference(fail(expected=expected, actual=actual))[0] == text


def test_values_that_are_not_equal_are_never_shown_alike():
    expected, actual = words.values(fail(expected=700.0000001, actual=700.0000002))
    assert expected != actual


def test_totals_account_for_every_host(cases):
    for run in cases.values():
        assert sum(totals(run).hosts.values()) == len(run.hosts)
        assert sum(totals(run).findings.values()) == sum(len(h.findings) for h in run.hosts)


def test_every_host_that_is_not_ok_has_a_line(cases):
    for run in cases.values():
        told = {host for line in fold.lines(run) for host in line.hosts}
        assert {host.host for host in run.hosts if host.verdict.value != "ok"} <= told


def test_a_run_is_all_ok_only_if_it_has_hosts_and_all_are_ok(make):
    ok = make.vetted("a", (compare(Subject(), check="c", expected=1, actual=1),))
    assert totals(make.run_of(ok)).all_ok
    assert not totals(make.run_of()).all_ok
    assert not totals(make.run_of(ok, make.vetted("b", ()))).all_ok


def test_a_reason_of_megabytes_is_shortened(make):
    report = make.vetted("a", (unknown(check="c", why="\x1b" * 5_000_000),))
    assert len(line_of(make, report).what) < 1000


def test_one_reason_over_several_checks_is_one_line():
    """A lost GPU is told once, whatever number of checks cannot judge it."""
    gpu = Subject(kind="gpu", id="6")
    why = "NVML: NVML_ERROR_GPU_IS_LOST"
    findings = tuple(
        Finding(verdict=Verdict.UNKNOWN, check=check, severity=severity, subject=gpu, why=why)
        for check, severity in (("ecc_mode", Severity.WARNING), ("power_limit", Severity.CRITICAL))
    )
    other = Finding(verdict=Verdict.UNKNOWN, check="mig_mode", subject=gpu, why="ENOENT")
    host = HostReport(host="gpu006", status=Status.VETTED, findings=(*findings, other))
    told = fold.lines(Run(id="", nodevet="0", started="", seconds=1, hosts=(host,)))
    joined, alone = sorted(told, key=lambda line: line.check)
    assert (joined.check, joined.note) == ("2 checks", "ecc_mode, power_limit")
    assert (joined.severity, joined.count, joined.hosts) == (Severity.CRITICAL, 2, ("gpu006",))
    assert alone.check == "mig_mode"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("GPU 0", "GPU 2", "GPU 1", "GPU 7"), "GPU 0-2,7"),
        (("cpufreq 0-223",), "cpufreq 0-223"),
        (("GPU 1", "service a.service", "GPU 2"), "GPU 1-2, service a.service"),
        (("GPU " + "9" * 5000, "GPU 1"), "GPU " + "9" * 5000 + ", GPU 1"),
        (("node",), "node"),
        ((), ""),
    ],
)
def test_labels_with_numbers_are_reported_as_ranges(labels, said):
    assert in_ranges(labels) == said


def test_numbers_too_long_for_a_range_are_counted():
    long = [
        (name, fail(Subject(kind="gpu", id=name[0] * 5000), expected=1, actual=2))
        for name in ("1", "2")
    ]
    assert words.subjects_of([("gpu001", finding) for _, finding in long]) == ("2 GPUs", False)


GPU = Subject(kind="gpu", id="6")


def lost_gpu(**rest):
    """What a GPU that fell off the bus shows."""
    lost = "off the bus, NVML_ERROR_GPU_IS_LOST"
    why = "NVML: NVML_ERROR_GPU_IS_LOST"
    return (
        unknown(GPU, check="ecc_mode", why=why),
        unknown(GPU, check="power_limit", why=why),
        fail(GPU, check="gpu_lost", expected="usable", actual=lost, **rest),
        fail(GPU, check="xid", expected=[], actual=[79], cause="gpu_lost"),
        fail(check="gpu_count", expected=8, actual=7, cause="gpu_lost"),
    )


def test_a_lost_gpu_is_one_line_with_what_follows_from_it(make):
    line = line_of(make, make.vetted("gpu1", lost_gpu()), make.vetted("gpu2", lost_gpu()))
    assert (line.check, line.subjects, line.count) == ("gpu_lost", "GPU 6", 2)
    assert line.remark == "with gpu_count, xid, 2 checks unknown"
    assert set(line.checks) == {"gpu_lost", "gpu_count", "xid", "ecc_mode", "power_limit"}


def test_a_finding_without_a_failing_cause_has_its_own_line(make):
    found = lost_gpu()
    elsewhere = Subject(kind="gpu", id="5")
    cases = [
        (found[:2] + found[3:], 3),  # gpu_lost is not under expect
        ((replace(found[2], verdict=Verdict.WAIVED), *found[3:]), 3),
        ((replace(found[2], subject=elsewhere), *found[3:]), 2),  # the count still follows
        ((replace(found[2], actual="off the bus"), *found[:2]), 2),  # for another reason
        ((replace(found[2], severity=Severity.INFO), *found[3:]), 3),  # what counts is shown
        ((replace(found[2], severity=Severity.WARNING), *found[3:]), 3),  # as what it counts
    ]
    for findings, number in cases:
        assert len(fold.lines(make.run_of(make.vetted("gpu1", findings)))) == number


def test_a_new_finding_does_not_follow_from_an_old_one(make):
    run = make.run_of(make.vetted("gpu1", lost_gpu()))
    standing = (StandingTrouble(host="gpu1", place=3, new=True),)
    told = replace(run, news=RunNews(since="2026-11-21T02:00:00Z", standing=standing))
    new = fold.lines(told)
    assert [(line.check, line.new) for line in new] == [("gpu_lost", 0), ("xid", 1)]


def came_back(make, *plans):
    """A run in which GPU 0 of each host fails; of those with a plan, again after its fix."""
    finding = fail(make.gpu(0, "gpu"), check="c", expected=1, actual=2)
    hosts = [make.vetted(f"gpu{number}", (finding,)) for number in range(len(plans))]
    standing = [
        StandingTrouble(host=f"gpu{number}", place=0, new=bool(plan), after_plan=plan)
        for number, plan in enumerate(plans)
    ]
    news = RunNews(since="2026-11-21T02:00:00Z", standing=tuple(standing))
    return replace(make.run_of(*hosts), news=news)


def test_e19_what_came_back_after_a_fix_is_reported_with_the_plan(make):
    (line,) = fold.lines(came_back(make, "5f1c00aa", "5f1c00aa"))
    assert (line.new, line.remark) == (2, "came back after the fix by plan 5f1c00aa")
    (line,) = fold.lines(came_back(make, "5f1c00aa", "", "0b2d"))
    assert line.remark == "came back on 2 of 3 after the fix by plan 5f1c00aa, plan 0b2d"
    (line,) = fold.lines(came_back(make, "a\x1b[31m"))
    assert "\x1b" not in line.remark
    told = formats.render("junit", came_back(make, "5f1c00aa"))
    assert "new, came back after the fix by plan 5f1c00aa" in told


def test_findings_that_differ_in_advice_or_details_share_a_line(make):
    hosts = [
        make.vetted(
            f"gpu{n}",
            (
                fail(
                    make.gpu(n % 8, f"gpu{n}"),
                    check="c",
                    expected=1,
                    actual=2,
                    advice=f"replace it ({n % 2})",
                    details={"serial": f"{n}"},
                    last=f"2026-07-13T23:{n:02}:00+00:00",
                ),
            ),
        )
        for n in range(20)
    ]
    line = line_of(make, *hosts)
    assert line.advice == ("replace it (0)", "replace it (1)")
    assert line.remark == "last 2026-07-13 23:00 to 2026-07-13 23:19 UTC, 41 min ago"


def measured(make, values, check="c", **rest):
    return make.run_of(
        *(
            make.vetted(
                f"n{place}", (fail(Subject(kind="gpu", id="1"), check=check, **{**rest, **each}),)
            )
            for place, each in enumerate(values)
        )
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([{"actual": n} for n in (490, 480, 500, 470)], ["470 to 500 W, expected 700 W"]),
        ([{"actual": n} for n in (490, 480, 500)], 3),  # few are told apart
        ([{"actual": {"dram": n, "sram": 1}} for n in range(9)], 1),
        ([{"actual": [n]} for n in (79, 48, 31, 94, 62)], 5),  # of names no range is told
        ([{"actual": f"x{n}"} for n in (1, 2, 4, 8)], 4),
        ([{"actual": "550.90.07"}, *({"actual": f"550.{n}.01"} for n in range(5))], 6),
        ([{"actual": f"{n},024 MiB"} for n in range(1, 6)], 5),  # one number, not two
        ([{"actual": f"until 2026-0{n}-22"} for n in range(1, 6)], 5),
        ([{"actual": f"CPU 0-{n}"} for n in range(1, 6)], 5),
    ],
)
def test_many_numbers_are_a_range(make, values, said):
    told = fold.lines(measured(make, values, expected=700, unit="W"))
    assert len(told) == said if isinstance(said, int) else [line.what for line in told] == said


def test_a_range_of_reasons(make):
    whys = [{"why": f"79 LOST ×{n}; at 0000:{n}9:00.0"} for n in range(1, 6)]
    (line,) = fold.lines(measured(make, whys, expected=[], actual=[79]))
    assert line.remark == "79 LOST ×1 to 5; at 5 addresses"


def test_numbers_of_subjects_with_names_are_distinguished(make):
    hosts = [
        make.vetted(f"n{n}", (fail(Subject(kind="sysctl", id=f"a.{n % 2}"), expected=9, actual=n),))
        for n in range(10)
    ]
    told = [(line.what, line.subjects) for line in fold.lines(make.run_of(*hosts))]
    assert told == [("0 to 8, expected 9", "sysctl a.0"), ("1 to 9, expected 9", "sysctl a.1")]
