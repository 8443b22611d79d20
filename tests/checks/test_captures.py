"""The checks on what real machines printed; see MANIFEST.md beside the captures."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nodevet.model import Verdict

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES}")

ON = {"Enabled": True, "Disabled": False}
REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
UNSUPPORTED = "NVML_ERROR_NOT_SUPPORTED"


def gpu_of(index, block):
    """One <gpu> of `nvidia-smi -q -x` as the probe would tell it; N/A is not supported."""

    def text(path):
        return (block.findtext(path) or "").strip()

    def whole(path):
        digits = re.match(r"P?(\d+)", text(path))
        return int(digits[1]) if digits else None

    def milliwatts(*names):
        found = [text(f".//{name}") for name in names]
        values = [value for value in found if re.fullmatch(r"[\d.]+ W", value)]
        return round(float(values[0][:-2]) * 1000) if values else None

    def pci_id(path):
        digits = text(path).removeprefix("0x").lower()
        return f"{digits[4:]}:{digits[:4]}"

    reasons = block.find("clocks_event_reasons")
    if reasons is None:
        reasons = block.find("clocks_throttle_reasons")
    names = {
        re.sub(r"^clocks_(event|throttle)_reason_", "", reason.tag): reason.text.strip()
        for reason in (reasons if reasons is not None else ())
    }
    link = "pci/pci_gpu_link_info"
    values = {
        "bus_id": text("pci/pci_bus_id").lower()[4:],
        "pci_device": pci_id("pci/pci_device_id"),
        "pci_subsystem": pci_id("pci/pci_sub_system_id"),
        "name": text("product_name"),
        "minor_number": whole("minor_number"),
        "persistence_mode": ON.get(text("persistence_mode")),
        "ecc_current": ON.get(text("ecc_mode/current_ecc")),
        "ecc_pending": ON.get(text("ecc_mode/pending_ecc")),
        "mig_current": ON.get(text("mig_mode/current_mig")),
        "mig_pending": ON.get(text("mig_mode/pending_mig")),
        "compute_mode": text("compute_mode").upper(),
        "power_limit_mw": milliwatts("current_power_limit", "power_limit"),
        "power_limit_enforced_mw": milliwatts("enforced_power_limit", "current_power_limit"),
        "power_limit_default_mw": milliwatts("default_power_limit"),
        "power_limit_min_mw": milliwatts("min_power_limit"),
        "power_limit_max_mw": milliwatts("max_power_limit"),
        "pstate": whole("performance_state"),
        "pcie_generation": whole(f"{link}/pcie_gen/current_link_gen"),
        "pcie_generation_max": whole(f"{link}/pcie_gen/max_link_gen"),
        "pcie_width": whole(f"{link}/link_widths/current_link_width"),
        "pcie_width_max": whole(f"{link}/link_widths/max_link_width"),
        "event_reasons": sum(bit for name, bit in REASONS.items() if names.get(name) == "Active"),
    }
    errors = {field: UNSUPPORTED for field, value in values.items() if value is None}
    return {"index": index, **values, "errors": errors}


@pytest.fixture
def say(ask, make_params, make_document):
    """What a check says of one capture: (verdict, expected, actual) by subject."""

    def of(capture, check, params):
        root = ElementTree.parse(CAPTURES / "nvidia-smi-xml" / capture).getroot()
        gpus = [gpu_of(index, block) for index, block in enumerate(root.findall("gpu"))]
        sections = {
            "host": {"virtualization": "kvm"},
            "gpu": {
                "driver_version": root.findtext("driver_version"),
                "count": int(root.findtext("attached_gpus")),
                "gpus": gpus,
            },
            "pci": {"functions": [function_of(gpu) for gpu in gpus]},
            "modules": {
                "device_nodes": [{"path": f"/dev/nvidia{gpu['minor_number']}"} for gpu in gpus]
            },
        }
        found = ask(check, make_params(check, params), make_document(sections))
        return [(finding.verdict.value, finding.expected, finding.actual) for finding in found]

    return of


def function_of(gpu):
    vendor, device = gpu["pci_device"].split(":")
    board_vendor, board = gpu["pci_subsystem"].split(":")
    return {
        "address": gpu["bus_id"],
        "class_code": "030200",
        "vendor": vendor,
        "device": device,
        "subsystem_vendor": board_vendor,
        "subsystem_device": board,
        "revision": "a1",
        "upstream": [],
    }


FULL = ("ok", "Gen5 x16", "Gen5 x16")
SHORT = ("unknown", None, None)  # the file has eight attached GPUs and lists one
FACTS = [
    ("k8s-b200.xml", "persistence_mode", True, [("fail", True, False)] * 8),
    ("k8s-b200.xml", "gpu_count", 8, [("ok", 8, 8)]),
    ("k8s-b200.xml", "pcie_link", {"generation": 5, "width": 16}, [FULL] * 8),
    ("k8s-h100.xml", "gpu_count", 8, [("ok", 8, 8)]),
    ("k8s-h100.xml", "pcie_link", {"generation": 5, "width": 16}, [FULL] * 8),
    ("k8s-h100.xml", "throttle_reasons", {}, [("ok", [], [])] * 8),
    ("k8s-h100.xml", "persistence_mode", True, [("ok", True, True)] * 8),
    ("k8s-h100.xml", "power_limit", 700, [("ok", 700, 700)] * 8),
    ("k8s-h100.xml", "ecc_mode", True, [("ok", True, True)] * 8),
    ("k8s-h100.xml", "mig_mode", False, [("ok", False, False)] * 8),
    ("k8s-h100.xml", "compute_mode", "DEFAULT", [("ok", "DEFAULT", "DEFAULT")] * 8),
    (
        "k8s-h100.xml",
        "gpu_model",
        {"device": "10de:2330", "subsystem": ["10de:16c0", "10de:16c1"]},
        [("ok", *[{"device": "10de:2330", "subsystem": "10de:16c1"}] * 2)] * 8,
    ),
    ("k8s-h100.xml", "driver_version", ">=580,<590", [("ok", ">=580,<590", "580.105.08")]),
    ("telegraf-a100-sxm4-v12.xml", "mig_mode", False, [("fail", False, True), SHORT]),
    ("telegraf-a100-sxm4-v12.xml", "power_limit", "default", [("ok", 500, 500), SHORT]),
    ("telegraf-a100-sxm4-v12.xml", "power_limit", 400, [("fail", 400, 500), SHORT]),
    (
        "telegraf-a100-sxm4-v12.xml",
        "gpu_model",
        {"device": "10de:20b2", "subsystem": "10de:1463"},
        [("fail", {"subsystem": "10de:1463"}, {"subsystem": "10de:147f"}), SHORT],
    ),
    ("telegraf-a10g.xml", "pcie_link", {"generation": 4, "width": 8},
     [("not_applicable", "Gen4", "Gen1")]),
    ("telegraf-a10g.xml", "pcie_link", {"generation": 4, "width": 16}, [("fail", "x16", "x8")]),
    ("telegraf-rtx-3060-v12.xml", "pcie_link", {"generation": 4, "width": 16},
     [("not_applicable", "Gen4", "Gen1")]),
    ("telegraf-rtx-3060-v12.xml", "ecc_mode", False, [("not_applicable", None, None)]),
    ("telegraf-rtx-3060-v12.xml", "ecc_mode", True, [("fail", True, "not supported")]),
    ("telegraf-tesla-t4.xml", "pcie_link", {"generation": 3, "width": 8},
     [("ok", "Gen3 x8", "Gen3 x8")]),
    ("telegraf-tesla-t4.xml", "mig_mode", False, [("not_applicable", None, None)]),
    ("telegraf-quadro-p400.xml", "power_limit", "default", [("not_applicable", None, None)]),
    ("telegraf-quadro-p400.xml", "power_limit", 30, [("unknown", None, None)]),
]  # fmt: skip


@pytest.mark.parametrize(("capture", "check", "params", "told"), FACTS)
def test_checks_of_a_real_capture_give_the_expected_findings(capture, check, params, told, say):
    assert say(capture, check, params) == told


def test_a_gpu_count_that_the_listed_gpus_contradict_fails(say):
    ((verdict, expected, actual),) = say("telegraf-a100-sxm4-v12.xml", "gpu_count", 4)
    assert (verdict, expected) == ("fail", 4)
    assert actual == {"NVML counts": 4, "NVML reaches": 1, "PCI bus": 1, "/dev": 1}


def test_on_an_xe9680_no_gpu_is_degraded(ask, make_params, make_document):
    """16 functions of this machine are downgraded, and none of them is in a GPU's path."""
    facts = json.loads(
        (CAPTURES / "lspci/gpud-dell-xe9680-8xh100-vvv.facts.json").read_text(encoding="utf-8")
    )
    dump = (CAPTURES / "lspci/gpud-dell-xe9680-8xh100-vvv.txt").read_text(encoding="utf-8")
    above = {
        secondary: address
        for address, secondary in re.findall(
            r"^(\S+) PCI bridge.*?secondary=(\w\w)", dump, re.MULTILINE | re.DOTALL
        )
    }
    gpus = [fact["bdf"] for fact in facts["summary"]["gpus"]]
    functions = []
    for fact in facts["devices"]:
        if "sta" not in fact:
            continue
        chain, bus = [], fact["bdf"][:2]
        while bus in above:
            chain.append(f"0000:{above[bus]}")
            bus = above[bus][:2]
        functions.append(
            {
                "address": f"0000:{fact['bdf']}",
                "upstream": chain,
                "link_gts": float(fact["sta"][0].removesuffix("GT/s")),
                "link_gts_max": float(fact["cap"][0].removesuffix("GT/s")),
                "link_width": int(fact["sta"][1][1:]),
                "link_width_max": int(fact["cap"][1][1:]),
            }
        )
    links = {function["address"]: function for function in functions}
    assert all(len(links[f"0000:{gpu}"]["upstream"]) == 3 for gpu in gpus)
    sections = {
        "host": {"virtualization": "none"},
        "gpu": {
            "gpus": [
                {
                    "index": index,
                    "bus_id": f"0000:{gpu}",
                    "pcie_generation": {32.0: 5}[links[f"0000:{gpu}"]["link_gts"]],
                    "pcie_generation_max": 5,
                    "pcie_width": links[f"0000:{gpu}"]["link_width"],
                    "pcie_width_max": 16,
                }
                for index, gpu in enumerate(gpus)
            ]
        },
        "pci": {"functions": functions},
    }
    for params in ({"generation": 5, "width": 16}, {"generation": "max", "width": "max"}):
        found = ask("pcie_link", make_params("pcie_link", params), make_document(sections))
        assert [finding.verdict for finding in found] == [Verdict.OK] * 8
        assert {finding.actual for finding in found} == {"Gen5 x16"}
