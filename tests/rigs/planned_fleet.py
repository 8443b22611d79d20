"""Plans of many hosts, made by the real planner from evidence: each host has GPUs of its own."""

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import decode
from nodevet.fix.plan.candidates import Rules, VettedNode, draft
from nodevet.fix.plan.planner import FixStates, Proposal, make
from nodevet.model import HostReport, Status
from nodevet.resource import Resource, State

NOW = datetime(2026, 11, 21, 0, 20, tzinfo=timezone.utc)
GPU = {
    "gpu_architecture": "HOPPER",
    "persistence_mode": True,
    "mig_current": False,
    "mig_pending": False,
    "compute_mode": "DEFAULT",
    "power_limit_mw": 700_000,
    "power_limit_enforced_mw": 700_000,
    "power_limit_default_mw": 700_000,
    "power_limit_min_mw": 200_000,
    "power_limit_max_mw": 700_000,
}
BASELINE = """\
nodevet: 1
title: This site
expect:
  power_limit: 700
  cpu_governor: performance
  transparent_hugepage: {enabled: madvise}
fix: [power_limit, cpu_governor, transparent_hugepage]
"""


def capped(milliwatts: int) -> dict[str, Any]:
    return {"power_limit_mw": milliwatts, "power_limit_enforced_mw": milliwatts}


def uuids(host: str, number: int) -> list[str]:
    """The same for the same host, in no order."""
    some = random.Random(host)
    digits = [f"{some.getrandbits(128):032x}" for _ in range(number)]
    return [f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits]


def evidence(
    host: str, gpus: Sequence[Mapping[str, Any]], governor: str, pages: str
) -> dict[str, Any]:
    """As a probe answers it."""
    names = uuids(host, len(gpus))
    cpus = {
        "policies": "0-63",
        "cpus": "0-63",
        "driver": "acpi-cpufreq",
        "governor": governor,
        "governors_available": ["performance", "powersave", "ondemand"],
    }
    sections = {
        "host": {"machine_id": f"m-{host}", "boot_id": f"b-{host}", "hostname": host},
        "gpu": {
            "gpus": [
                {"index": n, "uuid": names[n], "bus_id": f"0000:{n:02x}:00.0"} | GPU | gpu
                for n, gpu in enumerate(gpus)
            ]
        },
        "cpu": {"online": "0-63"},
        "cpufreq": {"driver": "acpi-cpufreq", "policies": [cpus], "inactive": ""},
        "memory": {"thp_enabled": pages, "thp_defrag": "madvise"},
    }
    return {
        "schema": 1,
        "probe": "0",
        "sections": {name: {"status": "ok", "data": data} for name, data in sections.items()},
    }


def proposal(
    folder: Path,
    hosts: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    baseline: str = BASELINE,
    governor: Mapping[str, str] | None = None,
    pages: Mapping[str, str] | None = None,
    held: Mapping[str, Sequence[State]] | None = None,
    **rules: Any,
) -> Proposal:
    """What `nodevet plan` makes of such hosts. `hosts`: of each its GPUs, what is not usual of
    them; `held`: what resources are, of those that exist."""
    folder.mkdir(exist_ok=True)
    (folder / "site.yaml").write_text(baseline)
    catalog = Catalog()
    (site,) = load([str(folder / "site.yaml")], folders=[], catalog=catalog)
    nodes = []
    for host, gpus in hosts.items():
        document = evidence(
            host,
            gpus,
            (governor or {}).get(host, "performance"),
            (pages or {}).get(host, "madvise"),
        )
        read = decode(msgspec.json.encode(document))
        report = HostReport(
            host=host,
            status=Status.VETTED,
            baseline=site.name,
            findings=judge(read, site, catalog, host=host, today=date(2026, 11, 21)),
            machine_id=f"m-{host}",
            boot_id=f"b-{host}",
            groups=("rack1",),
        )
        nodes.append(VettedNode(report=report, evidence=read, baseline=site))
    given = {"id": "0a1b2c3d", "author": "alice@x", "now": NOW, "nodevet": "0.2.0"}
    made = Rules(**given | rules)
    drafted = draft(nodes, catalog, made)
    looked = {
        host: FixStates(seen=tuple(_state(one, (held or {}).get(host, ())) for one in resources))
        for host, resources in drafted.resources.items()
    }
    return make(drafted, made, looked)


def _state(resource: Resource, held: Sequence[State]) -> State:
    """As a node has it that nothing was ever changed on."""
    if found := next((one for one in held if one.resource == resource), None):
        return found
    values = {"gpu": 500_000, "kernel": "powersave"}
    value = values.get(resource.kind)
    return State(resource=resource, exists=value is not None, value=value)


def proposal_of(world: Any, rules: Rules) -> Proposal:
    """What `nodevet plan` makes of the node n1 as it is now."""
    box = world.boxes["n1"]
    found = decode(box.evidence())
    findings = judge(found, world.baseline, world.catalog, host="n1", today=rules.now.date())
    report = HostReport(
        host="n1",
        status=Status.VETTED,
        machine_id=box.machine_id,
        boot_id=box.boot_id,
        baseline="b",
        findings=tuple(findings),
    )
    vetted = VettedNode(report=report, evidence=found, baseline=world.baseline)
    drafted = draft([vetted], world.catalog, rules)
    looked = {
        host: FixStates(seen=tuple(box.look(resource) for resource in resources))
        for host, resources in drafted.resources.items()
    }
    return make(drafted, rules, looked)
