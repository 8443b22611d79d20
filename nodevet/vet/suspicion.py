"""The budget rule: if many hosts begin to fail one check at once, the rule is suspected. Pure."""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from nodevet.model import HostReport, Status
from nodevet.model.run import Run, RunNews, Suspicion
from nodevet.vet.news import Before

PERCENT, LEAST = 20.0, 5


def is_beyond_chance(hosts: int, judged: int, percent: float, least: int) -> bool:
    """Whether so many hosts at once are more than chance."""
    return hosts >= least and hosts * 100 > judged * percent


def suspicions(
    run: Run,
    news: RunNews,
    before: Before,
    *,
    percent: float = PERCENT,
    least: int = LEAST,
    addresses: Mapping[str, str] | None = None,
) -> tuple[Suspicion, ...]:
    """Checks that too many hosts begin to fail, most hosts first; none without an earlier run.

    Hosts that are new, or are another machine now, do not count.
    """
    if not news.since:
        return ()
    strange = {*news.appeared, *news.replaced}
    strange |= {report.host for report in run.summaries if report.status is Status.NOT_VISITED}
    summaries = [report for report in run.summaries if report.host not in strange]
    vetted = sum(report.status is Status.VETTED for report in summaries)
    begins: dict[str, dict[str, None]] = {}
    for trouble in news.standing:
        if trouble.new and trouble.host not in strange:
            begins.setdefault(trouble.check, {})[trouble.host] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for check, begun in begins.items():
        of = vetted if check else len(summaries)
        if is_beyond_chance(len(begun), of, percent, least):
            alike.setdefault((*begun, "" if check else "-"), []).append(check)
    if not alike:
        return ()
    suspected = []
    known = [report for report in run.hosts if report.host not in strange]
    by_name = {report.host: report for report in known}
    for (*hosts, _), checks in alike.items():
        reports = [by_name[host] for host in hosts]
        suspected.append(
            Suspicion(
                checks=tuple(filter(None, sorted(checks))),
                hosts=tuple(hosts),
                judged=vetted if any(checks) else len(known),
                changed=tuple(_changed(run, before, reports, known, addresses or {})),
            )
        )
    return tuple(sorted(suspected, key=lambda trouble: -len(trouble.hosts)))


def _changed(
    run: Run,
    before: Before,
    reports: Iterable[HostReport],
    known: Iterable[HostReport],
    addresses: Mapping[str, str],
) -> Iterator[str]:
    """What else changed, and what only these hosts have in common."""
    reports = list(reports)
    if before.nodevet and before.nodevet != run.nodevet:
        yield f"nodevet was {before.nodevet} then and is {run.nodevet}"
    for name in sorted({report.baseline for report in reports} - {""}):
        then, now = before.baselines.get(name), run.baselines.get(name)
        if then and now and then != now:
            yield f"baseline {name} has changed since"
    hosts = {report.host for report in reports}
    passing = [report for report in known if report.host not in hosts]
    if not passing:
        return
    shared = set.intersection(*(set(report.groups) for report in reports)) if reports else set()
    for group in sorted(shared):
        if not any(group in report.groups for report in passing):
            yield f"all of group {group}, and no other"
    if network := _network([addresses.get(host, "") for host in hosts]):
        outside = [_network([addresses.get(report.host, "")]) for report in passing]
        if network not in outside:
            yield f"all in {network}, and no other"


def _network(addresses: Iterable[str]) -> str:
    """The one network of these addresses: /24, or /64 of IPv6; empty if there is none."""
    networks = set()
    for address in addresses:
        with suppress(ValueError):
            ip = ipaddress.ip_address(address)
            networks.add(
                ipaddress.ip_network(f"{ip}/{24 if ip.version == 4 else 64}", strict=False)
            )
            continue
        return ""
    return str(networks.pop()) if len(networks) == 1 else ""
