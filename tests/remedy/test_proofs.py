"""What an apply proves of a check is recorded: what that said once nothing more was changed."""

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import msgspec
import recorded
from written_fixes import SET_NOW

from nodevet.checking.judge import judge
from nodevet.evidence.document import decode
from nodevet.fix.journal import journal
from nodevet.fix.journal.records import HostEnd, Proof
from nodevet.fix.journal.tries import CHANGING
from nodevet.fix.rollout.proofs import ok_keys
from nodevet.fix.use import remember_fixes
from nodevet.fixing.result import Outcome
from nodevet.model import Finding, HostReport, Status, Subject, Verdict
from nodevet.resource.kernel import WriteKernel
from nodevet.store import open_store
from nodevet.store.records.model import FixProof

World = Any
Rig = Callable[..., Any]
DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
CHECK = '''\
"""{name} is what the baseline says."""
from typing import ClassVar
from nodevet.evidence.memory import Memory
from nodevet.model import NODE, Check, CheckParams, compare
class Pages(CheckParams):
    bare: ClassVar[str] = "value"
    value: str
def judge(evidence, params):
    yield compare(NODE, expected=params.value, actual=evidence[Memory].data.{field})
CHECK = Check(params=Pages, reads=("memory.{field}",), judge=judge)
'''
UNREPORTED = """
def judge_more(evidence, params):
    yield from judge(evidence, params)
    yield not_applicable(NODE, why="not reported")
CHECK = Check(params=Pages, reads=("memory.{field}",), judge=judge_more)
"""
TWO = {"CHECK": CHECK, "FIX": SET_NOW, "of": {"defrag": ("thp_defrag", DEFRAG)}}


def proofs_of(w: World) -> tuple[Proof, ...]:
    """Those of the end of the one node; each was asked for after the last change."""
    records = journal.read(w.folder / "run")
    *_, end = (record for record in records if isinstance(record, HostEnd))
    last = max(record.at for record in records if isinstance(record, CHANGING))
    assert all(last <= proof.asked <= proof.at <= end.at for proof in end.proofs)
    return end.proofs


def applied(w: World, **task: Any) -> tuple[Outcome, dict[str, tuple[str, ...]]]:
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    result = w.node(w.plan(), w.journal(), **task)
    return result.outcome, {proof.check: proof.keys for proof in proofs_of(w)}


def test_e19_a_verified_change_is_recorded_as_a_proof(world: Callable[..., World]) -> None:
    w = world()
    assert applied(w) == (Outcome.CHANGED, {"pages": ("pages/node",)})
    (proof,) = proofs_of(w)
    assert (proof.machine_id, proof.subjects) == (w.boxes["n1"].machine_id, ("",))


def test_a_check_that_judges_only_some_values_of_a_part_proves_a_step(
    world: Callable[..., World],
) -> None:
    """As gpu_repair on GPUs that do not report whether their memory is unrepairable."""
    more = {**TWO, "CHECK": CHECK.replace("compare\n", "compare, not_applicable\n") + UNREPORTED}
    w = world("n1", more=more, defrag="never")
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    result = w.node(w.plan(), w.journal())
    assert result.outcome is Outcome.CHANGED, result
    assert [step.verdicts for step in result.steps] == [{"node": "ok"}]
    assert [proof.keys for proof in proofs_of(w)] == [("defrag/node",)]


def test_e19_a_change_verified_after_a_reboot_is_recorded_as_a_proof(
    world: Callable[..., World],
) -> None:
    w = world(ecc_mode=True)
    keys = tuple(f"ecc_mode/gpu/{gpu['uuid']}" for gpu in w.boxes["n1"].gpus)
    assert applied(w, reboot=True) == (Outcome.VERIFIED_AFTER_REBOOT, {"ecc_mode": keys})


def test_e19_a_setting_that_waits_for_a_reboot_proves_nothing(world: Callable[..., World]) -> None:
    assert applied(world(ecc_mode=True)) == (Outcome.PENDING, {})


def test_e19_a_reverted_step_proves_nothing_and_a_step_that_stays_is_proved(
    world: Callable[..., World],
) -> None:
    w = world("n1", more=TWO, pages="never", defrag="always")
    w.boxes["n1"].refused[DEFRAG] = "Invalid argument"
    assert applied(w) == (Outcome.FAILED, {"pages": ("pages/node",)})
    w = world("n1", more=TWO, pages="never", defrag="always")
    w.boxes["n1"].refused["/etc/tmpfiles.d/nodevet-pages.conf"] = "No space left"
    assert applied(w) == (Outcome.FAILED, {})


def test_e19_a_node_that_was_lost_proves_nothing(world: Callable[..., World]) -> None:
    w = world()

    def fault(box: Any, call: str, when: str) -> None:
        if call == "reboot":
            box.gone = 99
            world.cut(box)

    w.executor.fault = fault
    assert applied(w, reboot=True) == (Outcome.UNKNOWN, {})


def test_e19_a_setting_that_was_already_as_expected_proves_nothing(
    world: Callable[..., World],
) -> None:
    w = world()
    plan = w.plan()
    w.boxes["n1"].kernel[world.thp] = "never"  # type: ignore[attr-defined]
    assert w.node(plan, w.journal()).outcome is Outcome.UNCHANGED
    *_, end = journal.read(w.folder / "run")
    assert isinstance(end, HostEnd) and end.proofs == ()


