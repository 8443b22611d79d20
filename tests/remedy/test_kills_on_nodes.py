"""A controller killed by SIGKILL at random points, on simulated nodes over real SSH.

An apply is killed while it works on every node at once; then the run is resumed or rolled back,
and that may be killed too. In the end each node is in a known state: what the report says of
each step is what is really there, and after a rollback the settings and the disk, file by file, are
exactly as before; `nodevet_sim.nspawn.diff` names the few paths that may differ, and why.

It is done with steps of risk live, idle and reboot; those of the last reboot the nodes, before and
after which a controller is killed as well.

`NODEVET_KILLS` says how many controllers are killed at least (here: 3), in equal parts by kind,
`NODEVET_KILLS_SEED` when; a test that fails says the seed that it ran with.

    NODEVET_KILLS=50 pytest -rP tests/remedy/test_kills_on_nodes.py
"""

import json
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

KILLS = int(os.environ.get("NODEVET_KILLS", "3"))
pytestmark = pytest.mark.timeout(900 + 200 * KILLS)
SEED = os.environ.get("NODEVET_KILLS_SEED") or secrets.token_hex(4)
NODES = 3 if KILLS > 3 else 2  # at once; they take two thirds of the time
BALANCING = "/proc/sys/kernel/numa_balancing"
SCENARIO = f"""\
sim: 1
nodes:
  k[1-{NODES}]:
    gpus: {{profile: h100-sxm, count: 1}}
    sockets: 1
    cores: 1
    nvlink_domain: 2
    faults: [imex-down]
    numa: {{balancing: 1}}
    nvml:
      gpu.0.power_limit_mw: "500000"
      gpu.0.power_limit_enforced_mw: "500000"
      gpu.0.compute_mode: PROHIBITED
      gpu.0.ecc_current: "0"
      gpu.0.ecc_pending: "0"
"""
BASELINE = """\
nodevet: 1
expect:
  power_limit: 700
  sysctl: {kernel.numa_balancing: 0}
  compute_mode: DEFAULT
  ecc_mode: true
  imex: {}
fix: [power_limit, sysctl, compute_mode, ecc_mode, imex]
"""
APPROVALS = "nodevet: 1\napprovals: {drain: 1, reboot: 1}\n"
UNIT = "nodevet-power-limit.service"
MODES = "nodevet-compute-mode.service"
IMEX = "nvidia-imex.service"
STATE = f"""\
printf 'power\\t'; nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits
printf 'compute_mode\\t'; nvidia-smi --query-gpu=compute_mode --format=csv,noheader
printf 'ecc\\t'; nvidia-smi --query-gpu=ecc.mode.current,ecc.mode.pending --format=csv,noheader
printf 'balancing\\t'; cat {BALANCING}
for unit in {UNIT} {MODES} {IMEX}; do
printf "unit $unit\\t"
systemctl show -p UnitFileState,ActiveState,LoadState,NeedDaemonReload $unit | xargs
printf "units $unit\\t"; systemctl list-units --all --no-legend $unit | wc -l
done
printf 'failed\\t'; systemctl --failed --no-legend | xargs echo
"""
OWNS = {  # fix -> what of a state is its own
    "power_limit": (
        f"/etc/systemd/system/{UNIT}",
        f"/etc/systemd/system/multi-user.target.wants/{UNIT}",
        "power",
        f"unit {UNIT}",
        f"units {UNIT}",
    ),
    "sysctl": ("/etc/sysctl.d/90-nodevet-sysctl.conf", "balancing"),
    "compute_mode": (
        f"/etc/systemd/system/{MODES}",
        f"/etc/systemd/system/multi-user.target.wants/{MODES}",
        "compute_mode",
        f"unit {MODES}",
        f"units {MODES}",
    ),
    "ecc_mode": ("ecc",),
    "imex": (
        f"/etc/systemd/system/multi-user.target.wants/{IMEX}",
        f"unit {IMEX}",
        f"units {IMEX}",
    ),
}
AS_BEFORE = {"failed_and_rolled_back", "rolled_back", "not_attempted", "pending"}
AS_WANTED = {"changed", "unchanged", "verified_after_reboot"}
NOTICED_S = 120  # until the sessions of a dead controller are closed, on a machine that is busy
FREE = f"[ ! -e /run/nodevet/lock ] || timeout {NOTICED_S} flock /run/nodevet/lock true"
TRIES = 3  # of a user: a command of a dead controller may still run and keep the lock

BOOTED_S = 300  # until a node is up again, on a machine that is busy


@dataclass(frozen=True)
class Course:
    """What a plan of a test does."""

    fixes: tuple[str, ...]
    options: tuple[str, ...] = ()
    reboots: bool = False


