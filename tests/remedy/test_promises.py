"""What apply, its resume, status and rollback promise is what then happens."""

from pathlib import Path
from typing import Any

import pytest

from nodevet.fix.journal import owner
from nodevet.fix.journal.owner import Controller
from nodevet.fix.next_steps import next_steps
from nodevet.fixing.result import BY_HAND, CONFIRMED, HostResult, Outcome, Result


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_process_state", lambda file, pid: (Controller.GONE, "gone"))


def test_e28_a_resume_of_an_ended_run_refuses_a_reboot_that_would_not_happen(rig: Any) -> None:
    d = rig("n1", "n2", pages="never")
    assert d.apply(drain_hook="true").code == 0
    before = d.lines
    said = d.resume("--reboot", "--override")
    assert said.code == 2 and d.lines == before, said
    assert "--reboot: every host" in said.err and "a resume visits and reboots none" in said.err
    assert all(box.boots == 1 for box in d.w.boxes.values())


def test_e28_a_resume_names_the_hosts_that_it_does_not_reboot(rig: Any) -> None:
    d = rig("n1", "n2", pages="never").by_bob()
    d.w.boxes["n2"].holder = "another"
    assert d.apply(drain_hook="true").code == 1
    d.w.boxes["n2"].holder = ""
    said = d.resume("--reboot", "--override")
    assert "n1: ended earlier, so they are neither visited nor rebooted" in said.err, said
    assert d.w.boxes["n1"].boots == 1


def test_e28_a_resume_without_options_names_the_hosts_that_ended_earlier(rig: Any) -> None:
    d = rig("n1", "n2", pages="never")
    assert d.apply().code == 0
    said = d.resume()
    assert said.code == 0 and "n[1-2]: ended earlier" in said.err, said


@pytest.mark.parametrize("words", [("--verify-reboot", "--canary", "0")])
def test_e28_verify_reboot_without_a_canary_is_refused(rig: Any, words: tuple[str, ...]) -> None:
    d = rig("n1", "n2", pages="never")
    plan = d.plan(drain_hook="true")
    said = d.apply(*words, "--override", plan=plan)
    assert said.code == 2 and "no node would be rebooted" in said.err and not d.reached, said


def test_e28_a_drain_hook_is_killed_after_its_time(rig: Any) -> None:
    d = rig("n1", ecc_mode=True).by_bob()
    hook = d.project / "hook"
    hook.write_text("#!/bin/sh\nsleep 600\n")
    hook.chmod(0o755)
    said = d.apply(drain_hook=str(hook), drain_timeout=1)
    (host,) = d.told()["hosts"]
    assert host["outcome"] == "refused", said
    assert "the drain hook was killed after 1 s (--drain-timeout)" in host["why"]


def test_e28_the_time_of_a_drain_hook_is_signed_and_shown(rig: Any) -> None:
    d = rig("n1", pages="never")
    plan = d.plan(drain_hook="true", drain_timeout=90)
    assert "drain-timeout 90s" in " ".join(d("approve", plan).out.split())
    said = d.apply("--drain-timeout", "5s", plan=plan)
    assert said.code == 2 and "--drain-timeout is 5s, 90s was approved" in said.err, said


@pytest.mark.usefixtures("killed")
def test_e28_status_advises_a_resume_only_if_it_would_read_something(rig: Any) -> None:
    """A resume of it begins nothing: it is advised only if there is something to read."""
    d = rig("n1", pages="never")
    assert d.apply().code == 0
    file = d.run / "journal.jsonl"
    whole, total = file.read_bytes(), d.lines
    for lines in range(1, total):
        file.write_bytes(whole)
        d.cut(lines)
        confirmed(d.run)
        said = d("status", d.run)
        touched = "UNKNOWN" in said.out or "CHANGED" in said.out
        assert (f"apply --resume {d.run}" in said.out) is touched, (lines, said)
        assert "nodevet apply @local" in said.out
        assert ("starts no other step" in said.out) is touched


def confirmed(run: Path) -> None:
    """The first record says that the run was confirmed at the terminal; chained anew."""
    from msgspec.structs import replace

    from nodevet.fix.journal import journal as kept

    records = kept.read(run)
    first, *rest = records
    (run / "journal.jsonl").unlink()
    with kept.Journal.create(run) as made:
        made.write(replace(first, options={**first.options, CONFIRMED: {"user": "r", "uid": 0}}))
        for record in rest:
            made.write(record)


@pytest.mark.usefixtures("killed")
def test_e28_status_of_an_expired_plan_says_that_no_step_is_begun(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1", "n2", pages="never")
    assert d.apply(batch=1).code == 0
    d.cut(d.lines - 3)
    said = d("status", d.run)
    assert "has expired" not in said.out
    monkeypatch.setattr("nodevet.fix.use.status.seconds_since", lambda at: 60.0)
    said = d("status", d.run)
    assert "the plan has expired, so no more steps start" in said.out, said


def test_e28_a_reverted_run_offers_no_rollback(rig: Any) -> None:
    d = rig("n1", pages="never")
    d.w.boxes["n1"].refused["nodevet-pages.service"] = "no"
    said = d.apply()
    assert said.code == 1 and d.outcomes() == {"n1": "failed_and_rolled_back"}, said
    assert "undo it" not in said.err and "undo:" not in d("status", d.run).out


def test_e28_apply_advises_to_plan_a_failed_host_with_the_again_option(rig: Any) -> None:
    d = rig("n1", pages="never")
    d.w.boxes["n1"].refused["nodevet-pages.service"] = "no"
    assert "nodevet plan n1 -b b --again" in d.apply().out


@pytest.mark.parametrize("kind", ["apply", "rollback"])
def test_e28_no_command_is_advised_if_a_journal_contradicts_its_plan(kind: str) -> None:
    host = HostResult(host="n1", outcome=Outcome.UNKNOWN, why=f"x: {BY_HAND}")
    result = Result(
        kind=kind, nodevet="0", plan="p", digest="d", author="a", started="", seconds=0,
        hosts=(host,),
    )  # fmt: skip
    assert [step.command for step in next_steps(result)] == [""]


@pytest.mark.usefixtures("killed")
def test_e28_a_command_that_needs_a_baseline_names_it(rig: Any) -> None:
    """The run was given one by -b, which a resume without it would not find."""
    d = rig("n1", "n2", pages="never")
    said = d.apply(batch=1)
    resume = f"nodevet apply --resume {d.run} -b b"
    assert said.code == 0 and f"if it is interrupted: {resume}\n" in said.err, said
    d.cut(d.lines - 3)
    assert f"next: {resume} (reads 1 interrupted host" in d("status", d.run).out
    assert resume in d.report("table").out
