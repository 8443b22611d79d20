"""What a run tells while it goes on; and that nothing of the run depends on that."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix.events import Doing, Event, HostBegun, HostEnded, Phase, Resting, RunBegun
from nodevet.fix.rollout.apply import ApplyOrder, Stop, apply
from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.result import Outcome

World = Any


def run(w: World, heard: Callable[[Event], None], **options: Any) -> Any:
    order = ApplyOrder(
        plan=w.plan(),
        context=w.context,
        baselines={"b": w.baseline},
        hosts=frozenset(w.boxes),
        terms=w.terms,
    )
    limits = Limits(canary=1, batch=2)
    with Stop() as stop:
        return apply(order, w.executor, w.journal(), limits, on_event=heard, stop=stop, **options)


def phases(heard: list[Event], host: str) -> list[Phase]:
    return [event.phase for event in heard if isinstance(event, Doing) and event.host == host]


def test_each_host_reports_its_phases_as_events(world: Callable[..., World]) -> None:
    w, heard = world("n1", "n2", pages="never"), list[Event]()
    results, _ = run(w, heard.append, pause=0.01)
    assert heard[:2] == [
        RunBegun(hosts=2, limits=Limits(canary=1, batch=2)),
        HostBegun(host="n1", canary=True, steps=("n1/pages/1",)),
    ]
    assert phases(heard, "n1") == [
        Phase.CONNECTING,
        Phase.READING,
        Phase.WRITING,
        Phase.SETTLING,
        Phase.VERIFYING,
    ]
    settling = next(e for e in heard if isinstance(e, Doing) and e.phase is Phase.SETTLING)
    assert (settling.steps, settling.seconds) == (("n1/pages/1",), w.terms.settle)
    ended = [event.result for event in heard if isinstance(event, HostEnded)]
    assert ended == list(results) and ended[0].outcome is Outcome.CHANGED
    rest = heard.index(HostBegun(host="n2", canary=False, steps=("n2/pages/1",)))
    assert Resting(seconds=0.01) in heard[:rest]


def test_a_step_that_is_reverted_and_a_host_that_is_lost_are_reported(
    world: Callable[..., World],
) -> None:
    w, heard = world("n1", "n2"), list[Event]()
    w.boxes["n1"].refused[world.thp] = "Invalid argument"
    run(w, heard.append)
    back = [e for e in heard if isinstance(e, Doing) and e.phase is Phase.REVERTING]
    assert [one.steps for one in back] == [("n1/pages/1",)] and "Invalid argument" in back[0].why
    w, heard = world("n1"), list[Event]()
    w.terms = replace(w.terms, pauses=(0.01, 0.02, 0.03))
    gone = False

    def fault(box: Any, call: str, when: str) -> None:
        nonlocal gone
        gone = gone or (call == "act" and box.writes == 1)
        if gone:
            world.cut(box)

    w.executor.fault = fault
    results, _ = run(w, heard.append)
    lost = [e for e in heard if isinstance(e, Doing) and e.phase is Phase.LOST]
    assert results[0].outcome is Outcome.UNKNOWN and len(lost) == len(w.terms.pauses)
    assert lost[0].seconds == sum(w.terms.pauses) and lost[-1].seconds == w.terms.pauses[-1]


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("closed"), RuntimeError("odd")])
def test_watching_cannot_disturb_a_run(world: Callable[..., World], error: Exception) -> None:
    w = world("n1", "n2", "n3")

    def heard(event: Event) -> None:
        raise error

    results, why = run(w, heard)
    assert {one.outcome for one in results} == {Outcome.CHANGED} and not why


def test_a_command_names_its_run_first_then_each_host(rig: Callable[..., Any]) -> None:
    d = rig("n1", "n2")
    said = d.apply()
    lines = said.err.splitlines()
    assert lines[:2] == [
        f"nodevet: run {d.run}; watch it: nodevet status {d.run}",
        f"nodevet: if it is interrupted: nodevet apply --resume {d.run} -b b",
    ], said
    assert {"n1  started", "n1  changed", "n2  started", "n2  changed"} <= {*lines}
    lines = d.rollback().err.splitlines()
    assert lines[1] == f"nodevet: if it is interrupted: nodevet rollback {d.run}"
    assert {"n1  started", "n1  rolled back"} <= {*lines}


def test_next_commands_go_to_standard_error_if_the_report_is_not_a_table(
    rig: Callable[..., Any], world: Any
) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n1"].refused[world.thp] = "Invalid argument"
    said = d.apply("--format", "json", canary=1)
    assert said.code == 1 and said.out.startswith("{")
    first, second, kept = said.err.splitlines()[-3:]
    assert first == (
        "nodevet: n1: remove the cause, then plan again: nodevet plan n1 -b b --again"
    ), said.err
    assert second.endswith(f": nodevet apply {d.run}/plan.json --host n2 -b b")
    assert kept == f"nodevet: the run is stored in {d.run}", "nothing is left to undo"
