"""Faults while a plan is applied, on real nodes over real SSH.

Whatever strikes, the run ends with an outcome that agrees with the node: done is all of it,
failed or refused is exactly what was. Between each node and its worker is a proxy that can cut
every connection or refuse them; the programs of the node can be told to kill their session.
"""

import hashlib
import os
import shlex
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet import inventory
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.fix.journal.journal import Journal, RunBegin, state
from nodevet.fix.model import Plan
from nodevet.fix.plan import candidates as drafting
from nodevet.fix.plan import planner as planning
from nodevet.fix.rollout import apply as applying
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.limits import Limits
from nodevet.fix.rollout.rollback import NodeRollback, RollbackTask
from nodevet.fix.rollout.session import NodeSession, SessionTerms
from nodevet.fixing.result import HostResult, Outcome, Refusal, exit_code
from nodevet.fleet import Options, Visit
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.protocol.framing import ActResult
from nodevet.model import Host, Status
from nodevet.resource import Resource, State
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.reach import fixed_alone
from nodevet.vet.use.vet import judge_visit
from nodevet_sim.nspawn import control
from nodevet_sim.nspawn.place import FleetFolder
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
ASKS = {"services": (IMEX, "slurmd.service"), "slurm": ("self",)}
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
PROGRAMS = (  # of nodevet's commands on a node
    *("python3", "mktemp", "base64", "sha256sum", "chown", "chmod", "sync", "mv", "rm", "rmdir"),
    *("dd", "systemctl", "systemd-tmpfiles", "nvidia-smi"),
)
HOOK = """\
#!/bin/sh
# Stands before a program of the same name: it is written down, and may kill its SSH session.
name=${0##*/}
real=/usr/bin/$name
[ -n "$SSH_CONNECTION" ] && [ -e /run/hook/at ] || exec $real "$@"
echo "$name" >>/run/hook/log
number=0
while read -r _; do number=$((number + 1)); done </run/hook/log
read -r at when pause </run/hook/at
[ "$number" = "$at" ] || exec $real "$@"
cut() {
    process=$$
    while [ "$process" -gt 1 ]; do
        read -r comm </proc/$process/comm
        while read -r key value; do [ "$key" = PPid: ] && parent=$value; done </proc/$process/status
        case $comm in sshd*) [ "$parent" = 1 ] || kill -9 "$process" ;; esac
        process=$parent
    done
}
[ "$when" = before ] && { cut; sleep "$pause"; }
[ "$when" = crash ] && { cut; kill -9 "$PPID"; exit 1; }
$real "$@"
code=$?
[ "$when" = after ] && cut
exit $code
"""
QUIET = """\
while there=$(grep -lz ^SSH_CONNECTION= /proc/[0-9]*/environ 2>/dev/null |
    xargs -r grep -Lz "^SSH_CONNECTION=$SSH_CONNECTION" 2>/dev/null) && [ -n "$there" ]
do sleep 0.05; done
unset SSH_CONNECTION
"""
"""What nodevet began on the node has ended, whoever heard of it."""


class Proxy:
    """A TCP port that leads to a node."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Reset every connection, at both ends."""
        with self._guard:
            for each in self._open:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def leave(self) -> None:
        """Cut, and refuse every connection from now on."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the one who accepts
        self._listener.close()
        self.cut()

    def come_back(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection((self._target, 22), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._guard:
                    self._open |= {near, far}
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._guard:
            self._open.discard(source)
        source.close()


When = Callable[[Sequence[str]], bool]
"""Whether it is time, by the names of the calls so far; the last one is about to be made."""


def at_call(number: int) -> When:
    return lambda calls: len(calls) == number


def at_act(number: int) -> When:
    return lambda calls: calls[-1] == "act" and calls.count("act") == number


def after_acts(number: int, name: str) -> When:
    return lambda calls: calls[-1] == name and calls.count("act") == number


class Executor:
    """A worker's hands; when it is time something happens, once."""

    def __init__(
        self,
        worker: SshExecutor,
        when: When = lambda calls: False,
        do: Callable[[], Any] = lambda: None,
    ) -> None:
        self._worker = worker
        self._when = when
        self._do = do
        self._done = False
        self.seconds: float | None = None  # that an action may take
        self.calls: list[str] = []
        self.ended: Callable[[], None] = lambda: None  # is told when a call has ended

    def _call(self, name: str, *words: Any, **rest: Any) -> Any:
        if name != "close":
            self.calls.append(name)
            if not self._done and self._when(self.calls):
                self._done = True
                self._do()
        result = getattr(self._worker, name)(*words, **rest)
        if name != "close":
            self.ended()
        return result

    def open(self, host: str) -> None:
        self._call("open", host)

    def lock(self, host: str, who: str) -> None:
        self._call("lock", host, who)

    def probe(self, host: str) -> bytes:
        return self._call("probe", host)

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]:
        return self._call("look", host, resources)

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        return self._call("managers", host, resources)

    def act(self, host: str, action: Any) -> ActResult:
        return self._call("act", host, action, seconds=self.seconds)

    def reboot(self, host: str, *, seconds: float, left: str = "") -> str:
        return self._call("reboot", host, seconds=seconds, left=left)

    def close(self, host: str) -> None:
        self._call("close", host)


