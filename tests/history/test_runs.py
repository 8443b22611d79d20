"""`nodevet runs` and `nodevet diff` tell the five nights as they were."""

import json
import re
from collections.abc import Callable

import pytest

from nodevet.base.errors import UserError
from nodevet.past import terminal as recalled
from nodevet.past.listing import refs
from nodevet.past.sheets.diff import diff_sheet
from nodevet.past.use.recall import find_diff
from nodevet.sheet.terminal import render
from nodevet.vet.use.stores import open_history

Say = Callable[..., str]


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_each_run_says_what_began_in_it_and_what_was_fixed(say: Say) -> None:
    runs = json.loads(say("runs", "--format", "json"))["runs"]
    assert [(each["run"]["id"][:8], each["new"], each["fixed"]) for each in runs] == [
        ("20261120", 1, 0),  # the link
        ("20261119", 25, 2),  # persistence mode, and the node that was re-imaged; link, governor
        ("20261118", 18, 0),  # power limits, the link, and the bad GPU in its new host
        ("20261117", 1, 1),
        ("20261116", 3, 0),
    ]
    first = squeezed(say("runs"))[2]
    assert first == ("20261120T020000 nightly Nov 20 02:00, 7 h ago 19.5 s 18 11 ok, 7 fail 1 0")


def test_a_run_reports_since_when_each_finding_fails(say: Say) -> None:
    text = squeezed(say("runs", "last"))
    assert "ok 11 a100-[01-05],gpu[001-004,007-008]" in text
    assert (
        "FAIL power_limit 500 W, expected 700 W gpu[005-006] 16 GPUs Nov 18 02:00, 2 d ago" in text
    )
    assert (
        "FAIL transparent_hugepage always, expected madvise a100-06 transparent_hugepage enabled "
        "Nov 19 02:00, 30 h ago" in text
    )
    lost = squeezed(say("runs", "2026-11-17"))
    assert "UNREACHABLE no answer on port 22 within 10 s a100-04" in lost


def test_changes_since_last_night_and_since_a_day(say: Say) -> None:
    told = squeezed(say("diff"))
    assert told[1] == (
        "20261119T020000 → 20261120T020000 · new: 1 · no longer judged: 1 · still: 41"
    )
    later = squeezed(say("diff", "2026-11-18", "2026-11-19"))
    for line in (
        "FAIL persistence_mode off, expected on gpu[010-012] 24 GPUs",
        "cpu_governor powersave, expected performance a100-02 cpufreq 0-31 Nov 16 02:00, 4 d ago",
        "a100-06 another machine, or re-imaged",
        "kernel 6.1.0-28-amd64 → 6.1.0-31-amd64 gpu002",
        "package nvidia-compute-utils-580 580.105.08-1 → 580.126.09-1 gpu[010-012]",
        "package tuned 2.20.0-1 → 2.24.1-1 gpu[001-003,010-012]",
    ):
        assert line in later
    swapped = say("diff", "2026-11-17", "2026-11-18", "--format", "json")
    found = json.loads(swapped)
    assert {each["what"] for each in found["facts"]} == {
        f"GPU {number} power limit" for number in range(8)
    }
    first, second = found["parts"]
    places = ("host_before", "slot_before", "host_after", "slot_after")
    assert [first[name] for name in places] == ["gpu003", "0000:4c:00.0", "gpu007", "0000:bb:00.0"]
    assert [second[name] for name in places] == ["gpu007", "0000:bb:00.0", "gpu003", "0000:4c:00.0"]
    assert first["id"].startswith("GPU-2b40377d") and first["kind"] == "gpu"
    part = "GPU GPU-2b40377d moved gpu003, 0000:4c:00.0 gpu007, 0000:bb:00.0"
    assert part in squeezed(say("diff", "2026-11-17", "2026-11-18"))
    redacted = say("diff", "2026-11-17", "2026-11-18", "--redact", "--format", "json")
    assert len(json.loads(redacted)["parts"]) == 2
    assert "gpu003" not in redacted
    for form in ("markdown", "html"):
        assert "GPU-2b40377d" in say("diff", "2026-11-17", "2026-11-18", "--format", form)
    assert [each["host"] for each in found["back"]] == ["a100-04"]
    back = json.loads(say("diff", "2026-11-16", "2026-11-17", "--format", "json"))
    assert [each["host"] for each in back["lost"]] == ["a100-04"]


def test_a_host_that_was_reimaged_inherits_nothing(say: Say) -> None:
    found = json.loads(say("diff", "2026-11-18", "2026-11-19", "--format", "json"))
    assert found["replaced"] == ["a100-06"]
    assert "a100-06" in [each["host"] for each in found["new"]]
    assert "a100-06" in [each["host"] for each in found["gone"]]


def test_lines_fit_a_terminal(remembered: str, nine_o_clock: None) -> None:
    with open_history(remembered) as store:
        found = find_diff(store, "2026-11-16", "last")
    sheet = diff_sheet(found.diff, found.refs, recalled.clock())
    for width in (80, 100, 120):
        text = render(sheet, width=width)
        assert max(map(len, text.splitlines())) <= width
    coloured = render(sheet, colour=True, width=80)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render(sheet, width=80)


def test_a_missing_store_is_reported_with_the_command_that_records_one() -> None:
    with (
        pytest.raises(UserError, match=r"^no run has been recorded in /nowhere/x\.sqlite; `node"),
        open_history("sqlite:////nowhere/x.sqlite"),
    ):
        pass


def test_runs_that_began_in_the_same_second_are_distinguished() -> None:
    ids = ["20261120T020000.000Z-5f1c0005", "20261120T020000.700Z-00000000", "20261119T020000"]
    assert refs(ids) == {
        "20261119T020000": "20261119T020000",
        "20261120T020000.000Z-5f1c0005": "20261120T020000.0",
        "20261120T020000.700Z-00000000": "20261120T020000.7",
    }
