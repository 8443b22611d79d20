"""The kernel was booted with the expected parameters and without the forbidden ones.

**Why it matters.** Only the boot loader's command line sets iommu=pt, pci=realloc, huge pages or
isolated CPUs. A reinstalled node, or a node with another boot entry, lacks them, and GPUDirect or
the CPU layout of jobs breaks. A debugging session may leave nosmt or mitigations=off behind.

**Read from** /proc/cmdline, the command line of the running kernel.

**Verdicts.** `name=value` expects that value, alone or in a list with commas
(`intel_iommu=on,sm_on` has intel_iommu=on). A name alone matches any value. Dashes and underscores
are equal. If a parameter is given twice, the last value counts, unless the kernel uses all of them
(console, pci, iommu, hugepages and the like, rd.*, module blacklists). The check ignores the text
after `--`, which is for init.

**To fix it** change GRUB_CMDLINE_LINUX in /etc/default/grub and run `update-grub`, or run `grubby
--update-kernel=ALL --args=... --remove-args=...`; the change takes effect at the next boot.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    Value,
    fail,
    ok,
    unknown,
)

WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
ALL_COUNT = re.compile(
    r"console|earlycon|earlyprintk|hugepages|hugepagesz|pci|iommu|intel_iommu|amd_iommu|ip|ima_policy"
    r"|memmap|module_blacklist|modprobe\.blacklist|blacklist|cgroup_disable|clearcpuid|ftrace"
    r"|systemd\.(?:setenv|wants|mask)|rd\..+|.*\.dyndbg"
)
Parameter = Annotated[
    str,
    Meta(
        pattern=r"^[^\s=,][^\s=]*(=\S*)?$",
        max_length=256,
        title="NAME or NAME=VALUE",
    ),
]
CHANGE = (
    "change it with `grubby --update-kernel=ALL`, or in /etc/default/grub with `update-grub`, and "
    "reboot"
)


class Params(CheckParams):
    """`kernel_cmdline: {present: [iommu=pt], absent: [nosmt, mitigations=off]}`"""

    present: tuple[Parameter, ...] = ()
    absent: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        both = sorted(set(self.present) & set(self.absent))
        if both:
            raise ValueError(f"{', '.join(both)}: listed in both present and absent")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[HostInfo]
    if not params.present and not params.absent:
        yield unknown(why="the baseline names no parameter")
    cmdline = section.data.cmdline if section.data else None
    by_name = parameters(cmdline or "")
    for names, present in ((params.present, True), (params.absent, False)):
        for parameter in dict.fromkeys(names):
            subject = Subject(kind="parameter", id=parameter)
            if section.data is None:
                yield unknown(subject, why=f"host: {section.why}")
            elif cmdline is None:
                yield unknown(subject, why=f"cmdline: {section.data.why('cmdline')}")
            else:
                yield judge_parameter(subject, parameter, present, by_name)


def judge_parameter(
    subject: Subject, parameter: str, present: bool, by_name: Mapping[str, tuple[str | None, ...]]
) -> Finding:
    name, equals, value = parameter.partition("=")
    values = by_name.get(kernel_name(name), ())
    counting = values if ALL_COUNT.fullmatch(kernel_name(name)) else values[-1:]
    is_present = (
        any(has(counted_value, value) for counted_value in counting) if equals else bool(values)
    )
    shown = " ".join(
        name if counted_value is None else f"{name}={counted_value}" for counted_value in counting
    )
    expected = "present" if present else "absent"
    if is_present is present:
        return ok(subject, expected=expected, actual=expected)
    why = f"given {len(values)} times: the last value counts" if len(values) > len(counting) else ""
    return fail(subject, expected=expected, actual=shown or "absent", why=why, advice=CHANGE)


def has(actual: str | None, value: str) -> bool:
    """
    >>> has("on,sm_on", "on"), has("pt", "off"), has(None, "1")
    (True, False, False)
    """
    return actual is not None and (
        actual == value or ("," not in value and value in actual.split(","))
    )


def parameters(cmdline: str) -> Mapping[str, tuple[str | None, ...]]:
    """The values of each parameter, in order; None for a parameter without `=`.

    >>> parameters('ro iommu=pt dyndbg="file a.c +p" pci=a pci=b -- quiet')["pci"]
    ('a', 'b')
    """
    by_name: dict[str, tuple[str | None, ...]] = {}
    for word in WORD.findall(cmdline):
        if word == "--":
            break
        name, equals, value = word.replace('"', "").partition("=")
        key = kernel_name(name)
        by_name[key] = (*by_name.get(key, ()), value if equals else None)
    return by_name


def kernel_name(name: str) -> str:
    """A name as the kernel compares it: dashes are underscores."""
    return name.replace("-", "_")


LEARNT = re.compile(
    r"hugepages|(?:default_)?hugepagesz|pci|iommu.*|(?:intel|amd)_iommu|isolcpus|nohz_full"
    r"|rcu_nocbs|nosmt|mitigations|numa|numa_balancing|transparent_hugepage|nohz|tsc|clocksource"
    r"|(?:processor|intel_idle)\.max_cstate|idle|(?:intel|amd)_pstate|cgroup_no_v1|pcie_aspm"
    r"|systemd\.unified_cgroup_hierarchy|module_blacklist|modprobe\.blacklist|nvidia.*"
)
"""Parameters that change a node's performance, without those of its disks and consoles."""


def learn(evidence: Evidence) -> Value:
    data = evidence[HostInfo].data
    if data is None or data.cmdline is None:
        return None
    by_name = parameters(data.cmdline)
    present = [
        name if value is None else f"{name}={value}"
        for name, values in by_name.items()
        if LEARNT.fullmatch(name)
        for value in (values if ALL_COUNT.fullmatch(name) else values[-1:])
    ]
    return {"present": list(dict.fromkeys(present))} if present else None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=("host.cmdline",),
    judge=judge,
    unasked="only the site knows its kernel parameters: write kernel_cmdline: {present: "
    "[iommu=pt]}",
    learn=learn,
    severity=Severity.WARNING,
)
