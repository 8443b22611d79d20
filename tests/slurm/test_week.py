"""A week of a site, with a Slurm and nodes that are played and a clock that is moved.

Unattended upgrades, a flapping link, a second admin, a dead slurmctld: nodevet drains no healthy
node, forgets none that it drained, and leaves alone what the admin drained.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from nodevet.model import Finding, Host, HostReport, Severity, Status, Verdict
from nodevet.model.run import Run, new_run_id
from nodevet.slurm import scontrol
from nodevet.slurm.decide import DrainLimits, plan_drain, plan_resume
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.scontrol import SlurmError
from nodevet.slurm.use import act, health
from nodevet.vet.use.looks import Looks

START = datetime(2026, 11, 23, tzinfo=timezone.utc)
NODES = [f"gpu{number}" for number in range(1, 7)]
HALF_HOURS = 7 * 48 + 6  # up to the sweep of the last night
BOB = "bob: bad PSU"
OK = Finding(verdict=Verdict.OK, check="power_limit")
LINK = Finding(verdict=Verdict.FAIL, check="nvlink", expected=18, actual=17)
EIO = Finding(verdict=Verdict.UNKNOWN, check="dkms", why="EIO")
UPGRADE = Finding(
    verdict=Verdict.UNKNOWN,
    check="packages",
    why="dpkg is at work",
    transient="which passes by itself",
)


class Site:
    """Nodes and a slurmctld, half an hour after half an hour."""

    def __init__(self) -> None:
        self.at = 0  # half hours since the start
        self.dice = random.Random(3)
        self.nodes = {name: ControllerNode(name, ("idle",), partitions=("a",)) for name in NODES}
        self.is_dead = False
        self.drains: list[tuple[str, bool]] = []  # (node, whether it was faulty)
        self.faults: dict[str, list[Finding]] = {name: [] for name in NODES}
        self.resumed: set[str] = set()

    @property
    def now(self) -> datetime:
        return START + timedelta(minutes=30 * self.at)

    def begin(self) -> None:
        """What happens to the nodes in this half hour."""
        day, hour = divmod(self.at / 2, 24)
        self.faults = {name: [] for name in NODES}
        if 6 <= hour < 8:
            self.faults = {name: [UPGRADE] for name in NODES}
        if 1 <= day <= 4 and self.dice.random() < 0.3:
            self.faults["gpu3"].append(LINK)
        if day == 2 and 8 <= hour < 12:
            self.faults["gpu4"].append(EIO)
        if day == 3 and hour in (9, 12, 15):  # never three looks in a row
            self.faults["gpu2"].append(EIO)
        if day == 5 or (day == 6 and hour < 12):
            self.faults["gpu1"].append(LINK)
        self.is_dead = day == 5 or self.dice.random() < 0.1
        if (day, hour) == (1, 12):
            self.put("gpu5", BOB, "bob")
        if (day, hour) == (2, 11):  # over a reason of nodevet's
            self.put("gpu4", BOB, "bob")

    def put(self, name: str, reason: str, user: str = "root") -> None:
        since = self.now.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        self.nodes[name] = self.nodes[name]._replace(
            states=("idle", "drain"), reason=reason, user=user, since=since
        )

    def report(self, name: str) -> HostReport:
        found = (OK, *(self.faults[name] or (LINK_OK, DKMS_OK)))
        arrived = (self.now + timedelta(minutes=1)).isoformat()
        return HostReport(
            host=name, status=Status.VETTED, findings=found, machine_id=name, arrived=arrived
        )

    def run(self, *names: str) -> Run:
        return Run(
            id=new_run_id(self.now),
            nodevet="0",
            started=self.now.isoformat(),
            seconds=1.0,
            hosts=tuple(map(self.report, names)),
        )

    # --- slurmctld ---

    def read_nodes(self, names: Sequence[str] = ()) -> dict[str, ControllerNode]:
        if self.is_dead:
            raise SlurmError("scontrol did not end within 8 s")
        return {name: self.nodes[name] for name in names or NODES}

    def drain(self, names: Sequence[str], reason: str, tag: str = "") -> None:
        for name in names:
            is_faulty = any(not found.transient for found in self.faults[name])
            self.drains.append((name, is_faulty))
            self.put(name, reason)

    def resume(self, names: Sequence[str]) -> None:
        for name in names:
            self.resumed.add(name)
            self.nodes[name] = self.nodes[name]._replace(states=("idle",), reason="", user="")


LINK_OK = Finding(verdict=Verdict.OK, check="nvlink")
DKMS_OK = Finding(verdict=Verdict.OK, check="dkms")


def check_health(site: Site, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health check of one node."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / name))
    monkeypatch.setattr(health, "look", lambda *_: site.run(name))
    hosts = [Host(name=name, local=True)]
    context: Any = None  # the look is played
    looks = Looks(("health",), hosts, 3)
    health.health(hosts, context, Severity.WARNING, looks, name, lambda text: None)


def sweep(site: Site) -> list[str]:
    """The nightly sweep, which drains and resumes; the nodes of nodevet that it has looked at."""
    run = site.run(*NODES)
    act.drain(plan_drain(run, scontrol.read_nodes(), DrainLimits(share=1.0, keep=1)))
    plans = plan_resume(run, scontrol.read_nodes(), {})
    act.resume(plans)
    return [plan.node for plan in plans]


def test_in_a_week_no_healthy_node_is_drained_and_no_nodevet_drain_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site()
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(scontrol, "read_nodes", site.read_nodes)
    monkeypatch.setattr(scontrol, "read_node", lambda name: site.read_nodes([name])[name])
    monkeypatch.setattr(scontrol, "drain", site.drain)
    monkeypatch.setattr(scontrol, "resume", site.resume)
    nights = 0
    for at in range(HALF_HOURS):
        site.at = at
        site.begin()
        for name in NODES:
            check_health(site, name, tmp_path, monkeypatch)
        own = [name for name, node in site.nodes.items() if node.own_reason and node.is_drained]
        if at % 48 == 4 and not site.is_dead:
            nights += 1
            assert set(own) <= set(sweep(site))
        if at == 5 * 48 + 2:
            assert site.nodes["gpu5"].reason == BOB
    assert nights >= 5
    assert {name for name, _ in site.drains} == {"gpu1", "gpu3", "gpu4"}
    assert all(is_faulty for _, is_faulty in site.drains)
    assert site.resumed == {"gpu1", "gpu3"}
    reasons = {name: node.reason for name, node in site.nodes.items() if node.is_drained}
    assert reasons == dict.fromkeys(("gpu4", "gpu5"), BOB)
