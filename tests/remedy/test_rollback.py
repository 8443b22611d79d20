"""Back to exactly what was, over a model whose every call can fail."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodevet.evidence.document import Evidence, decode
from nodevet.fix import formats as fix_formats
from nodevet.fix.formats import render as rendered
from nodevet.fix.journal.account import account
from nodevet.fix.journal.journal import read
from nodevet.fix.journal.state import StepState
from nodevet.fix.model import Step
from nodevet.fix.rollout.waits import pending_until
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome, Refusal, exit_code
from nodevet.fleet.executor import WorkError
from nodevet.resource import Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

World = Any
CONF = "/etc/tmpfiles.d/nodevet-pages.conf"


def applied(world: Callable[..., World], **params: Any) -> tuple[World, Any, Any]:
    w = world(**params)
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    w.node(plan, w.journal())
    return w, plan, before


def test_a_rollback_restores_the_exact_state_and_a_second_one_does_nothing(
    world: Callable[..., World],
) -> None:
    w, plan, before = applied(world)
    box = w.boxes["n1"]
    assert box.everything() != before
    result = w.back(plan)
    assert result.outcome is Outcome.ROLLED_BACK and exit_code([result]) == 0, result
    assert box.everything() == before and not box.holder
    writes = box.writes
    again = w.back(plan)
    assert again.outcome is Outcome.UNCHANGED and box.writes == writes


def test_a_rollback_reports_the_state_before_and_after(world: Callable[..., World]) -> None:
    w, plan, _ = applied(world)
    (step,) = w.back(plan).steps
    was = {seen.resource.kind: seen for seen in step.before}
    now = {seen.resource.kind: seen for seen in step.after}
    assert was["file"].exists and not now["file"].exists
    assert (was["kernel"].value, now["kernel"].value) == ("never", "always")


def test_a_setting_that_does_not_stay_restored_is_reported(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at once more, after one pause for all that was put back."""
    w, plan, before = applied(world)
    box, pauses = w.boxes["n1"], []

    def elsewhere(seconds: float) -> None:
        pauses.append(seconds)
        box.kernel[world.thp] = "never"

    with monkeypatch.context() as patch:
        patch.setattr("nodevet.fix.rollout.rollback.time.sleep", elsewhere)
        result = w.back(plan)
    assert pauses == [w.terms.settle]
    assert result.outcome is Outcome.ROLLBACK_FAILED and exit_code([result]) == 3
    assert result.why == f"kernel {world.thp} is never, and was always"
    assert w.back(plan).outcome is Outcome.ROLLED_BACK and box.everything() == before


