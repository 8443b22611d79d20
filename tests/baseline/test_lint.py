"""What `lint` warns of: allowed, but probably not meant."""

from datetime import date

GPU_WARNING = (
    "warning: expect: link judges the GPUs of the node; a missing one goes unnoticed; add gpu_count"
)


def test_a_sound_baseline_has_no_warning(shelf):
    shelf.write(x="nodevet: 1\nexpect: {number: 8}\n")
    assert shelf.lint("x") == []


def test_errors_are_the_same_as_those_of_load(shelf):
    shelf.write(x="nodevet: 1\nexpect: {number: 99, switch: on}\n")
    assert shelf.lint("x") == shelf.problems("x")


def test_an_empty_expect(shelf):
    shelf.write(x="nodevet: 1\nexpect: {}\n", y="nodevet: 1\ntitle: a\n")
    said = "warning: expect: the baseline expects nothing, so nothing is judged; "
    advice = "name checks and their expectations"
    assert shelf.lint("x", "y") == [f"x.yaml:2:1: {said}{advice}", f"y.yaml:1:1: {said}{advice}"]


def test_gpus_that_are_judged_but_not_counted(shelf):
    shelf.write(
        x="nodevet: 1\nexpect:\n  link: {generation: 5}\n",
        y="nodevet: 1\nexpect:\n  link: {generation: 5}\n  gpu_count: 8\n",
    )
    assert shelf.lint("x", "y") == [f"x.yaml:2:1: {GPU_WARNING}"]


def test_a_waiver_that_has_expired(shelf):
    shelf.write(
        x="""\
        nodevet: 1
        expect: {number: 8}
        waivers:
          - {check: number, any: true, owner: a, reason: b, until: 2026-01-31}
        """
    )
    assert shelf.lint("x", today=date(2026, 1, 31)) == []  # the last day still counts
    assert shelf.lint("x", today=date(2026, 2, 1)) == [
        "x.yaml:4:53: warning: waivers[0].until: expired on 2026-01-31: "
        "the findings that it covers fail again; remove the waiver, or agree on a new date"
    ]


def test_a_waiver_with_an_empty_subject_is_refused(shelf):
    waiver = "{check: number, any: true, owner: a, reason: b, until: 2999-01-01, subject: }"
    shelf.write(x=f"nodevet: 1\nexpect: {{number: 8}}\nwaivers: [{waiver}]\n")
    (problem,) = shelf.lint("x")
    assert "waivers[0].subject: must be text that is not empty, not null" in problem


def test_settings_of_checks_that_are_not_under_expect_are_warnings(shelf):
    shelf.write(
        x="""\
        nodevet: 1
        expect: {number: 8}
        severity: {switch: info}
        fix: [number, switch]
        waivers:
          - {check: switch, any: true, owner: a, reason: b, until: 2026-12-31}
        """
    )
    advice = "add it to expect, or remove this"
    assert shelf.lint("x") == [
        f"x.yaml:3:12: warning: severity.switch: the check is not under expect; {advice}",
        f"x.yaml:4:15: warning: fix[1]: switch is not under expect; {advice}",
        f"x.yaml:6:6: warning: waivers[0].check: switch is not under expect; {advice}",
        "x.yaml:4:7: warning: fix[0]: number has no fix, so nothing is planned; remove it; "
        "`nodevet list fixes` names those that can be fixed",
    ]


def test_an_inherited_waiver_of_a_check_that_the_child_removes_gives_no_warning(shelf):
    shelf.write(
        base="""\
        nodevet: 1
        expect: {number: 8, switch: true}
        waivers:
          - {check: switch, any: true, owner: a, reason: b, until: 2026-12-31}
        """,
        kid="nodevet: 1\nextends: base\nexpect: {switch: ~}\n",
    )
    assert shelf.lint("kid") == []
