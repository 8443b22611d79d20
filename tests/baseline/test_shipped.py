"""The baselines that come with nodevet."""

import json
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from nodevet.baseline import available, choose, lint, load
from nodevet.baseline.library import shipped_folder
from nodevet.baseline.schema import schema
from nodevet.checking.catalog import Catalog
from nodevet.model import Host

NAMES = (
    "generic",
    "nvidia-a10",
    "nvidia-a100-sxm-40",
    "nvidia-a100-sxm-80",
    "nvidia-a100-sxm-80-500w",
    "nvidia-a40",
    "nvidia-b200",
    "nvidia-b300",
    "nvidia-datacenter",
    "nvidia-gb200-nvl72",
    "nvidia-gb300-nvl72",
    "nvidia-h100-nvl",
    "nvidia-h100-pcie",
    "nvidia-h100-sxm",
    "nvidia-h200-sxm",
    "nvidia-hgx",
    "nvidia-l4",
    "nvidia-l40s",
    "nvidia-nvl72",
    "nvidia-rtx-3090",
    "nvidia-rtx-4090",
    "nvidia-rtx-6000-ada",
    "nvidia-rtx-a6000",
    "nvidia-rtx-pro-6000",
    "nvidia-rtx-pro-6000-server",
    "nvidia-server",
    "nvidia-t4",
    "workstation",
)
COMMON = (
    *("generic", "workstation"),
    *("nvidia-datacenter", "nvidia-hgx", "nvidia-nvl72", "nvidia-server"),
)
NO_ECC = ("generic", "nvidia-server", "workstation", "nvidia-rtx-3090", "nvidia-rtx-4090")
ECC_BY_TASTE = ("nvidia-rtx-6000-ada", "nvidia-rtx-a6000", "nvidia-rtx-pro-6000",
                "nvidia-rtx-pro-6000-server")  # fmt: skip
CATALOG = Catalog()


@cache
def every():
    return load(NAMES, catalog=CATALOG)


def baseline(name):
    return every()[NAMES.index(name)]


def params(name, check):
    (found,) = (one.params for one in baseline(name).expectations if one.check == check)
    return found


def test_exactly_the_named_baselines_are_shipped():
    assert tuple(name for name, _ in available([])) == NAMES


