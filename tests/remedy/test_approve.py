"""Whether a plan is approved, with real keys and the real ssh-keygen."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.project import Project
from nodevet.fix.approval.policy import RULES, SIGNERS, Policy, load
from nodevet.fix.approval.verify import (
    Approvable,
    Approved,
    ApproveError,
    Signature,
    check_approvals,
    sign,
    signature_file,
    signatures,
)
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.plan_file import write
from nodevet.fixing.model import Risk
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.running_process import EndProcess

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")

NOW = datetime.now(timezone.utc).replace(microsecond=0)
GROUPS: Mapping[str, tuple[str, ...]] = {"gpu001": ("rack1", "h100"), "gpu101": ("rack2",)}
PEOPLE = ("alice", "alice2", "bob", "carol", "stranger", "ca")


def keygen(*words: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True, timeout=30)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key pair of each person, and certificates of the ca."""
    folder = tmp_path_factory.mktemp("keys")
    for name in PEOPLE:
        keygen("-t", "ed25519", "-N", "", "-C", name, "-f", folder / name)
    certified = {
        "dave": ("dave@sre", "-1d:+1d"),
        "erin": ("erin@sre,admins", "-1d:+1d"),
        "frank": ("frank@sre,admins", "-1d:+1d"),
        "late": ("late@sre", "-2d:-1d"),
        "outside": ("outside@other", "-1d:+1d"),
    }
    for name, (names, valid) in certified.items():
        keygen("-t", "ed25519", "-N", "", "-f", folder / name)
        keygen(*("-s", folder / "ca", "-I", name, "-n", names, "-V", valid), folder / f"{name}.pub")
    shutil.copy(folder / "alice", folder / "twice")
    shutil.copy(folder / "alice.pub", folder / "twice.pub")
    keygen("-s", folder / "ca", "-I", "t", "-n", "twice@sre", folder / "twice.pub")
    return folder


class Case:
    """A project, a plan in it, and people who sign it."""

    def __init__(self, keys: Path, project: Path) -> None:
        self.keys = keys
        self.project = project
        self.file = project / "plan.json"
        self.found: list[Signature] = []
        self.allow(alice="alice@x", alice2="alice@x", bob="bob@x", carol="carol@x")
        self.plan = plan()

    def allow(self, **names: str) -> None:
        """Each key with what stands before it on its line."""
        lines = [
            f"{before} {(self.keys / f'{key}.pub').read_text()}" for key, before in names.items()
        ]
        (self.project / SIGNERS).write_text("".join(lines))

    def rules(self, text: str) -> None:
        (self.project / RULES).write_text(f"nodevet: 1\n{text}")

    @property
    def policy(self) -> Policy:
        return load(Project(self.project))

    def signed(self, *people: str) -> "Case":
        for person in people:
            data = sign(write(self.plan), self.keys / person)
            self.found.append(Signature(name=f"plan.json.{person}.sig", data=data))
        return self

    def check(self, **other: Any) -> Approved | list[str]:
        given: dict[str, Any] = {
            "plan_bytes": write(self.plan),
            "plan": self.plan,
            "policy": self.policy,
            "now": NOW,
            "hosts_groups": GROUPS,
        }
        asked = Approvable(**{name: other.pop(name, value) for name, value in given.items()})
        return check_approvals(asked, other.pop("found", self.found), **other)

    def approved(self, **other: Any) -> list[str]:
        """Who approved."""
        outcome = self.check(**other)
        assert isinstance(outcome, Approved), outcome
        return [approval.who for approval in outcome.approvals]

    def refused(self, **other: Any) -> list[str]:
        outcome = self.check(**other)
        assert isinstance(outcome, list), outcome
        assert outcome
        return outcome


@pytest.fixture
def case(keys: Path, tmp_path: Path) -> Case:
    return Case(keys, tmp_path)


def step(host: str = "gpu001", risk: Risk = Risk.LIVE) -> Step:
    return Step(
        id=f"{host}/cpu_governor/1",
        host=host,
        fix="cpu_governor",
        subjects=("CPU 0",),
        expected="performance",
        actual="powersave",
        risk=risk,
        actions=(WriteKernel(path="/sys/x", value="performance"),),
        resources=(Resource(kind="kernel", name="/sys/x"),),
        reason="wrong",
    )


