"""DCGM reports the node healthy, its last diagnostic passed, and it sees the GPUs that NVML sees.

**Why it matters.** DCGM watches replays, errors and violations over time, which a single probe
cannot see. Its diagnostic finds faults that only load shows. A host engine that started before a
GPU was lost, or before the driver was replaced, keeps reporting the old state of the node.

**Read from** `dcgmi health -c -j` and `dcgmi discovery -l`, with a deadline, if `health` is on and
dcgmi is installed; and the file that `diag` names, which holds the output of `dcgmi diag -r 2 -j
>FILE`. nodevet starts no diagnostic and enables no watch.

**Verdicts.** A watch that reports Warning or Failure fails. Each test of the diagnostic fails on
each part on which it did not pass, unless `allow` names the test. The finding lists skipped tests.
If no result passed, or the numbers of results do not add up, the diagnostic is unknown. If DCGM and
NVML count different numbers of GPUs, the check fails. Results of another driver, of other GPUs or
older than `maximum_age_days` say nothing about the node as it is now: they are unknown. With this
limit, results in a file that is dated more than 5 minutes in the future are unknown, too. So are
results in a file that an ordinary user owns or that everyone may write, and health watches that are
not enabled: `dcgmi health -s a` enables them.

**To fix it** `dcgmi health -c` and the texts of the results name the part. If DCGM does not count
as many GPUs as NVML, restart nvidia-dcgm.service. After a repair, run the diagnostic again on a
drained node.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN, of_section, reads_of
from nodevet.checking.nvml_count import as_nvml_counts
from nodevet.evidence.across import IN_HAND, unlisted_gpus_finding
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.dcgm import Dcgm, Diagnostic, Incident, TestResult
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    fail,
    ok,
    unknown,
)

HEALTHY = "Healthy"
DAY = 86400
AHEAD = 300  # seconds that a clock may be set back after the tests

Path = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]{1,240}$")]
TestName = Annotated[str, Meta(min_length=1, max_length=100)]


class Params(CheckParams):
    """`dcgm: true` or `dcgm: {health: false, diag: /var/log/diag.json, maximum_age_days: 30}`"""

    bare: ClassVar[str] = "health"

    health: bool = True
    """Whether nodevet asks the host engine."""
    diag: Path | None = None
    """The file with the results of a diagnostic."""
    maximum_age_days: Annotated[float, Meta(gt=0, le=3650)] | None = None
    """The highest allowed age of these results."""
    allow: tuple[TestName, ...] = ()
    """Tests that need not pass: Persistence Mode, Environment Variables."""

    def __post_init__(self) -> None:
        if not self.health and self.diag is None:
            raise ValueError("give health: true, or diag")


@of_section(Dcgm, "DCGM")
def judge(dcgm: Dcgm, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if params.health:
        yield from judge_health(evidence, dcgm)
    if params.diag is not None:
        yield from judge_diag(evidence, dcgm, params, params.diag)
    unlisted_finding = unlisted_gpus_finding(evidence)
    if unlisted_finding is not None:
        yield unlisted_finding


def judge_health(evidence: Evidence, dcgm: Dcgm) -> Iterator[Finding]:
    subject = Subject(kind="dcgm", id="health")
    if dcgm.overall is None:
        yield unread(subject, dcgm, "overall")
    elif dcgm.incidents is None:
        yield unread(subject, dcgm, "incidents")
    else:
        yield from judge_watches(subject, dcgm.overall, dcgm.incidents)
    subject, why = Subject(kind="dcgm", id="GPUs"), "DCGM and NVML count different numbers of GPUs"
    yield as_nvml_counts(evidence, subject, dcgm, why=why, advice=RESTART)


def judge_watches(
    subject: Subject, overall: str, incidents: tuple[Incident, ...]
) -> Iterator[Finding]:
    unhealthy = [incident for incident in incidents if incident.status != HEALTHY]
    for aspect in unhealthy:
        name = " ".join(filter(None, (aspect.part, aspect.watch))) or "health"
        yield fail(
            Subject(kind="dcgm", id=name),
            expected=HEALTHY,
            actual=aspect.status or "an incident",
            why=aspect.text or "",
            advice=ASK_DCGM,
        )
    if overall not in (HEALTHY, *(aspect.status for aspect in unhealthy)):
        yield fail(subject, expected=HEALTHY, actual=overall, advice=ASK_DCGM)
    elif not unhealthy:
        yield ok(subject, expected=HEALTHY, actual=overall)


def judge_diag(evidence: Evidence, dcgm: Dcgm, params: Params, path: str) -> Iterator[Finding]:
    subject = Subject(kind="dcgm", id="diag")
    diagnostics = [diagnostic for diagnostic in dcgm.diagnostics or () if diagnostic.path == path]
    if dcgm.diagnostics is None:
        yield unread(subject, dcgm, "diagnostics")
    elif not diagnostics:
        yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
    else:
        yield from judge_results(evidence, diagnostics[0], params, subject)


def judge_results(
    evidence: Evidence, diag: Diagnostic, params: Params, subject: Subject
) -> Iterator[Finding]:
    """A failure for each test that did not pass, an unknown if the results prove nothing, otherwise
    ok."""
    for field in ("results", "passed", "not_passed", "age_s", "driver_version", "serials"):
        if getattr(diag, field) is None:
            yield unread(subject, diag, field)
            return
    not_passed = diag.not_passed or ()
    unread_result = next(
        (result for result in not_passed if result.ran is None or result.test is None), None
    )
    if unread_result is not None:
        yield unread(subject, unread_result, "ran" if unread_result.ran is None else "test")
        return
    failures = [result for result in not_passed if result.ran and result.test not in params.allow]
    stale = why_outdated(evidence, diag, params)
    if stale:
        why = f"{stale}; {len(failures)} of them did not pass" if failures else stale
        yield unknown(subject, why=f"{diag.path}: {why}", advice=RUN_AGAIN)
        return
    for (test, part), results in by_part(failures).items():
        yield judge_test(f"diag {test} {part}".rstrip(), results)
    expected = (diag.results or 0) - len(not_passed)
    if diag.passed != expected or not (failures or diag.passed):
        why = f"{diag.passed} of {diag.results} results passed and {len(not_passed)} did not"
        yield unknown(subject, why=f"{diag.path}: {why}", advice=RUN_AGAIN)
    elif not failures:
        skipped = sorted({result.test or "" for result in not_passed if not result.ran})
        why = f"not run: {', '.join(skipped[:8])}" if skipped else ""
        yield ok(subject, expected="Pass", actual=f"{diag.passed} results passed", why=why)


def by_part(results: Sequence[TestResult]) -> dict[tuple[str, str], list[TestResult]]:
    """The results of each test on each part."""
    parts: dict[tuple[str, str], list[TestResult]] = {}
    for result in results:
        parts.setdefault((result.test or "", result.part or ""), []).append(result)
    return parts


def judge_test(name: str, results: Sequence[TestResult]) -> Finding:
    actual = "/".join(sorted({result.status or "no status" for result in results}))
    why = next((result.text for result in results if result.text), "")
    subject = Subject(kind="dcgm", id=name)
    return fail(subject, expected="Pass", actual=actual, why=why, advice=RUN_AGAIN)


def why_outdated(evidence: Evidence, diag: Diagnostic, params: Params) -> str:
    """Why the results may not describe the node as it is now; empty if they do."""
    most, days = params.maximum_age_days, (diag.age_s or 0) / DAY
    if most is not None and days > most:
        return f"the results are {days:.1f} days old, expected at most {most:g}"
    if most is not None and days * DAY < -AHEAD:
        return f"the results are dated {-days:.1f} days in the future, so their age is not known"
    nvml = evidence[Gpus].data
    running = nvml.driver_version if nvml else None
    if diag.driver_version and diag.driver_version != running:
        now = running or "not known"
        return f"the results are from driver {diag.driver_version}, and the driver is now {now}"
    if diag.serials:
        gpus = (nvml.gpus if nvml else None) or ()
        serials = {gpu.serial for gpu in gpus}
        untested = [gpu.serial or "without a serial" for gpu in gpus]
        untested = [serial for serial in untested if serial not in diag.serials]
        removed = [serial for serial in diag.serials if serial not in serials]
        if untested or removed or not gpus:
            example = (
                f"GPU {untested[0]} was not tested" if untested else f"GPU {removed[0]} is gone"
            )
            return f"the results are from other GPUs: {example}" if gpus else "NVML lists no GPU"
    return ""


ASK_DCGM = (
    "`dcgmi health -c` names the part; see that part's check, and drain the node before a "
    "diagnostic"
)
RESTART = "restart nvidia-dcgm.service once NVML counts what the baseline expects"
RUN_AGAIN = "on a drained node, run `dcgmi diag -r 2 -j` again and save its output in this file"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    names = (["health"] if params.health else []) + ([params.diag] if params.diag else [])
    return {"dcgm": tuple(names)}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *reads_of("dcgm.diagnostics[]", "age_s", "driver_version"),
        *reads_of("dcgm.diagnostics[].not_passed[]", "ran", "test"),
        *reads_of("dcgm.diagnostics[]", "passed", "path", "results", "serials[]"),
        "dcgm.gpus",
        "dcgm.incidents[].status",
        "dcgm.overall",
        *IN_HAND,
        "gpu.driver_version",
        "gpu.gpus[].serial",
    ),
    judge=judge,
    asks=asks,
    unasked="DCGM's watches are off until a site enables them: say dcgm: true if they are on",
    learn=lambda evidence: None,
    actions={ASK_DCGM: NeededAction.SITE, RUN_AGAIN: NeededAction.SITE},
)
