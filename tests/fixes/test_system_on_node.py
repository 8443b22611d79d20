"""Huge pages, kernel parameters, units and modules on a node: wrong, done, rebooted, put back.

What is described is wrong again at every boot, unless a fix's owner sets it.
"""

from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.memory import Memory
from nodevet.evidence.modules import Modules
from nodevet.evidence.services import Units
from nodevet.evidence.sysctl import Parameters
from nodevet.fixing.model import PlannedChange
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.model import Finding, Verdict
from nodevet.resource import State, is_same, restore
from nodevet.vet.use.asks import ALWAYS
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
CATALOG = Catalog()
THP = "/sys/kernel/mm/transparent_hugepage"
SCENARIO = f"""\
sim: 1
nodes:
  n1:
    gpus: {{profile: h100-sxm, count: 1}}
    sockets: 1
    cores: 1
    numa: {{balancing: 1}}
    modules: {{nouveau: device, nvidia_uvm: available, nvidia_drm: available,
              nvidia_modeset: available, nvidia_peermem: available}}
    files:
      {THP}/enabled: "[always] madvise never\\n"
      /proc/sys/vm/swappiness: "60\\n"
"""
STOPPED = "nvidia-persistenced.service"
WANTS: dict[str, Any] = {
    "services": {
        "running": [STOPPED, "ssh.service"],
        "enabled": [STOPPED],
        "stopped": ["no.timer"],
    },
    "transparent_hugepage": {"enabled": "madvise"},
    "sysctl": {"kernel.numa_balancing": 0, "vm.swappiness": {"maximum": 10}},
    "kernel_modules": {"loaded": ["nvidia", "nvidia_uvm", "nvidia_drm"], "absent": ["nouveau"]},
}
LATER = {"kernel_modules": ["module nouveau"]}  # gone after a reboot
ASKS = {
    "sysctl": ("kernel.numa_balancing", "vm.swappiness"),
    "services": (STOPPED, "ssh.service", "no.timer"),
}
SYSCTL = """\
d=/etc/systemd/system/systemd-sysctl.service.d; mkdir -p $d; printf '%s\\n' '[Unit]' \
ConditionPathIsReadWrite= '[Service]' ExecStart= ExecStart=-/lib/systemd/systemd-sysctl > $d/t.conf
"""
"""systemd-sysctl starts at boot although most of a container's /proc/sys is read-only."""
TREE = "find /etc -type f -print0 | sort -z | xargs -0 sha256sum; find /etc -type l | sort"


def findings(check: str, evidence: Evidence) -> list[Finding]:
    params = params_of(CATALOG.check(check).params, WANTS[check])
    return list(CATALOG.check(check).judge(evidence, params))


def amiss(check: str, evidence: Evidence) -> list[str]:
    found = findings(check, evidence)
    assert found
    return [each.subject.label for each in found if each.verdict is not Verdict.OK]


def planned(check: str, evidence: Evidence) -> tuple[PlannedChange, ...]:
    fix = CATALOG.fix(check)
    assert fix is not None
    wrong = [each for each in findings(check, evidence) if each.verdict is Verdict.FAIL]
    return tuple(fix.changes(evidence, wrong, params_of(CATALOG.check(check).params, WANTS[check])))


def loaded(evidence: Evidence) -> set[str]:
    assert evidence[Modules].data is not None
    return set(evidence[Modules].data.loaded or ())


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    return boot("system", SCENARIO)


def test_a_fix_is_applied_rebooted_and_rolled_back(fleet: SimulatedFleet) -> None:
    def shell(command: str) -> str:
        return fleet.run_on("n1", command)

    shell(f"{SYSCTL}systemctl disable --now {STOPPED}")
    with SshExecutor(
        list(fleet.hosts.values()), Options(asks=ASKS, sections=(*ALWAYS, *ASKS))
    ) as worker:

        def probe() -> Evidence:
            worker.open("n1")
            return decode(worker.probe("n1"))

        before, tree = probe(), shell(TREE)
        seen: list[tuple[PlannedChange, tuple[State, ...]]] = []
        for check in WANTS:
            assert amiss(check, before), check
            for change in planned(check, before):
                seen.append((change, tuple(worker.look("n1", change.resources))))
                for action in change.actions:
                    acted = worker.act("n1", action)
                    assert acted.ok, (action, acted)
        after = probe()
        for check in WANTS:
            assert amiss(check, after) == LATER.get(check, [])
            again = [each for change in planned(check, after) for each in change.subjects]
            assert again == LATER.get(check, [])
        assert loaded(after) == loaded(before) | {"nvidia_uvm", "nvidia_drm", "nvidia_modeset"}

        worker.close("n1")
        fleet.sim("reboot", "n1")
        rebooted = probe()
        assert {check: amiss(check, rebooted) for check in WANTS} == {check: [] for check in WANTS}
        assert {check: planned(check, rebooted) for check in WANTS} == dict.fromkeys(WANTS, ())
        assert loaded(rebooted) == loaded(after) - {"nouveau"}

        for change, resources in reversed(seen):
            for action in restore(*resources, actions=change.actions):
                acted = worker.act("n1", action)
                assert acted.ok, (action, acted)
        undone = probe()
        assert undone[Parameters].data == before[Parameters].data
        assert undone[Units].data == before[Units].data
        assert loaded(undone) == loaded(before)
        for change, resources in seen:
            assert all(map(is_same, resources, worker.look("n1", change.resources)))
        assert (undone[Memory].data and undone[Memory].data.thp_enabled) == "always"
        assert shell(TREE) == tree
