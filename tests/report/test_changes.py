"""What changed between two runs; above all, what must not be called fixed."""

import random

import pytest
from msgspec.structs import replace

from nodevet.changes import TROUBLE, changes
from nodevet.model import Finding, Status, Subject, Verdict, compare, fail, not_applicable, unknown


def run(make, *findings, host="gpu001"):
    return make.run_of(make.vetted(host, findings))


def bad(make, index=0, actual=1, **rest):
    return fail(make.gpu(index), check="pcie_link", expected=16, actual=actual, **rest)


def good(make, index=0):
    return compare(make.gpu(index), check="pcie_link", expected=16, actual=16)


def test_new_and_fixed(make):
    found = changes(run(make, bad(make, 0), good(make, 1)), run(make, good(make, 0), bad(make, 1)))
    assert [change.subject.id for change in found.new] == ["1"]
    assert [change.subject.id for change in found.fixed] == ["0"]
    assert found.marks.findings == {("gpu001", 1)}
    assert found.words == "new since last run: 1, fixed: 1"


def test_the_same_trouble_is_not_news(make):
    found = changes(run(make, bad(make)), run(make, bad(make)))
    assert (found.new, found.gone, found.changed, found.news) == ((), (), (), 0)


def test_a_trouble_with_another_value_is_changed(make):
    found = changes(run(make, bad(make, actual=8)), run(make, bad(make, actual=4)))
    (change,) = found.changed
    assert (change.before.actual, change.after.actual) == (8, 4)
    assert not found.new


def test_gone_without_an_ok_is_not_fixed(make):
    settled = replace(bad(make), verdict=Verdict.WAIVED)
    gone = not_applicable(make.gpu(0), check="pcie_link", why="no link")
    for after in ((good(make, 1),), (gone, good(make, 1)), (settled,)):
        found = changes(run(make, bad(make)), run(make, *after))
        assert len(found.gone) == 1
        assert not found.fixed
        assert found.words == "new since last run: 0, no longer judged: 1"


def test_a_host_that_cannot_be_judged_fixes_nothing(make):
    before = run(make, bad(make))
    for after in (
        make.failed("gpu001", Status.UNREACHABLE, "refused"),
        make.vetted("gpu001", ()),
    ):
        found = changes(before, make.run_of(after))
        assert not found.gone
        assert [change.host for change in found.lost] == ["gpu001"]
        assert found.marks.hosts == {"gpu001"}


def test_a_host_that_still_cannot_be_judged_is_not_news(make):
    down = make.run_of(make.failed("gpu001", Status.TIMEOUT, "late"))
    assert changes(down, down).news == 0
    assert changes(down, run(make, good(make))).back[0].host == "gpu001"


def test_appeared_and_vanished(make):
    found = changes(run(make, bad(make), host="a"), run(make, bad(make), host="b"))
    assert (found.appeared, found.vanished) == (("b",), ("a",))
    assert len(found.new) == 1
    assert not found.gone


def test_a_gpu_is_known_by_its_uuid_where_both_runs_have_it(make):
    moved = fail(Subject(kind="gpu", id="3", uuid="U"), check="pcie_link", expected=16, actual=1)
    stays = replace(moved, subject=Subject(kind="gpu", id="5", uuid="U"))
    other = replace(moved, subject=Subject(kind="gpu", id="3", uuid="V"))
    lost = replace(moved, subject=Subject(kind="gpu", id="3"))
    assert changes(run(make, moved), run(make, stays)).news == 0
    assert changes(run(make, moved), run(make, other)).news == 1
    assert changes(run(make, moved), run(make, lost)).news == 0


def test_a_gpu_without_a_uuid_is_known_by_its_bus_address_when_its_index_moves(make):
    before = fail(
        Subject(kind="gpu", id="3", bus_id="0000:19:00.0"),
        check="pcie_link",
        expected=16,
        actual=1,
    )
    moved = replace(before, subject=replace(before.subject, id="2"))
    other = replace(before, subject=replace(before.subject, bus_id="0000:1a:00.0"))
    assert changes(run(make, before), run(make, moved)).news == 0
    assert changes(run(make, before), run(make, other)).news == 1


