"""Faults while a plan is applied, on real nodes over real SSH.

Whatever strikes, the run ends with an outcome that agrees with the node: done is all of it,
failed or refused is exactly what was. Between each node and its worker is a proxy that can cut
every connection or refuse them; the programs of the node can be told to kill their session.
"""

import hashlib
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from faulty_nodes import (
    QUIET,
    Executor,
    Node,
    When,
    after_acts,
    at_act,
    at_call,
    faulty_nodes,
)
from msgspec.structs import replace

from nodevet.fix.model import Plan
from nodevet.fix.rollout.session import SessionTerms
from nodevet.fixing.result import HostResult, Outcome, Refusal, exit_code
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
nodes:
  n[1-3]:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    governor: powersave
    nvlink_domain: 2
    nvml: {gpu.0.power_limit_mw: "500000", gpu.0.power_limit_enforced_mw: "500000"}
"""
BASELINE = """\
nodevet: 1
expect: {power_limit: 700, cpu_governor: performance, imex: {}, leftover_processes: {}}
fix: [power_limit, cpu_governor, imex, leftover_processes]
"""
SETTINGS = ("power_limit", "cpu_governor")
IMEX = "nvidia-imex.service"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
UNIT = "/etc/systemd/system/nodevet-power-limit.service"
RULE = "/etc/tmpfiles.d/nodevet-cpu-governor.conf"
LINK = "/etc/systemd/system/multi-user.target.wants/nodevet-power-limit.service"
STATE = f"""\
find /etc -printf '%p %y %m %U:%G %l\\n' | sort
find /etc/systemd /etc/tmpfiles.d -type f -print0 | sort -z | xargs -0 sha256sum
cat {GOVERNOR}
nvidia-smi --query-gpu=power.limit --format=csv,noheader
systemctl show --property=LoadState,UnitFileState,ActiveState nodevet-power-limit
"""
RESET = f"""\
systemctl disable --now -q nodevet-power-limit 2>/dev/null
rm -rf {UNIT}* {RULE}; systemctl daemon-reload
nvidia-smi -pl 500 >/dev/null; echo powersave >{GOVERNOR}
"""


@pytest.fixture(scope="module")
def nodes(boot: Boot) -> Iterator[dict[str, Node]]:
    fleet = boot("flt", SCENARIO, BASELINE)
    with faulty_nodes(fleet, SETTINGS, state=STATE, reset=RESET) as nodes:
        yield nodes


def agrees(result: HostResult, now: str, before: str, done: str) -> str:
    """Why an outcome is not what the node is; empty where it is."""
    wanted = {Outcome.CHANGED: done, Outcome.FAILED: before, Outcome.REFUSED: before}
    if result.outcome not in wanted:
        return f"ended as {result.outcome.value}: {result.why}"
    if now == wanted[result.outcome]:
        return ""
    differing = set(now.splitlines()) ^ set(wanted[result.outcome].splitlines())
    return f"{result.outcome.value} ({result.why}), and yet: {sorted(differing)}"


# --- the connection -----------------------------------------------------------------------------


Point = tuple[str, int, str]  # call or program, its number, before or after


@dataclass(frozen=True)
class Recorded:
    """An undisturbed run of one step: its calls, and the programs that they ran on the node."""

    calls: list[str]
    programs: list[str]
    points: list[Point]
    """Before each call; before each program; and after the last one of each action, when nobody
    hears of its end."""

    def program(self, name: str) -> int:
        """The number of the first program of this name."""
        return self.programs.index(name) + 1


@pytest.fixture(scope="module")
def recorded(nodes: dict[str, Node]) -> Recorded:
    node = nodes["n1"]
    plan = node.plan("power_limit")
    executor, counts = Executor(node.worker), list[int]()
    executor.ended = lambda: counts.append(len(node.programs()))
    node.arm(0)
    result = node.apply(plan, executor)
    calls, programs = executor.calls, node.programs()
    node.reset()
    assert result.outcome is Outcome.CHANGED, result
    last = [count for count, name in zip(counts, calls, strict=True) if name == "act"]
    assert len(set(last)) == len(plan.steps[0].actions)
    points = [
        *(("call", number + 1, "before") for number in range(len(calls))),
        *(("program", number + 1, "before") for number in range(len(programs))),
        *(("program", number, "after") for number in last),
    ]
    return Recorded(calls, programs, points)


@dataclass
class Story:
    """How each run ended that was cut at one of the points."""

    amiss: dict[Point, str] = field(default_factory=dict)
    outcomes: dict[Point, Outcome] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(nodes: dict[str, Node], recorded: Recorded) -> Story:
    """Every point, spread over the nodes."""
    told, points = Story(), list(recorded.points)
    failed: list[BaseException] = []

    def live(node: Node) -> None:
        try:
            plan, before = node.plan("power_limit"), node.state()
            while points and not failed:
                one_point(node, plan, points.pop(), before)
        except BaseException as error:
            failed.append(error)

    def one_point(node: Node, plan: Plan, point: Point, before: str) -> None:
        kind, number, when = point
        at = number if kind == "call" else 0
        node.arm(0 if at else number, when)
        result = node.apply(plan, Executor(node.worker, at_call(at), node.proxy.cut))
        told.outcomes[point] = result.outcome
        if why := disagrees(node, plan, result, before):
            name = (recorded.calls if at else recorded.programs)[number - 1]
            told.amiss[point] = f"at {name}: {why}"
        if why or result.outcome is Outcome.CHANGED:
            node.reset()

    threads = [threading.Thread(target=live, args=[node]) for node in nodes.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return told


def disagrees(node: Node, plan: Plan, result: HostResult, before: str) -> str:
    """Why the node, or the journal, is not what the outcome of its power limit says."""
    now, touched = set(node.state().splitlines()), node.touched()
    was, ids = set(before.splitlines()), [step.id for step in plan.steps]
    if result.outcome is Outcome.CHANGED:
        bad = now != whole(was, plan) or touched != ids
    else:
        known = result.outcome in (Outcome.FAILED, Outcome.REFUSED)
        bad = not known or now != was or bool(touched)
    told = f"{result.outcome.value} ({result.why}): journal {touched}, node {sorted(was ^ now)}"
    return told if bad else ""


def whole(was: set[str], plan: Plan) -> set[str]:
    """A node's state once its power limit is set: the file byte by byte, its unit enabled, the
    driver's value, and nothing else."""
    content = plan.steps[0].actions[0].content
    old = {"LoadState=not-found", "UnitFileState=", "500.00 W"}
    assert old < was
    return (was - old) | {
        *("LoadState=loaded", "UnitFileState=enabled", "700.00 W"),
        f"{UNIT} f 644 0:0 ",
        f"{LINK} l 777 0:0 {UNIT}",
        f"{hashlib.sha256(content.encode()).hexdigest()}  {UNIT}",
    }


