"""Simulated nodes on which something strikes while a plan is applied.

Between each node and its worker is a proxy that can cut every connection or refuse them; the
programs of the node can be told to kill their session.

with faulty_nodes(boot("flt", SCENARIO, BASELINE), ("imex",), state=STATE, reset=RESET) as nodes:
    plan = nodes["n1"].plan()
    result = nodes["n1"].apply(plan, Executor(nodes["n1"].worker, at_act(2), nodes["n1"].reboot))
"""

import os
import shlex
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from left_behind import shared

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
from nodevet.fixing.result import HostResult
from nodevet.fleet import Options, Visit
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.protocol.framing import ActResult
from nodevet.model import Host, Status
from nodevet.resource import Resource, State
from nodevet.vet.use.asks import asks
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.reach import fixed_alone
from nodevet_sim.nspawn import control
from nodevet_sim.nspawn.place import FleetFolder
from simulated_fleet import SimulatedFleet

PROGRAMS = (  # of nodevet's commands on a node
    *("python3", "mktemp", "base64", "sha256sum", "chown", "chmod", "sync", "mv", "rm", "rmdir"),
    *("dd", "systemctl", "systemd-tmpfiles", "nvidia-smi", "modprobe", "chronyc"),
)
HOOK = """\
#!/bin/sh
# Stands before a program of the same name: it is written down, and may kill its SSH session, or say
# that it did what it did not do.
name=${0##*/}
real=/usr/bin/$name
[ -x "$real" ] || real=/usr/sbin/$name
if [ -n "$SSH_CONNECTION" ] && [ -e /run/hook/lie ]; then
    read -r liar how word </run/hook/lie
    case "$name $how $*" in
    "$liar lies "*"$word"*) exit 0 ;;
    "$liar fails "*"$word"*) exit 9 ;;
    "$liar fewer "*"$word"*)
        read -r value
        [ "$value" -le 12 ] || value=12
        printf %s "$value" | exec "$real" "$@"
        exit $? ;;
    esac
fi
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


WorkerFor = Callable[[frozenset[str]], SshExecutor]
"""The worker of a plan with the fixes of these checks."""


@dataclass
class Node:
    """One node, the way to it, and runs on it."""

    name: str
    place: FleetFolder
    host: Host
    proxy: Proxy
    folder: Path
    context: VetContext
    fixes: tuple[str, ...]  # of a plan that names none
    state_script: str  # all that the fixes could change
    reset_script: str  # sets it as the node was described
    worker_for: WorkerFor
    worker: Any = None  # of the last plan
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
            timeout=300,
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
        return self.shell(QUIET + self.state_script)

    def reboot(self) -> None:
        """As its own operator would; returns once it is up again."""
        control.ask(self.place, {"do": "reboot", "node": self.name})

    def cut_power(self) -> None:
        """Cut its power, and switch it on again; returns at once."""
        control.ask(self.place, {"do": "power", "node": self.name, "set": "reset"})

    def wait_until_up(self) -> None:
        """Until it has booted and answers."""
        self.hang_up()
        control.ask(self.place, {"do": "wait"})
        self.shell("systemctl is-system-running --wait >/dev/null; true")

    def disk(self) -> list[Any]:
        """What differs on its disk from its first boot."""
        return list(control.ask(self.place, {"do": "diff", "node": self.name})["changes"])

    def reset(self) -> None:
        """As it was described, without asking nodevet."""
        self.shell(f"unset SSH_CONNECTION; rm -f /run/hook/at /run/hook/lie; {self.reset_script}")

    def put_back(self, script: str = "true") -> None:
        """As it was `before`, without asking nodevet. `script`: sets what its state does not show.
        The rest is set only if something differs."""
        self.shell(f"unset SSH_CONNECTION; rm -f /run/hook/at /run/hook/lie; {script}")
        if self.state() != self.before:
            self.reset()
            assert self.state() == self.before

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

    def lie(self, program: str, how: str, word: str) -> None:
        """Let a program whose arguments have the word do nothing and succeed (`lies`) or fail
        (`fails`), or write at most 12 (`fewer`)."""
        self.shell(f"mkdir -p /run/hook; echo {program} {how} {word} >/run/hook/lie")

    def programs(self) -> list[str]:
        return self.shell("cat /run/hook/log").split()

    # --- runs ---

    def plan(self, *fixes: str) -> Plan:
        """What is wrong now, planned."""
        made = self.proposal(*fixes).plan
        assert made.steps and not made.conflicts, made
        return made

    def proposal(self, *fixes: str) -> planning.Proposal:
        """A plan of what is wrong now, and what it leaves out."""
        self.worker = self.worker_for(frozenset(fixes or self.fixes))
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
            fixes=frozenset(fixes or self.fixes),
        )
        drafted = drafting.draft([found], self.context.catalog, rules)
        resources = drafted.resources.get(self.name, ())
        looked = planning.FixStates(
            seen=self.worker.look(self.name, resources),
            owners=self.worker.managers(self.name, resources),
        )
        self.worker.close(self.name)
        return planning.make(drafted, rules, {self.name: looked})

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

    def rollback(self, plan: Plan, executor: Any = None, run: int = 0) -> HostResult:
        """The steps of the plan reverted; `run`: an earlier one than the last."""
        with self.journal(run or self.runs) as journal:
            back = RollbackTask(
                host=self.name,
                planned=plan.nodes[self.name],
                steps=plan.host_steps(self.name),
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


@contextmanager
def faulty_nodes(
    fleet: SimulatedFleet, fixes: tuple[str, ...], *, state: str, reset: str
) -> Iterator[dict[str, Node]]:
    """The nodes of a fleet with a baseline `base`."""
    context = context_of(fleet)
    with ExitStack() as stack:
        found: dict[str, Node] = {}

        @cache
        def worker_for(checks: frozenset[str]) -> SshExecutor:
            hosts = [node.host for node in found.values()]
            with shared():
                return stack.enter_context(SshExecutor(hosts, options_of(context, checks)))

        for host in fleet.hosts.values():
            node = node_of(fleet, host, context, fixes, state, reset, worker_for)
            stack.callback(node.hang_up)
            node.install()
            found[host.name] = node
        yield found


def options_of(context: VetContext, checks: frozenset[str]) -> Options:
    """A probe reads only what the fixes of a plan need, as in `nodevet apply`."""
    asked = asks(context, fixes=True)
    options = Options(ssh_config=Path(os.devnull), deadline=60, asks=asked)
    return fixed_alone(options, context, checks)


def context_of(fleet: SimulatedFleet) -> VetContext:
    catalog = Catalog()
    baselines = load(["base"], folders=[fleet.project / "baselines"], catalog=catalog)
    return VetContext(baselines=baselines, catalog=catalog, today=date.today(), chosen=baselines[0])


def node_of(
    fleet: SimulatedFleet,
    host: Host,
    context: VetContext,
    fixes: tuple[str, ...],
    state: str,
    reset: str,
    worker_for: WorkerFor,
) -> Node:
    """A node behind a proxy that its worker knows by the node's key."""
    assert host.address
    proxy = Proxy(host.address)
    known = fleet.project / f"{host.name}.hosts"
    key = next(
        line.split(" ", 1)[1]
        for line in fleet.place.known_hosts.read_text().splitlines()
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
    folder = fleet.project
    scripts = (state, reset)
    return Node(host.name, fleet.place, near, proxy, folder, context, fixes, *scripts, worker_for)
