"""A small model of nodes for the tests of apply and rollback: files, kernel values, units, GPUs.

It answers what `nodevet.fleet.executor.Executor` asks. A test can make any call of it fail: cut the
session before or after the call took place, or kill the controller there.
"""

import base64
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec

from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.fix.journal.journal import Journal, RunBegin, state
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.candidates import subject_uuids
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.node_run import NodeApply, NodeTask
from nodevet.fix.rollout.rollback import NodeRollback, RollbackTask
from nodevet.fix.rollout.session import NodeSession, SessionTerms
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.fleet.protocol.framing import ActResult
from nodevet.model import Severity, Verdict
from nodevet.model.baseline import Baseline, Expectation
from nodevet.resource import Resource, RunCommand, State, to_stored
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

STOPPED = {"enabled": "disabled", "active": "inactive", "masked": False, "fragment": ""}
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
CHECK = '''\
"""Transparent huge pages are what the baseline says."""
from typing import ClassVar
from nodevet.evidence.memory import Memory
from nodevet.model import NODE, Check, CheckParams, compare, unknown
class Pages(CheckParams):
    bare: ClassVar[str] = "mode"
    mode: str
    risk: str = "live"
def judge(evidence, params):
    data = evidence[Memory].data
    if data is None or data.thp_enabled is None:
        yield unknown(why="not read")
    else:
        yield compare(NODE, expected=params.mode, actual=data.thp_enabled)
CHECK = Check(params=Pages, reads=("memory.thp_enabled",), judge=judge)
'''


FIX = '''\
"""Set it now and at boot."""
from nodevet.evidence.gpu import Gpus
from nodevet.fixing.model import PlannedChange, Fix, Risk
from nodevet.resource import Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit
PATH = "/etc/tmpfiles.d/nodevet-pages.conf"
UNIT = "/etc/systemd/system/nodevet-pages.service"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
def plan(evidence, findings, params):
    gpus = data.gpus if (data := evidence[Gpus].data) else ()
    yield PlannedChange(
        expected=params.mode,
        actual=findings[0].actual,
        subjects=("",),
        actions=(
            WriteFile(path=PATH, content=f"w {THP} - - - - {params.mode}\\n"),
            WriteFile(path=UNIT, content="[Service]\\n"),
            SetUnit(name="nodevet-pages.service", enabled=True, running=True),
            WriteKernel(path=THP, value=params.mode),
        ),
        resources=(
            Resource(kind="file", name=PATH),
            Resource(kind="file", name=UNIT),
            Resource(kind="unit", name="nodevet-pages.service"),
            Resource(kind="kernel", name=THP),
        ),
        risk=Risk(params.risk),
        gpus=tuple(gpu.uuid for gpu in gpus[:1]) if params.risk == "idle" else (),
    )
FIX = Fix(plan=plan, risk=Risk.REBOOT)
'''


class KilledError(BaseException):
    """The controller was killed at this point."""


