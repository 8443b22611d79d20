"""approval.yaml and allowed_signers: what they say, and every mistake at its place."""

from pathlib import Path

import pytest

from nodevet.base.project import Project
from nodevet.fix.approval.policy import RULES, SIGNERS, PolicyError, load, matches, principals
from nodevet.fixing.model import Risk

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000000"
LINES = f"""\
# who may sign
alice@example.com {KEY}
bob@example.com,bob namespaces="file,nodevet-plan@v1" {KEY}

"carol jones" {KEY}
*@sre.example.com cert-authority {KEY}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / SIGNERS).write_text(LINES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wrong(project: Path, rules: str) -> list[str]:
    """The problems with these rules."""
    (project / RULES).write_text(rules)
    with pytest.raises(PolicyError) as caught:
        load(Project(project))
    return str(caught.value).splitlines()


def test_without_rules_every_principal_may_approve_everything(project: Path) -> None:
    policy = load(Project(project))
    assert policy.rules is None
    (rule,) = policy.rules_for({"alice@example.com"})
    assert rule.covers(Risk.REBOOT, ())
    assert [policy.needed[risk] for risk in Risk] == [1, 1, 2, 2]
    assert [policy.forbids_own(risk) for risk in Risk] == [False, False, True, True]


def test_rules_are_read(project: Path) -> None:
    (project / RULES).write_text(
        """\
nodevet: 1
teams:
  oncall: [alice@example.com, bob]
approvers:
  - {who: oncall, risk: idle, groups: [rack1, rack2]}
  - {who: [bob, dave@sre.example.com], risk: reboot}
approvals: {idle: 2}
author_approves: false
"""
    )
    policy = load(Project(project))
    (alices,) = policy.rules_for({"alice@example.com"})
    assert alices.covers(Risk.IDLE, {"rack2", "x"})
    assert not alices.covers(Risk.IDLE, ())
    assert not alices.covers(Risk.DRAIN, {"rack1"})
    assert len(policy.rules_for({"bob", "bob@example.com"})) == 2
    assert policy.rules_for({"dave@sre.example.com"})[0].covers(Risk.REBOOT, ())
    assert policy.rules_for({"erin@sre.example.com"}) == ()
    assert policy.rules_for({"oncall"}) == ()
    assert [policy.needed[risk] for risk in Risk] == [1, 2, 2, 2]
    assert all(policy.forbids_own(risk) for risk in Risk)


def test_every_mistake_is_reported_at_once(project: Path) -> None:
    assert wrong(
        project,
        """\
nodevet: 1
teams:
  oncall: [alice@example.com, bbo]
  bob: alice@example.com
approvers:
  - {who: oncal, risk: idle}
  - {who: alice@exmaple.com, risk: rebot}
  - {who: bob, risk: live, group: rack1}
  - {risk: live}