def test_a_session_cut_at_any_point_ends_in_an_outcome_that_agrees_with_the_node(
    recorded: Recorded, story: Story
) -> None:
    assert not story.amiss, "\n".join(f"{point} {why}" for point, why in story.amiss.items())
    assert len(story.outcomes) == len(recorded.points)
    assert set(story.outcomes.values()) == {Outcome.CHANGED, Outcome.FAILED, Outcome.REFUSED}


@pytest.fixture
def node(nodes: dict[str, Node]) -> Iterator[Node]:
    """A node, which is put back as it was described."""
    one = nodes["n1"]
    one.before = one.before or one.state()
    yield one
    one.put_back()


@pytest.mark.parametrize(
    ("when", "back"),
    [
        (at_act(1), "resume"),
        (at_act(3), "rollback"),
        (after_acts(3, "look"), "resume"),
        (after_acts(3, "probe"), "rollback"),
    ],
    ids=["first-act", "last-act", "look", "probe"],
)
def test_a_node_that_stays_unreachable_is_unknown_until_it_is_visited_again(
    node: Node, when: When, back: str
) -> None:
    plan = node.plan("power_limit")
    terms = replace(node.terms, pauses=(0.1, 0.1))
    result = node.apply(plan, Executor(node.worker, when, node.proxy.leave), terms=terms)
    node.proxy.come_back()
    assert result.outcome is Outcome.UNKNOWN and exit_code([result]) == 3, result
    assert "could not be reached again: connection refused" in result.why
    assert node.touched() == [plan.steps[0].id]
    if back == "rollback":
        again = node.rollback(plan)
        assert again.outcome is Outcome.ROLLED_BACK and node.state() == node.before, again
    else:
        again = node.apply(plan, resume=True)
        assert not disagrees(node, plan, again, node.before)
    assert node.touched() == ([plan.steps[0].id] if again.outcome is Outcome.CHANGED else [])