def plan(*steps: Step, author: str = "alice@x") -> Plan:
    steps = steps or (step(),)
    return Plan(
        id="ab12cd34",
        author=author,
        created=NOW.isoformat(),
        expires=(NOW + timedelta(hours=24)).isoformat(),
        baselines={"generic": "1" * 64},
        nodes={
            one.host: PlannedNode(machine_id="m", boot_id=one.host, baseline="generic")
            for one in steps
        },
        steps=steps,
    )


def test_one_approval_is_enough_for_live_and_two_for_reboot(case: Case) -> None:
    assert case.signed("bob").approved() == ["bob@x"]
    case.found.clear()
    case.plan = plan(step(risk=Risk.REBOOT))
    (said,) = case.signed("bob").refused()
    assert said.startswith("the plan needs 2 approvals by different people for reboot and has 1")
    assert case.signed("carol").approved() == ["bob@x", "carol@x"]
    outcome = case.check()
    assert isinstance(outcome, Approved)
    assert all(approval.key.startswith("SHA256:") for approval in outcome.approvals)
    assert outcome.ignored == ()


def test_the_risk_that_asks_for_most_decides(case: Case) -> None:
    case.rules("approvals: {idle: 3, reboot: 1}\n")
    case.plan = plan(step(risk=Risk.IDLE), step("gpu101", Risk.REBOOT))
    assert "needs 3 approvals" in case.signed("bob", "carol").refused()[-1]


def test_irreversible_actions_need_two_people_by_default(case: Case) -> None:
    action = EndProcess(pid=4711, started_s=1.0, uid=1000, name="python")
    ends = replace(step(risk=Risk.IDLE), actions=(action,), resources=(action.resource,))
    case.plan = plan(ends)
    (said,) = case.signed("bob").refused()
    assert said.startswith("the plan needs 2 approvals by different people for a step that cannot")
    assert case.signed("carol").approved() == ["bob@x", "carol@x"]
    case.rules("approvals: {one_way: 1}\n")
    case.found.clear()
    assert case.signed("bob").approved() == ["bob@x"]
    case.rules("approvals: {one_way: 1, idle: 2}\n")
    assert "by different people for idle and has 1" in case.refused()[-1]
    case.rules("approvals: {one_way: 3}\n")
    case.plan = plan(step())
    case.found.clear()
    assert case.signed("bob").approved() == ["bob@x"], "this one can be undone"


def test_an_unsigned_plan_is_refused(case: Case) -> None:
    assert case.refused() == [
        "the plan needs 1 approval for live and has none; run: nodevet approve"
    ]


def test_a_plan_that_was_changed_after_signing_is_refused(case: Case) -> None:
    case.signed("alice", "bob")
    case.plan = replace(case.plan, steps=(replace(step(), expected="powersave"),))
    first, second, third = case.refused()
    assert first.startswith("plan.json.alice.sig: does not fit this plan: the plan was changed")
    assert second.startswith("plan.json.bob.sig: does not fit this plan")
    assert "has none" in third


def test_a_signature_does_not_fit_a_plan_with_one_more_byte(case: Case) -> None:
    case.signed("bob")
    assert "does not fit" in case.refused(plan_bytes=write(case.plan) + b" ")[0]


def test_a_plan_that_does_not_match_its_file_is_an_internal_error(case: Case) -> None:
    with pytest.raises(ValueError, match="does not match its file"):
        case.check(plan=plan(step("gpu101")))


