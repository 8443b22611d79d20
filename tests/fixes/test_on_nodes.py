"""Every fix on simulated nodes: wrong, planned, done, ok; rebooted, still ok; put back as it was.

All that is wrong is described, so that it is wrong again at every boot unless a fix's
boot-time owner sets it. One story is lived through once; the tests ask what came of it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.cpufreq import Cpufreq
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.gpu import Gpus
from nodevet.fixing.model import PlannedChange
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.model import Finding, Verdict
from nodevet.resource import State, after_reset, restore
from nodevet.vet.use.asks import ALWAYS
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
CATALOG = Catalog()
SCENARIO = """\
sim: 1
nodes:
  h100: {gpus: {profile: h100-sxm, count: 2}, sockets: 1, cores: 2, cpufreq: {driver: intel_pstate}}
  a100: {gpus: {profile: a100-sxm-80, count: 1}, sockets: 1, cores: 1}
"""
WRONG = {
    "h100": (
        "governor=powersave",
        "fault=persistence-off",
        "gpu.0.power_limit_mw=500000",
        "gpu.0.power_limit_enforced_mw=500000",
        "gpu.1.power_limit_mw=600000",
        "gpu.1.power_limit_enforced_mw=600000",
        "gpu.1.app_clock_graphics_mhz=1200",
        "gpu.0.compute_mode=PROHIBITED",
        "gpu.1.ecc_current=0",
        "gpu.1.ecc_pending=0",
        "gpu.1.mig_current=1",
        "gpu.1.mig_pending=1",
    ),
    "a100": ("gpu.0.ecc_pending=0", "gpu.0.mig_current=1", "gpu.0.mig_pending=1"),
}
WANTS: dict[str, Any] = {  # in the order in which a plan has them
    "persistence_mode": {"enabled": True},
    "mig_mode": {"enabled": False},
    "ecc_mode": {"enabled": True},
    "compute_mode": {"mode": "DEFAULT"},
    "power_limit": {"watts": "default"},
    "gpu_clocks": {"graphics": "max", "memory": "default"},
    "cpu_governor": {"governor": "performance"},
}
FIXED = [("h100", check) for check in WANTS] + [("a100", "mig_mode"), ("a100", "ecc_mode")]
LATER = [("h100", "ecc_mode"), ("a100", "mig_mode")]  # effective after a reboot
LEFT = {  # files that the fixes leave on the disk
    "/etc/systemd/system/nvidia-persistenced.service.d/90-nodevet-persistence-mode.conf",
    "/etc/systemd/system/nodevet-mig-mode.service",
    "/etc/systemd/system/nodevet-compute-mode.service",
    "/etc/systemd/system/nodevet-power-limit.service",
    "/etc/systemd/system/nodevet-gpu-clocks.service",
    "/etc/tmpfiles.d/nodevet-cpu-governor.conf",
}
DAEMON = "nvidia-persistenced.service"  # the owner of persistence mode; the fault disables it
ASKS = {"services": (DAEMON, "nodevet-persistence-mode.service")}
READ = (*ALWAYS, *ASKS, *CATALOG.check("cpu_governor").sections - ALWAYS)
SETTINGS = (
    *("persistence_mode", "compute_mode", "power_limit_mw", "power_limit_enforced_mw"),
    *("app_clock_graphics_mhz", "app_clock_memory_mhz"),
    *("ecc_current", "ecc_pending", "mig_current", "mig_pending"),
)
TREE = (
    "find /etc -printf '%p %y %m %U:%G %l\\n' | sort; "
    "find /etc -type f -print0 | sort -z | xargs -0 sha256sum"
)


@dataclass(frozen=True)
class Moment:
    """A node at one time."""

    evidence: Evidence
    tree: tuple[str, ...]  # everything below /etc
    failed: str  # units

    @property
    def settings(self) -> tuple[Any, ...]:
        """What the fixes could have changed."""
        return self._settings(self.evidence)

    @property
    def coming(self) -> tuple[Any, ...]:
        """The settings once what waits for a reboot is in force."""
        return self._settings(after_reset(self.evidence))

    @staticmethod
    def _settings(evidence: Evidence) -> tuple[Any, ...]:
        assert evidence[Gpus].data is not None and evidence[Cpufreq].data is not None
        gpus = evidence[Gpus].data.gpus or ()
        return (
            [[getattr(gpu, name) for name in SETTINGS] for gpu in gpus],
            evidence[Cpufreq].data.policies,
        )


@dataclass
class Life:
    """What happened to a node."""

    moments: dict[str, Moment] = field(default_factory=dict)
    changes: dict[str, tuple[PlannedChange, ...]] = field(default_factory=dict)
    seen: dict[str, tuple[State, ...]] = field(default_factory=dict)


def ask(check: str, evidence: Evidence) -> tuple[list[Finding], Any]:
    """The findings of a check, and its params."""
    params = params_of(CATALOG.check(check).params, WANTS[check])
    return list(CATALOG.check(check).judge(evidence, params)), params


def planned(check: str, evidence: Evidence) -> tuple[PlannedChange, ...]:
    findings, params = ask(check, evidence)
    fix = CATALOG.fix(check)
    assert fix is not None
    wrong = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    return tuple(fix.changes(evidence, wrong, params))


class Stories:
    """The nodes of a fleet, and what they live through."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet

    def moment(self, worker: SshExecutor, node: str) -> Moment:
        worker.open(node)
        said = self.fleet.run_on(node, f"{TREE}; echo ---; systemctl --failed --no-legend")
        tree, _, failed = said.partition("---\n")
        return Moment(decode(worker.probe(node)), tuple(tree.splitlines()), failed)

    def live(self, worker: SshExecutor, node: str) -> Life:
        """The whole story of a node; see above."""
        life = Life()
        self.fleet.sim("set", node, *WRONG[node])
        life.moments["wrong"] = self.moment(worker, node)
        for check in (check for of, check in FIXED if of == node):
            evidence = decode(worker.probe(node))
            life.changes[check] = planned(check, evidence)
            life.seen[check] = worker.look(
                node, [resource for change in life.changes[check] for resource in change.resources]
            )
            for action in (each for change in life.changes[check] for each in change.actions):
                acted = worker.act(node, action)
                assert acted.ok, (action, acted)
        life.moments["fixed"] = self.moment(worker, node)
        self.reboot(worker, node)
        life.moments["rebooted"] = self.moment(worker, node)
        for check in reversed(life.changes):
            actions = tuple(each for change in life.changes[check] for each in change.actions)
            for action in restore(*life.seen[check], actions=actions):
                acted = worker.act(node, action)
                assert acted.ok, (action, acted)
        life.moments["undone"] = self.moment(worker, node)
        self.reboot(worker, node)
        life.moments["undone and rebooted"] = self.moment(worker, node)
        return life

    def reboot(self, worker: SshExecutor, node: str) -> None:
        worker.close(node)
        self.fleet.sim("reboot", node)