def test_an_action_that_outlives_its_session_harms_no_later_process(
    node: Node, recorded: Recorded
) -> None:
    """Its file is put in place long after the controller came back to look."""
    plan = node.plan("power_limit")
    node.arm(recorded.program("mv"), "before", pause=3)
    result = node.apply(plan)
    assert not disagrees(node, plan, result, node.before)
    assert result.outcome in (Outcome.CHANGED, Outcome.FAILED)


def test_a_partial_file_that_a_crash_leaves_is_removed(node: Node, recorded: Recorded) -> None:
    plan = node.plan("power_limit")
    node.arm(recorded.program("mv"), "crash")
    left: list[str] = []
    executor = Executor(
        node.worker,
        lambda calls: calls.count("lock") == 2,  # it comes back
        lambda: left.extend(node.shell(f"ls -A {Path(UNIT).parent}").split()),
    )
    result = node.apply(plan, executor)
    assert [name for name in left if name.startswith(".nodevet-power-limit.service.nodevet.")]
    assert result.outcome is Outcome.FAILED and node.state() == node.before, result


# --- the node reboots ---------------------------------------------------------------------------


def test_a_step_with_a_reboot_between_two_actions_is_reverted(node: Node) -> None:
    plan = node.plan()
    result = node.apply(plan, Executor(node.worker, at_act(2), node.reboot))
    assert result.outcome is Outcome.FAILED, result
    assert [step.outcome for step in result.steps] == [Outcome.FAILED, Outcome.NOT_ATTEMPTED]
    assert "the session was lost" in result.why and node.state() == node.before
    assert node.touched() == []


def test_a_step_rebooted_while_verified_is_judged_and_no_other_step_is_started(node: Node) -> None:
    """The first step's own unit sets it at boot: it holds. The second was planned for the node
    as it was booted then."""
    plan = node.plan()

    def reboot() -> None:
        node.proxy.leave()
        node.reboot()

    terms = replace(node.terms, pauses=(0.1, 0.1))
    result = node.apply(plan, Executor(node.worker, after_acts(3, "look"), reboot), terms=terms)
    node.proxy.come_back()
    assert result.outcome is Outcome.UNKNOWN, result
    again = node.apply(plan, resume=True)
    assert (again.outcome, again.refusal) == (Outcome.PARTIAL, Refusal.STALE), again
    assert "rebooted since the plan was made; n1/power_limit/1 is changed, and stays" in again.why
    assert [step.outcome for step in again.steps] == [Outcome.CHANGED, Outcome.NOT_ATTEMPTED]
    now = node.state()
    assert "700.00 W" in now and "powersave\n" in now and RULE not in now
    assert node.touched() == ["n1/power_limit/1"]
    back = node.rollback(plan)
    assert back.outcome is Outcome.ROLLED_BACK and node.state() == node.before, back


# --- the disk -----------------------------------------------------------------------------------

FULL = "mount -t tmpfs -o size=4k site {0} && dd if=/dev/zero of={0}/full bs=4k count=1 2>/dev/null"
READ_ONLY = "mount --bind {0} {0} && mount -o remount,bind,ro {0}"


