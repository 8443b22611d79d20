"""Checks of GPUs on what nvidia-smi printed as text; see MANIFEST.md beside the captures."""

import re
from pathlib import Path

import pytest
import yaml

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES}")
MOST_LINKS = 18


@pytest.fixture
def say(ask, make_params, make_document):
    """What a check says of these GPUs: verdicts by subject."""

    def of(check, params, gpus):
        document = make_document({"gpu": {"count": len(gpus), "gpus": gpus}})
        found = ask(check, make_params(check, params), document)
        return [(each.subject.id, each.verdict.value, each.actual) for each in found]

    return of


def nvlinks(path):
    """The GPUs of `nvidia-smi nvlink --status`, which leaves out the links that are down; what the
    excerpt leaves out with [...] is as the lines around it."""
    gpus = []
    for row in (CAPTURES / path).read_text(encoding="utf-8").splitlines():
        if head := re.match(r"GPU (\d+): ", row):
            gpus.append({"index": int(head[1]), "nvlinks": []})
        elif link := re.match(r"\s*Link (\d+): ([\d.]+) GB/s", row):
            links = gpus[-1]["nvlinks"]
            for number in range(len(links), int(link[1]) + 1):
                speed = round(float(link[2]) * 1000)
                links.append({"link": number, "active": True, "speed_mbps": speed})
    return gpus


def down(index, links):
    """A GPU of which nvidia-smi says that all links are inactive."""
    told = [{"link": number, "active": False} for number in range(links)]
    return {"index": index, "nvlinks": told}


def test_eight_a100_with_all_links(say):
    gpus = nvlinks("nvlink/gpud-a100-nvlink-status.txt")
    assert len(gpus) == 8
    for params in ({}, 12, {"active": 12, "minimum_speed_mbps": 25000}):
        told = say("nvlink", params, gpus)
        assert [(verdict, actual) for _, verdict, actual in told] == [("ok", {"active": 12})] * 8
    slow = say("nvlink", {"active": 12, "minimum_speed_mbps": 25781}, gpus)
    assert {verdict for _, verdict, _ in slow} == {"ok", "fail"}


def test_one_a100_whose_links_are_all_down(say):
    good = nvlinks("nvlink/azurehc-nvlink-good.txt")
    assert "all links are inactive" in (CAPTURES / "nvlink/azurehc-nvlink-bad.txt").read_text()
    for gpu in good:
        for link in gpu["nvlinks"]:
            link["errors"] = {"remote_bus_id": "NVML_ERROR_NOT_SUPPORTED"}
    gpus = [*good, down(6, 12)]
    for params in ({}, 12):
        assert say("nvlink", params, gpus)[-1] == (
            "6",
            "fail",
            {"active": 0, "inactive links": "0-11"},
        )
        assert {verdict for _, verdict, _ in say("nvlink", params, good)} == {"ok"}


def test_h100_with_eighteen_links(say):
    gpus = nvlinks("copyleft/nvlink/stas00-h100-nvlink-status-and-errors.txt")
    (h100,) = [gpu for gpu in gpus if gpu["nvlinks"]]
    assert say("nvlink", {"active": 18, "minimum_speed_mbps": 26562}, [h100]) == [
        ("0", "ok", {"active": MOST_LINKS})
    ]


def retired(path):
    text = (CAPTURES / "nvidia-smi-text" / path).read_text(encoding="utf-8")
    gpus = []
    for index, block in enumerate(re.split(r"^GPU [0-9A-F:.]+$", text, flags=re.MULTILINE)[1:]):
        single, double = (
            int(re.search(rf"{kind} Bit ECC\s*: (\d+)", block)[1]) for kind in ("Single", "Double")
        )
        pending = re.search(r"Pending Page Blacklist\s*: (\w+)", block)[1] == "Yes"
        pages = {"single_bit": single, "double_bit": double, "pending": pending}
        gpus.append({"index": index, "retired_pages": pages})
    return gpus


def test_pages_that_were_retired(say):
    told = say("retired_pages", {}, retired("azurehc-8gpu-retired-bad.txt"))
    wrong = [subject for subject, verdict, _ in told if verdict == "fail"]
    assert wrong == ["0", "1", "3", "5", "7"]
    assert {verdict for _, verdict, _ in told} == {"ok", "fail"}
    good = say("retired_pages", {}, retired("azurehc-8gpu-retired-good.txt"))
    assert [verdict for _, verdict, _ in good] == ["ok"] * 8


PROFILES = sorted((CAPTURES / "mock-nvml/profiles").glob("*.yaml"))
NOT_SUPPORTED = "NVML_ERROR_NOT_SUPPORTED"


def mocked(path):
    """The node that a profile of the mock describes, as the probe would tell it."""
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    every, links = text["device_defaults"], text.get("nvlink") or {}
    heat, active = every["thermal"], links.get("links_per_gpu", 0)
    fabric = {"state": "COMPLETED", "status": "SUCCESS", "health_mask": 0}
    untold = dict.fromkeys(("temperature_margin_c", "state"), NOT_SUPPORTED)
    gpu = {
        "vbios_version": every["vbios_version"],
        "inforom_image_version": every["inforom"]["image_version"],
        "gsp_firmware_enabled": True,
        "gsp_firmware_version": every["gsp_firmware"]["version"],
        "memory_total_b": every["memory"]["total_bytes"],
        "bar1_total_b": every["bar1_memory"]["total_bytes"],
        "temperature_gpu_c": heat["temperature_gpu_c"],
        "temperature_memory_c": heat["temperature_memory_c"],
        "temperature_gpu_max_c": heat["max_operating_c"],
        "pcie_replay_counter": every["pcie"]["replay_counter"],
        "fabric": {**fabric, "health_summary": "NOT_SUPPORTED"}
        if "fabric" in every
        else {"errors": untold},
        "nvlinks": [
            {"link": number, "active": True, "speed_mbps": links["bandwidth_per_link_mbps"]}
            for number in range(active)
        ],
        "errors": {**untold, "temperature_memory_max_c": NOT_SUPPORTED},
    }
    gpus = [{"index": each["index"], **gpu} for each in text["devices"]]
    return text["system"]["driver_version"], gpus


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_no_check_fails_on_a_node_built_from_a_mock_profile(path, ask, make_params, make_document):
    driver, gpus = mocked(path)
    document = make_document({"gpu": {"driver_version": driver, "count": len(gpus), "gpus": gpus}})
    links = len(gpus[0]["nvlinks"])
    said = {check: {} for check in ("vbios", "inforom", "thermal", "fabric", "bar1")}
    for check, params in {**said, "nvlink": links or {}, "pcie_replays": 0}.items():
        told = {each.verdict.value for each in ask(check, make_params(check, params), document)}
        assert told <= {"ok", "not_applicable"}, check
        assert "ok" in told or check in ("fabric", "nvlink"), check
    (more,) = {
        each.verdict.value for each in ask("nvlink", make_params("nvlink", links + 1), document)
    }
    assert more == "fail"
    differ = gpus[0]["gsp_firmware_version"] != driver  # as those of two profiles do
    (gsp,) = {
        each.verdict.value
        for each in ask("gsp_firmware", make_params("gsp_firmware", {}), document)
    }
    assert gsp == ("fail" if differ else "ok")
