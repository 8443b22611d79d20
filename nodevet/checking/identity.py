"""Whether the intended machine answered. Pure.

A mistake in DNS, in `HostName` of ssh_config or in an inventory leads to another machine: nodevet
then vets that machine twice and the intended one not at all. Two signs show this:

- two names of a run lead to one boot_id, or to a GPU of the same UUID (nodevet.checking.machines);
- a node's own host name (/proc/sys/kernel/hostname) is not its name in the inventory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.checking.machines import Machine, OneMachine, machine, one_machine, undecided_hosts
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.model import (
    Finding,
    Host,
    HostReport,
    HostSummary,
    NeededAction,
    Verdict,
    fail,
    unknown,
)

SAME_MACHINE = "host_identity"
HOSTNAME = "hostname"
"""The names of such findings in place of a check."""

PAGES = {
    SAME_MACHINE: """Each name of a run leads to a different machine.

**Why it matters.** A mistake in DNS, in `HostName` of ssh_config or in an address of the
inventory leads two names to one machine: nodevet vets it twice, and the other one never.

**Read from** /etc/machine-id, /proc/sys/kernel/random/boot_id and the UUIDs of the GPUs (NVML) of
every host of the run.

**Verdicts.** Fail, for all names of a machine, if two hosts have the same boot id or a GPU in
common. Containers of one kernel have its boot id: they are two hosts if their machine ids differ,
or, if one has no machine id, if they have no GPU in common. A clone has the machine id of its
original, but never its boot id: a host with the machine id of another one is unknown if its boot id
was not read and no GPU distinguishes the two. Ids that say nothing (`uninitialized`, zeros) and the
UUIDs of virtual GPUs are not compared.

**To fix it** compare `ssh -G NAME` and `getent hosts NAME` of the names that the finding
lists, correct what leads to the wrong machine, and list each machine once.""",
    HOSTNAME: """The node's hostname is its name in the inventory.

**Why it matters.** Another machine may have answered: then the report is about that machine, and
a fix would change that machine.

**Read from** /proc/sys/kernel/hostname, and the inventory.

**Verdicts.** Fail if the first labels of both names differ; case does not matter. If the
inventory says `expect_hostname: NAME`, the domains must not differ either, if both names have one.
Unknown if the node's hostname was not read, or is `localhost`. nodevet compares nothing for
`@local`, for files under another root, or if the inventory lists the host by an IP address or as
`localhost`.

**To fix it** if another machine answered, correct DNS, `HostName` in ssh_config or the address in
the inventory. If it is the intended node, put its hostname into the inventory, such as
`expect_hostname: ip-10-0-0-1`, or `expect_hostname: false` for a host, a group or all; for one run
use `--no-expect-hostname`.""",
}
"""The pages that `nodevet explain` shows for them."""

SHOWN = 8  # names of one machine in a sentence
NO_NAME = frozenset({"", "(none)", "localhost", "localhost.localdomain"})
"""Hostnames of a node without a name of its own: the kernel's default, and those that systemd and
images set."""

_LOOPBACK = re.compile(r"(ip6-)?localhost\d?(\.localdomain\d?)?|ip6-loopback|.+\.localhost")
TWICE = (
    "at most one of these machines was vetted: check DNS, HostName in ssh_config and the "
    "addresses of the inventory; list each machine once"
)
MAYBE_TWICE = (
    "one of these machines, or a clone of its image: compare "
    "`cat /proc/sys/kernel/random/boot_id` on them; give each clone a machine id of its own with "
    "`systemd-machine-id-setup`"
)
SWITCH = (
    "it is the intended node: put expect_hostname: false, or its hostname, into the inventory, "
    "or use --no-expect-hostname"
)
ELSEWHERE = (
    f"another machine may answer under this name: check DNS and HostName in ssh_config. If {SWITCH}"
)


def expected_hostname(host: Host) -> str | None:
    """The hostname that the node must have; None if any hostname is allowed.

    An inventory's name does not count if it is an address or a name of the loopback, or if the host
    is this machine or a tree of files.
    """
    if isinstance(host.expect_hostname, str):
        return host.expect_hostname
    if not host.expect_hostname or host.local or host.root != "/":
        return None
    return host.name if _names_a_machine(host.name) else None


def _names_a_machine(name: str) -> bool:
    if _LOOPBACK.fullmatch(name.lower().rstrip(".")):
        return False
    if all(label.isdecimal() for label in name.split(".")):  # 10.1 is an address to ssh, too
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False


def is_same_name(expected: str, actual: str, *, exact: bool) -> bool:
    """Whether two hostnames belong to one machine, in upper or lower case.

    The first label decides, because a node's own name and its name in DNS often have different
    domains. With `exact` the domains decide, too, if both names have one.

    >>> is_same_name("gpu001.mgmt.example.com", "GPU001", exact=True)
    True
    >>> is_same_name("gpu001.dc1.example.com", "gpu001.dc2.example.com", exact=True)
    False
    """
    one, other = expected.lower().rstrip("."), actual.lower().rstrip(".")
    if exact and "." in one and "." in other:
        return one == other
    return _first_label(one) == _first_label(other) != ""


def _first_label(name: str) -> str:
    return name.strip().partition(".")[0]


def judge_hostname(host: Host, evidence: Evidence) -> Finding | None:
    """The finding about the node's hostname; None if it is as expected."""
    expected = expected_hostname(host)
    if expected is None:
        return None
    section = evidence[HostInfo]
    actual = section.data.hostname if section.data else None
    if actual is None:
        why = section.data.why("hostname") if section.data else section.why
        return unknown(check=HOSTNAME, expected=expected, why=f"hostname: {why}")
    if not _first_label(actual) or actual.lower() in NO_NAME:
        why = "the node has no hostname of its own, so it may not be the intended node"
        advice = f"set it with hostnamectl. If {SWITCH}"
        return unknown(
            check=HOSTNAME, expected=expected, actual=actual or None, why=why, advice=advice
        )
    if is_same_name(expected, actual, exact=isinstance(host.expect_hostname, str)):
        return None
    return fail(
        check=HOSTNAME, expected=expected, actual=actual, advice=ELSEWHERE, action=NeededAction.SITE
    )