@pytest.mark.parametrize(
    ("how", "told"),
    [(FULL, "No space left on device"), (READ_ONLY, "Read-only file system")],
    ids=["full", "read-only"],
)
def test_a_second_step_that_cannot_write_its_file_leaves_the_first_changed(
    node: Node, how: str, told: str
) -> None:
    """The first step holds, the second left nothing; both are said."""
    plan, folder = node.plan(), str(Path(RULE).parent)
    node.shell(how.format(folder))
    result = node.apply(plan)
    listed = node.shell(f"ls -A {folder}; umount {folder}")
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert "n1/power_limit/1 is changed, and stays" in result.why
    assert [step.outcome for step in result.steps] == [Outcome.CHANGED, Outcome.FAILED]
    assert "nodevet" not in listed and node.touched() == ["n1/power_limit/1"]
    assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert node.state() == node.before


def test_a_read_only_folder_makes_the_rollback_fail(node: Node) -> None:
    """The file is written, the unit cannot be enabled, and the file cannot be removed."""
    plan, folder = node.plan("power_limit"), str(Path(UNIT).parent)
    result = node.apply(
        plan, Executor(node.worker, at_act(2), lambda: node.shell(READ_ONLY.format(folder)))
    )
    assert result.outcome is Outcome.ROLLBACK_FAILED and exit_code([result]) == 3, result
    assert "Read-only file system" in result.why and f"file {UNIT} is a file" in result.why
    assert UNIT in node.state() and node.touched() == [plan.steps[0].id]
    still = node.apply(plan, resume=True)
    assert still.outcome is Outcome.ROLLBACK_FAILED, still
    node.shell(f"umount {folder}")
    back = node.rollback(plan)
    assert back.outcome is Outcome.ROLLED_BACK and node.state() == node.before, back


def test_a_full_disk_makes_the_rollback_of_a_file_fail(node: Node) -> None:
    folder = str(Path(RULE).parent)
    node.shell(f"mount -t tmpfs -o size=8k site {folder}; echo '# older' >{RULE}")
    before = node.state()
    plan = node.plan("cpu_governor")

    def fill() -> None:
        node.shell(f"echo powersave >{GOVERNOR}; cat /dev/zero >{folder}/full 2>/dev/null || true")

    result = node.apply(plan, Executor(node.worker, after_acts(2, "look"), fill))
    assert result.outcome is Outcome.ROLLBACK_FAILED, result
    assert "No space left on device" in result.why
    assert "powersave, expected performance" in result.why
    node.shell(f"rm {folder}/full")
    again = node.apply(plan, resume=True)
    assert again.outcome is Outcome.FAILED and node.state() == before, again
    node.shell(f"umount {folder}")


# --- the driver ---------------------------------------------------------------------------------

STATE_FILE = "/run/nodevet-sim/nvml.state"
DRIVER = f"sed -i '1i gpu.0.set.power_limit_mw = {{}}' {STATE_FILE}"
AGREEABLE = f"sed -i /set.power_limit_mw/d {STATE_FILE}"


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("NVML_ERROR_NO_PERMISSION", "-pl 700: ended with"),
        ("ignored", "the check says: GPU 0: 500 W, expected 700 W"),
        ("hang", "timed out after 8 s"),
    ],
)
def test_a_power_limit_that_the_driver_does_not_accept_fails(
    node: Node, does: str, told: str
) -> None:
    plan = node.plan("power_limit")
    node.shell(DRIVER.format(does))
    executor = Executor(node.worker)
    executor.seconds = 16.0 if does == "hang" else None
    result = node.apply(plan, executor)
    node.shell(AGREEABLE)
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert node.state() == node.before and node.touched() == []


def test_a_driver_that_refuses_the_earlier_limit_too_makes_the_rollback_fail(node: Node) -> None:
    plan = node.plan("power_limit")
    refuse = f"nvidia-smi -pl 600 >/dev/null && {DRIVER.format('NVML_ERROR_NO_PERMISSION')}"
    result = node.apply(
        plan, Executor(node.worker, after_acts(3, "look"), lambda: node.shell(refuse))
    )
    assert result.outcome is Outcome.ROLLBACK_FAILED and exit_code([result]) == 3, result
    assert "is 600 W, and was 500 W" in result.why and "-pl 500: ended with" in result.why
    now = node.state()
    assert "600.00 W" in now and UNIT not in now, "all else is put back"
    assert node.touched() == [plan.steps[0].id]
    node.shell(AGREEABLE)
    back = node.rollback(plan)
    assert back.outcome is Outcome.ROLLED_BACK and node.state() == node.before, back


