"""Every SATA and SAS drive works and is healthy by its own account.

**Why it matters.** The system of a GPU node often lies on two SATA drives that no one watches:
the first fails unnoticed, the second takes the node down. A drive that cannot read some sectors
makes every program that touches them hang for seconds.

**Read from** /sys/block/sd*, and `smartctl --json` of smartmontools: as root, with a deadline, and
only because a baseline has this check. It changes nothing and wakes no drive that sleeps. nodevet
asks drives behind a RAID controller if `smartctl --scan` lists them. NVMe drives have
`nvme_health`.

**Verdicts.** A drive fails if the kernel has given it up, if its own verdict is that it fails, if
an attribute is below its threshold now, or beyond the limits of the baseline; a count that a drive
does not report is not judged. That errors are in its log, or that an attribute was below its
threshold once, is in the details. Without smartctl, or without root, it is unknown; `smart: false`
judges what the kernel says alone. A volume of a RAID controller is not applicable if its drives
answer, and otherwise unknown: `ignore` it, and judge it with a rule `command`. With `if_possible`
such a volume, and every drive of a node without smartctl 7, is not applicable, unless the kernel
has given it up. In a virtual machine that cannot ask a drive, or whose drives have no verdict, it
is not applicable. USB and removable media are left out.

**To fix it** `smartctl -x /dev/sdX` tells more. A drive that fails, or has sectors that it cannot
read, is replaced; if it is half of a mirror, first check that the other half is whole (`raid`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
from nodevet.checking.expected import Words, matches
from nodevet.checking.named import of_section, reads_of
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
"""What a virtual drive has no verdict of its own on."""
REPLACE = (
    "have it replaced: its serial is in the details; see `smartctl -x` and, of a mirror, `raid`"
)
COOL = "look at fans, airflow and the drives around it"
MISSING = "a drive is missing: the kernel log has when it went; reseat it"
Count = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`drive_health: {}` or `drive_health: {count: 2, maximum_reallocated: 50}` or
    `drive_health: {smart: false, ignore: sdc}`"""

    bare: ClassVar[str] = "count"

    count: Count | None = None
    """Drives that there must be, volumes of RAID controllers aside."""
    smart: bool = True
    """Whether the drives are asked."""
    if_possible: bool = False
    """Whether a drive that smartctl cannot reach is not applicable instead of unknown: without
    smartctl 7, or behind a RAID controller."""
    ignore: Words | None = None
    """Names of drives; `*` stands for any text."""
    maximum_reallocated: Count | None = None
    """Sectors that were replaced; of SAS, grown defects."""
    maximum_pending: Count | None = 0
    """Sectors that could not be read and wait to be replaced."""
    maximum_uncorrectable: Count | None = 0
    """Errors that could not be corrected."""
    maximum_percentage_used: Annotated[int, Meta(ge=0, le=255)] | None = 100
    """Of the endurance that the vendor rates."""
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
    asked = any(drive.health is not None for drive in drives if is_member(drive))
    for drive in drives:
        yield from judge_drive(drive, evidence, params, asked)
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
    """`others`: whether a drive behind a RAID controller could be asked."""
    subject = Subject(kind="drive", id=drive.name)
    aspects = [*kernel_aspects(drive)]
    if params.smart and drive.health is not None:
        untold = is_virtual(evidence) and drive.health.errors.get("passed") == NOT_TOLD
        logged_aspects = log_aspects(drive.health, params)
        aspects += without_verdict(logged_aspects) if untold else logged_aspects
    elif params.smart:
        unsettled = [aspect for aspect in aspects if aspect.verdict is not Verdict.OK]
        aspects = [*unsettled, without_log(drive, evidence, params, others)]
    yield from aspect_findings(subject, aspects, details_of(drive))


def is_member(drive: ScsiDrive) -> bool:
    """Whether it is behind a RAID controller, and smartctl alone lists it."""
    return drive.name.startswith("/dev/")


def kernel_aspects(drive: ScsiDrive) -> Iterator[Aspect]:
    """What the kernel says; of a drive behind a RAID controller it says nothing."""
    if is_member(drive):
        return
    if drive.state is None:
        yield unread_aspect(drive, "state")
    else:
        right = drive.state == "running"
        advice = "the kernel log says why; reseat it, or have it replaced"
        yield aspect_if("state", right, expected="running", actual=drive.state, advice=advice)


def without_verdict(aspects: Iterable[Aspect]) -> Iterator[Aspect]:
    """What a virtual drive says that has no verdict of its own."""
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
    """What the drive says of itself."""
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
        if value is None or (value < 0 and field != "temperature_c"):
            yield unread_aspect(log, field)
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
    unasked="for servers, where nodevet is root: a workstation says drive_health: {}",
    learn=learn,
    asks=lambda params: {"drives": ("health",) if params.smart else ()},
)