approvals: {reboot: 0, live: "1"}
author_aproves: true
""",
    ) == [
        'approval.yaml:3:31: teams.oncall[1]: "bbo" is not in allowed_signers; did you mean bob?',
        'approval.yaml:4:3: teams.bob: "bob" is also a principal in allowed_signers; '
        "give the team another name",
        'approval.yaml:6:11: approvers[0].who: "oncal" is neither a team, nor a principal of '
        "allowed_signers; did you mean oncall?",
        'approval.yaml:7:11: approvers[1].who: "alice@exmaple.com" is neither a team, nor a '
        "principal of allowed_signers; did you mean alice@example.com?",
        "approval.yaml:7:36: approvers[1].risk: must be one of live, idle, drain, reboot, not "
        '"rebot"; did you mean reboot?',
        "approval.yaml:8:28: approvers[2].group: is not a known key here; did you mean groups?",
        "approval.yaml:9:5: approvers[3]: who is missing; add it",
        "approval.yaml:10:21: approvals.reboot: must be at least 1, not 0",
        'approval.yaml:10:30: approvals.live: must be a whole number, not "1"; '
        "write 1 without quotes",
        "approval.yaml:11:1: author_aproves: is not a known key here; "
        "did you mean author_approves?",
    ]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", "the file is empty"),
        ("approvers: []\nnodevet: 1\n", "approvers: must be a list of at least 1"),
        ("nodevet: 2\n", "approval.yaml:1:10: nodevet: must be 1, not 2"),
        ("approvals: {live: 1}\n", "approval.yaml:1:1: nodevet is missing; add it"),
        ("nodevet: 1\nauthor_approves: yes\n", "yes without quotes is a boolean to some"),
        ("nodevet: 1\nnodevet: 1\n", "approval.yaml:2:1"),
        ("nodevet: 1\napprovers:\n- {who: [], risk: live}\n", "not an empty list"),
        ("nodevet: 1\napprovers:\n- {who: bob, risk: live, groups: []}\n", "not an empty list"),
        ("nodevet: 1\nteams: [alice]\n", "teams: must be a mapping"),
        ("nodevet: 1\napprovers: {who: bob}\n", "approvers: must be a list"),
    ],
)
def test_invalid_approval_rules_are_refused(project: Path, rules: str, said: str) -> None:
    assert said in "\n".join(wrong(project, rules))


def test_a_project_without_signers_says_what_to_write(project: Path) -> None:
    for text in (None, "", "# nobody\n\n"):
        (project / SIGNERS).unlink()
        if text is not None:
            (project / SIGNERS).write_text(text)
        (said,) = wrong(project, "nodevet: 1\n")
        assert said.startswith("allowed_signers: ")
        assert "give each approver a line: alice@example.com ssh-ed25519 AAAA" in said
        (project / SIGNERS).touch()


def test_a_rules_file_that_is_a_broken_link_is_refused(project: Path) -> None:
    (project / RULES).symlink_to("gone.yaml")
    with pytest.raises(PolicyError, match=r"approval\.yaml: .*cannot be read"):
        load(Project(project))


def test_the_mistakes_of_both_files_are_reported_at_once(project: Path) -> None:
    (project / SIGNERS).write_bytes(b"\xff")
    said = wrong(project, "nodevet: 2\n")
    assert [line.split(":")[0] for line in said] == ["allowed_signers", "approval.yaml"]


def test_principals_are_the_first_field_of_each_line() -> None:
    assert principals(LINES) == (
        "alice@example.com",
        "bob@example.com,bob",
        "carol jones",
        "*@sre.example.com",
    )
    assert principals('  x ssh-ed25519 A\n\t\n"open ssh\n') == ("x", '"open')


@pytest.mark.parametrize(
    ("patterns", "name", "found"),
    [
        ("a@x", "a@x", True),
        ("a@x", "A@x", False),
        ("b,a@x", "a@x", True),
        ("*@x", "a@x", True),
        ("*@x", "a@xy", False),
        ("a?", "ab", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("*@x,!a@x", "a@x", False),
        ("!a@x,*@x", "a@x", False),
        ("!a@x", "b@x", False),
    ],
)
def test_patterns_are_those_of_openssh(patterns: str, name: str, found: bool) -> None:
    assert matches(patterns, name) is found


def test_the_page_shows_rules_that_load(project: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/approval.md").read_text(encoding="utf-8")
    (project / RULES).write_text(page.split("```yaml\n")[1].split("```")[0])
    (project / SIGNERS).write_text(
        "".join(f"{name}@example.com {KEY}\n" for name in ("alice", "bob", "carol"))
        + f"*@sre.example.com cert-authority {KEY}\n"
    )
    policy = load(Project(project))
    assert policy.needed == {Risk.LIVE: 1, Risk.IDLE: 1, Risk.DRAIN: 2, Risk.REBOOT: 2}
    assert policy.author_approves
    assert len(policy.rules or ()) == 2