# --- what reverts -------------------------------------------------------------------------------

LOOP = f"""setsid sh -c 'while sleep 0.1; do
    [ "$(cat {GOVERNOR})" = powersave ] || {{ sleep SECONDS; echo powersave >{GOVERNOR}; }}
done' >/dev/null 2>&1 </dev/null & echo $!
"""


@pytest.mark.parametrize("seconds", [0.5, 3])
def test_a_setting_that_reverts_within_seconds_fails(node: Node, seconds: float) -> None:
    """By the settle time that users have."""
    plan = node.plan("cpu_governor")
    loop = int(node.shell(LOOP.replace("SECONDS", str(seconds))))
    terms = replace(node.terms, settle=SessionTerms(who="").settle)
    result = node.apply(plan, terms=terms)
    node.shell(f"kill -- -{loop}")
    assert result.outcome is Outcome.FAILED, result
    assert node.state() == node.before and node.touched() == []


def test_a_manager_that_appeared_after_the_plan_is_named(node: Node) -> None:
    plan = node.plan("cpu_governor")
    node.set("fault=reverts-on-boot")
    result = node.apply(plan)
    node.set("faults=[]")
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.MANAGER), result
    assert "unit site-power.service" in result.why


def test_a_setting_that_reverts_at_boot_does_not_persist(node: Node) -> None:
    """Its owner is none that can be seen: a script that does not name what it sets."""
    unit = "/etc/systemd/system/site.service"
    plan = node.plan("cpu_governor")
    node.shell(
        "printf 'sleep 1; for it in /sys/devices/system/cpu/cpuf*/policy0/sc*_g*; "
        "do echo powersave >$it; done' "
        ">/opt/site; printf %s "
        f"'[Service]\nType=oneshot\nExecStart=/bin/sh /opt/site\n"
        f"[Install]\nWantedBy=multi-user.target\n' >{unit}; systemctl -q enable site"
    )
    before = node.state()
    terms = replace(node.terms, reboot=True, drain_hook="true", boot_settle=1)
    result = node.apply(plan, terms=terms)
    assert result.outcome is Outcome.FAILED and result.rebooted, result
    assert "not persistent across reboot: cpufreq" in result.why
    assert node.state() == before and node.touched() == []
    node.shell(f"systemctl -q disable site; rm {unit} /opt/site; systemctl daemon-reload")


# --- a unit that is to run ----------------------------------------------------------------------

UNIT_STATE = f"systemctl show -p ActiveState,UnitFileState,LoadState {IMEX}; ls /etc/systemd/system"
DROP_IN = f"/etc/systemd/system/{IMEX}.d"
WANTS = f"/etc/systemd/system/multi-user.target.wants/{IMEX}"
PEERS = "/etc/nvidia-imex/nodes_config.cfg"


@pytest.fixture
def stopped(node: Node) -> Iterator[Node]:
    """A node whose IMEX is stopped and disabled; `node` compares all the rest."""
    node.shell(
        f"cp {PEERS} /var/tmp/peers; cp -P {WANTS} /var/tmp/wants; "
        f"systemctl disable --now -q {IMEX}"
    )
    usual = node.terms
    node.terms = replace(usual, drain_hook="true", boot_settle=1)
    yield node
    node.terms = usual
    node.shell(
        f"rm -rf {DROP_IN}; cp /var/tmp/peers {PEERS}; systemctl unmask -q {IMEX}; "
        f"cp -P --remove-destination /var/tmp/wants {WANTS}; systemctl daemon-reload; "
        f"systemctl reset-failed {IMEX}; systemctl start {IMEX}"
    )


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("ExecStartPre=/bin/false", "restart nvidia-imex.service: ended with 1"),
        ("ExecStart=\nExecStart=/bin/false", "does not stay active: nvidia-imex.service"),
        ('ExecStartPost=/bin/sh -c "(sleep 1; systemctl stop %n) &"', "does not stay active"),
        ("ExecStartPost=/bin/systemctl --no-block stop %n", "nvidia-imex.service"),
    ],
    ids=["does-not-start", "ends-at-once", "is-stopped-later", "is-stopped"],
)
def test_a_unit_that_does_not_stay_active_is_restored(stopped: Node, rows: str, told: str) -> None:
    file = shlex.quote(f"[Service]\n{rows}\n")
    stopped.shell(f"mkdir {DROP_IN}; printf %s {file} >{DROP_IN}/a.conf; systemctl daemon-reload")
    was, plan = stopped.shell(UNIT_STATE), stopped.plan("imex")
    result = stopped.apply(plan, terms=replace(stopped.terms, settle=2))
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert stopped.shell(UNIT_STATE).replace("=failed", "=inactive") == was
    assert stopped.touched() == []


