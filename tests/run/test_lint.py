"""Everything that is wrong with a project: its baselines, inventories, approvals, own code."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from textwrap import dedent

import pytest

from nodevet.author.use.lint import PROGRAM, SKIPPED, Linted
from nodevet.author.use.lint import lint as run_lint
from nodevet.base.problems import SHOWN

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"

Lint = Callable[..., Linted]
TODAY = date(2026, 11, 22)

GOOD = """
    \"\"\"Every GPU is warm.\"\"\"
    from nodevet.model import Check, CheckParams, ok

    class Params(CheckParams):
        bare = "enabled"
        enabled: bool

    def judge(evidence, params):
        yield ok()

    CHECK = Check(params=Params, reads=("gpu.count",), judge=judge)
    """


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        ending = ".py" if name.startswith(("checks__", "fixes__")) else ".yaml"
        path = project / f"{name.replace('__', '/')}{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))


def lint(*names: str) -> Linted:
    return run_lint(names, Path(), TODAY)


def told(linted: Linted) -> list[str]:
    return [str(each.problem) for each in linted.found]


def test_the_files_of_a_project_are_found_wherever_they_are(project: Path) -> None:
    site = "nodevet: 1\nexpect: {gpu_count: 8}\n"
    write(
        project,
        baselines__a=site,
        b=site,
        fleet="nodevet: 1\nhosts: gpu1\n",
        inventories__other="nodevet: 1\nhosts: gpu2\n",
        ci="on: push\n",
        checks__warm=GOOD,
        checks___helper="this is not Python",
    )
    (project / "allowed_signers").write_text(f"bob {KEY}\n")
    linted = lint()
    assert told(linted) == []
    assert linted.files == {
        "baseline": ("baselines/a.yaml", "b.yaml"),
        "inventory": ("fleet.yaml", "inventories/other.yaml"),
        "approval": ("allowed_signers",),
        "check": ("checks/warm.py",),
    }
    assert not linted.shipped and not linted.skipped


def test_a_project_without_files_lints_the_shipped_ones(project: Path) -> None:
    linted = lint()
    assert linted.shipped and "nvidia-h100-sxm" in linted.files["baseline"]
    assert told(linted) == []


def test_each_problem_has_its_line(project: Path) -> None:
    write(
        project,
        b="nodevet: 1\nexpect: {gpu_cout: 8}\n",
        fleet="nodevet: 1\nhost: a\nhosts: b\n",
        approval="nodevet: 1\napprovals: {live: 0}\n",
    )
    (project / "allowed_signers").write_text(f"bob {KEY}\n")
    found = lint().found
    assert [(each.kind, each.line) for each in found] == [
        ("baseline", "expect: {gpu_cout: 8}"),
        ("inventory", "host: a"),
        ("approval", "approvals: {live: 0}"),
    ]
    assert [str(each.problem.where) for each in found] == [
        "b.yaml:2:10", "fleet.yaml:2:1", "approval.yaml:2:19",
    ]  # fmt: skip


def test_one_wrong_baseline_hides_no_warning_of_another(project: Path) -> None:
    write(
        project,
        baselines__a="nodevet: 1\nexpect: {gpu_cout: 8}\n",
        baselines__b="nodevet: 1\nexpect: {xid: {}, gpu_count: 8}\nfix: [xid]\n",
    )
    linted = lint()
    assert (linted.errors, linted.warnings) == (1, 1)
    assert told(linted)[1] == (
        "baselines/b.yaml:3:7: warning: fix[0]: xid has no fix, so nothing is planned; "
        "remove it; `nodevet list fixes` names those that can be fixed"
    )


def test_a_disallowed_fix_does_not_have_to_exist(project: Path) -> None:
    write(project, b="nodevet: 1\nexpect: {xid: {}, gpu_count: 8}\nfix: {xid: false}\n")
    assert told(lint()) == []


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        ("def judge(:", "def judge(evidence, params):", "9:11: is not Python: invalid syntax"),
        ('"""Every GPU is warm."""', "", "1:1: warning: the file has no docstring"),
        (
            '"gpu.counts"',
            '"gpu.count"',
            "12:37: reads: gpu.counts: Gpus has no field 'counts'; did you mean count?",
        ),
        (
            "def judge(evidence):",
            "def judge(evidence, params):",
            "9:1: judge: cannot be called with 2 values: too many positional arguments; write it",
        ),
        ('bare = "enable"', 'bare = "enabled"', "5:1: params: bare: no field is named 'enable'"),
        ("import nosuch", "import ok", "3:1: ImportError: cannot import name 'nosuch'"),
        ("params=int", "params=Params", "12:1: params: is not a class of CheckParams"),
        ("CHEK =", "CHECK =", ": CHECK: the file defines no check; CHECK = Check("),
        (
            'judge, severity="high")',
            "judge)",
            "12:1: severity: 'high' is not one of Severity.SHADOW, Severity.INFO, Severity.WARNING",
        ),
    ],
)
def test_mistakes_in_a_user_defined_check_are_reported(
    project: Path, wrong: str, right: str, problem: str
) -> None:
    text = dedent(GOOD)
    place = right or '"""Every GPU is warm."""'
    changed = text.replace(place, wrong if right else "", 1)
    if right == "import ok":
        changed = text.replace("CheckParams, ok", "CheckParams, nosuch", 1)
    assert changed != text
    write(project, checks__warm=changed)
    (found,) = told(lint())
    assert found.startswith("checks/warm.py") and problem in found


def test_mistakes_in_a_user_defined_fix_are_reported(project: Path) -> None:
    write(
        project,
        checks__warm=GOOD,
        fixes__warm="""\
            from nodevet.fixing.model import Fix, Risk

            def plan(evidence, findings):
                yield from ()

            FIX = Fix(plan=plan, risk=Risk.LIVE, options=("now",))
            """,
    )
    assert told(lint()) == [
        "fixes/warm.py:1:1: warning: the file has no docstring; say what it is "
        "about: `nodevet explain` shows it, and `nodevet list` its first line",
        "fixes/warm.py:3:1: plan: cannot be called with 3 values, and its options now: "
        "too many positional arguments; write it as: "
        "def plan(evidence, findings, params, *, OPTION: bool) -> Iterator[PlannedChange]",
    ]


def test_a_file_that_holds_no_fix(project: Path) -> None:
    write(project, checks__warm=GOOD, fixes__warm='"""Warm it."""\nFIX = 3\n')
    assert told(lint("fixes/warm.py")) == ["fixes/warm.py:2:1: defines no FIX"]


def test_a_fix_without_a_check_stops_the_rest(project: Path) -> None:
    write(project, fixes__warm="FIX = 3\n", b="nodevet: 1\n")
    (found,) = told(lint())
    assert found.startswith("fixes/warm.py: a fix has the name of its check, and no check is named")


def test_lint_recognizes_the_kind_of_each_named_file(project: Path) -> None:
    """As pre-commit calls it: with whatever changed."""
    write(
        project,
        b="nodevet: 1\nexpect: {gpu_count: 8}\n",
        old="expect: {gpu_count: 8}\n",
        fleet="nodevet: 1\nhosts: gpu1\n",
        ci="on: push\n",
        checks__warm=GOOD,
        baselines__empty="",
    )
    (project / "setup.py").write_text("import os\n")
    linted = lint(
        "b.yaml", "old.yaml", "fleet.yaml", "ci.yaml", "checks/warm.py", "setup.py",
        "baselines/empty.yaml", "gone.yaml",
    )  # fmt: skip
    assert linted.files["inventory"] == ("fleet.yaml",)
    assert linted.files["check"] == ("checks/warm.py",)
    assert linted.skipped == {
        "ci.yaml": SKIPPED,
        "setup.py": "it is not a check or a fix of this project (--project)",
    }
    assert [line.split(";")[0] for line in told(linted)] == [
        "old.yaml:1:1: nodevet: the version of the format is missing",
        "baselines/empty.yaml:1:1: the file is empty",
        "gone.yaml: there is no such file",
    ]


def test_a_named_folder_lints_the_files_in_it(project: Path) -> None:
    write(project, baselines__a="nodevet: 1\nexpect: {gpu_cout: 8}\n", ci="on: push\n")
    linted = lint("baselines/", ".")
    assert linted.files == {"baseline": ("baselines/a.yaml",)}
    assert linted.errors == 1 and set(linted.skipped) == {"ci.yaml"}


def test_lint_reports_all_of_many_problems(project: Path) -> None:
    rows = "".join(f"  no{number}: 1\n" for number in range(2 * SHOWN))
    write(project, b=f"nodevet: 1\nexpect:\n{rows}")
    assert lint().errors == 2 * SHOWN


SIGNERS = [
    ("bob", '"bob" has no key; write the key after the name: '),
    ("bob ssh-ed25519", '"bob" has no key; write the key after the name: '),
    ("bob ssh-ed25519 AAAA", 'the "ssh-ed25519" key is damaged; copy the whole line of the .pub'),
    (f"bob {KEY[:-20]}%", 'the "ssh-ed25519" key is damaged; copy'),
    (f"bob {KEY.replace('ed25519', 'rsa', 1)}", 'the "ssh-rsa" key is damaged; copy'),
    (
        f"{KEY} bob@rack",
        "the line does not say whose key this is; begin it with the name: bob@rack",
    ),
    (f"bob valid-befor=2030 {KEY}", "did you mean valid-before?"),
    (f"bob nonsense {KEY}", '"nonsense" is neither an option nor a type of key; there are cert-'),
    ('"', "has no key"),
]


@pytest.mark.parametrize(("line", "told"), SIGNERS)
def test_e21_a_line_of_allowed_signers_that_ssh_keygen_skips_is_reported(
    project: Path, line: str, told: str
) -> None:
    (project / "allowed_signers").write_text(f"ann {KEY}\n# who else\n{line}\n")
    linted = lint("allowed_signers")
    (found,) = linted.found
    assert str(found.problem.place) == "allowed_signers:3:1"
    assert told in str(found.problem)
    assert (found.kind, found.line) == ("approval", line)


def test_e21_lines_that_ssh_keygen_reads_are_not_reported(project: Path) -> None:
    (project / "allowed_signers").write_text(
        f"""\