COURSES = {
    "live": Course(("power_limit", "sysctl")),
    "idle": Course(("power_limit", "compute_mode")),
    "reboot": Course(
        ("imex", "ecc_mode"),
        ("--reboot", "--boot-settle", "1", "--drain-hook", "true"),
        reboots=True,
    ),
}
State = dict[str, str]


def part(state: State, fix: str) -> State:
    return {key: state.get(key, "as it was") for key in OWNS[fix]}


@dataclass
class Killer:
    """What is known of a fleet, and how its controllers are killed."""

    live: Any
    name: str
    course: Course
    chance: random.Random
    before: dict[str, State]
    plan: Path = Path()
    wanted: dict[str, State] = field(default_factory=dict)
    spans: dict[str, float] = field(default_factory=dict)  # seconds of each command, undisturbed
    runs: int = 0
    kills: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.live.folder / f"{self.name}{self.runs}"

    def words(self, command: str) -> list[Any]:
        """`apply`, `resume` or `rollback` of the run at hand."""
        if command == "rollback":
            return ["rollback", self.run, "--settle", "0.2", "--deadline", "150"]
        words = ["apply", "-b", "base", "--project", self.live.folder, "--deadline", "150"]
        if command == "resume":
            return [*words, "--resume", self.run]
        return [*words, self.plan, "-i", self.live.place.inventory, "--run", self.run]

    def plan_it(self) -> None:
        """A plan for the boot that each node is in."""
        if self.plan.name and not self.course.reboots:
            return
        only = [word for fix in self.course.fixes for word in ("--fix", fix)]
        care = (*only, "--settle", "0.2", "--canary", "0", *self.course.options)
        self.plan = self.live.approved(f"{self.name}{self.runs}.json", *care, author="bob")

    def carry_out(self, command: str) -> tuple[int, str]:
        """Undisturbed."""
        begun = time.monotonic()
        code, said = self.live.nodevet(*self.words(command))
        took = time.monotonic() - begun
        self.spans[command] = took
        self.told.append(f"{command}: {took:.1f} s, exit code {code}")
        return code, said

    def kill(self, command: str) -> bool:
        """Start a command and kill it; whether it was still there to be killed."""
        after = self.chance.uniform(0, self.spans.get(command, self.spans["apply"]))
        pid = self.live.start(*self.words(command))
        time.sleep(after)
        begun = self.live.kill(pid)
        code, said = self.live.wait(pid)
        if code >= 0:
            assert code == 0 or command != "apply", f"{self}: exit code {code}\n{said}"
            self.told.append(f"{command}: had ended after {after:.2f} s, exit code {code}")
            return False
        self.kills += 1
        self.told.append(f"{command}: killed after {after:.2f} s")
        if self.chance.random() < 0.3:  # as whoever ends a whole control group does it
            for each in begun:
                os.kill(each, signal.SIGKILL)
            self.told.append("its sessions' process, too")
        at = time.monotonic()
        self.up()
        if self.chance.random() < 0.5:  # else the next one comes at once
            self.live.shell(FREE)
            self.told.append(f"every lock was free within {time.monotonic() - at:.2f} s")
        assert self.live.gone(begun, NOTICED_S), f"{self}: processes {begun} are left\n{said}"
        return True

    def states(self) -> dict[str, State]:
        self.up()
        return self.live.states(STATE)

    def up(self) -> None:
        """Wait for nodes that a controller may have told to reboot."""
        limit = time.monotonic() + BOOTED_S
        while self.course.reboots:
            with suppress(AssertionError):
                self.live.shell("systemctl is-system-running --wait >/dev/null; true")
                return
            assert time.monotonic() < limit, f"{self}: a node does not come back"
            time.sleep(0.5)

    def restart(self) -> None:
        """Boot every node, so that what was reverted is in force."""
        for node in self.live.nodes if self.course.reboots else ():
            self.live.ask("reboot", node)
        self.up()

    def settled(self, command: str) -> dict[str, Any]:
        """The report of a command that nobody kills, once no node is locked any more."""
        for _ in range(TRIES):
            self.up()
            code, said = self.carry_out(command)
            reports = sorted(
                self.run.glob("rollback-*.json"), key=lambda path: path.stat().st_mtime
            )
            path = reports[-1] if command == "rollback" else self.run / "result.json"
            assert code in (0, 1, 3), f"{self}: exit code {code}\n{said}"
            report = json.loads(path.read_text())
            if not any("locked by" in host.get("why", "") for host in report["hosts"]):
                if command == "rollback":
                    self.restart()
                return report
            self.told.append(said)
        raise AssertionError(f"{self}: it stays locked\n{said}")

    def agrees(self, report: dict[str, Any], now: dict[str, State] | None = None) -> None:
        """Every node has an outcome, none is half or in doubt, and each step is as it says. `now`:
        the states; None: to be read."""
        now = now or self.states()
        assert [host["host"] for host in report["hosts"]] == list(now)
        for host in report["hosts"]:
            name = host["host"]
            assert host["outcome"] in AS_BEFORE | AS_WANTED, f"{self}: {json.dumps(host, indent=1)}"
            fixes = {step["fix"] for step in host["steps"]}
            assert fixes == {*self.course.fixes}, f"{self}: {host}"
            for step in host["steps"]:
                fix, outcome = step["fix"], step["outcome"]
                assert outcome in AS_BEFORE | AS_WANTED, f"{self}: {json.dumps(step, indent=1)}"
                params = self.wanted if outcome in AS_WANTED else self.before
                told = f"{self}: {name} {fix} is said to be {outcome}: {step.get('why')}"
                assert part(now[name], fix) == part(params[name], fix), told
                if outcome == "changed":
                    shown(step, self.wanted[name], told)

    def __str__(self) -> str:
        """What came so far, for whoever has to find out."""
        return "\n".join([f"NODEVET_KILLS_SEED={SEED}, in {self.run}", *self.told, ""])