@pytest.mark.parametrize(
    ("between", "outcome", "told"),
    [
        (f"systemctl mask -q {IMEX}", Outcome.REFUSED, "it is masked on purpose"),
        (f"systemctl enable -q {IMEX}", Outcome.REFUSED, "different actions"),
        (f"systemctl enable --now -q {IMEX}", Outcome.UNCHANGED, ""),
        (f"printf '::1\n::1\n' >{PEERS}", Outcome.REFUSED, "list of peers is wrong"),
    ],
    ids=["masked", "enabled", "started", "other-peers"],
)
def test_a_later_change_by_an_administrator_is_not_touched(
    stopped: Node, between: str, outcome: Outcome, told: str
) -> None:
    plan = stopped.plan("imex")
    stopped.shell(between)
    was = stopped.shell(UNIT_STATE)
    result = stopped.apply(plan)
    assert result.outcome is outcome and told in result.why, result
    assert stopped.shell(UNIT_STATE) == was


def test_a_unit_runs_after_lost_power_and_a_rollback_stops_it(stopped: Node) -> None:
    was, plan = stopped.shell(UNIT_STATE), stopped.plan("imex")
    assert stopped.apply(plan).outcome is Outcome.CHANGED
    running = stopped.shell(UNIT_STATE)
    stopped.cut_power()
    stopped.wait_until_up()
    assert stopped.shell(UNIT_STATE) == running != was
    assert not stopped.proposal("imex").plan.steps
    assert stopped.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert stopped.shell(UNIT_STATE) == was


@pytest.mark.parametrize("number", range(1, 12))
def test_the_result_agrees_with_the_unit_wherever_the_session_breaks(
    stopped: Node, number: int
) -> None:
    was, plan = stopped.shell(UNIT_STATE), stopped.plan("imex")
    executor = Executor(stopped.worker, at_call(number), stopped.proxy.cut)
    result = stopped.apply(plan, executor)
    now = stopped.shell(QUIET + UNIT_STATE)
    done = was.replace("=inactive", "=active").replace("=disabled", "=enabled")
    assert not agrees(result, now, was, done)
    if result.outcome is Outcome.CHANGED:
        back = stopped.rollback(plan)
        assert back.outcome is Outcome.ROLLED_BACK, back
    assert stopped.shell(UNIT_STATE) == was


# --- a process that is ended --------------------------------------------------------------------

QUIETLY = "</dev/null >/dev/null 2>&1"
LOAD = (
    "setsid /usr/lib/nodevet-sim/nodevet-sim-load --gpus 0 --memory-mb 64 --command {} --uid {} "
    f"{QUIETLY} & echo $!"
)


