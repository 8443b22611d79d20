"""Services, packages and kernel parameters are as the site's own rules say.

**Why it matters.** What a site relies on is seldom one thing: that jobs can start on a node takes
two services, a package of one version and a kernel parameter. A rule names them together, says what
they are for and how much they matter, and fails as one.

**Read from** what `services`, `packages` and `sysctl` read, of the things that the rules name.

**Verdicts.** One finding for each rule, under the name that the site gave it. A rule says of
`services`, `packages` and `sysctl` what a baseline says of the checks of these names, and they
judge it. One thing that is not as expected fails the rule; what was not read is unknown, beside a
failure too.

**To fix it** see `nodevet explain services`, `packages` and `sysctl`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec import UNSET

from nodevet.checking.aspects import Aspect, doubted, judged, met
from nodevet.checking.rules import RuleName, SiteRule, described, severities
from nodevet.checks import packages, services, sysctl
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    Verdict,
    unknown,
)

PARTS = (services.CHECK, packages.CHECK, sysctl.CHECK)


class RuleServices(services.Params, frozen=True, kw_only=True):
    """What the check `services` takes."""


class RulePackages(packages.Params, frozen=True, kw_only=True):
    """What the check `packages` takes."""


Parameters = Mapping[sysctl.Name, sysctl.Wanted]


class NodeRule(SiteRule, frozen=True, kw_only=True):
    """What a node is to be, in the words of other checks."""

    services: RuleServices | None = None
    packages: RulePackages | None = None
    sysctl: Parameters = {}  # noqa: RUF012  (msgspec copies it)

    def __post_init__(self) -> None:
        sysctl.settle(self, "sysctl")
        if self.services and not self.services.units:
            raise FieldError("names no unit", "services")
        if self.packages and not self.packages.names:
            raise FieldError("names no package", "packages")
        if not (self.services or self.packages or self.sysctl):
            raise ValueError("give services, packages or sysctl")


class Params(CheckParams):
    """`rule: {jobs_start: {services: {running: [slurmd.service]}, sysctl: {vm.swappiness: 10}}}` or
    `rule: {dcgm: {severity: info, packages: {installed: {datacenter-gpu-manager: any}}}}`"""

    whole: ClassVar[str] = "rules"

    rules: Mapping[RuleName, NodeRule] = {}


def parts(rule: NodeRule) -> Iterator[tuple[Check, CheckParams]]:
    """The checks that judge what the rule names, with their params."""
    if rule.services:
        yield services.CHECK, rule.services
    if rule.packages:
        yield packages.CHECK, rule.packages
    if rule.sysctl:
        yield sysctl.CHECK, sysctl.Params(parameters=rule.sysctl)


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    if not params.rules:
        yield unknown(why="the baseline names nothing to check")
    for name, rule in params.rules.items():
        found = [each for check, own in parts(rule) for each in check.judge(evidence, own)]
        bad = [each for each in found if each.verdict is Verdict.FAIL]
        causes = {each.cause for each in bad}
        yield from judged(
            Subject(kind="rule", id=name),
            [aspect(each) for each in found],
            described(rule),
            cause=causes.pop() if len(causes) == 1 else UNSET,
        )


def aspect(finding: Finding) -> Aspect:
    """What another check found, as a part of the rule; what does not apply here is not known."""
    name, why = finding.subject.label, finding.why
    if finding.verdict not in (Verdict.OK, Verdict.FAIL):
        return doubted(name, why if why == NOT_ASKED else f"{name}: {why}")
    right, expected, actual = finding.verdict is Verdict.OK, finding.expected, finding.actual
    made = met(name, right, expected=expected, actual=actual, advice=finding.advice)
    return made if right else made._replace(why=why)


def asks(params: Params) -> Mapping[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for rule in params.rules.values():
        for check, own in parts(rule):
            for section, names in (check.asks(own) if check.asks else {}).items():
                found[section] = tuple(dict.fromkeys((*found.get(section, ()), *names)))
    return found


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=tuple(sorted(path for check in PARTS for path in check.reads)),
    judge=judge,
    unasked="a site's own rules",
    asks=asks,
    severities=severities,
)