def test_a_rollback_is_unknown_if_the_node_is_lost_before_the_last_read(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w, plan, before = applied(world)
    box = w.boxes["n1"]
    with monkeypatch.context() as patch:
        patch.setattr("nodevet.fix.rollout.rollback.time.sleep", lambda seconds: gone(w))
        result = w.back(plan)
    assert result.outcome is Outcome.UNKNOWN and "could not be reached again" in result.why
    assert [step.outcome for step in result.steps] == [Outcome.UNKNOWN]
    strike(w, 0, "", None)
    box.session, box.holder = False, ""
    assert w.back(plan).outcome is Outcome.ROLLED_BACK and box.everything() == before


def gone(w: World) -> None:
    """The node does not answer any more."""

    def fault(box: Any, call: str, now: str) -> None:
        raise WorkError("lost", "the node is gone")

    w.executor.fault = fault


def test_a_rollback_after_a_reboot_restores_the_exact_state(world: Callable[..., World]) -> None:
    """A unit that was only enabled runs after it: that is still the step's own doing."""
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    (step,) = plan.steps
    actions = [
        replace(action, running=None) if isinstance(action, SetUnit) else action
        for action in step.actions
    ]
    before = box.everything()
    fix = w.catalog.fix("pages")
    make = fix.plan

    def enabled_only(*told: Any) -> Any:
        return [replace(change, actions=tuple(actions)) for change in make(*told)]

    w.catalog.fix = lambda check: replace(fix, plan=enabled_only)  # type: ignore[method-assign]
    plan = w.plan()
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    assert box.units["nodevet-pages.service"]["active"] == "inactive"
    w.boxes["n1"].reboot()
    assert box.units["nodevet-pages.service"]["active"] == "active"
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert w.boxes["n1"].everything() == before


def test_changes_since_are_kept_and_reported(world: Callable[..., World]) -> None:
    w, plan, before = applied(world)
    box = w.boxes["n1"]
    box.kernel[world.thp] = "madvise"
    result = w.back(plan)
    assert result.outcome is Outcome.PARTIAL and exit_code([result]) == 1
    assert "is madvise, neither what it was (always) nor what n1/pages/1 set" in result.why
    files, kernel, units, _ = box.everything()
    assert kernel[world.thp] == "madvise"
    assert (files, units) == (before[0], before[2]), "the rest is put back"
    box.kernel[world.thp] = "never"  # as the run left it
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before


def test_a_file_that_someone_changed_since_is_not_touched(world: Callable[..., World]) -> None:
    w, plan, _ = applied(world)
    w.boxes["n1"].files[CONF] = ("mine\n", 0o644)
    result = w.back(plan)
    assert result.outcome is Outcome.PARTIAL and CONF in result.why
    assert w.boxes["n1"].files[CONF] == ("mine\n", 0o644)


def test_a_rollback_refuses_another_node_of_the_same_name(world: Callable[..., World]) -> None:
    w, plan, _ = applied(world)
    box = w.boxes["n1"]
    box.machine_id, writes = "f" * 32, box.writes
    result = w.back(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE)
    assert box.writes == writes


def clone(w: World, **other: Any) -> Any:
    """Another machine answers under n1: its image was copied with the machine id."""
    box = w.boxes["n1"]
    box.hostname = "n1"
    plan = w.plan()
    planned = replace(
        plan.nodes["n1"], hostname="n1.example.com", gpus=tuple(gpu["uuid"] for gpu in box.gpus)
    )
    plan = replace(plan, nodes={"n1": planned})
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.reboot()
    for key, value in other.items():
        setattr(box, key, value)
    return plan


CLONES: list[tuple[dict[str, Any], str]] = [
    ({"hostname": "n2"}, "its host name is n2, the plan was made on n1.example.com"),
    ({"gpus": [{"uuid": "GPU-9", "ecc": [False, False]}]}, "none of the GPUs"),
]


@pytest.mark.parametrize(("other", "told"), CLONES, ids=["host name", "GPUs"])
def test_d4_a_clone_with_the_same_machine_id_is_not_rolled_back_nor_resumed(
    world: Callable[..., World], other: dict[str, Any], told: str
) -> None:
    w = world()
    plan = clone(w, **other)
    before, writes = w.boxes["n1"].everything(), w.boxes["n1"].writes
    result = w.back(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, "stale")
    assert "another node with the same machine id" in result.why and told in result.why
    resumed = w.node(plan, w.journal(), resume=True)
    assert told in resumed.why and resumed.outcome is Outcome.UNKNOWN
    assert w.boxes["n1"].everything() == before and w.boxes["n1"].writes == writes


@pytest.mark.parametrize(
    "other", [{}, {"hostname": "N1"}, {"hostname": ""}, {"hostname": "localhost"}]
)
def test_d4_the_same_node_after_a_reboot_is_rolled_back(
    world: Callable[..., World], other: dict[str, Any]
) -> None:
    w = world()
    plan = clone(w, **other)
    w.boxes["n1"].gpus[0] = {"uuid": "GPU-new", "ecc": [False, False]}  # one was replaced
    assert w.back(plan).outcome is Outcome.ROLLED_BACK


def test_a_busy_gpu(world: Callable[..., World]) -> None:
    w, plan, _ = applied(world, pages={"mode": "never", "risk": "idle"})
    box = w.boxes["n1"]
    box.processes, writes = [{"pid": 7, "command": "job", "gpu_minors": [0]}], box.writes
    result = w.back(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.PRECONDITION)
    assert box.writes == writes


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rollback_restores_the_node_after_a_run_killed_at_any_point(
    world: Callable[..., World], number: int, when: str
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    strike(w, number, when, world.killed)
    with suppress(world.killed):
        w.node(plan, w.journal())
    strike(w, 0, when, world.killed)
    box.session, box.holder = False, ""
    result = w.back(plan)
    assert result.outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED), result
    assert box.everything() == before


@pytest.mark.parametrize("number", range(1, 20))
@pytest.mark.parametrize("how", ["killed", "cut"])
def test_a_second_rollback_completes_one_killed_or_cut_at_any_point(
    world: Callable[..., World], number: int, how: str
) -> None:
    w, plan, before = applied(world)
    box = w.boxes["n1"]
    if how == "killed":
        strike(w, number, "after", world.killed)
    else:
        strike(w, number, "after", lambda: world.cut(box))
    try:
        result = w.back(plan)
    except world.killed:
        result = None
    strike(w, 0, "", world.killed)
    box.session, box.holder = False, ""
    if result is not None and result.outcome is Outcome.ROLLED_BACK:
        assert box.everything() == before
    assert w.back(plan).outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED)
    assert box.everything() == before


