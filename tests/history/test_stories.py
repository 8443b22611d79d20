"""`nodevet history`, `trend` and `passport` tell what happened to hosts, parts and fields."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import five_nights
import pytest
from recorded import ended, record, report, run

from nodevet.base.errors import UserError
from nodevet.past.use.recall import find_diff
from nodevet.store import open_store
from nodevet.store.records.model import RunState

Say = Callable[..., str]
BAD = five_nights.board(five_nights.BAD_GPU)
NEW = five_nights.board(five_nights.NEW_GPU)


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def happened(say: Say, host: str) -> list[str]:
    lines = squeezed(say("history", host))
    return lines[lines.index("WHEN WHAT") + 1 :]


def test_the_history_follows_a_fault_with_its_gpu_to_another_host(say: Say) -> None:
    bad, good = BAD["uuid"][:12], five_nights.board(("gpu007", 5))["uuid"][:12]
    assert happened(say, "gpu003") == [
        "Nov 16 02:00 first seen",
        "Nov 17 02:00 fails row_remapping: failure: on, expected off (GPU 2)",
        "Nov 18 02:00 booted",
        f"part out GPU {bad} at 0000:4c:00.0, to gpu007, 0000:bb:00.0",
        f"part in GPU {good} at 0000:4c:00.0, from gpu007, 0000:bb:00.0",
        "gone row_remapping: failure: on, expected off (GPU 2) (since Nov 17 02:00); it left with "
        "the part",
    ]
    last = happened(say, "gpu007")[-4:]
    assert last[0] == "Nov 20 02:00 booted"
    assert last[1:3] == [
        f"part out GPU {bad} at 0000:bb:00.0",
        f"part in GPU {NEW['uuid'][:12]} at 0000:bb:00.0",
    ]


def test_a_history_reports_fixes_unreachable_nights_and_a_new_machine(say: Say) -> None:
    fixed = happened(say, "a100-02")
    assert fixed[2:5] == [
        "Nov 18 13:42 planned cpu_governor; plan 5f1c00aa of ann",
        "Nov 18 14:10 fix changed: plan 5f1c00aa of ann, approved by bob, run by ann@ctl1",
        "kernel /sys/devices/system/cpu/cpufreq/policy*/scaling_governor: powersave → performance",
    ]
    assert fixed[5].startswith("Nov 19 02:00 fixed cpu_governor: powersave, expected performance")
    assert " ".join(fixed[5:]).endswith("by plan 5f1c00aa, Nov 18 14:10")
    assert happened(say, "a100-04") == [
        "Nov 16 02:00 first seen",
        "Nov 17 02:00 not vetted unreachable: no answer on port 22 within 10 s",
        "Nov 18 02:00 vetted again",
    ]
    anew = json.loads(say("history", "a100-06", "--format", "json"))
    kinds = [(each["run"][:8], each["kind"]) for each in anew["events"]]
    assert kinds[2:] == [
        ("20261119", "another machine"),
        ("20261119", "gone"),
        ("20261119", "fails"),
    ]
    assert anew["open"][0]["first"]["run"][:8] == "20261119"


def test_a_flapping_infiniband_link_is_reported_each_time(say: Say) -> None:
    kinds = [line.split("infiniband")[0].split()[-1] for line in happened(say, "gpu009")[1:]]
    assert kinds == ["fails", "fixed", "fails", "fixed", "fails"]


def test_a_passport_has_what_an_rma_asks_for(say: Say) -> None:
    found = json.loads(say("part", BAD["serial"], "--format", "json"))
    assert found["part"]["id"] == BAD["uuid"]
    assert BAD["serial"] in found["part"]["names"]
    stays = [(each["host"], each["slot"], each["open"]) for each in found["stays"]]
    assert stays == [("gpu003", "0000:4c:00.0", False), ("gpu007", "0000:bb:00.0", False)]
    counted = {
        (stay["host"], each["name"]): (each["before"], each["after"])
        for stay in found["stays"]
        for each in stay["counters"]
    }
    assert counted["gpu003", "gpu.ecc_aggregate_corrected"] == (40, 310)
    assert counted["gpu007", "gpu.ecc_aggregate_corrected"] == (512, 890)
    assert counted["gpu003", "gpu.remapped_uncorrected"] == (0, 8)
    assert [(each["host"], each["check"]) for each in found["faults"]] == [
        ("gpu003", "row_remapping"),
        ("gpu007", "row_remapping"),
    ]
    new = json.loads(say("history", NEW["uuid"][:13], "--format", "json"))
    assert (new["faults"], len(new["stays"])) == ([], 1)


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("part", BAD["uuid"]), BAD["uuid"]),
        (("history", BAD["uuid"]), BAD["uuid"]),
        (("history", "gpu003"), BAD["uuid"][:12]),
        (("history", "a100-04"), "unreachable"),
        (("history", "a100-02"), "powersave"),
        (("runs", "--fixes"), "changed"),
        (("runs",), "sweep 1"),
        (("runs", "2026-11-17"), "unreachable"),
        (("diff", "2026-11-18", "2026-11-19"), "persistence_mode"),
        (("diff", "2026-11-16", "2026-11-17"), "not vetted"),
        (("trend", "power_limit"), "power_limit"),
        (("trend", "gpu.gpus[].pcie_replay_counter", "--host", "gpu001"), "118"),
        (("blame", "persistence_mode"), "580.126.09"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_redacted_documents_name_nothing_of_the_site(
    say: Say, words: tuple[str, ...], stays: str
) -> None:
    for form in ("table", "json", "markdown", "html"):
        text = re.sub(r"sha256-[\w+/=]+", "", say(*words, "--redact", "--format", form))
        assert stays in text, form
        if words[0] != "runs":
            assert "host 1" in text or "host [1" in text, form
        if words[0] == "part":
            assert "host 2" in text, form
        people = ("5f1c00aa", "ctl1", "bob", "/home/ann")
        for word in (*five_nights.HOSTS, "site-", "five_nights", "nightly", "port 22", *people):
            assert word not in text, (form, word)
        for host, night in (("gpu003", 5), ("a100-06", 1)):
            told = five_nights.document(host, night)["sections"]["host"]["data"]
            assert told["machine_id"] not in text and told["boot_id"] not in text, form


def test_a_field_that_names_machines_does_not_leave_the_site(say: Say) -> None:
    with pytest.raises(UserError, match=r"--redact: host\.hostname identifies a machine"):
        say("trend", "host.hostname", "--redact")


def test_the_history_of_a_nic_lists_its_faults_and_counters(say: Say) -> None:
    guid = five_nights.document("gpu009", 1)["sections"]["infiniband"]["data"]["devices"][3]
    found = json.loads(say("history", guid["node_guid"], "--format", "json"))
    assert [(each["host"], each["open"]) for each in found["faults"]] == [
        ("gpu009", False),
        ("gpu009", False),
        ("gpu009", True),
    ]
    counted = {each["name"]: each["after"] for each in found["stays"][0]["counters"]}
    assert counted["infiniband.link_downed"] == 6


def test_the_trend_of_a_check_and_of_a_field(say: Say) -> None:
    check = json.loads(say("trend", "infiniband", "--format", "json"))
    assert [point["failing"] for point in check["points"]] == [1, 0, 1, 0, 1]
    assert [point["judged"] for point in check["points"]] == [18, 17, 18, 18, 18]
    field = json.loads(say("trend", "gpu.gpus[].temperature_gpu_c", "--format", "json"))
    assert [point["count"] for point in field["points"]] == [144, 136, 144, 144, 144]
    assert all(20 < p["least"] < p["median"] < p["most"] < 40 for p in field["points"])
    one = json.loads(
        say("trend", "gpu.gpus[].pcie_replay_counter", "--host", "gpu001", "--format", "json")
    )
    (moved,) = (each["values"] for each in one["series"] if any(each["values"]))
    assert moved == [3, 11, 30, 62, 118]
    shown = squeezed(say("trend", "power_limit"))
    assert shown[0] == "power_limit: 2 hosts of 18 fail"
    assert "fail ▁▁███" in shown
    words = squeezed(say("trend", "gpu.driver_version"))
    assert words[-1].endswith("18 580.105.08: 12, 535.54.03: 6")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("history", "gpu03"), "no host or part 'gpu03' is known; did you mean gpu003?"),
        (("part", "GPU-"), "'GPU-' is the beginning of several parts: gpu GPU-"),
        (("trend", "gpu.gpus[].temperatur"), "did you mean temperature_gpu_c?"),
        (("trend", "power_limi"), "no check is named 'power_limi'; did you mean power_limit?"),
        (("trend", "gpu.count", "--host", "gpu999"), "the evidence of these 5 runs"),
    ],
)
def test_unknown_hosts_parts_fields_and_checks_are_reported(
    say: Say, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        say(*words)
    assert told in str(refused.value)


def test_failures_of_a_baseline_that_no_longer_applies_are_listed_apart(
    say: Say, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/renamed.sqlite"
    with open_store(url) as store:
        record(store, 0, report(findings={"governor": "fail"}))
        record(store, 1, report(findings={"pages": "fail"}, baseline="site-2", night=1))
    told = say("history", "gpu001", "--store", url)
    now, said = told.partition("Failures by baseline site, last judged Nov 1 04:00")[::2]
    assert "What is wrong now" in now and "pages" in now and "governor" not in now
    assert "governor" in said.partition("What happened")[0]
    redacted = say("history", "gpu001", "--store", url, "--redact")
    assert "Failures by baseline baseline 2" in redacted and "site" not in redacted


def test_faults_that_left_with_the_machine_are_not_fixed(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/replaced.sqlite") as store:
        nobody: dict[str, Any] = {"machine_id": None, "boot_id": None}
        record(store, 0, report(findings={"governor": "fail"}))
        record(store, 1, report(findings={"governor": "fail"}, night=1, **nobody))
        record(store, 2, report(findings={"governor": "ok"}, night=2, machine_id="e" * 32))
        found = find_diff(store, "last~1", "last").diff
    assert found.fixed == () and [each.host for each in found.gone] == ["gpu001"]


def test_hosts_that_an_incomplete_run_did_not_visit_have_not_vanished(
    say: Say, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/killed.sqlite"
    with open_store(url) as store:
        record(store, 0, report("gpu001"), report("gpu002", machine_id="2"))
        recorder = store.begin(run(1, 2))
        recorder.take(report("gpu001", night=1), None)
        recorder.finish(ended(run(1, 2), state=RunState.INCOMPLETE, visited=1))
    told = " ".join(say("diff", "last~1", "last", "--store", url).split())
    assert "20261102T040000 did not visit 1 host, not compared here" in told
    assert "state incomplete, 1 not visited" in " ".join(
        say("runs", "last", "--store", url).split()
    )