class Box:
    """One node. `faults` are functions that are called with the name of each call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.machine_id = f"{sum(map(ord, name)):032x}"
        self.hostname = ""
        self.boots = 1
        self.left = ""
        self.files: dict[str, tuple[str, int]] = {"/etc/motd": ("hello\n", 0o644)}
        self.kernel = {
            THP: "always",
            "/proc/sys/kernel/numa_balancing": "1",
            "/sys/kernel/mm/transparent_hugepage/defrag": "madvise",
            "/proc/sys/vm/nr_hugepages": "0",
        }
        self.at_boot = dict(self.kernel)
        self.units: dict[str, dict[str, Any]] = {}
        self.gpus = [
            {"uuid": f"GPU-0000000{index}-0000-0000-0000-000000000000", "ecc": [False, False]}
            for index in range(2)
        ]
        self.processes: list[dict[str, Any]] = []
        self.complete = True
        self.owners: dict[str, tuple[str, ...]] = {}
        self.holder = ""
        self.session = False
        self.held = 0  # tries for which a lost session still holds the lock
        self.gone = 0  # tries for which the node does not answer
        self.calls: list[str] = []
        self.writes = 0
        self.refused: dict[str, str] = {}  # path or unit or command -> what the node says
        self.revert: Callable[[Box], None] | None = None  # when somebody looks the second time
        self.looks = 0

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def everything(self) -> Any:
        """All that a step could change."""
        gpus = [each["ecc"] for each in self.gpus]
        return copy.deepcopy((self.files, self.kernel, self.units, gpus))

    def reboot(self) -> None:
        self.boots += 1
        self.session, self.holder = False, ""
        self.kernel = dict(self.at_boot)
        for path, (content, _) in sorted(self.files.items()):
            if path.startswith("/etc/tmpfiles.d/"):
                _, target, *_, value = content.split()
                self.kernel[target] = value
        for gpu in self.gpus:
            gpu["ecc"][0] = gpu["ecc"][1]
        for unit in self.units.values():
            unit["active"] = "active" if unit["enabled"] == "enabled" else "inactive"

    def evidence(self) -> bytes:
        gpus = [
            {
                "index": index,
                "uuid": gpu["uuid"],
                "minor_number": index,
                "ecc_current": gpu["ecc"][0],
                "ecc_pending": gpu["ecc"][1],
                "processes": [],
            }
            for index, gpu in enumerate(self.gpus)
        ]
        sections = {
            "host": {
                "machine_id": self.machine_id,
                "boot_id": self.boot_id,
                "hostname": self.hostname,
            },
            "memory": {
                "thp_enabled": self.kernel[THP],
                "thp_defrag": self.kernel["/sys/kernel/mm/transparent_hugepage/defrag"],
                "hugepages_total": int(self.kernel["/proc/sys/vm/nr_hugepages"]),
            },
            "gpu": {"gpus": gpus},
            "processes": {"processes": self.processes, "complete": self.complete},
        }
        whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
        return msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole})

    def look(self, resource: Resource) -> State:
        value: Any = None
        if resource.kind == "file" and resource.name in self.files:
            content, mode = self.files[resource.name]
            text = base64.b64encode(content.encode()).decode()
            value = {"content": text, "mode": mode, "owner": 0, "group": 0}
        elif resource.kind == "kernel":
            value = self.kernel.get(resource.name)
        elif resource.kind == "unit" and f"/etc/systemd/system/{resource.name}" in self.files:
            value = self.units.get(resource.name, dict(STOPPED))
        elif resource.kind == "gpu":
            uuid, _, field = resource.name.rpartition(":")
            assert field == "ecc_pending"
            gpu = next((each for each in self.gpus if each["uuid"] == uuid), None)
            if gpu is None:
                return State(resource=resource, exists=False, why="no GPU has this UUID")
            value = "1" if gpu["ecc"][1] else "0"
        return State(resource=resource, exists=value is not None, value=copy.deepcopy(value))

    def act(self, action: WriteFile | WriteKernel | SetUnit | RunCommand) -> ActResult:
        key = getattr(action, "path", None) or getattr(action, "name", None) or action.words[0]
        if key in self.refused:
            return ActResult(ok=False, code=1, output=self.refused[key])
        if isinstance(action, WriteFile):
            if action.content is None:
                self.files.pop(action.path, None)
            else:
                self.files[action.path] = (action.content, action.mode)
        elif isinstance(action, WriteKernel):
            self.kernel[action.path] = action.value
        elif isinstance(action, SetUnit):
            return self._unit(action)
        elif action.words == ("systemctl", "daemon-reload"):
            for name in [
                each for each in self.units if f"/etc/systemd/system/{each}" not in self.files
            ]:
                del self.units[name]
        elif action.words[:2] != ("systemctl", "is-system-running"):
            assert action.words[:2] == ("nvidia-smi", "-i") and action.words[3] == "-e"
            gpu = next((each for each in self.gpus if each["uuid"] == action.words[2]), None)
            if gpu is None:
                return ActResult(ok=False, code=6, output="No devices were found")
            gpu["ecc"][1] = action.words[4] == "1"
        return ActResult(ok=True, code=0, output="")

    def _unit(self, action: SetUnit) -> ActResult:
        if f"/etc/systemd/system/{action.name}" not in self.files:
            self.units.pop(action.name, None)
            bad = action.enabled or action.running
            return ActResult(ok=not bad, code=5 if bad else 0, output="not found" if bad else "")
        unit = self.units.setdefault(action.name, dict(STOPPED))
        if action.enabled is not None:
            unit["enabled"] = "enabled" if action.enabled else "disabled"
        if action.running is not None:
            unit["active"] = "active" if action.running else "inactive"
        if unit == STOPPED:
            del self.units[action.name]
        return ActResult(ok=True, code=0, output="")


class Model:
    """Executor over boxes. `fault(box, call, when)` may raise at each call, before and after it."""

    def __init__(self, boxes: Mapping[str, Box]) -> None:
        self.boxes = boxes
        self.fault: Callable[[Box, str, str], None] = lambda box, call, when: None
        self._turn = threading.Lock()

    def _call(self, host: str, call: str, do: Callable[[Box], Any]) -> Any:
        box = self.boxes[host]
        with self._turn:
            box.calls.append(call)
            if call not in ("open", "close") and not box.session:
                raise WorkError("unreachable", "no session")
            self.fault(box, call, "before")
            result = do(box)
            self.fault(box, call, "after")
            return result

    def open(self, host: str) -> None:
        def do(box: Box) -> None:
            if box.gone:
                box.gone -= 1
                raise WorkError("unreachable", "connection refused")
            box.session = True

        self._call(host, "open", do)

    def close(self, host: str) -> None:
        box = self.boxes[host]
        if box.session and not box.held:
            box.holder = ""
        box.session = False

    def lock(self, host: str, who: str) -> None:
        def do(box: Box) -> None:
            if box.held and box.holder:
                box.held -= 1
                raise LockedError(box.holder, "")
            if box.holder and box.holder != "lost":
                raise LockedError(box.holder, "")
            box.holder = who

        self._call(host, "lock", do)

    def probe(self, host: str) -> bytes:
        return self._call(host, "probe", lambda box: box.evidence())

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]:
        def do(box: Box) -> tuple[State, ...]:
            box.looks += 1
            if box.revert is not None:
                box.revert(box)
            return tuple(box.look(resource) for resource in resources)

        return self._call(host, "look", do)

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        labels = {resource.label for resource in resources}
        return self._call(
            host,
            "managers",
            lambda box: {label: who for label, who in box.owners.items() if label in labels},
        )

    def act(self, host: str, action: WriteFile | WriteKernel | SetUnit | RunCommand) -> ActResult:
        def do(box: Box) -> ActResult:
            assert box.holder, "it was written without the lock"
            box.writes += 1
            return box.act(action)

        return self._call(host, "act", do)

    def reboot(self, host: str, *, seconds: float, left: str = "") -> str:
        def do(box: Box) -> str:
            box.left = left
            box.reboot()
            box.session = True
            return box.boot_id

        return self._call(host, "reboot", do)


def cut(box: Box) -> None:
    """The session ends; the lock with it, once the node misses it."""
    box.session = False
    if not box.held:
        box.holder = ""
    raise WorkError("unreachable", "connection reset")


def told_of(params: Any) -> Any:
    """What a baseline says to get these params."""
    told = msgspec.to_builtins(params)
    return told[params.whole] if params.whole else told


def _params(kind: Any, value: Any) -> Any:
    return params_of(kind, value)


class World:
    """Boxes, a plan for them, and a journal: what the tests put together."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        params: Mapping[str, Any],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more`: templates of checks and fixes, and name -> (field of the evidence, path)."""
        for kind, text in (("checks", CHECK), ("fixes", FIX)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / "pages.py").write_text(text)
        for name, (field, path) in more["of"].items() if more else ():
            given = {"name": name, "field": field, "path": path}
            for kind in ("CHECK", "FIX"):
                text = more[kind].format(**given) if more else ""
                (folder / {"CHECK": "checks", "FIX": "fixes"}[kind] / f"{name}.py").write_text(text)
        self.folder = folder
        self.catalog = Catalog([folder / "checks"], [folder / "fixes"])
        self.boxes = {name: Box(name) for name in names}
        self.executor = Model(self.boxes)
        self.terms = SessionTerms(who="test", settle=0, boot_settle=0, pauses=(0, 0, 0))
        self.baseline = Baseline(
            name="b",
            path="b.yaml",
            sha256="1" * 64,
            expectations=tuple(
                Expectation(
                    check=check,
                    params=_params(self.catalog.check(check).params, value),
                    severity=Severity.CRITICAL,
                    origin="b.yaml:1",
                    fix=True,
                )
                for check, value in params.items()
            ),
        )
        self.kept: list[tuple[str, str]] = []
        self._journals: list[Journal] = []

    def plan(self, *options: str) -> Plan:
        now = datetime.now(timezone.utc)
        steps = tuple(step for box in self.boxes.values() for step in self._steps(box, options))
        return Plan(
            id="plan0001",
            author="ann",
            created=now.isoformat(),
            expires=(now + timedelta(hours=1)).isoformat(),
            baselines={"b": self.baseline.sha256},
            nodes={
                box.name: PlannedNode(machine_id=box.machine_id, boot_id=box.boot_id, baseline="b")
                for box in self.boxes.values()
            },
            steps=steps,
        )

    def _steps(self, box: Box, options: tuple[str, ...]) -> list[Step]:
        evidence = decode(box.evidence())
        findings = judge(evidence, self.baseline, self.catalog, host=box.name, today=date.today())
        steps = []
        for wish in self.baseline.expectations:
            wrong = [
                each
                for each in findings
                if each.check == wish.check and each.verdict is Verdict.FAIL
            ]
            fix = self.catalog.fix(wish.check)
            changes = fix.changes(evidence, wrong, wish.params, options)
            for number, change in enumerate(changes, 1):
                fields = {name: getattr(change, name) for name in change.__struct_fields__}
                about = [each for each in wrong if each.subject.label in change.subjects]
                fields["subject_uuids"] = subject_uuids(change, about, evidence)
                steps.append(
                    Step(
                        id=f"{box.name}/{wish.check}/{number}",
                        host=box.name,
                        fix=wish.check,
                        reason="",
                        options=options,
                        before=to_stored(box.look(resource) for resource in change.resources)[0],
                        **fields,
                    )
                )
        # as it comes out of a file
        return msgspec.json.decode(msgspec.json.encode(steps), type=list[Step])

    def journal(self, name: str = "run", **run: Any) -> Journal:
        """A new journal, or the one of that name as another controller finds it."""
        folder = self.folder / name
        for other in self._journals:
            other.close()
        journal = Journal.open(folder) if folder.exists() else Journal.create(folder)
        record = RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=1, **run)
        journal.write(record)
        self._journals.append(journal)
        return journal

    def context(self, host: str, baseline: Baseline | None = None) -> StepContext:
        return StepContext(
            host=host, baseline=baseline or self.baseline, catalog=self.catalog, today=date.today()
        )

    def session(self, plan: Plan, host: str, journal: Journal) -> NodeSession:
        def keep(name: str, document: bytes) -> None:
            self.kept.append((host, name))

        return NodeSession(host, self.executor, journal, self.terms, keep, plan.nodes[host])

    def node(
        self, plan: Plan, journal: Journal, host: str = "n1", *, resume: bool = False, **task: Any
    ) -> Any:
        """One node's run, as it ends."""
        order = NodeTask(host=host, planned=plan.nodes[host], steps=plan.host_steps(host), **task)
        node = NodeApply(order, self.session(plan, host, journal), self.context(host))
        return node.run(state(journal.records) if resume else None)

    def back(self, plan: Plan, host: str = "n1") -> Any:
        """One node's rollback, as it ends."""
        journal = self.journal(kind="rollback", hosts=(host,))
        order = RollbackTask(
            host=host,
            planned=plan.nodes[host],
            steps=plan.host_steps(host),
            run=state(journal.records),
        )
        return NodeRollback(order, self.session(plan, host, journal)).run()

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