def own_gpus(evidence: Evidence | None) -> tuple[str, ...]:
    """The UUIDs of the node's GPUs without virtual GPUs, which may get another UUID at each
    start."""
    data = evidence[Gpus].data if evidence else None
    return tuple(
        gpu.uuid
        for gpu in (data.gpus if data else None) or ()
        if gpu.uuid and gpu.virtualization_mode != "VGPU"
    )


def machine_in(host: str, evidence: Evidence) -> Machine:
    """The machine that the evidence describes."""
    data = evidence[HostInfo].data or HostInfo()
    return machine(host, data.machine_id, data.boot_id, own_gpus(evidence))


def several_names(machines: Iterable[Machine]) -> Mapping[str, str]:
    """The hosts that share a machine with another name, each with a sentence that says so."""
    return {host: _one_machine(group) for group in one_machine(machines) for host in group.hosts}


def same_machine_reports(
    hosts: Iterable[HostReport | HostSummary], known: Callable[[str], HostReport | None]
) -> Iterator[HostReport]:
    """The reports of hosts that are one machine under several names, which fail, and of hosts that
    may be one machine, which are unknown. `known`: returns the report of a host."""
    machines = [_machine(host) for host in hosts]
    same = one_machine(machines)
    for group in same:
        finding = fail(
            check=SAME_MACHINE,
            why=_one_machine(group),
            advice=TWICE,
            action=NeededAction.SITE,
        )
        yield from _reports_with(group.hosts, finding, known)
    names = {host for group in same for host in group.hosts}
    for doubt in undecided_hosts(machines):
        if doubt.host not in names:
            why = (
                f"the same machine id as {_brief_list(doubt.others)}, and its boot id was not read"
            )
            finding = unknown(check=SAME_MACHINE, why=why, advice=MAYBE_TWICE)
            yield from _reports_with((doubt.host,), finding, known)


def _machine(host: HostReport | HostSummary) -> Machine:
    return machine(host.host, host.machine_id, host.boot_id, host.gpu_uuids or ())


def _brief_list(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more}"


def _one_machine(group: OneMachine) -> str:
    return f"{_brief_list(group.hosts)} are one machine: {group.shared}"


def _reports_with(
    names: Iterable[str], finding: Finding, known: Callable[[str], HostReport | None]
) -> Iterator[HostReport]:
    for report in filter(None, map(known, names)):
        others = (other for other in report.findings if other.check != SAME_MACHINE)
        yield replace(report, findings=(finding, *others))


def doubts(reports: Iterable[HostReport]) -> Mapping[str, tuple[str, str]]:
    """The hosts that nodevet must not change, because they may not be the intended machine: why,
    and what to do.

    Machine ids distinguish containers of one kernel, but a change of that kernel affects all of
    them.
    """
    listed = tuple(reports)
    kernels = one_machine(map(_machine, listed), kernels=True)
    reasons = {host: (_one_machine(kernel), TWICE) for kernel in kernels for host in kernel.hosts}
    for report in listed:
        for finding in report.findings:
            if finding.check == HOSTNAME and finding.verdict is not Verdict.OK:
                reasons.setdefault(report.host, (in_words(finding), finding.advice))
    return reasons


def in_words(finding: Finding) -> str:
    """The finding of `judge_hostname` as printable text."""
    actual, expected = finding.text(finding.actual), finding.text(finding.expected)
    return brief(finding.why or f"its host name is {actual}, not {expected}")