class Left:
    """A node on which a job left a process on the GPU."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.begun: list[int] = []
        self.pid = self.load("python", 1000)
        self.other = self.sleeper()

    def load(self, command: str, uid: int) -> int:
        """The pid of a process that computes on the GPU."""
        return self._begin(LOAD.format(command, uid))

    def sleeper(self) -> int:
        """The pid of another process of the same user."""
        return self._begin(
            f"setsid setpriv --reuid 1000 --clear-groups sleep 900 {QUIETLY} & echo $!"
        )

    def _begin(self, script: str) -> int:
        pid = int(self.node.shell(f"{script}; sleep 0.3"))
        self.begun.append(pid)
        return pid

    def lives(self, pid: int) -> bool:
        return bool(self.node.shell(f"readlink /proc/{pid}/exe || true").strip())

    def plan(self) -> Plan:
        return self.node.plan("leftover_processes")


@pytest.fixture
def left(node: Node) -> Iterator[Left]:
    found = Left(node)
    assert found.lives(found.pid) and found.lives(found.other)
    yield found
    node.shell(f"kill -9 {' '.join(map(str, found.begun))} 2>/dev/null; sleep 0.2; true")


def test_only_the_process_of_the_plan_is_ended_and_cannot_be_restored(left: Left) -> None:
    plan = left.plan()
    (action,) = plan.steps[0].actions
    assert action.pid == left.pid and plan.steps[0].is_one_way
    result = left.node.apply(plan)
    assert result.outcome is Outcome.CHANGED, result
    assert not left.lives(left.pid) and left.lives(left.other)
    back = left.node.rollback(plan)
    assert back.outcome is Outcome.REFUSED and exit_code([back]) == 1, back
    assert back.why == f"end process {left.pid} (python, uid 1000): cannot be undone"
    assert left.node.apply(plan).outcome is Outcome.UNCHANGED, "a second run ends nothing"
    assert left.lives(left.other)


def test_a_newer_process_on_the_gpu_is_not_ended(left: Left) -> None:
    plan = left.plan()
    left.node.shell(f"kill -9 {left.pid}")
    newer = left.load("python", 1000)
    result = left.node.apply(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE), result
    assert left.lives(newer) and left.lives(left.other) and left.node.touched() == []


def test_a_new_process_on_the_gpus_makes_the_plan_stale(left: Left) -> None:
    """It may be a job's: the GPUs are not those of the plan any more."""
    plan, newer = left.plan(), left.load("train", 1001)
    result = left.node.apply(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE), result
    assert left.lives(newer) and left.lives(left.pid)


def test_a_process_that_is_started_again_fails_the_step_and_is_not_ended(left: Left) -> None:
    """Something starts the process again: the step fails, and says what it has done."""
    plan = left.plan()
    result = left.node.apply(
        plan, Executor(left.node.worker, after_acts(1, "look"), lambda: left.load("python", 1000))
    )
    assert result.outcome is Outcome.ROLLBACK_FAILED and exit_code([result]) == 3, result
    assert f"end process {left.pid} (python, uid 1000): cannot be undone" in result.why
    assert "the check says: GPU 0" in result.why
    assert not left.lives(left.pid) and left.lives(left.begun[-1])


@pytest.mark.parametrize("number", range(1, 12))
def test_the_result_agrees_with_the_process_wherever_the_session_breaks(
    left: Left, number: int
) -> None:
    plan = left.plan()
    executor = Executor(left.node.worker, at_call(number), left.node.proxy.cut)
    result = left.node.apply(plan, executor)
    lives = left.lives(left.pid)
    told = {Outcome.CHANGED: False, Outcome.REFUSED: True, Outcome.FAILED: True}
    assert told.get(result.outcome) is lives, result
    assert left.lives(left.other)
    if lives:
        again = left.node.apply(left.plan())
        assert again.outcome is Outcome.CHANGED and not left.lives(left.pid), again


@pytest.mark.parametrize("record", ["action-begin", "action-end", "step-looked", "step-verified"])
def test_a_resume_reports_a_process_that_the_killed_controller_ended(
    left: Left, record: str
) -> None:
    """It resumes with what the journal has, and a rollback knows that nothing can be undone."""
    node, plan = left.node, left.plan()
    assert node.apply(plan).outcome is Outcome.CHANGED
    journal = node.folder / f"{node.name}-{node.runs}" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if f'"{record}"'.encode() in line)
    journal.write_bytes(b"".join(lines[: last + 1]))
    result = node.apply(plan, resume=True)
    assert result.outcome is Outcome.CHANGED and left.lives(left.other), result
    back = node.rollback(plan)
    assert back.outcome is Outcome.REFUSED and "cannot be undone" in back.why, back
    assert node.rollback(plan).outcome is Outcome.REFUSED, "it is said again"
