"""Parts that are alike but for their number share a row of `trend`, `history` and `part`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import five_nights
import pytest
from msgspec.structs import replace
from recorded import document, record, report

from nodevet.model import Finding, Subject, Verdict
from nodevet.past.sheets.parts import fold
from nodevet.store import open_store

Say = Callable[..., str]
UUID = "GPU-2b40377d-1111-2222-3333-444444444444"
KHZ = "cpufreq.policies[].scaling_max_khz"
POLICY = "kernel /sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"


def evidence(night: int) -> bytes:
    policies = [
        {"policies": str(number), "scaling_max_khz": 2_000_000 if number == 7 else 3_500_000}
        for number in range(32)
    ]
    links = [{"link": number, "replay_errors": 5 * night} for number in range(18)]
    gpu = {"index": 0, "uuid": UUID, "bus_id": "0000:19:00.0", "nvlinks": links}
    return document(cpufreq={"policies": policies}, gpu={"gpus": [gpu]})


def link_fails(number: int) -> Finding:
    return Finding(
        verdict=Verdict.FAIL,
        check="nvlink",
        subject=Subject(kind="nvlink", id=f"0/{number}", uuid=UUID),
        expected="active",
        actual="inactive",
    )


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """Two nights of one host, its 18 links down in both; in between a fix of its 32 CPUs."""
    url = f"sqlite:///{tmp_path}/alike.sqlite"
    fixed, (action,) = five_nights.fix_of_the_governor()
    day = {"at": "2026-11-01T14:10:03+00:00", "host": "gpu001"}
    actions = [
        replace(action, resource=POLICY.format(number), **day)
        for number in range(32)
        if number != 7
    ]
    fixed = replace(
        fixed,
        started=day["at"],
        hosts=(replace(fixed.hosts[0], host="gpu001"),),
    )
    findings = tuple(map(link_fails, range(18)))
    with open_store(url) as store:
        record(store, 0, report(findings={}), evidence=evidence(0))
        store.record_fix_run(fixed, tuple(actions))
        record(store, 1, replace(report(night=1), findings=findings), evidence=evidence(1))
    return url


def rows(text: str, words: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if words in line]


def test_a_trend_shows_cpus_with_equal_values_in_one_row(say: Say, store_url: str) -> None:
    words = ("trend", KHZ, "--host", "gpu001", "--store", store_url)
    shown = say(*words)
    assert rows(shown, "3,500,000")[-1].startswith("0-6,8-31 3,500,000 3,500,000")
    assert rows(shown, "2,000,000")[-1].startswith("7 2,000,000 2,000,000")
    assert "the chart has the first" not in shown
    series: Any = json.loads(say(*words, "--format", "json"))["series"]
    assert [part["name"] for part in series] == [str(number) for number in range(32)]


def test_a_history_shows_equal_changes_in_one_row(say: Say, store_url: str) -> None:
    words = ("history", "gpu001", "--store", store_url)
    (change,) = rows(say(*words), "scaling_governor")
    assert change.endswith(f"{POLICY.format('[0-6,8-31]')}: powersave → performance")
    events = json.loads(say(*words, "--format", "json"))["events"]
    assert sum(bool(event.get("action")) for event in events) == 31


def test_a_passport_shows_equal_links_and_cpus_in_one_row(say: Say, store_url: str) -> None:
    words = ("part", UUID, "--store", store_url)
    shown = say(*words)
    (change,) = rows(shown, "scaling_governor")
    assert "policy[0-6,8-31]" in change
    assert [row.split(" link ")[1] for row in rows(shown, "gpu.nvlink_replay_errors")] == [
        "0-17 gpu001 0 5",
        "0-17 5",
    ]
    (fault,) = rows(shown, "inactive")
    assert fault.endswith("nvlink: inactive, expected active (18 nvlinks)")
    answer = json.loads(say(*words, "--format", "json"))
    assert (len(answer["faults"]), len(answer["around"])) == (18, 31)
    assert (len(answer["points"]), len(answer["stays"][0]["counters"])) == (18, 18)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("0", "1", "3"), ["0-1,3"]),
        (("mlx5_0", "mlx5_1"), ["mlx5_[0-1]"]),
        (("numa 0 cpu 0", "numa 0 cpu 1", "numa 1 cpu 2"), ["numa 0 cpu 0-1", "numa 1 cpu 2"]),
        (("0000:19:00.0", "0000:20:00.0"), ["0000:19:00.0", "0000:20:00.0"]),
        (("a", "b", "a 1"), ["a", "b", "a 1"]),
        ((f"{UUID} 0", f"{UUID} 1"), [f"{UUID} 0-1"]),
        (("9" * 5000 + " 1", "9" * 5000 + " 2"), ["9" * 5000 + " 1-2"]),
    ],
    ids=["numbers", "names", "last-number", "hexadecimal", "none", "uuid", "long"],
)
def test_names_that_differ_in_one_number_are_merged_into_ranges(
    names: tuple[str, ...], expected: list[str]
) -> None:
    assert [name for name, _ in fold((name, 1.0) for name in names)] == expected
    assert len(fold(zip(names, range(len(names)), strict=True))) == len(names)