@dataclass
class Node:
    """One node, the way to it, and runs on it."""

    name: str
    place: FleetFolder
    host: Host
    proxy: Proxy
    folder: Path
    context: VetContext
    worker: Any = None
    runs: int = 0
    before: str = ""
    terms: SessionTerms = field(
        default=SessionTerms(
            who="test", settle=0.05, boot_settle=20, pauses=(0.1, 0.2, 0.5, 1, 2, 4)
        )
    )

    # --- the node itself ---

    def shell(self, script: str, *, check: bool = True) -> str:
        """A script of root, over a connection of its own."""
        words = ("ssh", "-F", "none", "-l", "root", "-i", str(self.place.key), *self._master)
        done = subprocess.run(
            [*words, self.address, f"sh -c {shlex.quote(script)}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, (script, done)
        return done.stdout

    @property
    def _master(self) -> tuple[str, ...]:
        return (
            *("-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={self.place.known_hosts}"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
            *("-o", "ControlMaster=auto", "-o", f"ControlPath={self.folder}/{self.name}.ssh"),
            *("-o", "ControlPersist=600"),
        )

    def hang_up(self) -> None:
        subprocess.run(
            ["ssh", *self._master, "-O", "exit", self.address], capture_output=True, check=False
        )

    @property
    def address(self) -> str:
        (host,) = (
            each
            for each in inventory.read([], inventories=[str(self.place.inventory)])
            if each.name == self.name
        )
        assert host.address
        return host.address

    def set(self, *pairs: str) -> None:
        values = [pair.partition("=")[::2] for pair in pairs]
        control.ask(self.place, {"do": "set", "node": self.name, "values": values})

    def state(self) -> str:
        """All that the fixes could change, once nothing of nodevet's runs there any more."""
        return self.shell(QUIET + STATE)

    def reboot(self) -> None:
        """As its own operator would; returns once it is up again."""
        control.ask(self.place, {"do": "reboot", "node": self.name})

    def reset(self) -> None:
        """As it was described, without asking nodevet."""
        self.shell(
            "unset SSH_CONNECTION; systemctl disable --now -q nodevet-power-limit 2>/dev/null; "
            f"rm -rf {UNIT}* {RULE} /run/hook/at; systemctl daemon-reload; "
            f"nvidia-smi -pl 500 >/dev/null; echo powersave >{GOVERNOR}"
        )

    # --- hooks ---

    def install(self) -> None:
        names = " ".join(PROGRAMS)
        self.shell(
            f"cd /usr/local/sbin; printf %s {shlex.quote(HOOK)} >hook; "
            f"chmod 755 hook; for name in {names}; do ln -sf hook $name; done"
        )

    def arm(self, number: int, when: str = "before", pause: float = 0) -> None:
        """Kill the session at the program of this number, counted from here; 0: none."""
        self.shell(
            f"mkdir -p /run/hook; : >/run/hook/log; echo {number} {when} {pause} >/run/hook/at"
        )

    def programs(self) -> list[str]:
        return self.shell("cat /run/hook/log").split()

    # --- runs ---

    def plan(self, *fixes: str) -> Plan:
        """What is wrong now, planned; without names, the settings."""
        self.worker.open(self.name)
        document = self.worker.probe(self.name)
        visit = Visit(self.name, Status.VETTED, evidence=document)
        found = drafting.VettedNode(
            report=judge_visit(visit, self.host, self.context).report,
            evidence=decode(document),
            baseline=self.context.baselines[0],
        )
        rules = drafting.Rules(
            id="plan0001",
            author="ann",
            now=datetime.now(timezone.utc),
            fixes=frozenset(fixes or SETTINGS),
        )
        drafted = drafting.draft([found], self.context.catalog, rules)
        resources = drafted.resources.get(self.name, ())
        looked = planning.FixStates(
            seen=self.worker.look(self.name, resources),
            owners=self.worker.managers(self.name, resources),
        )
        self.worker.close(self.name)
        made = planning.make(drafted, rules, {self.name: looked}).plan
        assert made.steps and not made.conflicts, made
        return made

    def journal(self, number: int = 0) -> Journal:
        """A new one, or that of an earlier run."""
        self.runs += not number
        folder = self.folder / f"{self.name}-{number or self.runs}"
        made = Journal.open(folder) if number else Journal.create(folder)
        made.write(RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=os.getpid()))
        return made

    def apply(
        self,
        plan: Plan,
        executor: Any = None,
        *,
        resume: bool = False,
        terms: SessionTerms | None = None,
    ) -> HostResult:
        """The plan applied, or the last run resumed. The lock is free afterwards."""
        terms = terms or self.terms
        order = applying.ApplyOrder(
            plan=plan,
            context=lambda host, baseline: StepContext(
                host=host, baseline=baseline, catalog=self.context.catalog, today=date.today()
            ),
            baselines={each.name: each for each in self.context.baselines},
            hosts=frozenset([self.name]),
            terms=terms,
        )
        with self.journal(self.runs if resume else 0) as journal:
            (result,), _ = applying.apply(
                order,
                executor or self.worker,
                journal,
                Limits(canary=0),
                earlier=state(journal.records) if resume else None,
                stop=applying.Stop(),
            )
        return result

    def rollback(self, plan: Plan, executor: Any = None) -> HostResult:
        with self.journal(self.runs) as journal:
            back = RollbackTask(
                host=self.name,
                planned=plan.nodes[self.name],
                steps=plan.of(self.name),
                run=state(journal.records),
            )
            session = NodeSession(
                self.name,
                executor or self.worker,
                journal,
                self.terms,
                lambda name, document: None,
                back.planned,
            )
            return NodeRollback(back, session).run()

    def touched(self) -> list[str]:
        """The steps that the journal of the last run says to have left something."""
        with Journal.open(self.folder / f"{self.name}-{self.runs}") as journal:
            known = state(journal.records)
        return [id for id, step in known.steps.items() if step.touched]


@pytest.fixture(scope="module")
def nodes(boot: Boot) -> Iterator[dict[str, Node]]:
    fleet = boot("flt", SCENARIO, BASELINE)
    folder, place = fleet.project, fleet.place
    catalog = Catalog()
    context = VetContext(
        baselines=load(["base"], folders=[folder / "baselines"], catalog=catalog),
        catalog=catalog,
        today=date.today(),
    )
    context = VetContext(
        baselines=context.baselines,
        catalog=catalog,
        today=context.today,
        chosen=context.baselines[0],
    )
    found: dict[str, Node] = {}
    try:
        for host in fleet.hosts.values():
            assert host.address
            proxy = Proxy(host.address)
            known = folder / f"{host.name}.hosts"
            key = next(
                line.split(" ", 1)[1]
                for line in place.known_hosts.read_text().splitlines()
                if line.startswith(f"{host.address} ")
            )
            known.write_text(f"[127.0.0.1]:{proxy.port} {key}\n")
            near = Host(
                name=host.name,
                address="127.0.0.1",
                port=proxy.port,
                user="root",
                key_file=host.key_file,
                known_hosts=str(known),
                whole_machine=host.whole_machine,
            )
            found[host.name] = Node(host.name, place, near, proxy, folder, context)
        options = fixed_alone(
            Options(ssh_config=Path(os.devnull), deadline=60, asks=ASKS),
            context,
            {wish.check for wish in context.baselines[0].expectations},
        )
        with SshExecutor([node.host for node in found.values()], options) as worker:
            for node in found.values():
                node.worker = worker
                node.install()
            yield found
    finally:
        for node in found.values():
            node.hang_up()


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


def test_a_cut_at_any_point_ends_known_and_whole(recorded: Recorded, story: Story) -> None:
    assert not story.amiss, "\n".join(f"{point} {why}" for point, why in story.amiss.items())
    assert len(story.outcomes) == len(recorded.points)
    assert set(story.outcomes.values()) == {Outcome.CHANGED, Outcome.FAILED, Outcome.REFUSED}


@pytest.fixture
def node(nodes: dict[str, Node]) -> Iterator[Node]:
    """A node, which is put back as it was described."""
    one = nodes["n1"]
    before = one.state()
    one.before = before
    yield one
    one.reset()
    assert one.state() == before


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
def test_a_node_that_stays_away_is_in_doubt_until_it_is_looked_at(
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


def test_an_action_that_outlives_its_session_strikes_nobody_later(
    node: Node, recorded: Recorded
) -> None:
    """Its file is put in place long after the controller came back to look."""
    plan = node.plan("power_limit")
    node.arm(recorded.program("mv"), "before", pause=3)
    result = node.apply(plan)
    assert not disagrees(node, plan, result, node.before)
    assert result.outcome in (Outcome.CHANGED, Outcome.FAILED)


def test_a_part_of_a_file_that_a_crash_leaves_is_swept(node: Node, recorded: Recorded) -> None:
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


def test_a_reboot_between_two_actions_is_put_back(node: Node) -> None:
    plan = node.plan()
    result = node.apply(plan, Executor(node.worker, at_act(2), node.reboot))
    assert result.outcome is Outcome.FAILED, result
    assert [step.outcome for step in result.steps] == [Outcome.FAILED, Outcome.NOT_ATTEMPTED]
    assert "the session was lost" in result.why and node.state() == node.before
    assert node.touched() == []


def test_a_reboot_while_it_is_verified_is_judged_and_nothing_is_begun_after_it(node: Node) -> None:
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
def test_a_second_file_that_cannot_be_written(node: Node, how: str, told: str) -> None:
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


def test_read_only_when_it_is_put_back(node: Node) -> None:
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


def test_no_space_for_what_a_file_was_before(node: Node) -> None:
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
def test_a_driver_that_does_not_take_it(node: Node, does: str, told: str) -> None:
    plan = node.plan("power_limit")
    node.shell(DRIVER.format(does))
    executor = Executor(node.worker)
    executor.seconds = 16.0 if does == "hang" else None
    result = node.apply(plan, executor)
    node.shell(AGREEABLE)
    assert result.outcome is Outcome.FAILED and told in result.why, result
    assert node.state() == node.before and node.touched() == []


def test_a_driver_that_does_not_take_it_back_either(node: Node) -> None:
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
def test_what_reverts_within_seconds_is_not_done(node: Node, seconds: float) -> None:
    """By the settle time that users have."""
    plan = node.plan("cpu_governor")
    loop = int(node.shell(LOOP.replace("SECONDS", str(seconds))))
    terms = replace(node.terms, settle=SessionTerms(who="").settle)
    result = node.apply(plan, terms=terms)
    node.shell(f"kill -- -{loop}")
    assert result.outcome is Outcome.FAILED, result
    assert node.state() == node.before and node.touched() == []


def test_another_owner_that_came_since_is_named(node: Node) -> None:
    plan = node.plan("cpu_governor")
    node.set("fault=reverts-on-boot")
    result = node.apply(plan)
    node.set("faults=[]")
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.MANAGER), result
    assert "unit site-power.service" in result.why


def test_what_reverts_at_boot_does_not_persist(node: Node) -> None:
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
        f"cp {PEERS} /run/peers; cp -P {WANTS} /run/wants; systemctl disable --now -q {IMEX}"
    )
    usual = node.terms
    node.terms = replace(usual, drain_hook="true", boot_settle=1)
    yield node
    node.terms = usual
    node.shell(
        f"rm -rf {DROP_IN}; cp /run/peers {PEERS}; systemctl unmask -q {IMEX}; "
        f"cp -P --remove-destination /run/wants {WANTS}; systemctl daemon-reload; "
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
def test_a_unit_that_does_not_stay_is_as_it_was(stopped: Node, rows: str, told: str) -> None:
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
def test_what_an_administrator_did_since_is_left_alone(
    stopped: Node, between: str, outcome: Outcome, told: str
) -> None:
    plan = stopped.plan("imex")
    stopped.shell(between)
    was = stopped.shell(UNIT_STATE)
    result = stopped.apply(plan)
    assert result.outcome is outcome and told in result.why, result
    assert stopped.shell(UNIT_STATE) == was


@pytest.mark.parametrize("number", range(1, 12))
def test_a_unit_is_known_and_whole_wherever_the_session_breaks(stopped: Node, number: int) -> None:
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


def test_exactly_the_process_of_the_plan_ends_and_nothing_brings_it_back(left: Left) -> None:
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


def test_another_process_of_the_gpu_since_is_left_alone(left: Left) -> None:
    plan = left.plan()
    left.node.shell(f"kill -9 {left.pid}")
    newer = left.load("python", 1000)
    result = left.node.apply(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE), result
    assert left.lives(newer) and left.lives(left.other) and left.node.touched() == []


def test_one_that_came_since_keeps_all_of_them(left: Left) -> None:
    """It may be a job's: the GPUs are not those of the plan any more."""
    plan, newer = left.plan(), left.load("train", 1001)
    result = left.node.apply(plan)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE), result
    assert left.lives(newer) and left.lives(left.pid)


def test_what_is_started_again_is_said_and_cannot_be_undone(left: Left) -> None:
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
def test_a_process_is_known_to_live_or_not_wherever_the_session_breaks(
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
def test_a_controller_that_is_killed_after_a_process_ended_says_what_it_did(
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