# who may sign
ann@x,ann {KEY} the key of ann
"bob jones" cert-authority,namespaces="nodevet-plan@v1,a b" {KEY}

*@x valid-after="20260101",valid-before=20300101Z,Namespaces="x" {KEY}\r
"""
    )
    assert lint("allowed_signers").found == ()


def test_e21_only_the_first_line_of_a_private_key_is_shown(project: Path) -> None:
    head, body = "-----BEGIN OPENSSH PRIVATE KEY-----", "c2VjcmV0"
    (project / "allowed_signers").write_text(f"{head}\n{body}\n{body}\n")
    linted = lint("allowed_signers")
    (found,) = linted.found
    assert found.line == head and "this is a private key; remove it" in str(found.problem)


def test_e21_a_skipped_file_is_reported_with_how_nodevet_files_begin(project: Path) -> None:
    (project / "notes").write_text("remember the milk\n")
    assert lint("notes").skipped == {"notes": SKIPPED}
    assert "`nodevet: 1`" in SKIPPED


def test_e01_no_inventory_is_run_to_be_linted(project: Path) -> None:
    """The shell takes the keys of a fleet's YAML for commands that it does not find."""
    mark, script = project / "mark", project / "fleet"
    script.write_text(f"#!/bin/sh\nnodevet: 1\nhosts: []\ntouch {mark}\necho '{{}}'\n")
    script.chmod(0o755)
    found = run_lint([str(script)], project, date(2026, 11, 23))
    assert (found.skipped, found.files) == ({str(script): PROGRAM}, {})
    assert not mark.exists()