@pytest.fixture(scope="module")
def stories(boot: Boot) -> Stories:
    return Stories(boot("fixes", SCENARIO))


@pytest.fixture(scope="module")
def lives(stories: Stories) -> dict[str, Life]:
    hosts = list(stories.fleet.hosts.values())
    with SshExecutor(hosts, Options(asks=ASKS, sections=READ)) as worker:
        return {node: stories.live(worker, node) for node in WRONG}


def wrong_in(life: Life, moment: str, check: str) -> list[str]:
    """The subjects that are not ok, or exempt; a check says something in any case."""
    findings, _ = ask(check, life.moments[moment].evidence)
    assert findings
    fine = (Verdict.OK, Verdict.NOT_APPLICABLE)
    return [finding.subject.label for finding in findings if finding.verdict not in fine]


@pytest.mark.parametrize(("node", "check"), FIXED)
def test_each_fix_makes_its_check_pass_and_a_reboot_keeps_it(
    lives: dict[str, Life], node: str, check: str
) -> None:
    life = lives[node]
    changes = life.changes[check]
    named = [subject for change in changes for subject in change.subjects]
    assert named and named == wrong_in(life, "wrong", check)
    later = (node, check) in LATER
    assert wrong_in(life, "fixed", check) == (named if later else [])
    assert all((change.effective != "now") is later for change in changes)
    assert wrong_in(life, "rebooted", check) == []


@pytest.mark.parametrize(("node", "check"), FIXED)
def test_a_second_plan_is_empty(lives: dict[str, Life], node: str, check: str) -> None:
    assert planned(check, lives[node].moments["rebooted"].evidence) == ()
    if (node, check) not in LATER:
        assert planned(check, lives[node].moments["fixed"].evidence) == ()


@pytest.mark.parametrize("node", WRONG)
def test_fixes_add_only_their_own_files_and_units_to_the_disk(
    lives: dict[str, Life], node: str
) -> None:
    before, after = (set(lives[node].moments[when].tree) for when in ("wrong", "fixed"))
    assert not before - after
    files = {row.split("  ", 1)[1] for row in after - before if "  /etc/" in row}
    wanted = LEFT if node == "h100" else set()
    assert files == wanted
    links = {row.split()[0] for row in after - before if row.split()[1] == "l"}
    units = {Path(path).name for path in wanted if path.endswith(".service")}
    units |= {DAEMON} if node == "h100" else set()
    assert links == {f"/etc/systemd/system/multi-user.target.wants/{unit}" for unit in units}


@pytest.mark.parametrize("node", WRONG)
def test_units_do_not_fail(lives: dict[str, Life], node: str) -> None:
    assert {when: moment.failed for when, moment in lives[node].moments.items()} == dict.fromkeys(
        lives[node].moments, ""
    )


@pytest.mark.parametrize("node", WRONG)
def test_the_earlier_state_is_restored_exactly(lives: dict[str, Life], node: str) -> None:
    moments = lives[node].moments
    assert moments["undone"].tree == moments["wrong"].tree
    assert moments["undone"].coming == moments["wrong"].coming
    assert moments["undone and rebooted"].tree == moments["wrong"].tree
    assert moments["undone and rebooted"].settings == moments["wrong"].coming
    assert moments["fixed"].coming != moments["wrong"].coming
