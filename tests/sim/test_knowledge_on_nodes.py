"""The shipped baselines on booted nodes: no healthy node fails, and broken hardware does."""

from typing import Any

import msgspec
import pytest

from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.model import Verdict
from nodevet_sim.shipped import KINDS
from nodevet_sim.state import state
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
PROFILES = sorted(KINDS)
HEALTHY = {profile: f"{profile}: {{gpus: {profile}, cores: 1}}" for profile in PROFILES}
SCENARIO = """\
sim: 1
title: A node of every profile, and broken ones
nodes:
  {healthy}
  in-a-rack: {{gpus: gb200, cores: 1, nvlink_domain: 18}}
  broken:
    gpus: h100-sxm
    cores: 1
    faults: [dimm-uncorrected, nic-narrow, drive-failing, clock-unsynchronised]
  one-link-down: {{gpus: gb300, cores: 1, faults: [{{nvlink-down: {{links: 1}}}}]}}
"""
WRONG = {
    "broken": {
        ("memory_errors", "mc0"),
        ("nvme_health", "0"),
        ("pci_links", "0000:1a:00.0"),
        ("time_sync", ""),
    },
    "one-link-down": {("nvlink", "3")},
}
CHOSEN = {
    "b200": "nvidia-b200",
    "b300": "nvidia-b300",
    "gb200": "nvidia-gb200-nvl72",
    "gb300": "nvidia-gb300-nvl72",
    "rtx-pro-6000": "nvidia-rtx-pro-6000-server",
}


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    fleet = boot("knowledge", SCENARIO.format(healthy="\n  ".join(HEALTHY.values())))
    return fleet.vetted("-i", fleet.place.inventory, "--deadline", "150")


def labels(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    """The checks and subjects with this verdict."""
    return {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


@pytest.mark.parametrize("name", [*PROFILES, "in-a-rack"])
def test_knowledge_no_healthy_node_fails_or_is_unknown(name: str, hosts: dict[str, Any]) -> None:
    assert labels(hosts[name], "fail") | labels(hosts[name], "unknown") == set()
    assert hosts[name]["baseline"] == CHOSEN.get(name, hosts[name]["baseline"])


@pytest.mark.parametrize("name", sorted(WRONG))
def test_knowledge_broken_hardware_fails(name: str, hosts: dict[str, Any]) -> None:
    assert labels(hosts[name], "fail") == WRONG[name]
    assert labels(hosts[name], "unknown") == set()


@pytest.mark.parametrize(
    ("raw", "verdict"),
    [(0xFFF, Verdict.OK), (0x10C, Verdict.OK), (0x20C, Verdict.FAIL), (0x800, Verdict.UNKNOWN)],
)
def test_knowledge_bit_errors_of_nvlink_are_judged(raw, verdict, gpus_of) -> None:
    (baseline,) = load(["nvidia-gb200-nvl72"], catalog=(catalog := Catalog()))
    (params,) = (each.params for each in baseline.expectations if each.check == "nvlink")
    gpus = gpus_of(state("gb200", 1, **{"gpu.0.nvlinks.7.effective_ber": raw}))
    section = {"status": "ok", "data": msgspec.to_builtins(gpus)}
    evidence = decode(
        msgspec.json.encode({"schema": 1, "probe": "0", "sections": {"gpu": section}})
    )
    found = list(catalog.check("nvlink").judge(evidence, params))
    assert {each.verdict for each in found} - {Verdict.OK} == {verdict} - {Verdict.OK}
