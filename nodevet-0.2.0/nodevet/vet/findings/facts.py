"""The facts of a host as people read them: label and text, printable. Pure."""

from collections.abc import Iterator, Mapping

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.model import HostFacts, HostReport, Run, Status, Verdict
from nodevet.sheet.text import count, nodeset

CHOICE = "baseline"  # nodevet.baseline.choose.CHECK: a finding under it says that none was chosen
NONE = "none"  # said of hosts that answered, and for which there was no baseline
LONGEST = 120  # columns of one value
MOST_BASELINES = 6  # that are named above a report
SHORT = 40  # columns of the hosts of one baseline


def of_one_host(run: Run) -> list[tuple[str, str]]:
    """Label and text of each fact of the only host; empty for several hosts or without evidence."""
    if len(run.hosts) != 1 or not run.hosts[0].facts:
        return []
    facts = dict(rows(run.hosts[0].facts))
    with_size = (facts.pop(label, "") for label in ("machine", "memory"))
    up = facts.pop("uptime", "")
    machine = ", ".join(filter(None, (*with_size, up and f"up {up}")))
    all_facts = {"machine": machine, **facts} if machine else facts
    if run.hosts[0].baseline:
        all_facts["baseline"] = brief(baseline_of(run.hosts[0]), LONGEST)
    return list(all_facts.items())


def judged_by(run: Run) -> str:
    """The baselines of several hosts, `baseline: h100 gpu[001-100], none gpu[101-128]`; empty if no
    host was judged by one."""
    hosts: dict[str, list[str]] = {}
    for place, host in enumerate(run.summaries):
        if host.status is Status.VETTED:
            doubted = Verdict.UNKNOWN in host.verdicts
            baseline = baseline_of(run.hosts[place]) if doubted else host.baseline
            hosts.setdefault(baseline or NONE, []).append(host.host)
    if not hosts.keys() - {NONE}:
        return ""
    groups = sorted(hosts.items(), key=lambda group: (group[0] == NONE, -len(group[1])))
    lines = [
        f"{brief(baseline)} {_hosts(names)}" if len(groups) > 1 else brief(baseline)
        for baseline, names in groups[:MOST_BASELINES]
    ]
    if more := groups[MOST_BASELINES:]:
        rest = sum(len(names) for _, names in more)
        lines.append(f"{len(more)} more for {count(rest, 'host')}")
    return f"baseline: {', '.join(lines)}"


def baseline_of(report: HostReport) -> str:
    """The baseline that a host was judged by, and whether it only stands in for one that fits."""
    none_fits = any(finding.check == CHOICE for finding in report.findings)
    return f"{report.baseline} (provisional)" if none_fits else report.baseline


def _hosts(names: list[str]) -> str:
    """Their nodeset, or how many they are if that is long."""
    folded = nodeset(names)
    return folded if len(folded) <= SHORT else count(len(names), "host")


def rows(facts: HostFacts) -> list[tuple[str, str]]:
    """The facts of a host as label and text: `GPUs`, `8 × NVIDIA H100 80GB HBM3`.

    A label stands for one part of the host, so rows of many hosts can be compared.
    """
    return [(label, brief(text, LONGEST)) for label, text in _rows(facts) if text]


def _rows(facts: HostFacts) -> Iterator[tuple[str, str]]:
    yield "machine", facts.machine or ""
    yield "GPUs", counted(facts.gpus)
    yield "PCIe", counted(facts.links)
    yield "power limit", counted({watts(limit): n for limit, n in facts.power_limits_mw.items()})
    cuda = f"CUDA up to {facts.cuda}" if facts.cuda else ""
    yield "driver", ", ".join(filter(None, (facts.driver, cuda)))
    kernel = " ".join(filter(None, (facts.kernel, facts.architecture)))
    yield "system", ", ".join(filter(None, (facts.os, kernel)))
    yield "memory", "" if facts.memory_kb is None else f"{(facts.memory_kb + 2**19) // 2**20:,} GiB"
    yield "uptime", "" if facts.uptime_s is None else elapsed(round(facts.uptime_s))


def counted(values: Mapping[str, int]) -> str:
    """Values with how many GPUs have them, and without a number if there is only one GPU.

    >>> counted({"Gen5 x16": 7, "Gen5 x8": 1}), counted({"NVIDIA GeForce RTX 3090": 1})
    ('7 × Gen5 x16, 1 × Gen5 x8', 'NVIDIA GeForce RTX 3090')
    """
    if sum(values.values()) == 1:
        return next(iter(values))
    return ", ".join(f"{number} × {value}" for value, number in values.items())


def watts(milliwatts: str) -> str:
    """`700 W` of `700000`.

    >>> watts("700000"), watts("352500")
    ('700 W', '352.5 W')
    """
    return f"{int(milliwatts) / 1000:g} W" if milliwatts.isdecimal() else milliwatts
