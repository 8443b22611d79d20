"""How a plan is carried out is what was approved: from the command line, over nodes in memory."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_this_process import Said, nodevet
from msgspec.structs import replace

from nodevet import __version__
from nodevet.fix.model import Plan
from nodevet.fix.plan import plan_file
from nodevet.fix.rollout.apply import HostRunner
from nodevet.fix.settings import Rollout, missing_hook
from nodevet.fixing.model import Risk
from nodevet.fleet.controller import ssh_executor
from nodevet.vet.use.context import open_context

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")

QUICK = Rollout(settle=0, boot_settle=0)


class KilledHereError(BaseException):
    """The controller was killed."""


class RolloutRig:
    """A project with nodes in memory, where ann may approve, and a run at `run`."""

    def __init__(self, world: Any, key: Path) -> None:
        self.world = world
        self.project: Path = world.folder
        self.key = key
        self.run = self.project / "run"
        (self.project / "baselines").mkdir()
        (self.project / "baselines" / "b.yaml").write_text(
            "nodevet: 1\nexpect: {pages: never}\nfix: [pages]\n"
        )
        public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        (self.project / "allowed_signers").write_text(f"ann {public}\nbob ssh-ed25519 AAAA\n")
        (self.project / "approval.yaml").write_text(
            "nodevet: 1\napprovals: {drain: 1, reboot: 1}\n"
        )
        world.baseline = open_context(self.project, ("b",)).baselines[0]

    def plan(self, rollout: Rollout = QUICK, version: str = __version__) -> Plan:
        """An approved plan of all nodes, by bob."""
        plan = replace(self.world.plan(), rollout=rollout, nodevet=version, author="bob")
        file = self.project / "plan.json"
        file.write_bytes(plan_file.write(plan))
        words = ("ssh-keygen", "-q", "-Y", "sign", "-n", "nodevet-plan@v1", "-f", self.key, file)
        file.with_name("plan.json.sig").unlink(missing_ok=True)
        subprocess.run(words, check=True, timeout=30, stderr=subprocess.DEVNULL)
        file.with_name("plan.json.sig").rename(file.with_name("plan.json.ann.sig"))
        return plan

    def apply(self, *words: str | Path) -> Said:
        reach = ("-b", "b", "--project", self.project)
        return nodevet("apply", self.project / "plan.json", *reach, "--run", self.run, *words)

    def resume(self, *words: str | Path) -> Said:
        reach = ("-b", "b", "--project", self.project)
        return nodevet("apply", "--resume", self.run, *reach, *words)

    def killed(self, host: str, call: str, *words: str | Path) -> None:
        """An apply whose controller dies before a call of one node, and with it every session."""

        def fault(box: Any, called: str, when: str) -> None:
            if box.name == host and called == call:
                raise KilledHereError

        def here(fleet: HostRunner, host: str, canary: bool) -> None:
            fleet._ended.put(fleet._work(host, canary))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.world.executor, "fault", fault)
            patch.setattr(HostRunner, "_begin", here)  # a thread that ends would not end the run
            with pytest.raises(KilledHereError):
                self.apply(*words)
        for box in self.world.boxes.values():
            box.session, box.holder = False, ""

    @property
    def result(self) -> Any:
        return json.loads((self.run / "result.json").read_bytes())

    @property
    def calls(self) -> list[str]:
        return [call for box in self.world.boxes.values() for call in box.calls]


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "ann"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def rig(
    world: Callable[..., Any], key: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RolloutRig]:
    def make(*names: str) -> RolloutRig:
        made = world(*names)

        class InMemory:
            def __init__(self, *_: object) -> None: ...

            def __enter__(self) -> Any:
                return made.executor

            def __exit__(self, *_: object) -> None: ...

        monkeypatch.setattr(ssh_executor, "SshExecutor", InMemory)
        return RolloutRig(made, key)

    return make


def test_d23_other_limits_than_the_approved_ones_are_refused(
    rig: Callable[..., RolloutRig],
) -> None:
    d = rig("n1", "n2")
    d.plan()
    for words, told in (
        (("--canary", "0"), "--canary is 0, 1 was approved"),
        (("--batch", "50%"), "--batch is 1, 10 was approved"),
        (("--max-fail", "2"), "--max-fail is 2, 0 was approved"),
        (("--settle", "0.01"), "--settle is 0.01s, 0s was approved"),
        (("--pause", "1"), "--pause is 1s, 0s was approved"),
        (("--drain-hook", "true"), "--drain-hook is true, none was approved"),
        (("--reboot", "--drain-hook", "true"), "--reboot is on, off was approved"),
    ):
        said = d.apply(*words)
        assert said.code == 2 and "not what was approved: " in said.err and told in said.err, said
        assert "--override" in said.err and not d.run.exists()
    assert d.calls == []
    said = d.apply("--canary", "1", "--settle", "0")
    assert said.code == 0, said
    assert d.result["options"]["overrides"] == []


def test_d23_an_override_is_reported_in_the_report_and_the_journal(
    rig: Callable[..., RolloutRig],
) -> None:
    d = rig("n1", "n2")
    d.plan()
    said = d.apply("--canary", "0", "--override")
    told = "--canary is 0, 1 was approved"
    assert said.code == 0 and f"not as approved: {told}" in said.err, said
    assert told in said.out
    assert d.result["options"]["overrides"] == [told] and d.result["options"]["canary"] == 0
    first = json.loads((d.run / "journal.jsonl").read_bytes().splitlines()[0])
    assert first["options"]["overrides"] == [told]
    for ending in ("md", "html"):
        assert "1 was approved" in (d.run / f"result.{ending}").read_text()


def test_d23_a_plan_of_another_nodevet_needs_an_override(rig: Callable[..., RolloutRig]) -> None:
    d = rig("n1")
    d.plan(version="0.0.1")
    said = d.apply()
    assert said.code == 2 and f"this is nodevet {__version__}, 0.0.1 made the plan" in said.err
    assert d.calls == [] and not d.run.exists()
    said = d.apply("--override")
    assert said.code == 0 and "0.0.1 made the plan" in said.out, said


def test_d23_a_plan_that_reboots_needs_the_approvals_of_a_reboot(
    rig: Callable[..., RolloutRig],
) -> None:
    d = rig("n1")
    d.plan(replace(QUICK, verify_reboot=True, drain_hook="true"))
    (d.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 2}\n")
    said = d.apply()
    assert said.code == 2 and "the plan needs 2 approvals" in said.err and d.calls == [], said


def test_d23_a_limit_that_was_changed_after_it_was_signed_voids_it(
    rig: Callable[..., RolloutRig],
) -> None:
    d = rig("n1")
    plan = d.plan()
    loose = replace(plan, rollout=replace(plan.rollout, max_fail=100))
    (d.project / "plan.json").write_bytes(plan_file.write(loose))
    said = d.apply()
    assert said.code == 2 and "does not fit this plan" in said.err and d.calls == []


def test_d7_a_resumed_run_keeps_its_limits(rig: Callable[..., RolloutRig]) -> None:
    """Killed at the reboot of its canary, and resumed without a word: it is rebooted."""
    d = rig("n1", "n2", "n3")
    hook = d.project / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" >>{d.project}/drained\n')
    hook.chmod(0o755)
    d.plan(replace(QUICK, canary=1, batch=1, max_fail=1, verify_reboot=True, drain_hook=str(hook)))
    d.killed("n1", "reboot")
    said = d.resume()
    assert said.code == 0, said
    hosts = {host["host"]: host for host in d.result["hosts"]}
    assert hosts["n1"]["canary"] and hosts["n1"]["rebooted"], said
    assert not hosts["n2"]["rebooted"] and not hosts["n3"]["rebooted"]
    options = d.result["options"]
    assert (options["batch"], options["max_fail"], options["overrides"]) == (1, 1, [])


def test_d7_a_resumed_run_keeps_limits_changed_with_an_override(
    rig: Callable[..., RolloutRig],
) -> None:
    d = rig("n1", "n2")
    d.plan()
    d.killed("n1", "act", "--max-fail", "2", "--override")
    said = d.resume("--max-fail", "0")
    assert said.code == 2 and "--max-fail is 0, 2 was approved" in said.err, said
    said = d.resume()
    assert said.code in (0, 1), said
    assert d.result["options"]["overrides"] == ["--max-fail is 2, 0 was approved"]


@pytest.mark.parametrize("hook", ["", "  ", "/no/such/hook", "no-such-program-at-all --now", "'x"])
def test_r15_a_missing_drain_hook_is_an_error_before_any_node_is_reached(
    rig: Callable[..., RolloutRig], hook: str
) -> None:
    d = rig("n1")
    d.plan(replace(QUICK, verify_reboot=True, drain_hook=hook))
    said = d.apply()
    assert said.code == 2 and "--drain-hook" in said.err and d.calls == [], said
    assert not d.run.exists()


def test_r15_a_hook_must_be_executable_where_a_risk_needs_it(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\n")
    care = Rollout(drain_hook=f"{hook} --now")
    assert not missing_hook([Risk.LIVE, Risk.IDLE], care)
    assert "is not a program that can run here" in missing_hook([Risk.LIVE, Risk.DRAIN], care)
    hook.chmod(0o755)
    assert not missing_hook([Risk.DRAIN], care) and os.access(hook, os.X_OK)


def test_d23_someone_elses_run_is_rolled_back_with_approvals_alone(
    rig: Callable[..., RolloutRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodevet.fix.journal import folder

    d = rig("n1")
    box = d.world.boxes["n1"]
    before = box.everything()
    d.plan()
    monkeypatch.setattr(folder, "operator", lambda: "carla")
    assert d.apply().code == 0
    changed = box.everything()
    monkeypatch.setattr(folder, "operator", lambda: "dora")
    calls = len(d.calls)
    back = ("rollback", d.run, "--project", d.project)
    said = nodevet(*back)
    assert said.code == 2 and "applied by carla, not by dora" in said.err, said
    assert "its rollback by another user needs 1 approval for live and has none" in said.err
    assert box.everything() == changed and len(d.calls) == calls
    # who approved the plan has not approved that
    shutil.copy(d.run / "plan.json.ann.sig", d.run / "rollback.ann.sig")
    said = nodevet(*back)
    assert said.code == 2 and "does not fit this plan" in said.err and len(d.calls) == calls
    (d.run / "rollback.ann.sig").unlink()
    sign = ("approve", d.run, "--rollback", "--project", d.project)
    assert nodevet(*sign, "--verify").code == 1
    said = nodevet(*sign, "--key", d.key, "--yes")
    assert said.code == 0 and f"run it with: nodevet rollback {d.run}" in said.out, said
    assert nodevet(*sign, "--verify").code == 0
    said = nodevet(*back)
    assert said.code == 0 and box.everything() == before, said
    result = json.loads((d.run / "rollback-1.json").read_bytes())
    assert [one["who"] for one in result["approvals"]] == ["ann"]


def test_d23_whoever_applied_a_run_rolls_it_back_at_once(rig: Callable[..., RolloutRig]) -> None:
    d = rig("n1")
    before = d.world.boxes["n1"].everything()
    d.plan()
    assert d.apply().code == 0
    assert not list(d.run.glob("rollback*.sig")), "nobody approved that"
    said = nodevet("rollback", d.run, "--project", d.project)
    assert said.code == 0 and d.world.boxes["n1"].everything() == before, said


def test_d16_a_rollback_by_someone_else_stops_if_its_approval_is_revoked(
    rig: Callable[..., RolloutRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodevet.fix.journal import folder

    d = rig("n1")
    box = d.world.boxes["n1"]
    d.plan()
    monkeypatch.setattr(folder, "operator", lambda: "carla")
    assert d.apply().code == 0
    monkeypatch.setattr(folder, "operator", lambda: "dora")
    signed = ("approve", d.run, "--rollback", "--project", d.project, "--key", d.key, "--yes")
    assert nodevet(*signed).code == 0
    changed = box.everything()

    def revoke(box: Any, call: str, when: str) -> None:
        if call == "lock":
            (d.project / "allowed_signers").write_text("bob ssh-ed25519 AAAA\n")

    d.world.executor.fault = revoke
    said = nodevet("rollback", d.run, "--project", d.project)
    assert said.code == 1 and "signed by a stranger" in said.out, said
    assert box.everything() == changed
