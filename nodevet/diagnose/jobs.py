"""A job as its scheduler knows it: its hosts, its ids on the nodes, and whether it still runs."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.base.nodeset import NodesetError, expand
from nodevet.base.printable import brief
from nodevet.diagnose.model import JobTarget, ListedRank
from nodevet.inventory import InventoryError, cluster, programs
from nodevet.inventory.cluster_objects import Pod
from nodevet.inventory.documents import MAX_BYTES, decode
from nodevet.inventory.errors import shorten
from nodevet.model import Host
from nodevet.vet.use.targets import Targets

SLURM = re.compile(r"([0-9]{1,10}(?:_[0-9]{1,10}|\+[0-9]{1,4})?)(?:\.([0-9]{1,10}|batch))?")
POD = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})")
LABELS = (
    *("batch.kubernetes.io/job-name", "job-name", "jobset.sigs.k8s.io/jobset-name"),
    *("training.kubeflow.org/job-name", "volcano.sh/job-name"),
    *("leaderworkerset.sigs.k8s.io/name", "ray.io/cluster"),
)
"""The labels with which controllers of jobs name the job of a pod."""
QUEUE = ("squeue", "--noheader", "--states=all", "--format=%A|%i|%T|%U|%N", "--jobs")
STEPS = ("squeue", "--noheader", "--format=%i|%N", "--steps")
RUNS, PLACED = frozenset({"RUNNING", "SUSPENDED"}), frozenset({"Running", "Pending"})
LISTED = re.compile(r"([^\s:]+)(?::(?:gpu([0-9]{1,3})|([0-9]{1,10})))?\s+([0-9]{1,5})")
FORM = "write HOST RANK, HOST:gpuN RANK or HOST:PID RANK"


def named_job(name: str | None, ranks: Path | None) -> JobTarget | None:
    """The job of --job or --ranks, if one of them is given."""
    if ranks:
        return listed_job(ranks)
    return find_job(name) if name else None


def find_job(name: str) -> JobTarget:
    """The job of this name. Raises UserError, InventoryError and ClusterError."""
    if found := SLURM.fullmatch(name):
        return _slurm(name, found[1], found[2] or "")
    if found := POD.fullmatch(name):
        return _pods(name, found[1], found[2])
    raise UserError(
        f"--job {brief(name)}: name a job of Slurm (12345, array task 12345_7, step 12345.0), or a "
        f"pod or job of Kubernetes (NAMESPACE/NAME)"
    )


def _slurm(name: str, job: str, step: str) -> JobTarget:
    rows = [row.split("|") for row in _squeue(*QUEUE, job) if row.count("|") == 4]
    tasks = sorted({row[1] for row in rows if "_" in row[1]})
    if len(tasks) > 1:
        raise UserError(f"job {name} is an array: name one task, such as --job {brief(tasks[0])}")
    hosts = _expand(name, [row[4] for row in rows])
    if step and step != "batch":  # squeue lists no batch step; it runs on a host of the job
        steps = [row.split("|") for row in _squeue(*STEPS, f"{job}.{step}")]
        hosts = _expand(name, [row[-1] for row in steps])
    if not hosts:
        words = ", ".join(sorted({row[2] for row in rows})) or "Slurm does not know it"
        raise UserError(f"job {name} runs on no host: {brief(words)}")
    uids = {int(row[3]) for row in rows if row[3].isdigit()}
    states = {row[2] for row in rows}
    return JobTarget(
        name=name,
        hosts=hosts,
        ids=tuple(sorted({f"Slurm {row[0]}" for row in rows})),
        step=step,
        uid=min(uids) if len(uids) == 1 else None,
        runs=not RUNS.isdisjoint(states),
        states=tuple(sorted(states)),
    )


def _squeue(*command: str) -> list[str]:
    return decode(programs.output(command, f"--job: {command[0]}"), command[0]).splitlines()


def _expand(name: str, nodesets: list[str]) -> tuple[str, ...]:
    try:
        names = [host for text in nodesets if text.strip() for host in expand(text.strip())]
    except NodesetError as error:
        raise UserError(f"job {name}: squeue names hosts that are no nodeset: {error}") from error
    return tuple(dict.fromkeys(names))


def _pods(name: str, namespace: str, label: str) -> JobTarget:
    pods = [pod for pod in cluster.connect().pods_in(namespace) if _is_of(pod, label)]
    on_node = [pod for pod in pods if pod.spec.node_name]
    running = [pod for pod in on_node if pod.status.phase in PLACED]
    if not on_node:
        why = "its pods have no node yet" if pods else f"no pod there has this name, or {LABELS[0]}"
        raise UserError(f"--job {name}: {why}")
    return JobTarget(
        name=name,
        hosts=tuple(dict.fromkeys(pod.spec.node_name for pod in running or on_node)),
        ids=tuple(f"pod {pod.metadata.uid}" for pod in running),
        runs=bool(running),
        states=tuple(sorted({pod.status.phase for pod in on_node})),
        missing=tuple(
            f"pod {brief(pod.metadata.name)} on {brief(pod.spec.node_name) or 'no node'}: "
            f"{brief(pod.status.phase)}"
            for pod in pods
            if pod not in running
        ),
    )


def _is_of(pod: Pod, name: str) -> bool:
    return pod.metadata.name == name or any(pod.metadata.labels.get(at) == name for at in LABELS)


def listed_job(path: Path) -> JobTarget:
    """The ranks that a file lists. Raises UserError, which names the line."""
    try:
        with path.open("rb") as file:
            text = decode(file.read(MAX_BYTES + 1), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    listed = tuple(_listed(path, text))
    if not listed:
        raise UserError(f"{path}: lists no rank: {FORM} on each line")
    return JobTarget(
        name=path.name, hosts=tuple(dict.fromkeys(row.host for row in listed)), listed=listed
    )


def _listed(path: Path, text: str) -> Iterator[ListedRank]:
    lines: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (row := line.partition("#")[0].strip()):
            continue
        if not (match := LISTED.fullmatch(row)):
            raise UserError(f"{path}:{number}: {brief(row)}: {FORM}")
        gpu, pid = (int(value) if value else None for value in (match[2], match[3]))
        rank = int(match[4])
        if lines.setdefault(rank, number) != number:
            raise UserError(f"{path}:{number}: rank {rank} is on line {lines[rank]} already")
        yield ListedRank(match[1], rank, gpu, pid)


def hosts_of(job: JobTarget, targets: Targets) -> tuple[Host, ...]:
    """The hosts of a job among those that the command line names; without any, as Slurm or
    Kubernetes names them. Raises UserError, InventoryError."""
    if not job.runs:
        raise UserError(f"job {brief(job.name)} does not run: {brief(', '.join(job.states))}")
    if not targets:
        is_pods = "/" in job.name and not job.listed
        more = {"inventories": ("k8s:",)} if is_pods else {"names": job.hosts}
        targets = replace(targets, **more)
    hosts = tuple(host for host in targets.hosts() if host.name in job.hosts)
    if not hosts:
        names = shorten(job.hosts)
        raise UserError(
            f"job {brief(job.name)} runs on {names}: neither -i nor the targets name any of them"
        )
    return hosts


def asked_again(job: JobTarget) -> JobTarget:
    """The job, with how it is no longer as it was when nodevet began to watch it."""
    return job if job.listed else replace(job, changed=_change(job))


def _change(job: JobTarget) -> str:
    try:
        now = find_job(job.name)
    except (UserError, InventoryError) as error:
        return f"nodevet could not ask for the job again: {brief(error)}"
    if not now.runs:
        return f"the job ended during the watch: {brief(', '.join(now.states))}"
    same = (now.ids, now.hosts, now.missing) == (job.ids, job.hosts, job.missing)
    return "" if same else "its hosts or pods changed during the watch"
