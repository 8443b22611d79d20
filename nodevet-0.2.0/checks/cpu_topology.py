"""The node has the expected sockets, cores and threads, and all of them are online.

**Why it matters.** The firmware may have taken out a core after errors, a socket may not have come
up, or someone may have taken a CPU offline. Such a node looks healthy and is slower than its peers;
CPU masks of jobs that name the missing CPUs fail.

**Read from** /sys/devices/system/cpu: online, offline, present, cpu*/topology; /proc/cpuinfo.

**Verdicts.** Only online sockets, cores and threads count, together for the node. Threads are what
the kernel calls CPUs: two for each core with SMT. `online` (true by default) requires every CPU
that is plugged in to be online. If SMT is switched off at run time, the second threads are offline:
such a baseline must say `online: false`. `possible` requires every CPU that the kernel is ready for
to be online (its `offline` list is empty), as NVIDIA's Health Validation does. It also finds a CPU
that the firmware announces and that does not start: such a CPU is not present. `model` may contain
`*`; arm64 kernels report no model.

**To fix it** `lscpu -e` shows which CPUs are offline: `echo 1 >
/sys/devices/system/cpu/cpuN/online`. If the node has too few CPUs, check isolcpus and maxcpus in
/proc/cmdline, the firmware's core count and its event log; otherwise have the socket inspected.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import aspect_findings, aspect_if, each_fact, unread_aspect
from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers, spans
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Value, Verdict, fail, ok, unknown

COUNTS = ("sockets", "cores", "threads")
Count = Annotated[int, Meta(ge=1)]
FEWER = (
    "see maxcpus and isolcpus in /proc/cmdline, then the firmware's core count and its event "
    "log; otherwise have the socket inspected"
)
ANOTHER = "no setting changes this: check that the baseline is for this machine"
NOT_STARTED = (
    "`dmesg | grep -i smpboot` shows a CPU that did not start; a machine with free sockets or a "
    "virtual machine with CPU hotplug has possible CPUs that are not plugged in: leave `possible` "
    "out there"
)
OFFLINE = "`echo 1 > /sys/devices/system/cpu/cpuN/online`; if that fails, see the kernel log"


class Params(CheckParams):
    """`cpu_topology: {sockets: 2, cores: 112, threads: 224}` or
    `cpu_topology: {sockets: 2, model: Intel(R) Xeon(R) Platinum 8480*}`"""

    sockets: Count | None = None
    cores: Count | None = None
    """Online cores of all sockets together."""
    threads: Count | None = None
    """Online CPUs of all cores together."""
    model: Words | None = None
    """One or several CPU models, as /proc/cpuinfo spells them."""
    online: bool = True
    """Whether every CPU that is plugged in must be online."""
    possible: bool = False
    """Whether every CPU that the kernel is ready for must be online, plugged in or not."""


@of_section(Cpu, "CPUs")
def judge(cpu: Cpu, evidence: Evidence, params: Params) -> Iterator[Finding]:
    expected = {name: getattr(params, name) for name in COUNTS}
    counts = {name: count for name, count in expected.items() if count is not None}
    if counts:
        yield from judge_counts(cpu, counts)
    if params.model is not None:
        yield judge_model(cpu, params.model)
    if params.online:
        yield judge_online(cpu)
    if params.possible:
        yield from judge_possible(cpu)
    elif not counts and params.model is None and not params.online:
        yield unknown(why="the baseline names nothing to check")


def judge_counts(cpu: Cpu, expected: dict[str, int]) -> Iterator[Finding]:
    aspects = []
    for name, count in expected.items():
        actual = getattr(cpu, name)
        right = actual == count
        aspects.append(
            unread_aspect(cpu, name)
            if actual is None
            else aspect_if(name, right, expected=count, actual=actual, advice=FEWER)
        )
    yield from aspect_findings(NODE, aspects)


def judge_model(cpu: Cpu, model: Words) -> Finding:
    if cpu.model_name is None:
        return unread(NODE, cpu, "model_name")
    actual = " ".join(cpu.model_name.split())
    return ok_if(matches(actual, model), expected=words_text(model), actual=actual, advice=ANOTHER)


def judge_online(cpu: Cpu) -> Finding:
    lists = cpu_lists(cpu, "online", "present")
    if isinstance(lists, Finding):
        return lists
    online, present = lists
    offline = present - online
    if online - present:
        return unknown(why="some online CPUs are not present")
    if offline:
        actual = f"offline: {spans(offline)}"
        return fail(expected="no CPU offline", actual=actual, advice=OFFLINE)
    return ok(expected="no CPU offline", actual="none")


def judge_possible(cpu: Cpu) -> Iterator[Finding]:
    lists = cpu_lists(cpu, "offline", "online", "present")
    if isinstance(lists, Finding):
        yield lists
        return
    missing, online, present = lists
    expected = "every possible CPU online"
    facts = [ok(expected=expected, actual="all online")]
    if missing & online:
        facts.append(unknown(why="CPUs are both online and offline"))
    elif missing:
        actual = f"not online: {spans(missing)}"
        facts.append(fail(expected=expected, actual=actual, advice=NOT_STARTED))
    if present - online - missing:
        facts.append(unknown(why="CPUs are neither online nor offline"))
    yield from each_fact(facts)


def cpu_lists(cpu: Cpu, *fields: str) -> list[frozenset[int]] | Finding:
    """These lists of CPUs, or the finding about a list that is not known. Only `offline` may be
    empty."""
    lists = []
    for field in fields:
        text = getattr(cpu, field)
        cpus = numbers(text)
        if cpus is None or not (cpus or field == "offline"):
            why = cpu.why(field) if text is None else "not a list of CPUs"
            return unknown(why=f"{field}: {why}")
        lists.append(cpus)
    return lists


def learn(evidence: Evidence) -> Value:
    cpu = evidence[Cpu].data
    if cpu is None:
        return None
    fields: dict[str, Value] = {name: getattr(cpu, name) for name in COUNTS}
    fields["model"] = " ".join(cpu.model_name.split()) if cpu.model_name else None
    if judge_online(cpu).verdict is Verdict.FAIL:
        fields["online"] = False
    return {name: value for name, value in fields.items() if value is not None} or None


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        *reads_of("cpu", "cores", "model_name", "offline", "online", "present", "sockets"),
        "cpu.threads",
    ),
    judge=judge,
    unasked="only a site knows its CPUs, and whether threads are offline on purpose",
    learn=learn,
)