def test_no_shipped_baseline_has_a_warning():
    assert lint(NAMES, catalog=CATALOG, today=date(2026, 1, 1)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_each_shipped_baseline_begins_with_the_schema_line_for_editors(name):
    first = (shipped_folder() / f"{name}.yaml").read_text().split("\n", 1)[0]
    assert first == "# yaml-language-server: $schema=nodevet.schema.json"


def test_the_shipped_schema_is_current():
    stored = json.loads((shipped_folder() / "nodevet.schema.json").read_text())
    assert stored == schema(CATALOG), "run: nodevet schema > baselines/nodevet.schema.json"


@pytest.mark.parametrize("name", NAMES)
def test_only_the_common_parts_lack_applies(name):
    assert (baseline(name).applies is None) == (name in COMMON)


@pytest.mark.parametrize(
    ("name", "device", "generation", "width", "watts", "count"),
    [
        ("nvidia-h100-sxm", "10de:2330", 5, 16, 700, 8),
        ("nvidia-h200-sxm", "10de:2335", 5, 16, 700, 8),
        ("nvidia-a100-sxm-40", "10de:20b0", 4, 16, 400, 8),
        ("nvidia-a100-sxm-80", "10de:20b2", 4, 16, "default", 8),
        ("nvidia-a100-sxm-80-500w", "10de:20b2", 4, 16, 500, 4),
        ("nvidia-l40s", "10de:26b9", 4, 8, 350, None),
        ("nvidia-t4", "10de:1eb8", 3, 8, 70, None),
        ("nvidia-rtx-4090", "10de:2684", "max", "max", "default", None),
        ("nvidia-h100-pcie", "10de:2331", 5, 16, "default", None),
        ("nvidia-h100-nvl", "10de:2321", 5, 16, "default", None),
        ("nvidia-b200", "10de:2901", 5, 16, "default", 8),
        ("nvidia-b300", "10de:3182", "max", "max", "default", 8),
        ("nvidia-gb200-nvl72", "10de:2941", "max", "max", "default", 4),
        ("nvidia-gb300-nvl72", "10de:31c2", "max", "max", "default", 4),
        ("nvidia-rtx-pro-6000-server", "10de:2bb5", "max", "max", "default", None),
        ("nvidia-a10", "10de:2236", "max", "max", "default", None),
        ("nvidia-a40", "10de:2235", "max", "max", "default", None),
        ("nvidia-l4", "10de:27b8", "max", "max", "default", None),
        ("nvidia-rtx-3090", "10de:2204", "max", "max", "default", None),
        ("nvidia-rtx-a6000", "10de:2230", "max", "max", "default", None),
        ("nvidia-rtx-6000-ada", "10de:26b1", "max", "max", "default", None),
    ],
)
def test_each_shipped_baseline_states_its_board(name, device, generation, width, watts, count):
    assert baseline(name).applies.gpu.devices == (device,)
    assert params(name, "gpu_model").device == (device,)
    link = params(name, "pcie_link")
    assert (link.generation, link.width) == (generation, width)
    assert params(name, "power_limit").watts == watts
    number = params(name, "gpu_count")
    assert (number.count, number.minimum) == (count, None if count else 1)


@pytest.mark.parametrize("name", NAMES)
def test_each_shipped_baseline_checks_gpu_health_and_the_clock(name):
    checks = {one.check for one in baseline(name).expectations}
    assert checks >= {"gpu_lost", "ecc_errors", "row_remapping", "clock_skew"}


def test_ecc_mode_is_checked_on_data_center_gpus_and_not_on_workstations():
    for name in NAMES:
        checks = {one.check for one in baseline(name).expectations}
        assert ("ecc_mode" in checks) == (name not in (*NO_ECC, *ECC_BY_TASTE))


@pytest.mark.parametrize(
    ("device", "subsystem", "wanted"),
    [
        ("10de:2330", "10de:16c1", "nvidia-h100-sxm"),
        ("10de:2335", "10de:18be", "nvidia-h200-sxm"),
        ("10de:20b0", "10de:134f", "nvidia-a100-sxm-40"),
        ("10de:20b2", "10de:1463", "nvidia-a100-sxm-80"),
        ("10de:20b2", "10de:147f", "nvidia-a100-sxm-80-500w"),
        ("10de:26b9", "10de:1851", "nvidia-l40s"),
        ("10de:1eb8", "10de:12a2", "nvidia-t4"),
        ("10de:2684", "1458:40bf", "nvidia-rtx-4090"),
        ("10de:2321", "10de:1839", "nvidia-h100-nvl"),
        ("10de:2901", "10de:1999", "nvidia-b200"),
        ("10de:3182", "10de:20e6", "nvidia-b300"),
        ("10de:2941", "10de:2046", "nvidia-gb200-nvl72"),
        ("10de:31c2", "10de:21f1", "nvidia-gb300-nvl72"),
        ("10de:2bb5", "10de:220b", "nvidia-rtx-pro-6000-server"),
        ("10de:2bb1", "10de:204b", "nvidia-rtx-pro-6000"),
        ("10de:2bb4", "10de:204c", "nvidia-rtx-pro-6000"),
        ("10de:2204", "1458:403b", "nvidia-rtx-3090"),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 8])
def test_each_node_gets_the_shipped_baseline_of_its_board(
    gpu_node, device, subsystem, wanted, count
):
    found = choose(every(), gpu_node(count, device, subsystem), Host(name="n1"))
    assert found.name == wanted


def test_a_gpu_without_a_shipped_baseline_is_reported(gpu_node):
    found = choose(every(), gpu_node(8, "10de:2bb9", "10de:2091"), Host(name="n"))
    assert "fits: the GPUs are 8 × 10de:2bb9; name one with -b (-b generic judges any GPU)" in found
    assert found.endswith('or write one with `applies: {gpu: {device: "10de:2bb9"}}`')


def test_shipped_baselines_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (generic,) = load(["generic"], catalog=CATALOG)
    assert Path(generic.path).is_absolute()


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("nvidia-h100-sxm", 18),
        ("nvidia-h100-nvl", 12),
        ("nvidia-a100-sxm-80", 12),
        ("nvidia-b200", 18),
        ("nvidia-b300", 18),
        ("nvidia-gb200-nvl72", 18),
        ("nvidia-gb300-nvl72", 18),
    ],
)
def test_baselines_expect_the_number_of_nvlinks_of_their_board(name, links):
    assert params(name, "nvlink").active == links


def test_only_baselines_of_hgx_and_nvl72_check_swap_and_services():
    for name in NAMES:
        checks = {one.check for one in baseline(name).expectations}
        hgx = "-sxm" in name or name in ("nvidia-hgx", "nvidia-b200", "nvidia-b300")
        assert ("swap" in checks) == (hgx or "nvl72" in name)
        assert ("services" in checks) == (hgx and name != "nvidia-a100-sxm-80-500w")


HARDWARE = {
    *("memory_errors", "pci_links", "nvme_health", "drive_health", "time_sync", "raid"),
    *("kernel_faults", "storage_errors", "network_link", "retired_pages"),
}
"""What finds broken hardware of any server, and needs no number."""


@pytest.mark.parametrize("name", NAMES)
def test_knowledge_every_server_baseline_checks_for_broken_hardware(name):
    checks = {one.check for one in baseline(name).expectations}
    assert checks >= HARDWARE or name in ("generic", "workstation")


def test_knowledge_each_check_is_in_every_baseline_or_says_why_not():
    asked = [{one.check for one in each.expectations} for each in every()]
    left = {check for check in CATALOG.ids if not all(check in checks for checks in asked)}
    assert {check for check in left if len(CATALOG.check(check).unasked) < 15} <= {"command"}
    assert {check for check in CATALOG.ids if CATALOG.check(check).unasked} == left
