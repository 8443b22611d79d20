"""Swap on a simulated node: wrong, planned, done, ok; rebooted, still ok; put back as it was.

The story is lived through once: a swap file and a partition of /etc/fstab, one with a priority
of its own, and a partition that a unit turns on. The tests ask what came of it.
"""

from dataclasses import dataclass, field

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.memory import Memory
from nodevet.fixing.model import PlannedChange, Risk
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.model import Finding, Verdict
from nodevet.resource import State, is_same, restore
from nodevet.vet.use.asks import ALWAYS
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
CATALOG = Catalog()
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    swap:
      - {name: /swapfile, kb: 8388604}
      - {name: /dev/sda2, kb: 1048572, used_kb: 4096, priority: 5}
      - {name: /dev/sdb2, kb: 2097148}
"""
VENDOR = "/usr/lib/systemd/system"
SETUP = f"""\
{{ printf '# \\303\\251\\n/swapfile none swap sw 0 0\\n'
printf '\\t/dev/sda2 none\\tswap sw,pri=5 0 0'; }} > /etc/fstab
chmod 640 /etc/fstab
printf '[Swap]\\nWhat=/dev/sdb2\\n' > {VENDOR}/dev-sdb2.swap
mkdir -p {VENDOR}/swap.target.wants
ln -s ../dev-sdb2.swap {VENDOR}/swap.target.wants/
swapoff -a && systemctl daemon-reload && systemctl restart nodevet-sim-swap
"""
STATE = """\
cat /proc/swaps; grep ^Swap /proc/meminfo
find /etc /usr/lib/systemd -printf '%p %y %m %U:%G %l\\n' | sort
find /etc -type f -print0 | sort -z | xargs -0 sha256sum; ls -l --time-style=+ /swapfile
systemctl --failed --no-legend
"""
PROGRAMS = """\
exec 2>&1; swapoff -a; echo $?; swapon; swapon -a; echo $?; swapon --show --noheadings
swapon /swapfile; echo $?; swapoff /nothing; echo $?; swapoff /dev/sdb2; echo $?
swapoff /swapfile; rm /swapfile; swapon -ae; echo $?; swapon -a; echo $?
"""
SAID = """\
0
0
/swapfile           file          8G     0B   -2
/dev/sda2           partition  1024M     4M    5
swapon: /swapfile: swapon failed: Device or resource busy
255
swapoff: /nothing: swapoff failed: No such file or directory
4
swapoff: /dev/sdb2: swapoff failed: Invalid argument
4
0
swapon: cannot open /swapfile: No such file or directory
255
"""
NONE = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@dataclass
class Life:
    """What came of it. `moments`: evidence and what the node's files say."""

    moments: dict[str, tuple[Evidence, str]] = field(default_factory=dict)
    changes: tuple[PlannedChange, ...] = ()
    seen: tuple[State, ...] = ()
    back: tuple[State, ...] = ()
    said: str = ""
    owners: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def state(self, moment: str) -> str:
        return self.moments[moment][1]


def findings(evidence: Evidence) -> list[Finding]:
    params = params_of(CATALOG.check("swap").params, {"maximum_kb": "none"})
    return list(CATALOG.check("swap").judge(evidence, params))


def planned(evidence: Evidence) -> tuple[PlannedChange, ...]:
    fix = CATALOG.fix("swap")
    assert fix is not None
    params = params_of(CATALOG.check("swap").params, {"maximum_kb": "none"})
    wrong = [each for each in findings(evidence) if each.verdict is Verdict.FAIL]
    return tuple(fix.changes(evidence, wrong, params))


@pytest.fixture(scope="module")
def life(boot: Boot) -> Life:
    return live(boot("swap", SCENARIO))


def live(fleet: SimulatedFleet) -> Life:
    found = Life()
    with SshExecutor(
        list(fleet.hosts.values()), Options(deadline=120, sections=(*ALWAYS,))
    ) as worker:

        def shell(command: str) -> str:
            return fleet.run_on("n1", command)

        def moment(name: str) -> Evidence:
            worker.open("n1")
            found.moments[name] = decode(worker.probe("n1")), shell(STATE)
            return found.moments[name][0]

        shell(SETUP)
        wrong = moment("wrong")
        found.changes = planned(wrong)
        resources = [resource for change in found.changes for resource in change.resources]
        found.seen = tuple(worker.look("n1", resources))
        found.owners = {
            key: tuple(who) for key, who in worker.managers("n1", resources).items() if who
        }
        for action in (action for change in found.changes for action in change.actions):
            acted = worker.act("n1", action)
            assert acted.ok, (action, acted)
        moment("done")
        worker.close("n1")
        fleet.sim("reboot", "n1")
        moment("rebooted")
        actions = tuple(action for change in found.changes for action in change.actions)
        for action in restore(*found.seen, actions=actions):
            acted = worker.act("n1", action)
            assert acted.ok, (action, acted)
        moment("undone")
        found.back = tuple(worker.look("n1", resources))
        found.said = shell(PROGRAMS)
    return found


def test_the_evidence_lists_all_swap_and_the_check_fails(life: Life) -> None:
    evidence, state = life.moments["wrong"]
    memory = evidence[Memory].data
    assert memory is not None and memory.swaps is not None and memory.swap_units is not None
    assert {each.name: each.priority for each in memory.swaps} == {
        "/swapfile": -2, "/dev/sda2": 5, "/dev/sdb2": -3,
    }  # fmt: skip
    assert (memory.swap_total_kb, memory.swap_free_kb) == (11534324, 11530228)
    assert [(each.name, each.path, each.what) for each in memory.swap_units] == [
        ("dev-sdb2.swap", f"{VENDOR}/dev-sdb2.swap", "/dev/sdb2")
    ]
    (finding,) = findings(evidence)
    assert (finding.verdict, finding.actual) == (Verdict.FAIL, "11534324 KiB")
    assert "/swapfile                               file\t\t8388604\t\t0\t\t-2\n" in state


def test_the_plan_names_each_swap_area_and_needs_a_drained_node(life: Life) -> None:
    (change,) = life.changes
    assert (change.risk, change.expected, change.actual) == (Risk.DRAIN, "none", "11534324 KiB")
    assert [resource.label for resource in change.resources] == [
        "file /etc/fstab", "unit dev-sdb2.swap",
        "swap /dev/sdb2", "swap /swapfile", "swap /dev/sda2",
    ]  # fmt: skip
    assert all(seen.why == "" and seen.exists for seen in life.seen)
    assert life.owners == {}


@pytest.mark.parametrize("moment", ["done", "rebooted"])
def test_no_swap_is_left_now_and_after_a_reboot(life: Life, moment: str) -> None:
    evidence, state = life.moments[moment]
    (finding,) = findings(evidence)
    assert (finding.verdict, finding.actual) == (Verdict.OK, "none")
    assert planned(evidence) == ()
    assert state.startswith(f"{NONE}SwapTotal:             0 kB\nSwapFree:              0 kB\n")
    assert "dev-sdb2.swap l 777 0:0 /dev/null" in state


def test_a_rollback_restores_the_swap_as_it_was(life: Life) -> None:
    assert life.state("done") != life.state("wrong")
    swaps, rest = life.state("undone").split("SwapTotal", 1)
    before, its = life.state("wrong").split("SwapTotal", 1)
    assert rest == its
    assert sorted(swaps.splitlines()) == sorted(before.splitlines())
    assert all(is_same(one, two) for one, two in zip(life.seen, life.back, strict=True))


def test_swapon_and_swapoff_on_a_simulated_node_do_as_scripts_expect(life: Life) -> None:
    assert life.said == SAID
