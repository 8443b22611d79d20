"""Services, packages and kernel parameters follow the site's own rules.

**Why it matters.** A site seldom depends on one thing: to start jobs, a node may need two services,
a package of one version and a kernel parameter. A rule names them together, with their purpose and
severity, and gives one finding.

**Read from** the same sources as `services`, `packages` and `sysctl`, for the names in the rules.

**Verdicts.** Each rule gives one finding, under the site's name for it. In a rule, `services`,
`packages` and `sysctl` have the fields of the checks of the same names, and these checks judge
them. One part that is not as expected fails the rule. A value that was not read is unknown, even
besides a failure.

**To fix it** see `nodevet explain services`, `packages` and `sysctl`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec import UNSET

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unknown_aspect
from nodevet.checking.rules import RuleName, SiteRule, rule_details, severities
from nodevet.checks import packages, services, sysctl
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, FieldError, Finding, Subject, Verdict, unknown

PARTS = (services.CHECK, packages.CHECK, sysctl.CHECK)


class RuleServices(services.Params, frozen=True, kw_only=True):
    """The params of the check `services`."""


class RulePackages(packages.Params, frozen=True, kw_only=True):
    """The params of the check `packages`."""


Parameters = Mapping[sysctl.Name, sysctl.Wanted]


class NodeRule(SiteRule, frozen=True, kw_only=True):
    """The expected state of a node, in the fields of other checks."""

    services: RuleServices | None = None
    packages: RulePackages | None = None
    sysctl: Parameters = {}  # noqa: RUF012  (msgspec copies it)

    def __post_init__(self) -> None:
        sysctl.normalize(self, "sysctl")
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
    """The checks that judge the parts of a rule, with their params."""
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
        findings = [finding for check, own in parts(rule) for finding in check.judge(evidence, own)]
        bad = [finding for finding in findings if finding.verdict is Verdict.FAIL]
        causes = {finding.cause for finding in bad}
        yield from aspect_findings(
            Subject(kind="rule", id=name),
            [aspect(finding) for finding in findings],
            rule_details(rule),
            cause=causes.pop() if len(causes) == 1 else UNSET,
        )


def aspect(finding: Finding) -> Aspect:
    """Another check's finding as a part of the rule; a not applicable finding becomes unknown."""
    name, why = finding.subject.label, finding.why
    if finding.verdict not in (Verdict.OK, Verdict.FAIL):
        return unknown_aspect(name, why if why == NOT_ASKED else f"{name}: {why}")
    right, expected, actual = finding.verdict is Verdict.OK, finding.expected, finding.actual
    result = aspect_if(name, right, expected=expected, actual=actual, advice=finding.advice)
    return result if right else result._replace(why=why)


def asks(params: Params) -> Mapping[str, tuple[Any, ...]]:
    by_section: dict[str, tuple[Any, ...]] = {}
    for rule in params.rules.values():
        for check, own in parts(rule):
            for section, names in (check.asks(own) if check.asks else {}).items():
                by_section[section] = tuple(dict.fromkeys((*by_section.get(section, ()), *names)))
    return by_section


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=tuple(sorted(path for check in PARTS for path in check.reads)),
    judge=judge,
    unasked="a site's own rules",
    asks=asks,
    severities=severities,
)
