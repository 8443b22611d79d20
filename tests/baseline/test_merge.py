"""`extends`: what is found, what wins, and where each value came from."""

from datetime import date

import pytest
from msgspec.structs import fields

from nodevet.baseline import available, load, load_resolved, provenance
from nodevet.checking.catalog import Catalog
from nodevet.model import Severity
from nodevet.model.baseline import Applies, GpuMatch


def wants(baseline):
    return {one.check: said(one.params) for one in baseline.expectations}


def said(params):
    """The fields that are not as if nothing was said of them."""
    values = {field.name: getattr(params, field.name) for field in fields(params)}
    defaults = {field.name: field.default for field in fields(params)}
    return {name: value for name, value in values.items() if value != defaults[name]}


def test_one_file_in_full(shelf):
    shelf.write(
        x="""\
        nodevet: 1
        title: Node of eight
        applies:
          hosts: ["gpu[001-002]", login1]
          groups: train
          gpu: {device: "10DE:2330", subsystem: ["10de:16c0", "10de:16c1"], count: 8}
        expect:
          number: 8
          link: {generation: 5}
          version: "550.10"
        severity: {link: info}
        fix: [link]
        waivers:
          - check: link
            hosts: "gpu[001,003]"
            subject: GPU 4
            accepts: x8
            owner: ops
            reason: riser on order
            until: 2026-12-31
        """
    )
    (baseline,) = shelf.load("x")
    assert (baseline.name, baseline.path, baseline.title) == ("x", "x.yaml", "Node of eight")
    assert baseline.applies == Applies(
        hosts=frozenset({"gpu001", "gpu002", "login1"}),
        groups=frozenset({"train"}),
        gpu=GpuMatch(devices=("10de:2330",), subsystems=("10de:16c0", "10de:16c1"), count=8),
    )
    assert [(one.check, one.severity, one.fix, one.origin) for one in baseline.expectations] == [
        ("number", Severity.CRITICAL, False, "x.yaml:8"),
        ("link", Severity.INFO, True, "x.yaml:9"),
        ("version", Severity.WARNING, False, "x.yaml:10"),
    ]
    assert wants(baseline) == {
        "number": {"count": 8},
        "link": {"generation": 5},
        "version": {"version": "550.10"},
    }
    (waiver,) = baseline.waivers
    assert waiver.hosts == frozenset({"gpu001", "gpu003"})
    assert (waiver.check, waiver.subject, waiver.owner) == ("link", "GPU 4", "ops")
    assert (waiver.accepts, waiver.any) == ("x8", False)
    assert (waiver.until, waiver.origin) == (date(2026, 12, 31), "x.yaml:14")


def test_mappings_are_merged_field_by_field_and_each_field_keeps_its_line(shelf):
    shelf.write(
        base="""\
        nodevet: 1
        expect:
          link:
            generation: 4
            width: 8
          number: 8
        """,
        kid="""\
        nodevet: 1
        extends: base
        expect:
          link: {generation: 5}
        """,
    )
    (kid,) = shelf.load("kid")
    assert wants(kid) == {"link": {"generation": 5, "width": 8}, "number": {"count": 8}}
    link = kid.expectations[0]
    assert link.origin == "kid.yaml:4"
    assert link.origins == {"generation": "kid.yaml:4", "width": "base.yaml:5"}
    assert kid.lineage == ("base.yaml",)


def test_a_plain_value_replaces_everything(shelf):
    shelf.write(
        base="""\
        nodevet: 1
        expect:
          version: {version: "1", strict: false}
          number: {minimum: 4}
        """,
        kid='nodevet: 1\nextends: [base]\nexpect: {version: "2", number: 8}\n',
    )
    (kid,) = shelf.load("kid")
    assert wants(kid) == {"version": {"version": "2"}, "number": {"count": 8}}


def test_null_removes_an_inherited_check_or_field(shelf):
    shelf.write(
        base="""\
        nodevet: 1
        expect:
          number: {minimum: 4}
          switch: true
          link: {generation: 4}
        """,
        kid="nodevet: 1\nextends: base\nexpect:\n  number: {minimum: ~, count: 8}\n  switch: ~\n",
    )
    (kid,) = load_resolved(["kid"], folders=[shelf.folder], catalog=shelf.catalog)
    assert wants(kid.baseline) == {"number": {"count": 8}, "link": {"generation": 4}}
    assert [(one.value, one.origin, one.stands) for one in provenance(kid, "switch")] == [
        (True, "base.yaml:4", False),
        (None, "kid.yaml:5", True),
    ]


