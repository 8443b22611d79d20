"""NVIDIA Health Validation passes the node, and its verdict agrees with nodevet's own reading.

**Why it matters.** Two tools that read the same GPUs and disagree show that one of them is blind: a
library of another version, an old catalog of checks, a GPU that only one of them can see. Whoever
trusts the blind one gives the node to a job.

**Read from** `health-validation run`, with a deadline of 45 seconds. The program judges one node
and changes nothing. nodevet reads its exit code and `overall_severity`. It knows no other field of
the verdict, because the schema is not public.

**Verdicts.** A severity above `worst` fails. UNKNOWN, no verdict (exit code 2), an exit code that
does not fit the severity, a severity of another name and a node without the program are unknown. If
Health Validation does not find the node CRITICAL, but nodevet finds a GPU lost, each such GPU fails
as a contradiction, and a GPU that nodevet cannot read is unknown. If Health Validation finds the
node CRITICAL and nodevet finds every GPU usable, the failure says so.

**To fix it** run `health-validation run` on the node: its verdict names the checks and what they
propose.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

from nodevet.checking.named import of_section, reads_of
from nodevet.checks import gpu_lost
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.health_validation import HealthValidation
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Verdict,
    fail,
    ok,
    unknown,
)

CRITICAL = "CRITICAL"
RANKS = ("PASS", "INFO", "WARNING", CRITICAL)
NO_VERDICT = 2  # exit code
VERDICT = Subject(kind="health-validation", id="verdict")


class Params(CheckParams):
    """`health_validation: INFO` or `health_validation: {worst: WARNING}`"""

    bare: ClassVar[str] = "worst"

    worst: Literal["PASS", "INFO", "WARNING"] = "INFO"
    """The worst severity that passes. Health Validation itself exits with 0 on WARNING."""


@of_section(HealthValidation, "health-validation")
def judge(section: HealthValidation, evidence: Evidence, params: Params) -> Iterator[Finding]:
    code, word = section.exit_code, section.overall_severity
    severity = (word or "").upper()
    if code is None:
        yield unread(VERDICT, section, "exit_code")
    elif code == NO_VERDICT:
        yield unknown(VERDICT, why="health-validation ended with 2: it has no verdict", advice=RUN)
    elif word is None:
        yield unread(VERDICT, section, "overall_severity")
    elif severity not in RANKS:
        yield unknown(VERDICT, why=f"health-validation says {word}", advice=RUN)
    elif code != int(severity == CRITICAL):
        why = f"health-validation says {word} and ended with {code}"
        yield unknown(VERDICT, why=why, advice=RUN)
    else:
        yield from judge_severity(evidence, severity, params)


def judge_severity(evidence: Evidence, severity: str, params: Params) -> Iterator[Finding]:
    own = tuple(gpu_lost.judge(evidence, gpu_lost.Params()))
    told = {"expected": params.worst, "actual": severity}
    if RANKS.index(severity) <= RANKS.index(params.worst):
        yield ok(VERDICT, **told)
    else:
        is_alone = severity == CRITICAL and {finding.verdict for finding in own} == {Verdict.OK}
        why = "nodevet finds every GPU usable" if is_alone else ""
        yield fail(VERDICT, **told, why=why, advice=RUN)
    if severity != CRITICAL:
        yield from contradictions(own, severity)


def contradictions(own: Iterable[Finding], severity: str) -> Iterator[Finding]:
    """A failure for each GPU that nodevet finds lost, and an unknown for each that it cannot
    read."""
    for finding in own:
        if finding.verdict is Verdict.FAIL:
            why = f"health-validation says {severity}"
            yield fail(
                finding.subject,
                expected=finding.expected,
                actual=finding.actual,
                why=why,
                advice=COMPARE,
            )
        elif finding.verdict is Verdict.UNKNOWN:
            yield unknown(finding.subject, why=finding.why, advice=finding.advice)


RUN = "`health-validation run` on the node names the checks"
COMPARE = "compare the driver and NVML that both tools use, and keep the node out of service"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"health_validation": ("run",)}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *reads_of("health_validation", "exit_code", "overall_severity"),
        *gpu_lost.CHECK.reads,
    ),
    judge=judge,
    asks=asks,
    unasked="it runs a program of NVIDIA that few nodes have: say health_validation: INFO",
    learn=lambda evidence: None,
    actions={RUN: NeededAction.SITE, COMPARE: NeededAction.SITE},
)