@pytest.mark.parametrize("seed", range(40))
def test_a_rollback_restores_the_node_after_commands_killed_in_any_order(
    world: Callable[..., World], seed: int
) -> None:
    """Apply, then resume and rollback in any order, each killed at a random call; at last one
    of them is not, and then a rollback."""
    chance = random.Random(seed)
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    commands = {
        "apply": lambda: w.node(plan, w.journal()),
        "resume": lambda: w.node(plan, w.journal(), resume=True),
        "rollback": lambda: w.back(plan),
    }
    names = ["apply", *chance.choices(("resume", "rollback"), k=chance.randrange(4))]
    told = []
    for name in names:
        number, when = chance.randint(1, 14), chance.choice(("before", "after"))
        strike(w, number, when, world.killed)
        told.append((name, number, when))
        with suppress(world.killed):
            commands[name]()
        strike(w, 0, "", world.killed)
        box.session, box.holder = False, ""
    last = chance.choice(("resume", "rollback"))
    result = commands[last]()
    if last == "resume":
        assert result.outcome in (Outcome.CHANGED, Outcome.FAILED), (told, result)
        assert (box.everything() == before) is (result.outcome is Outcome.FAILED), (told, result)
        result = commands["rollback"]()
    assert result.outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED), (told, result)
    assert box.everything() == before, (told, result)


# --- in force later ------------------------------------------------------------------------------


def ecc(world: Callable[..., World]) -> tuple[World, Any, Any]:
    """ECC is to be on, from a reboot on; its plan is carried out."""
    w = world(ecc_mode=True)
    w.terms = replace(w.terms, drain_hook="true")
    plan = w.plan()
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.PENDING, result
    return w, plan, w.boxes["n1"]


def test_r3_a_mode_that_came_into_force_is_pending_once_it_is_restored(
    world: Callable[..., World],
) -> None:
    w, plan, box = ecc(world)
    box.reboot()
    assert [gpu["ecc"] for gpu in box.gpus] == [[True, True]] * 2
    result = w.back(plan)
    assert [gpu["ecc"] for gpu in box.gpus] == [[True, False]] * 2
    assert result.outcome is Outcome.PENDING and "effective after a reboot" in result.why, result
    told = account(plan, read(w.folder / "run"))
    assert told.hosts[0].outcome is Outcome.PENDING
    for form in fix_formats.formats():
        text = rendered(form, told)
        assert "pending" in text.lower(), form
        assert "effective after a reboot" in text or form == "prometheus", form
    resumed = account(plan, read(w.folder / "run"), kind="apply")
    assert resumed.hosts[0].outcome is Outcome.ROLLED_BACK and not resumed.good(Outcome.ROLLED_BACK)
    again = w.back(plan)
    assert again.outcome is Outcome.PENDING, "it was not rebooted since"
    box.reboot()
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert w.back(plan).outcome is Outcome.UNCHANGED