def test_removing_a_check_that_no_base_expects_is_a_warning(shelf):
    shelf.write(x="nodevet: 1\nexpect: {switch: ~, number: 8}\n")
    assert shelf.lint("x") == [
        "x.yaml:2:10: warning: expect.switch: removes nothing: "
        "no baseline that this one extends asks for it; remove the line"
    ]


def test_removing_by_an_empty_value_is_a_warning(shelf):
    shelf.write(
        base="nodevet: 1\nexpect: {switch: true, link: {generation: 4, width: 8}, number: 8}\n",
        kid="nodevet: 1\nextends: base\nexpect:\n  switch:\n  link:\n    width:\n  number: ~\n",
    )
    removes = "has no value, which removes what is inherited, or switches it off; "
    removes += "give a value, or write ~ if that is meant"
    assert [line for line in shelf.lint("kid") if "gpu_count" not in line] == [
        f"kid.yaml:4:3: warning: expect.switch: {removes}",
        f"kid.yaml:6:5: warning: expect.link.width: {removes}",
    ]


def test_provenance_tells_what_was_overridden_and_by_which_line(shelf):
    shelf.write(
        base="nodevet: 1\nexpect:\n  link: {generation: 4, width: 8}\nseverity: {link: info}\n",
        kid="nodevet: 1\nextends: base\nexpect:\n  link: {width: 16}\nfix: [link]\n",
    )
    (kid,) = load_resolved(["kid"], folders=[shelf.folder], catalog=shelf.catalog)
    said = [
        (one.key, one.field, one.value, one.origin, one.stands) for one in provenance(kid, "link")
    ]
    assert said == [
        ("expect", "generation", 4, "base.yaml:3", True),
        ("expect", "width", 8, "base.yaml:3", False),
        ("expect", "width", 16, "kid.yaml:4", True),
        ("severity", "", "info", "base.yaml:4", True),
        ("fix", "", True, "kid.yaml:5", True),
    ]


def test_the_later_of_several_bases_wins_and_a_shared_base_counts_once(shelf):
    shelf.write(
        base="nodevet: 1\nexpect: {number: 1, switch: true}\n",
        left="nodevet: 1\nextends: base\nexpect: {number: 2}\n",
        right="nodevet: 1\nextends: base\nexpect: {switch: false}\n",
        both="nodevet: 1\nextends: [left, right]\n",
    )
    (both,) = shelf.load("both")
    # right says nothing of number; what it inherits must not undo what left says
    assert wants(both) == {"number": {"count": 2}, "switch": {"enabled": False}}
    assert both.lineage == ("base.yaml", "left.yaml", "right.yaml")


def test_severity_fix_waivers_title_and_applies_are_inherited(shelf):
    shelf.write(
        base="""\
        nodevet: 1
        title: Base
        applies: {groups: [a], gpu: {device: "10de:2330"}}
        expect: {number: 8, switch: true}
        severity: {number: info, switch: info}
        fix: [number, switch]
        waivers:
          - {check: number, any: true, owner: a, reason: b, until: 2026-12-31}
        """,
        kid="""\
        nodevet: 1
        extends: base
        severity: {switch: critical}
        fix: {switch: false}
        waivers:
          - {check: switch, any: true, owner: a, reason: b, until: 2026-12-31}
        """,
        lone="nodevet: 1\nextends: base\ntitle: Lone\napplies: ~\n",
        other="nodevet: 1\nextends: base\napplies: {groups: b}\n",
    )
    kid, lone, other = shelf.load("kid", "lone", "other")
    assert [(one.check, one.severity.value, one.fix) for one in kid.expectations] == [
        ("number", "info", True),
        ("switch", "critical", False),
    ]
    assert [waiver.origin for waiver in kid.waivers] == ["base.yaml:8", "kid.yaml:6"]
    assert (kid.title, kid.applies) == ("Base", other_applies("a", "10de:2330"))
    assert (lone.title, lone.applies) == ("Lone", None)
    assert other.applies == Applies(groups=frozenset({"b"}))  # not merged with the inherited one


def other_applies(group, device):
    return Applies(groups=frozenset({group}), gpu=GpuMatch(devices=(device,)))


def test_the_hash_covers_every_file_of_the_baseline(shelf):
    shelf.write(base="nodevet: 1\n", kid="nodevet: 1\nextends: base\n")
    before = shelf.load("kid")[0].sha256
    assert shelf.load("kid")[0].sha256 == before and len(before) == 64
    shelf.write(base="nodevet: 1\n# a comment\n")
    assert shelf.load("kid")[0].sha256 != before


def test_an_expectation_is_validated_after_extends_is_merged(shelf):
    shelf.write(
        base="nodevet: 1\nexpect: {link: {generation: 5, width: 16}}\n",
        kid="nodevet: 1\nextends: base\nexpect: {link: {width: 3}}\n",
    )
    (problem,) = shelf.problems("kid")
    assert problem.startswith("kid.yaml:3:24: expect.link.width: must be one of 1, 2, 4, 8, 16, 32")


