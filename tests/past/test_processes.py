"""Work over several processes: in order, nothing lost, nothing left behind."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.base.processes import KilledProcess, spread

JOBS = tuple(range(40))


def doubled() -> Callable[[int], tuple[int, int]]:
    return lambda job: (2 * job, os.getpid())


def refuse(killed: KilledProcess, job: int) -> None:
    raise AssertionError((killed, job))


def test_results_come_in_the_order_of_the_work() -> None:
    found = list(
        spread(doubled, JOBS, processes=3, on_killed=refuse, lost_result=lambda job: (0, 0))
    )
    assert [each for each, _ in found] == [2 * job for job in JOBS]
    assert len({pid for _, pid in found}) == 3
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("always", [False, True])
def test_another_process_does_the_work_of_a_killed_one(tmp_path: Path, always: bool) -> None:
    def begin() -> Callable[[int], int]:
        def task(job: int) -> int:
            if job == 7 and (always or not (tmp_path / "once").exists()):
                (tmp_path / "once").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return job

        return task

    told: list[KilledProcess] = []
    found = list(
        spread(
            begin,
            JOBS,
            processes=2,
            on_killed=lambda killed, job: told.append(killed),
            lost_result=lambda job: -job,
        )
    )
    assert found == [-7 if always and job == 7 else job for job in JOBS]
    assert [(each.why, each.again) for each in told] == [
        ("killed by SIGKILL", True),
        *([("killed by SIGKILL", False)] if always else []),
    ]


def test_an_error_of_a_job_is_raised_in_the_caller() -> None:
    def begin() -> Callable[[int], int]:
        return lambda job: 1 // (job - 9)

    with pytest.raises(ZeroDivisionError):
        list(spread(begin, JOBS, processes=2, on_killed=refuse, lost_result=lambda job: 0))
    assert not multiprocessing.active_children()


def test_a_reader_that_stops_leaves_no_process_behind() -> None:
    found = spread(doubled, JOBS, processes=2, on_killed=refuse, lost_result=lambda job: (0, 0))
    next(found)
    assert len(multiprocessing.active_children()) == 2
    found.close()
    assert not multiprocessing.active_children()