def test_r3_a_mode_that_never_came_into_force_is_rolled_back(world: Callable[..., World]) -> None:
    w, plan, box = ecc(world)
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert [gpu["ecc"] for gpu in box.gpus] == [[False, False]] * 2


STEP = Step(
    id="n1/x/1", host="n1", fix="x", subjects=(), expected=1, actual=0, risk=Risk.LIVE,
    actions=(WriteFile(path="/etc/x", content="x"),),
    resources=(Resource(kind="file", name="/etc/x"),),
    reason="",
)  # fmt: skip
SERVICE = {"cgroup": "/system.slice/s.service", "unit": "s.service"}


def of(*started: float, boot: str = "b1", uptime: float = 900, complete: bool = True) -> Evidence:
    processes = [
        {"pid": number, "started_s": at, **SERVICE} for number, at in enumerate(started, 7)
    ]
    sections = {
        "host": {"boot_id": boot, "machine_id": "m", "uptime_s": uptime},
        "processes": {"processes": processes, "complete": complete},
    }
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole}))


DONE_AT = StepState(boot_id="b1", uptime_s=500)
BACK_AT = replace(DONE_AT, waits="x", back_boot_id="b1", back_uptime_s=800)


@pytest.mark.parametrize(
    ("then", "evidence", "waits"),
    [
        (DONE_AT, of(400), ""),  # what runs was never bound
        (DONE_AT, of(400, 600), "a restart of s.service"),
        (DONE_AT, of(), ""),
        (DONE_AT, of(400, complete=False), "a restart of s.service"),
        (DONE_AT, of(400, boot="b2"), "a restart of s.service"),
        (BACK_AT, of(600), "a restart of s.service"),
        (BACK_AT, of(850), ""),
        (BACK_AT, of(600, boot="b2"), ""),
    ],
)
def test_r3_a_binding_of_a_service_that_was_restarted_since_is_pending(
    then: StepState, evidence: Evidence, waits: str
) -> None:
    later = replace(STEP, services=("s.service",), effective="restart")
    assert pending_until(later, then, evidence) == waits
    assert pending_until(replace(later, effective="now"), then, evidence) == waits, "with --now"
    with_it = replace(later, effective="now", actions=(SetUnit(name="s.service", restart=True),))
    assert pending_until(with_it, then, evidence) == ""


@pytest.mark.parametrize(
    ("then", "boot", "waits"),
    [
        (DONE_AT, "b1", ""),  # never booted into it
        (DONE_AT, "b2", "a reboot"),
        (StepState(), "b2", "a reboot"),
        (replace(BACK_AT, back_boot_id="b2"), "b2", "a reboot"),
        (replace(BACK_AT, back_boot_id="b2"), "b3", ""),
    ],
)
def test_r3_a_driver_that_was_booted_into_is_pending(
    then: StepState, boot: str, waits: str
) -> None:
    assert pending_until(replace(STEP, effective="reboot"), then, of(boot=boot)) == waits


def strike(w: World, number: int, when: str, error: Any) -> None:
    """Raise at one call, counted from here; 0: never."""
    seen = 0

    def fault(box: Any, call: str, now: str) -> None:
        nonlocal seen
        seen += now == "before"
        if seen == number and now == when:
            if isinstance(error, type):
                raise error
            error()

    w.executor.fault = fault