def setting(field: str, state: State) -> Any:
    """A setting of a GPU as evidence has it, by what nvidia-smi says."""
    if field == "compute_mode":
        return state[field].upper()
    return float(state["power"]) * 1000 if field == "power_limit_mw" else "Enabled" in state["ecc"]


def shown(step: dict[str, Any], state: State, told: str) -> None:
    """What a step left, by the report, is what is there: byte by byte."""
    assert step["after"] and step["before"], told
    for seen in step["after"]:
        kind, name, value = seen["resource"]["kind"], seen["resource"]["name"], seen["value"]
        if kind == "file":
            assert value["sha256"] in state[name], told
        elif kind == "kernel":
            assert value == state["balancing"], told
        elif kind == "gpu":
            assert value == setting(name.rpartition(":")[2], state), told
        else:
            assert f"UnitFileState={value['enabled']}" in state[f"unit {name}"], told
            assert f"ActiveState={value['active']}" in state[f"unit {name}"], told


@pytest.fixture(scope="module")
def fleet(live: Callable[[str, str, str], Any]) -> Any:
    fleet = live("kill", SCENARIO, BASELINE)
    (fleet.folder / "approval.yaml").write_text(APPROVALS)
    fleet.shell("rm -f /nothing")  # the first session of a user leaves its own traces
    return fleet


@pytest.fixture(params=COURSES)
def killer(fleet: Any, request: pytest.FixtureRequest) -> Killer:
    """Knows both states of each node, and has the nodes as they were."""
    name = str(request.param)
    course = COURSES[name]
    chance = random.Random(f"{SEED} {name}")
    made = Killer(fleet, name, course, chance, fleet.states(STATE))
    made.plan_it()
    code, said = made.carry_out("apply")
    assert code == 0, said
    made.wanted = made.states()
    owned = {key for fix in course.fixes for key in OWNS[fix]}
    for node, state in made.wanted.items():
        before = made.before[node]
        changed = {key for key in state | before if state.get(key) != before.get(key)}
        assert changed == owned, f"{changed}\n{said}"
    made.agrees(json.loads((made.run / "result.json").read_text()), made.wanted)
    code, said = made.carry_out("rollback")
    assert code == 0, said
    made.restart()
    assert made.states() == made.before
    return made


def test_e29_a_controller_killed_at_random_points_can_be_resumed_or_rolled_back(
    killer: Killer,
) -> None:
    """Resumed and rolled back in turn; after a resume the rollback is killed as well."""
    while killer.kills < -(-KILLS // len(COURSES)):
        killer.runs += 1
        killer.told.append(f"--- run {killer.runs}")
        killer.plan_it()
        killed = killer.kill("apply")
        if killed and not begun(killer):
            assert killer.states() == killer.before, killer
            continue
        if killed and killer.runs % 2:
            if killer.chance.random() < 0.5:
                killer.kill("resume")
            killer.agrees(killer.settled("resume"))
            killer.kill("rollback")
        elif killer.chance.random() < 0.5:
            killer.kill("rollback")
        report, now = killer.settled("rollback"), killer.states()
        killer.agrees(report, now)
        assert now == killer.before, killer
    sys.stdout.write(str(killer))  # pytest -rP shows it


def begun(killer: Killer) -> bool:
    """Whether the run was killed after its folder was made; before that nothing was done."""
    if (killer.run / "reach.json").exists() or not killer.run.exists():
        return killer.run.exists()
    code, said = killer.live.nodevet(*killer.words("resume"))
    assert code == 2 and "nothing" in said, f"{killer}: {said}"
    return False
