"""Every SATA and SAS drive works and reports itself healthy.

**Why it matters.** The operating system of a GPU node often lies on two SATA drives that no one
watches: the first failure goes unnoticed, the second takes the node down. A drive that cannot read
some sectors makes every program that reads them hang for seconds.

**Read from** /sys/block/sd*, and `smartctl --json` of smartmontools: as root, with a deadline, and
only because a baseline has this check. It changes nothing and wakes no drive that sleeps. nodevet
asks drives behind a RAID controller if `smartctl --scan` lists them. The check `nvme_health` judges
NVMe drives.

**Verdicts.** A drive fails if the kernel has given it up, if its own verdict is that it fails, if
an attribute is below its threshold now, or if a count is beyond the baseline's limit. A count that
a drive does not report is not judged. The details say whether the drive's log has errors and
whether an attribute was below its threshold once. Without smartctl, or without root, the drive is
unknown; with `smart: false` only the kernel's report counts. A volume of a RAID controller is not
applicable if the drives behind it answer, and otherwise unknown: `ignore` it, and judge it with a
rule of the check `command`. With `if_possible`, such a volume is not applicable, and neither is any
drive of a node without smartctl 7, unless the kernel has given it up. In a virtual machine, a drive
that cannot be asked, or that has no verdict of its own, is not applicable. USB drives and removable
media are not judged.

**To fix it** `smartctl -x /dev/sdX` shows more. Replace a drive that fails or has sectors that it
cannot read. If the drive is half of a mirror, first check that the other half is whole (`raid`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.expected import Words, matches
from nodevet.checking.named import of_section, reads_of
from nodevet.checking.temperatures import DEGREES
from nodevet.evidence.across import is_virtual
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.drives import DriveLog, Drives, ScsiDrive
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    compare,
    not_applicable,
    unknown,
)

NOT_TOLD = "the drive does not report it"
NO_PROGRAM = ("smartctl is not on this node", "smartctl of this node is too old")
PAST = ((5, "an attribute was below its threshold once"), (6, "errors in its log"),
        (7, "failed self-tests in its log"))  # fmt: skip
OWN = frozenset({"passed", "failing", "below threshold"})
"""The aspects that hold a drive's own verdict, which a virtual drive does not have."""
REPLACE = (
    "have it replaced: the details have its serial; see `smartctl -x`, and `raid` for a mirror"
)
COOL = "check the fans, the airflow and the drives around it"
MISSING = "a drive is missing: the kernel log says when it disappeared; reseat it"
Count = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`drive_health: {}` or `drive_health: {count: 2, maximum_reallocated: 50}` or
    `drive_health: {smart: false, ignore: sdc}`"""

    bare: ClassVar[str] = "count"

    count: Count | None = None
    """The number of drives, without volumes of RAID controllers."""
    smart: bool = True
    """Whether nodevet asks the drives themselves."""
    if_possible: bool = False
    """Whether a drive that smartctl cannot reach is not applicable instead of unknown: without
    smartctl 7, or behind a RAID controller."""
    ignore: Words | None = None
    """Names of drives that are not judged; `*` stands for any text."""
    maximum_reallocated: Count | None = None
    """The most sectors that were replaced; for SAS, grown defects."""
    maximum_pending: Count | None = 0
    """The most sectors that could not be read and wait to be replaced."""
    maximum_uncorrectable: Count | None = 0
    """The most errors that could not be corrected."""
    maximum_percentage_used: Annotated[int, Meta(ge=0, le=255)] | None = 100
    """The most of the rated endurance that may be used, in percent."""
    maximum_temperature_c: Annotated[int, Meta(ge=1, le=200)] | None = None


@of_section(Drives, "drives")
def judge(data: Drives, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if data.drives is None or data.found is None:
        yield unread(NODE, data, "drives" if data.drives is None else "found")
        return
    drives = [drive for drive in data.drives if not matches(drive.name, params.ignore or ())]
    if data.found != len(data.drives):
        yield unknown(why=f"{data.found} drives were found, but only {len(data.drives)} were read")
    if params.count is not None:
        yield from judge_count(drives, params.count)
    has_health = any(drive.health is not None for drive in drives if is_member(drive))
    for drive in drives:
        yield from judge_drive(drive, evidence, params, has_health)
    if not drives and params.count is None:
        yield not_applicable(why="there is no SATA or SAS drive")


def judge_count(drives: Sequence[ScsiDrive], count: int) -> Iterator[Finding]:
    unsure = next((drive for drive in drives if drive.volume is None), None)
    if unsure is not None:
        yield unread(NODE, unsure, "volume")
        return
    present = sum(not drive.volume for drive in drives)
    advice = MISSING if present < count else "correct the baseline" if present > count else ""
    yield compare(NODE, expected={"drives": count}, actual={"drives": present}, advice=advice)


def judge_drive(
    drive: ScsiDrive, evidence: Evidence, params: Params, others: bool
) -> Iterator[Finding]:
    """`others`: whether a drive behind a RAID controller answered."""
    subject = Subject(kind="drive", id=drive.name)
    aspects = [*kernel_aspects(drive)]
    if params.smart and drive.health is not None:
        has_no_verdict = is_virtual(evidence) and drive.health.errors.get("passed") == NOT_TOLD
        logged_aspects = log_aspects(drive.health, params)
        aspects += without_verdict(logged_aspects) if has_no_verdict else logged_aspects
    elif params.smart:
        unsettled = [aspect for aspect in aspects if aspect.verdict is not Verdict.OK]
        aspects = [*unsettled, without_log(drive, evidence, params, others)]
    yield from aspect_findings(subject, aspects, details_of(drive))


def is_member(drive: ScsiDrive) -> bool:
    """Whether a drive is behind a RAID controller, so that only smartctl lists it."""
    return drive.name.startswith("/dev/")


def kernel_aspects(drive: ScsiDrive) -> Iterator[Aspect]:
    """The aspects that the kernel reports; none for a drive behind a RAID controller."""
    if is_member(drive):
        return
    if drive.state is None:
        yield unread_aspect(drive, "state")
    else:
        right = drive.state == "running"
        advice = "the kernel log says why; reseat it, or have it replaced"
        yield aspect_if("state", right, expected="running", actual=drive.state, advice=advice)


def without_verdict(aspects: Iterable[Aspect]) -> Iterator[Aspect]:
    """The aspects of a virtual drive that has no verdict of its own."""
    yield from (
        aspect for aspect in aspects if aspect.verdict is Verdict.FAIL or aspect.name not in OWN
    )
    yield virtual_aspect(f"passed: {NOT_TOLD}")


def without_log(drive: ScsiDrive, evidence: Evidence, params: Params, others: bool) -> Aspect:
    why = f"health: {drive.why('health')}"[:400]
    if drive.volume and others:
        return Aspect(Verdict.NOT_APPLICABLE, "health", why="a volume of a RAID controller")
    if is_virtual(evidence):
        return virtual_aspect(why)
    out_of_reach = drive.volume or drive.why("health").startswith(NO_PROGRAM)
    verdict = Verdict.NOT_APPLICABLE if params.if_possible and out_of_reach else Verdict.UNKNOWN
    return Aspect(verdict, "health", why=why)


def virtual_aspect(why: str) -> Aspect:
    return Aspect(Verdict.NOT_APPLICABLE, "health", why=f"a virtual machine: {why}")


def log_aspects(log: DriveLog, params: Params) -> Iterator[Aspect]:
    """The aspects that the drive itself reports."""
    if log.passed is None:
        yield unread_aspect(log, "passed")
    else:
        shown = "passed" if log.passed else "failing"
        yield aspect_if("verdict", log.passed, expected="passed", actual=shown, advice=REPLACE)
    if log.failing is None:
        yield unread_aspect(log, "failing")
    else:
        shown, name = log.failing or "none", "below threshold"
        yield aspect_if(name, not log.failing, expected="none", actual=shown, advice=REPLACE)
    for name, field, most, unit, advice in (
        ("reallocated", "reallocated", params.maximum_reallocated, "", REPLACE),
        ("pending", "pending", params.maximum_pending, "", REPLACE),
        ("uncorrectable", "uncorrectable", params.maximum_uncorrectable, "", REPLACE),
        ("endurance used", "percentage_used", params.maximum_percentage_used, "%", REPLACE),
        ("temperature", "temperature_c", params.maximum_temperature_c, " °C", COOL),
    ):
        value: int | None = getattr(log, field)
        if most is None or (value is None and log.errors.get(field) == NOT_TOLD):
            continue
        if value is None:
            yield unread_aspect(log, field)
        elif value < 0 if field != "temperature_c" else value not in DEGREES:
            yield unknown_aspect(field, f"{field}: {value}{unit} is not valid")
        else:
            expected = f"at most {most}{unit}" if most else "none"
            actual = f"{value}{unit}"
            yield aspect_if(name, value <= most, expected=expected, actual=actual, advice=advice)


def details_of(drive: ScsiDrive) -> Mapping[str, str]:
    texts = {"model": drive.model, "serial": drive.serial, "firmware": drive.firmware}
    bits = drive.health.exit_bits if drive.health else None
    past = ", ".join(text for bit, text in PAST if (bits or 0) >> bit & 1)
    return {name: text for name, text in {**texts, "also": past}.items() if text}


def learn(evidence: Evidence) -> Value:
    data = evidence[Drives].data
    if data is None or not data.drives:
        return None
    if any(drive.volume is None or drive.state not in (None, "running") for drive in data.drives):
        return None
    fields: dict[str, Value] = {"count": sum(not drive.volume for drive in data.drives)}
    drives = [drive for drive in data.drives if not drive.volume]
    if any(drive.health is None and drive.why("health") != NOT_ASKED for drive in drives):
        fields["smart"] = False
    return fields


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *reads_of("drives.drives[].health", "failing", "passed", "pending", "percentage_used"),
        *reads_of("drives.drives[].health", "reallocated", "temperature_c", "uncorrectable"),
        *reads_of("drives.drives[]", "name", "state", "volume"),
        "drives.found",
        "host.virtualization",
    ),
    judge=judge,
    unasked="for servers on which nodevet is root: say drive_health: {} for a workstation",
    learn=learn,
    asks=lambda params: {"drives": ("health",) if params.smart else ()},
    actions={REPLACE: NeededAction.RMA},
)
