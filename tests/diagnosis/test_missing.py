"""GPUs that a node has or should have, and that NVML does not list: they are named first."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.diagnose.board import board
from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.missing import GONE, POWER_OFF, SILENT, UNLISTED, missing_gpus
from nodevet.diagnose.model import (
    Cause,
    Confidence,
    Diagnosis,
    GpuDiagnosis,
    JobDiagnosis,
    MissingGpu,
)
from nodevet.diagnose.sheet import diagnosis_sheet
from nodevet.diagnose.use import says_how_many
from nodevet.model import Finding, Subject, Verdict, fail
from nodevet.sheet import render
from nodevet.vet.use.context import open_context
from tests.diagnosis.samples import CASES, JSON, evidence, gpu, sections
from tests.report import diagnoses

HERE, THERE = "0000:19:00.0", "0000:3b:00.0"
BOOTED = 1.7e9


def function(address: str, **rest: Any) -> JSON:
    """An H100 as sysfs shows it."""
    own = {"class_code": "030200", "vendor": "10de", "revision": "a1", "driver": "nvidia"}
    return {"address": address, "physfn": "", **own, **rest}


def node(*functions: JSON, **more: Any) -> JSON:
    """A node whose NVML lists one GPU, the one at HERE."""
    found = sections([gpu(97)])
    found["pci"] = {"functions": list(functions)}
    found["host"] = {"uptime_s": 1000.0, "clock_s": BOOTED + 1000.0, "virtualization": "none"}
    return {**found, **more}


def xid(address: str, code: int = 79, at_s: float = 60.0) -> JSON:
    times = {"count": 1, "first_s": at_s, "last_s": at_s, "times_s": [at_s]}
    return {"kind": "xid", "code": code, "bus_id": address, **times}


def logged(*events: JSON) -> JSON:
    return {"kernel_log": {"complete": True, "events": list(events)}}


def told(found: JSON, *findings: Finding) -> list[tuple[str, str]]:
    return [(each.bus_id, each.facts[0]) for each in missing_gpus(evidence(found), findings)]


def counted(expected: object, **rest: Any) -> Finding:
    return replace(fail(expected=expected, actual=1), check="gpu_count", **rest)


def test_a_gpu_that_only_the_pci_bus_has_is_missing_at_its_slot() -> None:
    assert told(node(function(HERE), function(THERE))) == [(THERE, UNLISTED)]
    (found,) = missing_gpus(evidence(node(function(HERE), function(THERE, driver="nouveau"))), ())
    assert found.facts[1] == "its driver is nouveau" and "unbind that driver" in found.next_step


def test_a_missing_gpu_has_the_time_of_its_xid_from_the_kernel_log() -> None:
    both = node(function(HERE), function(THERE), **logged(xid(THERE), xid(HERE, 13)))
    (found,) = missing_gpus(evidence(both), ())
    fell = "Xid 79 GPU_HAS_FALLEN_OFF_THE_BUS ×1, first at 2023-11-14T22:14:20+00:00"
    assert found.facts[-1] == fell
    assert found.next_step == POWER_OFF
    without = node(function(HERE), function(THERE), **logged())
    (found,) = missing_gpus(evidence(without), ())
    assert found.facts[-1] == "the kernel log has no Xid of it since boot, until the watch began"


def test_a_gpu_that_left_the_bus_is_missing_if_the_log_says_that_it_fell_off() -> None:
    assert told(node(function(HERE), **logged(xid(THERE)))) == [(THERE, GONE)]
    assert told(node(function(HERE), **logged(xid(THERE, 13)))) == []
    assert told(node(function(HERE), **logged(xid(HERE)))) == []  # it is back


def test_a_gpu_that_no_longer_answers_is_missing_even_if_nvml_was_not_read() -> None:
    silent = node(function(HERE), function(THERE, revision="ff"))
    assert told(silent) == [(THERE, SILENT)]
    silent["gpu_activity"] = {"gpus": None, "errors": {"gpus": "NVML_ERROR_DRIVER_NOT_LOADED"}}
    assert told(silent) == [(THERE, SILENT)]


HIDDEN = {
    "no PCI bus was read": {"pci": {"functions": None}},
    "in a container": {"host": {"virtualization": "container"}},
    "the device may not be opened": {
        "modules": {"device_nodes": [{"path": "/dev/nvidia1", "openable": False}]}
    },
    "NVML was not read": {"gpu_activity": {"gpus": None}},
    "a listed GPU has no address": {
        "gpu_activity": {"gpus": [{**gpu(0), "bus_id": None}]},
    },
}


@pytest.mark.parametrize("why", HIDDEN)
def test_no_gpu_is_reported_missing_if_sections_are_unread_or_hide_gpus(why: str) -> None:
    assert told(node(function(HERE), function(THERE), **HIDDEN[why])) == []


def test_no_gpu_is_reported_missing_without_a_pci_section() -> None:
    assert told(sections([gpu(97)])) == []


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub"])
def test_a_gpu_of_a_virtual_machine_is_not_missing(driver: str) -> None:
    guests = node(function(HERE), function(THERE, driver=driver))
    assert told(guests) == told(guests, counted(2)) == []
    assert told(node(function(HERE), function(THERE, physfn=HERE))) == []


def test_the_count_of_the_baseline_shows_missing_gpus_without_a_trace() -> None:
    (found,) = missing_gpus(evidence(node(function(HERE))), [counted(8)])
    assert (found.bus_id, found.count) == ("", 7)
    assert found.facts == ("the baseline expects 8 GPUs, and nodevet found 1",)
    assert missing_gpus(evidence(node(function(HERE))), [counted("at least 2")])[0].count == 1
    two = node(function(HERE), function(THERE))
    assert [each.count for each in missing_gpus(evidence(two), [counted(8)])] == [1, 6]
    for unread in ("in a container", "NVML was not read"):
        assert told(node(function(HERE), **HIDDEN[unread]), counted(8)) == []


def test_only_a_baseline_of_the_site_or_one_chosen_by_name_sets_the_gpu_count(
    tmp_path: Path,
) -> None:
    """Half of an HGX board is a usual virtual machine."""
    shipped = "nvidia-h100-sxm"
    by_model = open_context(tmp_path, [])
    assert not says_how_many(shipped, by_model)
    assert says_how_many(shipped, open_context(tmp_path, [shipped]))
    (tmp_path / "baselines").mkdir()
    own = tmp_path / "baselines" / f"{shipped}.yaml"
    own.write_text(f"nodevet: 1\nextends: {shipped}\nexpect: {{gpu_count: 8}}\n")
    context = open_context(tmp_path, [])
    assert says_how_many(context.baselines[0].label, context)
    one = evidence(node(function(HERE)))
    assert missing_gpus(one, [counted(8)], counts=False) == ()


def test_a_waiver_of_gpu_count_covers_a_missing_gpu() -> None:
    subject = Subject(kind="pci", id=THERE, bus_id=THERE)
    waived = counted("in NVML", verdict=Verdict.WAIVED, subject=subject)
    assert told(node(function(HERE), function(THERE)), waived) == []
    assert told(node(function(HERE)), counted(8, verdict=Verdict.WAIVED)) == []


def lost(found: JSON) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str)
    return answer[0]


def test_a_gpu_that_left_the_bus_is_lost_though_nvml_still_lists_it() -> None:
    found = lost(node(function(HERE, revision="ff"), **logged(xid(HERE))))
    assert (found.causes, found.confidence) == ((Cause.LOST,), Confidence.HIGH)
    assert found.sentence == "is lost to the driver: it no longer answers on the PCI bus"
    assert found.also[:2] == (
        f"it is the GPU at {HERE}",
        "Xid 79 GPU_HAS_FALLEN_OFF_THE_BUS ×1, first at 2023-11-14T22:14:20+00:00",
    )


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (logged(), "the kernel log has no Xid of it since boot, until the watch began"),
        (logged(xid(HERE, 119)), "Xid 119 GSP_RPC_TIMEOUT ×1, first at 2023-11-14T22:14:20+00:00"),
        (logged({**xid(""), "bus_id": None}), "; the line names no GPU"),
        ({"kernel_log": {"events": None, "errors": {"events": "EACCES"}}}, "was not read: EACCES"),
        ({}, ""),
    ],
)
def test_a_stuck_gpu_is_reported_with_its_xids(log: JSON, text: str) -> None:
    found = lost({**node(function(HERE)), **CASES["stuck"], **log})
    assert found.causes == (Cause.STUCK,)
    told = [line for line in found.also if "Xid" in line or "kernel log" in line]
    assert any(text in line for line in told) if text else not told


@pytest.mark.parametrize("error", ["NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_UNKNOWN"])
def test_a_gpu_without_a_handle_is_lost_and_named_by_the_remaining_address(error: str) -> None:
    bare = {"index": 1, "errors": {"handle": error}}
    found = node(function(HERE), function(THERE, revision="ff"))
    found["gpu_activity"]["gpus"].append(bare)
    found["gpu"] = {"count": 2, "gpus": [{"index": 0, "bus_id": HERE}, bare]}
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str) and answer[1].cause is Cause.LOST
    assert f"it is the GPU at {THERE}" in answer[1].also
    assert told(found) == []  # it is listed, and named there


MISSING = MissingGpu(bus_id=THERE, facts=(UNLISTED, "\x1b[2Jx"), next_step=POWER_OFF)


def incident(kind: str = "GPU-bound", **more: object) -> Diagnosis:
    return diagnoses.diagnosis(diagnoses.host("gpu7", (kind,), missing=(MISSING,)), **more)


@pytest.mark.parametrize("kind", ["GPU-bound", "idle", "storage-bound"])
def test_an_incident_with_a_missing_gpu_names_the_gpu_first_and_exits_1(kind: str) -> None:
    found = incident(kind)
    assert found.exit_code == 1
    text = render("table", found, lambda: diagnosis_sheet(found), width=100)
    head, _, rest = text.partition("\n")
    assert head.startswith("1 of 2 GPUs is missing on gpu7 · ") and "No GPU" not in head
    assert rest.lstrip().startswith("Missing GPUs\n")
    assert rest.index(f"gpu7: GPU at {THERE}: missing") < rest.index("GPU 0: ")
    assert "1 missing" in text.splitlines()[-1] and "\x1b" not in text
    assert board(found, colour=False, width=80)[0] == f"gpu7: missing: GPU at {THERE}"


@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_every_format_names_a_missing_gpu(form: str) -> None:
    found = incident()
    assert THERE in render(form, found, lambda: diagnosis_sheet(found), width=None)


def test_a_host_whose_gpus_are_all_missing_is_reported_as_that() -> None:
    bare = replace(incident().hosts[0], gpus=(), why="NVML lists no GPU")
    found = diagnoses.diagnosis(bare)
    assert found.exit_code == 1
    text = render("table", found, lambda: diagnosis_sheet(found), width=100)
    assert text.startswith("1 of 1 GPU is missing on gpu7 · No GPU could be watched")
    assert "NVML lists no GPU" in text


def test_a_missing_gpu_comes_before_the_ranks_of_a_job() -> None:
    job = JobDiagnosis(
        name="12", size=1, confidence=Confidence.MEDIUM, sentence="", claim="all wait", next_step=""
    )
    found = incident(job=job)
    assert (replace(incident("idle"), job=job).exit_code, found.exit_code) == (1, 1)
    text = render("table", found, lambda: diagnosis_sheet(found), width=100)
    assert text.startswith("1 GPU is missing on gpu7 · Job 12: no rank is late\n\nMissing GPUs\n")
    assert text.index(THERE) < text.index("all wait")


def test_lost_gpus_come_before_the_others_of_their_host() -> None:
    found = diagnoses.diagnosis(diagnoses.host("gpu7", ("idle", "GPU-bound", "lost")))
    text = render("table", found, lambda: diagnosis_sheet(found), width=100)
    assert text.index("GPU 2: lost") < text.index("GPU 0: idle") < text.index("GPU 1: GPU-bound")