def test_an_error_in_an_inherited_value_is_reported_once_with_its_place(shelf):
    shelf.write(
        base="nodevet: 1\nexpect:\n  number: 99\n",
        one="nodevet: 1\nextends: base\n",
        two="nodevet: 1\nextends: base\n",
    )
    (problem,) = shelf.problems("one", "two")
    assert problem.startswith("base.yaml:3:11: expect.number: must be at most 64, not 99")


def test_nothing_is_called_missing_while_a_base_is_unusable(shelf):
    shelf.write(
        base="nodevet: 1\nexpect: [\n",
        kid="nodevet: 1\nextends: base\nexpect: {link: {width: 8}}\n",
    )
    (problem,) = shelf.problems("kid")
    assert problem.startswith("base.yaml:3:1: is not YAML")


def test_a_cycle_of_extends_is_shown_as_a_chain(shelf):
    shelf.write(
        a="nodevet: 1\nextends: b\n",
        b="nodevet: 1\nextends:\n  - c\n",
        c="nodevet: 1\nextends: a\n",
    )
    assert shelf.problems("a") == [
        "c.yaml:2:10: extends: extends itself: a.yaml → b.yaml → c.yaml → a.yaml; "
        "break it at one place"
    ]


def test_a_path_that_extends_itself_is_a_circle(shelf):
    shelf.write(a="nodevet: 1\nextends: ./a.yaml\n")
    assert shelf.problems("a") == [
        "a.yaml:2:10: extends: extends itself: a.yaml → a.yaml; break it at one place"
    ]


def test_a_very_long_chain_is_refused(shelf):
    shelf.write(
        **{f"n{i}": f"nodevet: 1\nextends: n{i + 1}\n" for i in range(60)}, n60="nodevet: 1\n"
    )
    assert shelf.problems("n0") == [
        "n32.yaml:2:10: extends: a chain of more than 32 files; shorten it"
    ]


def test_extends_looks_beside_the_file_then_in_the_folders_then_among_the_shipped(shelf, tmp_path):
    far, own = tmp_path / "far", tmp_path / "own"
    for folder in (far, own):
        folder.mkdir()
    (far / "kid.yaml").write_text("nodevet: 1\nextends: [base, common]\n")
    (far / "base.yaml").write_text("nodevet: 1\nexpect: {number: 1}\n")
    (own / "base.yaml").write_text("nodevet: 1\nexpect: {number: 2}\n")
    (own / "common.yaml").write_text("nodevet: 1\nextends: generic\n")
    (kid,) = load([str(far / "kid.yaml")], folders=[own], catalog=shelf.catalog)
    assert kid.lineage[0] == "far/base.yaml"
    assert kid.lineage[1].endswith("baselines/generic.yaml")
    assert kid.lineage[2] == "own/common.yaml"
    assert wants(kid)["number"] == {"count": 1}


def test_a_users_own_baseline_hides_and_may_extend_the_shipped_one_of_its_name(shelf):
    shelf.write(generic="nodevet: 1\nextends: generic\nexpect: {number: 3}\n")
    (generic,) = shelf.load("generic")
    assert generic.path == "generic.yaml"
    assert generic.lineage[0].endswith("baselines/generic.yaml")
    assert {"number", "gpu_count"} <= set(wants(generic))
    found = dict(available([shelf.folder]))
    assert found["generic"] == shelf.folder / "generic.yaml"
    assert "nvidia-h100-sxm" in found


def test_a_name_that_exists_as_yaml_and_as_yml_is_refused(shelf):
    shelf.write(a="nodevet: 1\n")
    (shelf.folder / "a.yml").write_text("nodevet: 1\n")
    (problem,) = shelf.problems("a")
    assert "both" in problem and problem.endswith("have this name; rename one of them")


def test_two_baseline_files_of_the_same_name_are_refused(shelf):
    shelf.write(a="nodevet: 1\n")
    (shelf.folder / "sub").mkdir()
    (shelf.folder / "sub" / "a.yaml").write_text("nodevet: 1\n")
    assert shelf.problems("a.yaml", "sub/a.yaml") == [
        "sub/a.yaml: has the same name as a.yaml; rename one of them, or leave one out"
    ]