def test_e19_a_reading_from_before_an_action_or_a_reboot_is_discarded(
    world: Callable[..., World],
) -> None:
    w = world()
    session = w.session(w.plan(), "n1", w.journal())
    session.enter()
    for change in (lambda: session.act(WriteKernel(path=world.thp, value="never")), session.reboot):  # type: ignore[attr-defined]
        session.probe("after")
        assert session.reading.asked <= session.reading.at
        change()
        assert session.reading is None


def test_e19_a_part_with_contradictory_verdicts_of_one_check_is_not_proved() -> None:
    said = {"0": ("ok",), "1": ("ok", "fail"), "2": ("unknown",), "3": ("not_applicable",)}
    said["4"] = ("not_applicable", "ok")
    findings = [
        Finding(verdict=Verdict(verdict), check="c", subject=Subject(kind="gpu", id=gpu))
        for gpu, verdicts in said.items()
        for verdict in verdicts
    ]
    assert ok_keys(findings) == ("c/gpu/0", "c/gpu/4")


# --- in the store ---------------------------------------------------------------------------------


def night(url: str, d: Any, hours: float) -> list[tuple[str, str]]:
    """A visit to every box as it is, so many hours from now: news with the plan that is named."""
    at = datetime.now(timezone.utc) + timedelta(hours=hours)
    begun = recorded.run(0, len(d.w.boxes), id=f"{at:%Y%m%dT%H%M%S}", started=at.isoformat())
    told = []
    with open_store(url) as store:
        recorder = store.begin(begun)
        for box in d.w.boxes.values():
            evidence = decode(box.evidence())
            found = judge(evidence, d.baseline, d.w.catalog, host=box.name, today=date.today())
            report = HostReport(
                host=box.name,
                status=Status.VETTED,
                baseline="b",
                findings=found,
                machine_id=box.machine_id,
                boot_id=box.boot_id,
                arrived=at.isoformat(),
                seconds=1.0,
            )
            told += recorder.take(report, None).findings
        recorder.finish(recorded.ended(begun))
        assert recorder.broken is None
    return [(each.news.value, each.after_plan) for each in told]


def proved(url: str) -> list[tuple[str, tuple[str, ...]]]:
    with open_store(url) as store:
        return [(each.host, each.keys) for each in store.proofs()]


def wrong_now(d: Any, url: str, host: str = "n1") -> tuple[int, int]:
    """What is wrong, and what a fix proved to be over since."""
    told = json.loads(d("history", host, "--store", url, "--format", "json").out)
    return len(told["open"]), len(told["fixed"])


def test_e19_a_proven_fix_ends_a_failure_and_a_rollback_reopens_it(rig: Rig, url: str) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n2"].holder = "bob"  # refused: nothing is written
    night(url, d, -1)
    assert wrong_now(d, url) == (1, 0)
    assert d.apply("--store", url, max_fail=5).code == 1
    assert proved(url) == [("n1", ("pages/node",))]
    assert (wrong_now(d, url), wrong_now(d, url, "n2")) == ((0, 1), (1, 0))
    text = " ".join(d("history", "n1", "--store", url).out.split())
    assert "Fixed by plan plan0001 at" in text and "plan0001, which verified it" in text
    assert "n1: fail" in text, "by the last night"
    assert d.rollback("--store", url).code == 0
    assert proved(url) == [("n1", ("pages/node",)), ("n1", ())]
    assert wrong_now(d, url) == (1, 0)
    assert night(url, d, 1) == [("still", ""), ("still", "")]


def test_e19_the_night_after_an_apply_says_fixed_or_came_back(rig: Rig, url: str) -> None:
    d = rig("n1", "n2")
    night(url, d, -1)
    assert d.apply("--store", url).code == 0
    d.w.boxes["n2"].kernel["/sys/kernel/mm/transparent_hugepage/enabled"] = "always"
    assert night(url, d, 1) == [("fixed", ""), ("new", "plan0001")]
    assert night(url, d, 2) == [("still", "plan0001")]
    text = " ".join(d("history", "n2", "--store", url).out.split())
    assert "came back after the fix by plan plan0001" in text


def test_e19_a_killed_run_proves_nothing_before_it_is_resumed(rig: Rig, url: str) -> None:
    d = rig("n1")
    night(url, d, -1)
    assert d.apply().code == 0
    lines = (d.run / "journal.jsonl").read_text().splitlines()
    verified = next(n for n, line in enumerate(lines) if '"step-verified"' in line)
    d.cut(verified + 1)
    assert remember_fixes.remember_run(url, d.run) == ""
    assert proved(url) == [("n1", ())] and wrong_now(d, url) == (1, 0)
    assert d.resume("--store", url).code == 0
    assert proved(url) == [("n1", ()), ("n1", ("pages/node",))] and wrong_now(d, url) == (0, 1)


def test_e19_verdicts_of_a_baseline_of_another_name_are_kept(rig: Rig, url: str) -> None:
    d = rig("n1")
    night(url, d, -1)
    assert d.apply("--store", url).code == 0
    with open_store(url) as store:
        (run,), (proof,) = store.fix_runs(), store.proofs()
        other: FixProof = msgspec.structs.replace(proof, baseline="other")
        store.record_fix_run(run, (), (other,))
    assert wrong_now(d, url) == (1, 0)