@pytest.mark.parametrize("junk", [b"", b"junk", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n", b"\0"])
def test_an_invalid_signature_does_not_count(case: Case, junk: bytes) -> None:
    case.found.append(Signature(name="junk.sig", data=junk))
    assert case.refused()[0].startswith("junk.sig: does not fit this plan")
    outcome = case.signed("bob").check()
    assert isinstance(outcome, Approved)
    assert len(outcome.ignored) == 1


def test_a_signature_for_another_purpose_does_not_count(case: Case) -> None:
    file = case.project / "copy"
    file.write_bytes(write(case.plan))
    keygen("-Y", "sign", "-n", "file", "-f", case.keys / "bob", file)
    case.found.append(Signature(name="x.sig", data=(case.project / "copy.sig").read_bytes()))
    assert "namespace does not match" in case.refused()[0]


def test_a_signature_by_an_unknown_key_is_refused(case: Case) -> None:
    said = case.signed("stranger").refused()
    assert said[0].startswith("plan.json.stranger.sig: signed by a stranger: ")
    assert "SHA256:" in said[0]
    assert "ask the owner of that file to add one" in said[0]


def test_the_file_name_of_a_signature_does_not_decide_who_signed(case: Case) -> None:
    data = sign(write(case.plan), case.keys / "bob")
    case.found.append(Signature(name="plan.json.alice@x.sig", data=data))
    assert case.approved() == ["bob@x"]


def test_an_expired_plan_is_refused_however_signed(case: Case) -> None:
    case.signed("bob")
    end = NOW + timedelta(hours=24)
    assert case.approved(now=end - timedelta(seconds=1)) == ["bob@x"]
    assert case.refused(now=end) == [f"the plan expired at {end.isoformat()}; plan again"]
    east = end.astimezone(timezone(timedelta(hours=9)))
    assert case.refused(now=east)
    with pytest.raises(ValueError, match="offset"):
        case.check(now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize("expires", ["", "soon", "2126-01-01T00:00:00", "2126-01-01", "\x1b[2J"])
def test_a_plan_must_say_when_it_expires(case: Case, expires: str) -> None:
    case.plan = replace(case.plan, expires=expires)
    (said,) = case.signed("bob").refused()
    assert "does not say when it expires" in said
    assert "\x1b" not in said


def test_an_empty_plan_is_refused(case: Case) -> None:
    case.plan = replace(case.plan, steps=())
    assert case.signed("bob").refused() == ["the plan has no steps: there is nothing to approve"]


# --- who is who ----------------------------------------------------------------------------


def test_two_keys_of_one_person_count_once(case: Case) -> None:
    case.plan = plan(step(risk=Risk.DRAIN), author="carol@x")
    said = case.signed("alice", "alice2").refused()
    assert "plan.json.alice2.sig: signed by alice@x, who is alice@x again" in said[0]
    assert "has 1 (alice@x)" in said[1]
    assert case.signed("bob").approved() == ["alice@x", "bob@x"]


def test_two_names_of_one_person_count_once(case: Case) -> None:
    """Names on one line are one person, also through a third key."""
    case.allow(alice="alice@x", bob="b@y,alice@x", carol="carol@x", alice2="b@y")
    case.plan = plan(step(risk=Risk.DRAIN), author="carol@x")
    assert "has 1 (alice@x)" in case.signed("alice", "alice2").signed("bob").refused()[-1]


def test_one_key_with_two_names_counts_once(case: Case) -> None:
    """By a line of its own, and by a certificate."""
    case.allow(alice="alice@x", ca="*@sre cert-authority", carol="carol@x")
    case.plan = plan(step(risk=Risk.DRAIN), author="carol@x")
    said = case.signed("alice", "twice-cert.pub").refused()
    assert "signed by twice@sre, who is alice@x again" in said[0]


def test_the_author_may_not_approve_their_own_drain_plan(case: Case) -> None:
    case.plan = plan(step(risk=Risk.DRAIN))
    said = case.signed("alice2", "bob").refused()
    assert said[0] == (
        "plan.json.alice2.sig: alice@x is the author, who may not approve their own drain plan; "
        "someone else must"
    )
    assert "has 1 (bob@x)" in said[1]
    assert case.signed("carol").approved() == ["bob@x", "carol@x"]


def test_the_author_is_recognized_under_another_name(case: Case) -> None:
    case.allow(alice="al@x,alice@x", bob="bob@x")
    case.rules("approvals: {drain: 1}\n")
    case.plan = plan(step(risk=Risk.DRAIN))
    assert "is the author" in case.signed("alice").refused()[0]


def test_the_author_may_approve_live_unless_the_project_says_no(case: Case) -> None:
    assert case.signed("alice").approved() == ["alice@x"]
    case.rules("author_approves: false\n")
    assert "is the author" in case.refused()[0]


def test_a_reboot_needs_the_approvals_of_risk_reboot_whatever_the_plan_says(case: Case) -> None:
    case.rules("approvals: {live: 1, reboot: 2}\n")
    assert case.signed("bob").approved() == ["bob@x"]
    (said,) = case.refused(reboot=True)
    assert said.startswith("to reboot: the plan needs 2 approvals by different people for reboot")
    assert "has 1 (bob@x)" in said
    assert case.signed("carol").approved(reboot=True) == ["bob@x", "carol@x"]


def test_an_author_missing_from_allowed_signers_may_be_any_approver(case: Case) -> None:
    case.plan = plan(step(risk=Risk.REBOOT), author="root@ctl")
    (said,) = case.signed("bob", "carol").refused()
    assert said.startswith("the author, root@ctl, is not in ")
    case.plan = plan(author="root@ctl")
    case.found.clear()
    assert case.signed("bob").approved() == ["bob@x"]


def test_a_key_listed_under_a_pattern_is_refused(case: Case) -> None:
    case.allow(alice="alice@x", bob="*@x")
    said = case.signed("bob").refused()
    assert "allowed_signers lists key" in said[0]
    assert "for *@x, a pattern, so nodevet cannot tell who signed" in said[0]


# --- certificates, and how long keys hold --------------------------------------------------


def test_a_certificate_is_judged_by_its_authority(case: Case) -> None:
    case.allow(alice="alice@x", ca="*@sre cert-authority")
    assert case.signed("dave-cert.pub").approved() == ["dave@sre"]
    later = replace(case.plan, expires=(NOW + timedelta(days=9)).isoformat())
    case.plan = later
    case.found.clear()
    said = case.signed("dave-cert.pub").refused(now=NOW + timedelta(days=2))
    assert "signed by a stranger" in said[0]


@pytest.mark.parametrize("who", ["late", "outside"])
def test_an_expired_or_foreign_certificate_is_refused(case: Case, who: str) -> None:
    case.allow(alice="alice@x", ca="*@sre cert-authority")
    assert "signed by a stranger" in case.signed(f"{who}-cert.pub").refused()[0]


def test_the_key_of_an_authority_and_an_uncertified_key_are_refused(case: Case) -> None:
    case.allow(alice="alice@x", ca="*@sre cert-authority")
    assert "signed by a stranger" in case.signed("ca").refused()[0]
    case.found.clear()
    assert "signed by a stranger" in case.signed("dave").refused()[0]


def test_people_with_a_name_in_common_count_once(case: Case) -> None:
    """A name that two share does not say who signed."""
    case.allow(carol="carol@x", ca="*@sre,admins cert-authority")
    case.plan = plan(step(risk=Risk.DRAIN), author="carol@x")
    assert "has 1 (erin@sre)" in case.signed("erin-cert.pub", "frank-cert.pub").refused()[-1]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_a_key_is_valid_only_between_its_two_dates(
    case: Case, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    import time

    time.tzset()
    try:
        begin, end = (
            (NOW + timedelta(hours=hours)).astimezone().strftime("%Y%m%d%H%M%S") for hours in (1, 3)
        )
        case.allow(bob=f'bob@x valid-after="{begin}",valid-before="{end}"')
        case.signed("bob")
        assert "stranger" in case.refused(now=NOW)[0]
        assert case.approved(now=NOW + timedelta(hours=2)) == ["bob@x"]
        assert "expired" in case.refused(now=NOW + timedelta(hours=4))[0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_key_for_other_purposes_is_refused(case: Case) -> None:
    case.allow(bob='bob@x namespaces="git"')
    assert "does not let bob@x sign plans with key" in case.signed("bob").refused()[0]
    case.allow(bob='bob@x namespaces="git,nodevet-plan@v1"')
    assert case.approved() == ["bob@x"]


def test_a_person_who_was_removed_is_a_stranger(case: Case) -> None:
    case.signed("bob")
    case.allow(alice="alice@x")
    assert "stranger" in case.refused()[0]


# --- who may -------------------------------------------------------------------------------


def test_risk_and_groups_limit_what_an_approver_may_approve(case: Case) -> None:
    case.rules(
        """\
teams: {oncall: [bob@x, carol@x]}
approvers:
- {who: oncall, risk: idle, groups: rack1}
- {who: carol@x, risk: reboot, groups: [rack1, rack2]}
approvals: {reboot: 1}
"""
    )
    assert case.signed("bob").approved() == ["bob@x"]
    assert case.refused(hosts_groups={"gpu001": ("rack2",)})[0] == (
        "plan.json.bob.sig: bob@x may not approve gpu001/cpu_governor/1, live on a host in rack2: "
        "approval.yaml lets them approve idle in rack1; someone who may must, or plan fewer hosts "
        "and fixes"
    )
    assert "on a host in no group" in case.refused(hosts_groups={})[0]
    case.found.clear()
    assert "lets them approve nothing" in case.signed("alice").refused()[0]
    case.found.clear()
    case.plan = plan(step(), step("gpu101"), step("gpu002", Risk.REBOOT))
    groups = {**GROUPS, "gpu002": ("rack1",)}
    said = case.signed("bob").refused(hosts_groups=groups)
    assert "may not approve gpu101/cpu_governor/1, live on a host in rack2 and 1 more" in said[0]
    assert case.signed("carol").approved(hosts_groups=groups) == ["carol@x"]


def test_the_groups_that_a_plan_claims_do_not_count(case: Case) -> None:
    case.rules("approvers: [{who: bob@x, risk: live, groups: rack1}]\n")
    node = replace(case.plan.nodes["gpu001"], groups=("rack1",))
    case.plan = replace(case.plan, nodes={"gpu001": node})
    assert case.signed("bob").refused(hosts_groups={"gpu001": ("rack2",)})


# --- files and ssh-keygen ------------------------------------------------------------------


def test_signatures_are_found_beside_their_plan(case: Case) -> None:
    case.file.write_bytes(write(case.plan))
    for name in ("plan.json.b.sig", "plan.json.a.sig", "other.json.a.sig", "plan.json.sig.txt"):
        (case.project / name).write_text(name)
    found = signatures(case.file)
    assert [Path(one.name).name for one in found] == ["plan.json.a.sig", "plan.json.b.sig"]
    assert found[0].data == b"plan.json.a.sig"
    (case.project / "plan.json.c.sig").write_bytes(bytes(70_000))
    with pytest.raises(ApproveError, match=r"c\.sig: not a signature"):
        signatures(case.file)


def test_a_pipe_is_not_read_as_a_signature(case: Case) -> None:
    os.mkfifo(case.project / "plan.json.c.sig")
    with pytest.raises(ApproveError, match="not a signature"):
        signatures(case.file)


def test_names_of_signers_become_safe_file_names() -> None:
    file = Path("x/plan.json")
    assert signature_file(file, "alice@example.com") == Path("x/plan.json.alice@example.com.sig")
    odd = [
        "../../etc/x",
        "a/b",
        "a_b",
        "a b",
        "a\nb",
        "é",
        "é" * 300,
        "a" * 300,
        "a" * 301,
        "..",
        "",
    ]
    names = [signature_file(file, name) for name in odd]
    assert len(set(names)) == len(odd)
    assert all(name.parent == file.parent and len(name.name) < 200 for name in names)
    assert all(name.name.isascii() and name.name.isprintable() for name in names)


def program(folder: Path, text: str) -> None:
    """An ssh-keygen that is first on the PATH."""
    path = folder / "ssh-keygen"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('echo "unknown option -- Y" >&2; exit 1', "OpenSSH 8.2 or later is needed"),
        ("""echo 'Unsupported operation for -Y: "x"' >&2; exit 1""", "8.2 or later is needed"),
        (None, "not on the PATH"),
    ],
)
def test_an_ssh_keygen_that_cannot_sign_is_reported(
    case: Case, text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.signed("bob")
    if text is not None:
        program(tmp_path, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    actions: list[Callable[[], object]] = [case.check, lambda: sign(b"x", case.keys / "bob")]
    for action in actions:
        with pytest.raises(ApproveError, match=said):
            action()


def test_an_ssh_keygen_that_hangs_is_ended(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, 'case "$*" in *find-principals) exit 1;; esac; exec sleep 60')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("nodevet.base.sshsig.PATIENCE", 0.5)
    monkeypatch.setattr("nodevet.base.sshsig.HUMAN_PATIENCE", 0.5)
    case.found.append(Signature(name="x", data=b""))
    with pytest.raises(ApproveError, match="gave no answer"):
        case.check()
    with pytest.raises(ApproveError, match="nothing is signed"):
        sign(b"x", case.keys / "bob")


def test_an_ssh_keygen_that_only_exits_0_approves_nothing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code without the words of a good signature is none."""
    program(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    case.found.append(Signature(name="x", data=b""))
    assert "does not fit" in case.refused()[0]


def test_a_key_that_cannot_sign_is_reported(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ApproveError, match="did not sign with"):
        sign(b"x", case.project / "none")
    assert "none" in capfd.readouterr().err