def test_naming_a_baseline_twice_gives_it_once(shelf):
    shelf.write(a="nodevet: 1\n")
    assert len(shelf.load("a", "./a.yaml", "a")) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nvme.yaml", "./nvme.yaml: there is no such file; did you mean nvml.yaml?"),
        ("nvme", "nvme: no baseline has this name; did you mean nvml?"),
        (
            "nvidia-h100-smx",
            "nvidia-h100-smx: no baseline has this name; did you mean nvidia-h100-sxm?",
        ),
        ("?", "?: no baseline has this name; `nodevet list baselines` names them"),
        ("a\0b", "a\\x00b: no baseline has this name; `nodevet list baselines` names them"),
    ],
)
def test_an_unknown_baseline_name_is_reported_with_a_suggestion(shelf, name, message):
    shelf.write(nvml="nodevet: 1\n")
    assert shelf.problems(name) == [message]


def test_an_aliased_value_has_the_position_of_its_anchor(shelf):
    shelf.write(
        x="""\
        nodevet: 1
        expect:
          version: {version: &v "1"}
          zones: {zones: *v}
        """
    )
    (problem,) = shelf.problems("x")
    assert problem.startswith("x.yaml:3:22: expect.zones.zones: must be platform or a mapping")


def test_a_check_that_does_not_load_is_reported_at_the_line_that_expects_it(tmp_path, shelf):
    from nodevet.checking.catalog import Catalog

    checks = tmp_path / "checks"
    checks.mkdir()
    (checks / "broken.py").write_text("import nothing_of_this_name\n")
    shelf.write(x="nodevet: 1\nexpect: {broken: true}\n")
    shelf.catalog = Catalog([checks])
    (problem,) = shelf.problems("x")
    assert problem.startswith("x.yaml:2:10: expect.broken: the check cannot be used: ")
    assert "broken.py:1: ModuleNotFoundError" in problem
    assert problem.endswith("; repair its file")


def test_an_exception_in_a_checks_validator_is_reported_at_the_line(shelf):
    shelf.write(x="nodevet: 1\nexpect: {faulty: c}\n")
    assert shelf.problems("x") == [
        "x.yaml:2:10: expect.faulty: the check failed to read this: KeyError: 'c'; "
        "repair its Params"
    ]


LIMIT = """\
from nodevet.model import Check, CheckParams, ok

class Params(CheckParams):
    most: int | None = 0
    least: int = 3
    word: str | None = None

def judge(evidence, params):
    yield ok()

CHECK = Check(params=Params, reads=(), judge=judge)
"""


@pytest.fixture
def limited(shelf):
    """With the check `limit`."""
    (shelf.folder / "checks").mkdir()
    (shelf.folder / "checks/limit.py").write_text(LIMIT)
    shelf.catalog = Catalog([shelf.folder / "checks"])
    return shelf


def test_null_switches_off_a_limit_that_is_there_by_default(limited):
    shelf = limited
    shelf.write(x="nodevet: 1\nexpect: {limit: {most: null, word: ~}}\n")
    (found,) = shelf.load("x")
    (wish,) = found.expectations
    assert (wish.params.most, wish.params.least, wish.params.word) == (None, 3, None)
    (resolved,) = load_resolved(["x"], folders=[shelf.folder], catalog=shelf.catalog)
    assert [(one.field, one.value, one.off) for one in provenance(resolved, "limit")] == [
        ("most", None, True),
        ("word", None, False),
    ]
    shelf.write(more="nodevet: 1\nextends: x\nexpect: {limit: {most: 7}}\n")
    assert shelf.load("more")[0].expectations[0].params.most == 7
    shelf.write(z="nodevet: 1\nextends: more\nexpect: {limit: {most: ~}}\n")
    assert shelf.load("z")[0].expectations[0].params.most is None


def test_null_that_would_leave_the_default_is_refused(limited):
    shelf = limited
    shelf.write(x="nodevet: 1\nexpect: {limit: {least: null}}\n")
    assert shelf.lint("x") == [
        "x.yaml:2:18: expect.limit.least: null would leave its default, 3: it cannot be off; "
        "give a value, or leave the check out: `limit: null`"
    ]
    shelf.write(base="nodevet: 1\nexpect: {limit: {least: 9}}\n")
    shelf.write(kid="nodevet: 1\nextends: base\nexpect: {limit: {least: null}}\n")
    assert shelf.load("kid")[0].expectations[0].params.least == 3


@pytest.mark.parametrize(
    ("check", "field"),
    [
        ("ecc_errors", "volatile_uncorrected"),
        ("leftover_processes", "maximum_mib"),
        ("nvme_health", "maximum_percentage_used"),
        ("nvme_health", "maximum_media_errors"),
    ],
)
def test_null_switches_off_limits_of_shipped_checks(tmp_path, check, field):
    path = tmp_path / "x.yaml"
    path.write_text(f"nodevet: 1\nexpect: {{{check}: {{{field}: null}}}}\n")
    (found,) = load([str(path)], folders=[], catalog=Catalog())
    assert getattr(found.expectations[0].params, field) is None
