"""What root confirms at the terminal: a plan for this machine alone, of risk live, and no more."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.fix.approval.policy import PolicyError
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.journal.records import RunBegin
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.settings import Rollout
from nodevet.fix.use import confirmed, fix
from nodevet.fixing.model import Risk
from nodevet.model import Host
from nodevet.resource import Resource, RunCommand

ID = "0f" * 16
NODE = PlannedNode(machine_id=ID, boot_id="b", baseline="base")
STEP = Step(
    id="n1/power_limit/1",
    host="n1",
    fix="power_limit",
    subjects=("GPU 0",),
    expected=700,
    actual=500,
    risk=Risk.LIVE,
    actions=(RunCommand(words=("true",)),),
    resources=(Resource(kind="gpu", name="GPU-1:power_limit_mw"),),
    reason="",
)
PLAN = Plan(
    id="7f3a91c2",
    author="root",
    created="",
    expires="",
    baselines={"base": ""},
    nodes={"n1": NODE},
    steps=(STEP,),
)
HERE = Host(name="n1", local=True)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """This machine has the id that the plan was made on, and the process is root's."""

    def be(id: str) -> None:
        (tmp_path / "machine-id").write_text(id)

    monkeypatch.setattr(confirmed, "MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    be(f"{ID}\n")
    return be


def test_a_live_plan_for_this_machine_alone_may_be_confirmed() -> None:
    assert confirmed.refusal(PLAN, [HERE]) == ""


@pytest.mark.parametrize(
    ("plan", "hosts", "why"),
    [
        ({"nodes": {"n1": NODE, "n2": NODE}}, [HERE], "not a plan for this machine alone"),
        ({}, [HERE, Host(name="n2")], "not a plan for this machine alone"),
        ({}, [], "not a plan for this machine alone"),
        ({"steps": (STEP, replace(STEP, host="n2"))}, [HERE], "not a plan for this machine alone"),
        ({}, [Host(name="n1")], "not this machine"),
        ({}, [Host(name="n2", local=True)], "not this machine"),
        ({}, [replace(HERE, root="/srv/tree")], "not this machine"),
        ({"steps": (STEP, replace(STEP, risk=Risk.IDLE))}, [HERE], "of risk live"),
        ({"steps": (replace(STEP, risk=Risk.REBOOT),)}, [HERE], "of risk live"),
        ({"steps": ()}, [HERE], "of risk live"),
        ({"rollout": Rollout(reboot=True)}, [HERE], "of risk live"),
        ({"rollout": Rollout(verify_reboot=True)}, [HERE], "of risk live"),
        ({"rollout": Rollout(drain_hook="/bin/evil")}, [HERE], "of risk live"),
        ({"nodes": {"n1": replace(NODE, machine_id="e" * 32)}}, [HERE], "is another machine"),
        ({"nodes": {"n1": replace(NODE, machine_id="")}}, [HERE], "is another machine"),
    ],
)
def test_an_edited_plan_cannot_be_confirmed(
    plan: dict[str, Any], hosts: list[Host], why: str
) -> None:
    found = confirmed.refusal(replace(PLAN, **plan), hosts)
    assert why in found
    assert "\n" not in found


@pytest.mark.parametrize("id", ["", "e" * 32, "\n"])
def test_a_plan_for_another_machine_cannot_be_confirmed(
    machine: Callable[[str], None], id: str
) -> None:
    machine(id)
    assert "is another machine" in confirmed.refusal(PLAN, [HERE])


def test_no_plan_can_be_confirmed_without_a_machine_id(tmp_path: Path) -> None:
    (tmp_path / "machine-id").unlink()
    assert "cannot tell which machine this is" in confirmed.refusal(PLAN, [HERE])


def test_only_root_can_confirm_a_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo nodevet apply @local" in confirmed.refusal(PLAN, [HERE])
    with pytest.raises(UserError, match="sudo nodevet apply @local"):
        fix.this_machine(["@local"], [], Project(tmp_path))


@pytest.mark.parametrize("names", [[], ["gpu1"], ["@local", "gpu1"], ["@rack1"], ["localhost"]])
def test_apply_without_a_plan_refuses_other_hosts_and_names_plan_and_approve(
    names: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"nodevet plan HOSTS .* approve .* apply"):
        fix.this_machine(names, [], Project(tmp_path))


def test_an_inventory_entry_with_a_root_tree_does_not_count_as_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodevet.inventory.entries.hostname", lambda: "n1")
    file = tmp_path / "fleet.yaml"
    file.write_text("nodevet: 1\nhosts:\n  n1: {root: /srv/tree}\n")
    with pytest.raises(UserError, match="@local is this machine"):
        fix.this_machine(["@local"], [str(file)], Project(tmp_path))


def test_the_approval_rules_of_a_project_decide_whether_root_may_confirm(tmp_path: Path) -> None:
    assert confirmed.project_refusal(Project(tmp_path)) == ""
    (tmp_path / "allowed_signers").write_text(f"ann {KEY}\n")
    assert confirmed.project_refusal(Project(tmp_path)) == ""
    rules = tmp_path / "approval.yaml"
    rules.write_text("nodevet: 1\n")
    assert "`local: true`" in confirmed.project_refusal(Project(tmp_path))
    rules.write_text("nodevet: 1\nlocal: true\n")
    assert confirmed.project_refusal(Project(tmp_path)) == ""
    closed = confirmed.closing_while_live(PLAN, [HERE], Project(tmp_path))
    assert closed(False) == ""
    assert closed(True) == "no reboot was confirmed"
    rules.write_text("nodevet: 1\nlocal: maybe\n")
    with pytest.raises(PolicyError):
        confirmed.project_refusal(Project(tmp_path))
    assert "cannot tell whether" in closed(False)


def test_a_dangling_link_to_an_approval_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "approval.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PolicyError):
        confirmed.project_refusal(Project(tmp_path))


def test_the_confirming_user_is_the_one_who_used_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    monkeypatch.setenv("SUDO_UID", "1000")
    said = confirmed.by_this_user()
    assert (said.user, said.uid) == ("ann", 1000)
    assert said.approval.who == "ann"
    assert "uid 1000" in said.approval.key


def begin(**options: Any) -> RunBegin:
    return RunBegin(plan="", path="", controller="", pid=1, options=options)


def test_a_journal_is_of_a_confirmed_run_only_if_it_says_so() -> None:
    assert not confirmed.is_confirmed_run([])
    assert not confirmed.is_confirmed_run([begin(canary=1)])
    assert confirmed.is_confirmed_run(
        [begin(canary=1), begin(confirmed={"user": "ann", "uid": 1000})]
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_run_folder_that_other_users_can_write_is_not_resumed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir(mode=0o700)
    files = [run.path / name for name in ("plan.json", "reach.json", "journal.jsonl")]
    for path in files:
        path.write_text("")
        path.chmod(0o600)
    assert confirmed.resume_refusal(run, PLAN, [HERE]) == ""
    assert "not this machine" in confirmed.resume_refusal(run, PLAN, [Host(name="n1")])
    for path in (*files, run.path):
        os.chown(path, 1000, 1000)
        assert f"{path}: users other than root" in confirmed.resume_refusal(run, PLAN, [HERE])
        os.chown(path, 0, 0)
        mode = path.stat().st_mode
        path.chmod(0o620)
        assert f"{path}: users other than root" in confirmed.resume_refusal(run, PLAN, [HERE])
        path.chmod(mode)
    files[0].unlink()
    files[0].symlink_to(files[1])
    assert "users other than root" in confirmed.resume_refusal(run, PLAN, [HERE])
    assert confirmed.no_more_steps(False) == confirmed.no_more_steps(True) != ""