def test_two_findings_of_one_check_and_subject_are_kept_apart(make):
    one = fail(make.gpu(0), check="clocks", expected=1, actual=2)
    two = fail(make.gpu(0), check="clocks", expected=5, actual=6)
    fine = compare(make.gpu(0), check="clocks", expected=5, actual=5)
    found = changes(run(make, one), run(make, two, one))
    assert [change.after for change in found.new] == [two]
    found = changes(run(make, one, two), run(make, one, fine))
    assert [change.before for change in found.fixed] == [two]


def test_unknown_after_a_failure_is_a_change_and_not_fixed(make):
    dark = unknown(make.gpu(0), check="pcie_link", why="NVML: GPU is lost")
    found = changes(run(make, bad(make)), run(make, dark))
    assert len(found.changed) == 1
    assert not found.gone


def test_the_sweep_of_the_sketch(cases, previous):
    found = changes(previous, cases["mixed"])
    assert {change.host for change in found.changed} == {"gpu002"}
    assert [change.host for change in found.fixed] == ["gpu060"]
    assert (found.appeared, found.vanished) == (("gpu001",), ("old001",))
    assert {change.host for change in found.lost} == {f"gpu{n}" for n in range(120, 125)}


def naive(old, new):
    """Each against each, as the rule is written: what was alike first, then the same subject."""

    def same(one, other):
        if one.check != other.check or one.subject.kind != other.subject.kind:
            return False
        for name in ("uuid", "bus_id"):
            here, there = getattr(one.subject, name), getattr(other.subject, name)
            if here and there:
                return here == there
        return one.subject.id == other.subject.id

    def alike(one, other):
        return (one.verdict, one.actual) == (other.verdict, other.actual)

    left = [each for each in old if each.verdict in TROUBLE]
    pairs, fresh = [], []
    for finding in (each for each in new if each.verdict in TROUBLE):
        found = next((past for past in left if same(past, finding) and alike(past, finding)), None)
        if found is None:
            fresh.append(finding)
        else:
            left = [each for each in left if each is not found]
    for finding in fresh:
        past = next((past for past in left if same(past, finding)), None)
        if past is not None:
            left = [each for each in left if each is not past]
        pairs.append((past, finding))
    settled = [each for each in new if each.verdict not in TROUBLE]
    pairs += [(past, next((each for each in settled if same(past, each)), None)) for past in left]
    return pairs


@pytest.mark.parametrize("seed", range(200))
def test_d1_findings_are_matched_as_each_against_each_would(seed, make):
    draw = random.Random(seed)

    def some():
        return tuple(
            Finding(
                verdict=draw.choice(list(Verdict)),
                check=draw.choice("ab"),
                subject=Subject(
                    kind="gpu",
                    id=draw.choice("01"),
                    uuid=draw.choice((None, "x", "y")),
                    bus_id=draw.choice((None, "p", "q")),
                ),
                actual=draw.randrange(2),
            )
            for _ in range(draw.randrange(12))
        )

    old, new = some(), some()
    ok = Finding(verdict=Verdict.OK, check="c")
    runs = [make.run_of(make.vetted("n", (*each, ok))) for each in (old, new)]
    found = changes(*runs)
    pairs = naive(old, new)
    for name, wanted in {
        "new": [pair for pair in pairs if pair[0] is None],
        "gone": [p for p in pairs if p[0] and (p[1] is None or p[1].verdict not in TROUBLE)],
        "changed": [p for p in pairs if p[0] and p[1] and p[1].verdict in TROUBLE],
    }.items():
        assert [(each.before, each.after) for each in getattr(found, name)] == wanted, name
