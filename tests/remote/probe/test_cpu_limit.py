"""Work on hostile data ends after its CPU time, whatever it does with errors."""

import signal

import pytest

from nodevet.remote.probe.cpu_limit import TooLongError, within

LONGEST = 10**9  # steps; nothing ends by itself


class DropsErrors:
    """Python drops what its finalizer raises."""

    def __del__(self) -> None:
        work()


def work() -> None:
    for _ in range(LONGEST):
        pass


def drop_one_and_work() -> None:
    DropsErrors()
    work()


def result_and_handler() -> tuple[int, object]:
    return 7, signal.getsignal(signal.SIGVTALRM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_that_a_finalizer_drops_comes_again() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(TooLongError, match="too long"):
        within(0.1, "too long", drop_one_and_work)
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_ends_in_time_returns_and_leaves_no_timer() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    value, during = within(10, "too long", result_and_handler)
    assert value == 7 and during is not before
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
