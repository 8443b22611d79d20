"""`apply --host`: some hosts of a plan, under all that guards the whole of it."""

import json
from collections.abc import Callable
from typing import Any

from nodevet.fix.journal.journal import RunBegin, read

NAMES = ("n1", "n2", "n3", "n4")


def test_only_the_chosen_hosts_are_visited_and_the_others_are_reported(
    rig: Callable[..., Any],
) -> None:
    d = rig(*NAMES)
    said = d.apply("--host", "n[2-3]")
    assert said.code == 0, said
    assert d.reached == {"n2", "n3"}
    assert "nodevet: only n[2-3]: 2 hosts of the plan not attempted" in said.err
    assert d.outcomes() == {
        "n1": "not_attempted", "n2": "changed", "n3": "changed", "n4": "not_attempted",
    }  # fmt: skip
    assert {host["why"] for host in d.told()["hosts"]} == {"", "left out by --host"}
    assert d.report().code == 0, "of the journal too"
    rolled = d.rollback()
    assert rolled.code == 0 and d.reached == {"n2", "n3"}, rolled


def test_failures_of_the_chosen_hosts_count(rig: Callable[..., Any], world: Any) -> None:
    d = rig(*NAMES)
    d.w.boxes["n2"].refused[world.thp] = "Invalid argument"
    said = d.apply("--host", "n2", "--host", "n3", canary=1)
    assert said.code == 1, said
    assert d.reached == {"n2"}
    outcomes = d.told()["hosts"]
    assert [host["why"] for host in outcomes if host["outcome"] == "not_attempted"] == [
        "left out by --host", "the canary failed", "left out by --host",
    ]  # fmt: skip


def test_a_host_that_is_not_in_the_plan_is_an_error_and_no_run(rig: Callable[..., Any]) -> None:
    d = rig(*NAMES)
    said = d.apply("--host", "n[4-5]")
    assert said.code == 2 and not d.run.exists() and not d.reached, said
    assert said.err == "nodevet: --host: n5: not in the plan, which is for n[1-4]\n"
    assert d.apply("--host", "n[").code == 2


def test_a_resumed_run_keeps_the_hosts_it_was_begun_for(rig: Callable[..., Any]) -> None:
    d = rig(*NAMES)
    assert d.apply("--host", "n2,n3", canary=1).code == 0
    first = next(record for record in read(d.run) if isinstance(record, RunBegin))
    assert first.options["only"] == ["n2", "n3"]
    ends = [n for n, line in enumerate(lines(d)) if json.loads(line)["is"] == "host-end"]
    d.cut(ends[0] + 1)  # the canary, and nothing after it
    d.reached.clear()
    refused = d.resume("--host", "n1")
    assert refused.code == 2 and "a resumed run keeps its hosts" in refused.err
    assert d.report().code == 3 and d.outcomes()["n1"] == "not_attempted"
    said = d.resume()
    assert said.code == 0 and d.reached == {"n3"}, said
    assert d.outcomes()["n1"] == d.outcomes()["n4"] == "not_attempted"
    d.cut(0)
    d.reached.clear()
    said = d.resume()
    assert said.code == 2 and not d.reached, "nothing says which hosts were chosen"
    assert "the run ended before it started" in said.err


def test_e28_a_run_that_never_began_is_applied_again_in_another_folder(
    rig: Callable[..., Any],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    d.cut(0)
    advice = "apply the plan again, with another folder"
    assert all(advice in said.err for said in (d.resume(), d("status", d.run))), advice


def test_e26_a_run_resumed_after_a_rollback_can_be_rolled_back_again(
    rig: Callable[..., Any],
) -> None:
    """A run that was killed before its first node, rolled back, and resumed."""
    d = rig("n1", "n2")
    assert d.apply().code == 0 and d.rollback().code == 0
    d.cut(1)
    for kept in d.run.glob("rollback-*.json"):
        kept.unlink()
    assert d.rollback().code == 0
    said = d.resume()
    assert said.code == 1 and "the run was rolled back: plan again" in said.out, said
    for _ in range(2):
        again = d.rollback()
        assert again.code == 0 and "missing" not in f"{again.out}{again.err}", again
    assert d("status", d.run).code == 0


def test_shares_and_the_failure_limit_scale_with_the_chosen_hosts(
    rig: Callable[..., Any],
) -> None:
    d = rig(*(f"n{number}" for number in range(1, 11)))
    said = d.apply("--host", "n[1-5]", max_fail=4, batch=4)
    assert said.code == 0, said
    assert "not as approved: --max-fail is 2, 4 was approved" in said.err
    options = d.told()["options"]
    assert (options["max_fail"], options["batch"]) == (2, 4)
    given = d.apply("--host", "n[6-9]", "--batch", "50%", "--override", "--max-fail", "4",
                    "--run", d.run.with_name("two"), plan=d.project / "plan.json")  # fmt: skip
    assert given.code == 0, given
    options = json.loads((d.run.with_name("two") / "result.json").read_bytes())["options"]
    assert (options["max_fail"], options["batch"]) == (4, 2)


def test_a_plan_whose_baseline_is_not_here_is_refused_before_a_run_is_made(
    rig: Callable[..., Any],
) -> None:
    d = rig("n1", "n2")
    plan = d.plan()
    said = d("apply", plan, "--run", d.run, "-b", "generic")
    assert said.code == 2 and not d.run.exists() and not d.reached, said
    assert "the baseline b that the plan was made with is not found" in said.err
    assert "name it with -b b.yaml" in said.err
    file = d.project / "baselines" / "b.yaml"
    text = file.read_text()
    file.write_text(f"{text}\n# another line\n")
    said = d("apply", plan, "--run", d.run, "-b", "b")
    assert said.code == 2 and not d.run.exists() and not d.reached, said
    assert "the baseline b was changed since the plan was made: plan again" in said.err
    file.write_text(text)
    assert d.apply(plan=plan).code == 0
    d.cut(d.lines - 2)
    d.reached.clear()
    said = d("apply", "--resume", d.run, "-b", "generic")
    assert said.code == 2 and not d.reached, "a run that is resumed, too"


def lines(d: Any) -> list[str]:
    return (d.run / "journal.jsonl").read_text().splitlines()
