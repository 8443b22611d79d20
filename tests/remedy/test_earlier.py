"""Something resets what an earlier step set: that step is named, the innocent later one stays."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodevet.fixing.result import Outcome

World = Any


@pytest.fixture
def both(world: Callable[..., World]) -> World:
    """A step of files and a kernel value, and one of the GPUs after it."""
    w = world(pages="never", ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    return w


def when(box: Any, calls: tuple[str, int], writes: int, do: Callable[[], None]) -> Any:
    """Does it at the n-th such call once so much was written."""
    seen = [0]

    def fault(box: Any, call: str, when: str) -> None:
        if call == calls[0] and when == "before" and box.writes >= writes:
            seen[0] += 1
            if seen[0] == calls[1]:
                do()

    return fault


@pytest.mark.parametrize(
    ("calls", "writes", "told"),
    [
        (("managers", 1), 4, "before n1/ecc_mode/1 was started"),  # between the two steps
        (("probe", 1), 6, "after n1/ecc_mode/1 was written"),  # while the second is verified
    ],
)
def test_r9_the_step_whose_value_moved_is_named(
    world: Callable[..., World], both: World, calls: tuple[str, int], writes: int, told: str
) -> None:
    plan, box = both.plan(), both.boxes["n1"]
    both.executor.fault = when(
        box, calls, writes, lambda: box.kernel.update({world.thp: "madvise"})
    )
    result = both.node(plan, both.journal())
    first, second = result.steps
    assert result.outcome is first.outcome is Outcome.FAILED, result
    moved = f"kernel {world.thp} is madvise, and was never: something else set it {told}"
    assert first.why == f"does not keep its new value: {moved}"
    assert second.outcome is (Outcome.PENDING if writes == 6 else Outcome.NOT_ATTEMPTED), second
    assert all(gpu["ecc"][1] for gpu in box.gpus) is (writes == 6)
    assert box.kernel[world.thp] == "always"
    assert ("n1/ecc_mode/1 is changed, and stays" in result.why) is (writes == 6)


def test_e23_a_step_that_cannot_have_written_the_changed_value_stays(
    world: Callable[..., World], both: World
) -> None:
    """nvidia-smi sets no mode of huge pages, even if that moves while it runs."""
    plan, box = both.plan(), both.boxes["n1"]
    act = box.act

    def meanwhile(action: Any) -> Any:
        done = act(action)
        if getattr(action, "words", ("",))[0] == "nvidia-smi":
            box.kernel[world.thp] = "madvise"
        return done

    box.act = meanwhile
    result = both.node(plan, both.journal())
    first, second = result.steps
    assert first.outcome is Outcome.FAILED and "something else set it" in first.why, first
    assert second.outcome is Outcome.PENDING and all(gpu["ecc"][1] for gpu in box.gpus), second


def test_r9_a_value_that_moved_and_is_still_right_stops_nothing(
    world: Callable[..., World], both: World
) -> None:
    plan, box = both.plan(), both.boxes["n1"]
    conf = "/etc/tmpfiles.d/nodevet-pages.conf"
    both.executor.fault = when(
        box, ("managers", 1), 4, lambda: box.files.update({conf: ("w never", 0o600)})
    )
    result = both.node(plan, both.journal())
    assert [step.outcome for step in result.steps] == [Outcome.CHANGED, Outcome.PENDING], result
