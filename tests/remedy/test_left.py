"""What is no longer as a step left it is left alone, and told: by a resume as by a rollback."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from nodevet.fixing.result import Outcome

World = Any
CONF = "/etc/tmpfiles.d/nodevet-pages.conf"
UNIT = "/etc/systemd/system/nodevet-pages.service"
RUNS = {"enabled": "enabled", "active": "active", "masked": False, "fragment": ""}


def resumed(w: World, plan: Any) -> Any:
    return w.node(plan, w.journal(), resume=True)


def rolled_back(w: World, plan: Any) -> Any:
    return w.back(plan)


@pytest.mark.parametrize("again", [resumed, rolled_back])
def test_d5_a_value_that_an_admin_set_later_is_kept(
    world: Callable[..., World], again: Callable[..., Any]
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.kernel[world.thp] = "madvise"
    result = again(w, plan)
    assert box.kernel[world.thp] == "madvise", result
    assert not result.outcome.good
    told = f"kernel {world.thp} is madvise, neither what it was (always) nor what n1/pages/1 set"
    assert told in result.why
    assert CONF not in box.files and UNIT not in box.files, "what is still the step's goes"


@pytest.mark.parametrize("again", [resumed, rolled_back])
def test_d5_a_unit_whose_file_an_admin_changed_later_is_left_running(
    world: Callable[..., World], again: Callable[..., Any]
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.files[UNIT] = ("[Service]\nExecStart=/opt/site\n", 0o644)
    box.kernel[world.thp] = "always"  # as it was: the check no longer says ok
    result = again(w, plan)
    assert box.files[UNIT][0].endswith("/opt/site\n") and box.units["nodevet-pages.service"] == RUNS
    assert f"file {UNIT}" in result.why and "unit nodevet-pages.service" in result.why
    assert not result.outcome.good and CONF not in box.files


def test_d5_settings_that_an_admin_changed_under_an_interrupted_step_are_not_touched(
    world: Callable[..., World],
) -> None:
    for killed_at in range(6, 13):
        w = world()
        plan, box, calls = w.plan(), w.boxes["n1"], [0]

        def kill(box: Any, call: str, when: str, at: int = killed_at, calls: Any = calls) -> None:
            calls[0] += when == "before"
            if calls[0] == at:
                raise world.killed

        w.executor.fault = kill
        with suppress(world.killed):
            w.node(plan, w.journal())
        w.executor.fault = lambda box, call, when: None
        box.session, box.holder = False, ""
        box.kernel[world.thp] = "madvise"
        result = resumed(w, plan)
        assert box.kernel[world.thp] == "madvise", killed_at
        assert result.outcome in (Outcome.ROLLBACK_FAILED, Outcome.FAILED, Outcome.REFUSED), result


def test_d5_a_rollback_reports_a_missing_gpu_as_unknown_and_not_as_changed(
    world: Callable[..., World],
) -> None:
    w = world(ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    plan, box = w.plan(), w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.PENDING
    del box.gpus[1]
    result = rolled_back(w, plan)
    assert result.outcome is Outcome.UNKNOWN, result
    assert "no GPU has this UUID" in result.why and "changed since" not in result.why
    assert box.gpus[0]["ecc"] == [False, False]
