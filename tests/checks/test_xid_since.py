"""How often an Xid may come: its hours count, whenever the last look was."""

from collections.abc import Callable
from typing import Any

import pytest

GPU = {"gpu": {"count": 1, "gpus": [{"index": 0, "bus_id": "0000:19:00.0"}]}}
HOUR = 3600.0


def log(*events: tuple[str, list[float]]) -> dict[str, Any]:
    """Events of Xid 31, each of a process, at these seconds after boot."""
    return {
        "complete": True,
        "events": [
            {
                "kind": "xid",
                "code": 31,
                "bus_id": "0000:19:00.0",
                "detail": detail,
                "count": len(times),
                "first_s": times[0],
                "last_s": times[-1],
                "times_s": times,
            }
            for detail, times in events
        ],
    }


@pytest.mark.parametrize(
    ("then", "now", "verdict"),
    [
        # too often before the last look, and not since
        ([("a", [1 * HOUR, 2 * HOUR, 3 * HOUR])], [("a", [1 * HOUR, 2 * HOUR, 3 * HOUR])], "ok"),
        # the one that passes the limit came since, of another process than those before
        ([("a", [1 * HOUR, 2 * HOUR])], [("a", [1 * HOUR, 2 * HOUR]), ("b", [9 * HOUR])], "fail"),
        # one came since, and those before it were longer ago than the hours
        ([("a", [1 * HOUR, 2 * HOUR])], [("a", [1 * HOUR, 2 * HOUR]), ("b", [40 * HOUR])], "ok"),
        # too often once, and one since, alone
        (
            [("a", [1 * HOUR, 2 * HOUR, 3 * HOUR])],
            [("a", [1 * HOUR, 2 * HOUR, 3 * HOUR, 50 * HOUR])],
            "ok",
        ),
    ],
)
def test_repeated_xids_are_counted_within_hours_and_across_runs(
    ask: Callable[..., Any],
    make_params: Callable[..., Any],
    make_document: Callable[..., Any],
    then: Any,
    now: Any,
    verdict: str,
) -> None:
    document = make_document(
        {
            **GPU,
            "kernel_log": log(*now),
            "since": {"before_s": 40 * HOUR, "kernel_log": log(*then)},
        }
    )
    params = make_params("xid", {"repeats": {"31": 2}, "hours": 24})
    (found,) = ask("xid", params, document)
    assert found.verdict.value == verdict
