"""Bind systemd services to the NUMA nodes of the GPUs on which they compute.

**Now** nothing: systemd binds a service when the service starts, and the fix does not interrupt it.
`nodevet plan --restart` plans the restart. `--now` binds the CPUs of the running processes
(`taskset`, each with its threads); it does not move memory that is on another node.

**At every boot** `/etc/systemd/system/<service>.d/90-nodevet-numa-binding.conf`: CPUAffinity=,
NUMAPolicy=bind, NUMAMask= and, if the baseline expects bound memory too, AllowedMemoryNodes=. The
check reads Mems_allowed, which does not show a policy, and a program can override a policy;
AllowedMemoryNodes= shows there, and a program cannot override it. Other drop-ins and numad
conflict.

The binding includes the memory-only nodes nearest to these CPUs, such as a Grace Hopper GPU's own.

**Risk** live without a restart. A restart needs a drained node, because nodevet cannot know what
depends on the service. The service's own processes do not prevent it.

**Rollback** removes the drop-in, restarts services that were restarted, and gives processes that
were bound with `--now` their earlier CPUs, thread by thread. If something else restarted a process
in between, it stays bound until its next start.

**What it cannot do.** It does not bind processes outside services (sessions, containers) or of
services that run users' jobs (slurmd, kubelet): their launchers must bind them. One service
has one binding: if its processes compute on GPUs of several nodes, run one instance per node.
systemd moves a running service to AllowedMemoryNodes= whenever it reads its files, and cannot undo
this: if the memory is not bound yet, nodevet plans only with `--restart`. AllowedMemoryNodes= needs
the unified cgroup hierarchy; without it the check still fails, and the step is rolled back. nodevet
also rolls back a restart if the service does not use its GPUs within two minutes, or if systemd
needs longer than 45 s. The kernel kills a service that needs more memory than its nodes have. Units
of systemd-run do not survive a reboot.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.checks.numa_binding import Params, homes_of, memory_of, users_of
from nodevet.evidence.across import nodes_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.evidence.numa import NumaNode
from nodevet.evidence.processes import Process, Processes, service_of
from nodevet.evidence.services import UNIT_NAME
from nodevet.fixing.gpus import common_value
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.process import CPUS, bind
from nodevet.resource.unit import RELOAD, SetUnit

DROP_IN = "/etc/systemd/system/{}.d/90-nodevet-numa-binding.conf"
SERVICE = re.compile(UNIT_NAME + r"\.service")

OTHERS = (
    (r"/slurm", "bind in Slurm: --gpu-bind, with task/affinity and task/cgroup"),
    (r"/(kubepods|kubelet|containerd|cri-|crio|k3s|rke2)", "bind in Kubernetes: topology manager"),
    (r"/(docker|podman|libpod|machine|systemd-nspawn|lxc)", "bind the container: --cpuset-cpus"),
    (r"/(pbs|sge|condor|lsf|lim\.|sbatchd)", "bind in the batch system"),
    (r"/(user\.slice|ssh|getty@|cron\b|crond|atd\.)", "a session: bind it with taskset or numactl"),
    (
        r"/run-[a-z]?[0-9]",
        "systemd-run started it, and its unit does not survive a reboot: give it a unit file",
    ),
)
"""Control groups of processes that others start, and how to bind them."""


class Home(NamedTuple):
    """The CPUs and NUMA nodes of a service."""

    cpus: str  # in the form of CPUAffinity= and taskset
    nodes: str

    @property
    def label(self) -> str:
        return f"node{'s' if ',' in self.nodes else ''} {self.nodes}"


def plan(
    evidence: Evidence,
    failed: Sequence[Finding],
    params: Params,
    *,
    now: bool = False,
    restart: bool = False,
) -> Iterator[PlannedChange]:
    """One change for each service that fails; see `FIX`."""
    members = computing_processes(evidence)
    services: dict[str, list[Finding]] = {}
    refused: list[str] = []
    for finding in failed:
        process = members.get(finding.subject.id)
        if process is None:
            raise FixError(f"{finding.subject.label}: the finding does not come from this evidence")
        try:
            services.setdefault(bindable(process), []).append(finding)
        except FixError as error:
            refused.append(f"{finding.subject.label}: {error}")
    changes = []
    for service, service_findings in services.items():
        processes = [member for member in members.values() if service_of(member) == service]
        try:
            place = place_of(evidence, processes)
            changes.append(
                change(service, service_findings, place, params, now=now, restart=restart)
            )
        except FixError as error:
            refused.append(f"{service}: {error}")
    yield from with_refusals(changes, refused)


def computing_processes(evidence: Evidence) -> Mapping[str, Process]:
    """Every process that computes on a GPU, by pid. Raises FixError if one is unknown."""
    users, unread_findings = users_of(evidence)
    if unread_findings:
        raise FixError(
            f"{unread_findings[0].subject.label or 'the GPUs'}: {unread_findings[0].why}"
        )
    section = evidence[Processes]
    if section.data is None or section.data.processes is None:
        raise FixError(section.data.why("processes") if section.data else section.why)
    by_pid = {process.pid: process for process in section.data.processes}
    for pid in users:
        if pid not in by_pid:
            raise FixError(f"process {pid} computes on a GPU, but /proc does not show it")
        if by_pid[pid].cgroup is None:
            raise FixError(f"process {pid}: cgroup: {by_pid[pid].why('cgroup')}")
    return {str(pid): by_pid[pid] for pid in users}


def bindable(process: Process) -> str:
    """The service that can bind a process. Raises FixError if there is none."""
    service, unit = service_of(process), process.unit or "no unit"
    for pattern, advice in OTHERS:
        if re.search(pattern, process.cgroup or ""):
            raise FixError(f"it belongs to {unit[:80]}: {advice}")
    if service is None:
        raise FixError(f"it belongs to no system service ({unit[:80]}): bind it in its launcher")
    if not SERVICE.fullmatch(service):
        raise FixError(f"{service[:80]!r} is not the name of a service")
    return service


def place_of(evidence: Evidence, processes: Sequence[Process]) -> Home:
    """The NUMA nodes of the GPUs that all these processes use. Raises FixError."""
    nodes = nodes_of(evidence)
    if isinstance(nodes, Finding):
        raise FixError(nodes.why)
    users, _ = users_of(evidence)
    places = {}
    for process in processes:
        homes = homes_of(evidence, users[process.pid], nodes)
        if isinstance(homes, str):
            raise FixError(homes)
        places[process.pid] = tuple(sorted(homes))
    home, *other_homes = dict.fromkeys(places.values())
    if other_homes:
        places_text = ", ".join(
            f"{pid} on {','.join(map(str, ids))}" for pid, ids in places.items()
        )
        raise FixError(
            f"its processes belong to several nodes ({places_text}), but it has one binding: run "
            "an instance for each node, or let the program bind its workers"
        )
    for node in home:
        usable(nodes[node])
    memory = memory_of(evidence, {node: nodes[node] for node in home}, nodes)
    if isinstance(memory, str):
        raise FixError(memory)
    ids = sorted(id for id, node in memory.items() if id in home or node.memory_total_kb)
    return Home(",".join(nodes[id].cpulist or "" for id in home), ",".join(map(str, ids)))


def usable(node: NumaNode) -> None:
    """Raises FixError if a service bound to this node could not start."""
    if node.cpulist is None:
        raise FixError(f"node {node.id}: cpulist: {node.why('cpulist')}")
    if not CPUS.fullmatch(node.cpulist) or not numbers(node.cpulist):
        raise FixError(f"node {node.id} has no CPUs")
    if node.memory_total_kb is None:
        raise FixError(f"node {node.id}: memory_total_kb: {node.why('memory_total_kb')}")
    if not node.memory_total_kb:
        raise FixError(f"node {node.id} has no memory")


def change(
    service: str,
    findings: Sequence[Finding],
    place: Home,
    params: Params,
    *,
    now: bool,
    restart: bool,
) -> PlannedChange:
    """The change that binds one service. Raises FixError."""
    parts = {part for finding in findings for part in finding.expected}
    if "memory" in parts and not restart:
        raise FixError(
            "its memory must be bound too; systemd binds a running service as soon as it reads "
            "its files, and only a restart undoes that: plan with --restart"
        )
    pids = [finding.subject.id for finding in findings] if now and not restart else []
    note = f"{service} to {place.label}"
    if restart:
        note += "; restarts it"
    elif now:
        note += "; binds its running processes, but does not move their memory"
    else:
        note += "; its running processes stay as they are: --restart, --now"
    return PlannedChange(
        expected=common_value({f.subject.label: f.expected for f in findings}),
        actual=common_value({f.subject.label: f.actual for f in findings}),
        subjects=tuple(finding.subject.label for finding in findings),
        actions=actions(service, place, memory=params.memory, restart=restart, pids=pids),
        resources=(
            Resource(kind="file", name=DROP_IN.format(service)),
            *(Resource(kind="process", name=pid) for pid in pids),
            *([Resource(kind="unit", name=service)] if restart else []),
        ),
        risk=Risk.DRAIN if restart else Risk.LIVE,
        effective="now" if restart or now else "restart",
        services=(service,),
        note=note,
    )


def actions(
    service: str, place: Home, *, memory: bool, restart: bool, pids: Sequence[str] = ()
) -> Actions:
    """The drop-in empties each list first, because systemd adds to the list of the unit's file."""
    settings = [("CPUAffinity", place.cpus), ("NUMAMask", place.nodes)]
    settings += [("AllowedMemoryNodes", place.nodes)] if memory else []
    lists = "".join(f"{key}=\n{key}={value}\n" for key, value in settings)
    text = f"# Written by nodevet.\n[Service]\nNUMAPolicy=bind\n{lists}"
    return (
        WriteFile(path=DROP_IN.format(service), content=text),
        SetUnit(name=service, restart=True) if restart else RELOAD,
        *(bind(pid, place.cpus) for pid in pids),
    )


FIX = Fix(plan=plan, risk=Risk.DRAIN, options=("now", "restart"), after=("swap",))
"""Last, because a restarted service then starts with all other settings in place."""
