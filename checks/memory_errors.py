"""No DIMM has uncorrected errors, or more corrected errors than the baseline allows.

**Why it matters.** An uncorrected error kills the process that reads the memory, or the node. A
DIMM with repeated corrected errors may soon have an uncorrected one, and every correction stalls
the memory channel for a moment.

**Read from** `/sys/devices/system/edac/mc/mc*`: the errors that the kernel's EDAC driver counted
since it was loaded, by memory controller and DIMM; the memory of the NUMA nodes. `machine_check`
judges the kernel log, which also has errors that are logged without such a driver.

**Verdicts.** An uncorrected error fails. The check judges corrected errors if the baseline sets a
maximum, in total or per day of counting; the first day counts as a whole day. If a controller
counts more errors than its DIMMs, the others belong to an unknown DIMM. If it counts fewer, which
no driver does, the check uses the counts of the DIMMs. Without an EDAC driver the check is unknown,
because nothing counts the errors; in a virtual machine, and with `if_possible`, it is not
applicable. The check is also unknown if a controller is missing: a number is left out, or the DIMMs
of all controllers have less memory than the NUMA nodes. With `--since`, if the driver counted all
the time since the last look, an uncorrected error fails only if it came since then. For the limit
per day the check then counts only the corrected errors since the last look, if that time is long
enough.

**To fix it** replace the DIMM that the label names; the board's labels must be registered
(`ras-mc-ctl --register-labels`). The driver is i10nm_edac or skx_edac on Intel, amd64_edac on AMD;
with firmware-first error handling it is ghes_edac.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.across import nodes_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.edac import Dimm, Edac, MemoryController
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import span
from nodevet.evidence.numa import Numa, has_memory_alone
from nodevet.evidence.rates import DAY, Growth, Sample, earlier_sample, since_look
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)

COUNTING = 60.0  # seconds that a driver must have counted before the last look
REPLACE = (
    "drain the node and replace the DIMM; `ras-mc-ctl --errors` and the BMC's event log show the "
    "time and the slot of each error"
)
WATCH = (
    "`ras-mc-ctl --errors` shows whether new errors come: if so, replace the DIMM at the next "
    "maintenance"
)
NO_DRIVER = (
    "load the EDAC driver of this CPU (i10nm_edac, skx_edac, amd64_edac; `modprobe` fails if it "
    "does not fit), or drop this check if the BMC counts memory errors"
)


MIB = 1024  # KiB
ALL = 0.98  # of the memory: the firmware keeps the rest
UNSIZED = Dimm(id="")
NOT_COUNTED = "ENOENT"  # kernels before 3.6 count by row only


class Params(CheckParams):
    """`memory_errors: {}` or `memory_errors: {corrected: 100, corrected_per_day: 24}`"""

    corrected: Annotated[int, Meta(ge=0)] | None = None
    """The most corrected errors of a memory controller; if not set, they are not judged."""
    corrected_per_day: Annotated[float, Meta(ge=0)] | None = None
    """The most corrected errors of a memory controller per day of counting."""
    if_possible: bool = False
    """Whether a node without an EDAC driver is not applicable instead of unknown."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section, host = evidence[Edac], evidence[HostInfo]
    if section.data is None:
        yield unknown(why=f"edac: {section.why}")
    elif section.data.controllers is None:
        yield unread(NODE, section.data, "controllers")
    elif section.data.controllers:
        sample = earlier_sample(evidence, Edac)
        for controller in section.data.controllers:
            look = sample if sample and sample.look else None
            yield from judge_controller(controller, params, look)
        if why := why_missing(evidence, section.data.controllers):
            yield unknown(why=why)
    elif params.if_possible:
        yield not_applicable(why="no EDAC driver is loaded")
    elif host.data is None or host.data.virtualization in (None, "none", "container"):
        yield unknown(why="no EDAC driver is loaded", advice=NO_DRIVER)
    else:
        yield not_applicable(why="a virtual machine has no memory controller of its own")


def why_missing(evidence: Evidence, controllers: Sequence[MemoryController]) -> str:
    """Why a controller is missing: by the numbers, which have a gap only if a NUMA node has no
    memory (amd64_edac), or by the memory of the node. Empty if none seems to be missing."""
    ids = {controller.id for controller in controllers}
    known = ids | without_memory(evidence)
    if gaps := [*islice((number for number in range(max(ids)) if number not in known), 8)]:
        named = ", ".join(f"mc{number}" for number in gaps)
        return f"{named} is missing: the numbers of the {len(ids)} memory controllers begin at mc0"
    sizes = [dimm.size_mib for controller in controllers for dimm in controller.dimms or (UNSIZED,)]
    nodes = nodes_of(evidence)
    if None in sizes or not nodes:
        return ""
    if isinstance(nodes, Finding):
        return nodes.why if evidence[Numa].data else ""
    totals = [node.memory_total_kb for node in nodes.values() if not has_memory_alone(node)]
    installed_mib = sum(kb or 0 for kb in totals) / MIB
    counted = sum(size or 0 for size in sizes)
    if counted and counted < ALL * installed_mib:
        gib = f"{counted / 1024:.0f} of at least {installed_mib / 1024:.0f} GiB"
        return f"the controllers have {gib}: a controller is missing"
    return ""


def without_memory(evidence: Evidence) -> set[int]:
    nodes = nodes_of(evidence)
    if isinstance(nodes, Finding):
        return set()
    return {number for number, node in nodes.items() if node.memory_total_kb == 0}


def judge_controller(
    controller: MemoryController, params: Params, look: Sample[Edac] | None
) -> Iterator[Finding]:
    subject = Subject(kind="memory controller", id=f"mc{controller.id}")
    grown, most = growth_of(controller, "corrected", look), params.corrected_per_day
    paced = grown.is_above(most, per=DAY) if grown and most is not None else None
    limits = limits_of(controller, params, paced)
    above = [*uncorrected_fault(subject, controller, look)]
    if grown and paced:
        dimms = at_dimms(controller, "corrected", earlier_controller(controller, look))
        expected = f"at most {most:g} corrected a day"
        above.append(too_many(subject, expected, f"{grown.text} corrected", dimms))
    elif isinstance(limits, Mapping):
        above += excess(subject, controller, limits)
    doubts = [*invalid(controller), *([limits] if isinstance(limits, str) else [])]
    yield from above
    if doubts:
        yield unknown(subject, why="; ".join(doubts))
    elif not above:
        expected, count = (
            next(iter(limits), "none uncorrected"),
            error_count(controller, "corrected"),
        )
        actual = f"{count} corrected" if count else "none"
        yield ok(subject, expected=expected, actual=actual, why=past_text(controller, look))


def error_count(controller: MemoryController, field: str) -> int:
    """The errors that a controller counts, or its DIMMs together if they count more."""
    return max(getattr(controller, field) or 0, sum(by_dimm(controller, field).values()))


def by_dimm(controller: MemoryController, field: str) -> dict[str, int]:
    """The number of errors of each DIMM that has any, by id."""
    counts = {dimm.id: getattr(dimm, field) or 0 for dimm in controller.dimms or ()}
    return {name: count for name, count in counts.items() if count > 0}


def uncorrected_fault(
    subject: Subject, controller: MemoryController, look: Sample[Edac] | None
) -> Iterator[Finding]:
    """The failure about uncorrected errors, unless all are older than the last look."""
    count = error_count(controller, "uncorrected")
    if count > 0 and not past_text(controller, look):
        dimms = at_dimms(controller, "uncorrected")
        yield fail(
            subject,
            expected="none",
            actual=f"{count} uncorrected{dimms}",
            details={} if dimms else NO_DIMM,
            advice=REPLACE,
        )


def past_text(controller: MemoryController, look: Sample[Edac] | None) -> str:
    """Says that all uncorrected errors are older than the last look; empty if they are not."""
    count, fresh = (
        error_count(controller, "uncorrected"),
        growth_of(controller, "uncorrected", look),
    )
    if not count or look is None or fresh is None or fresh.by != 0:
        return ""
    return f"{count} uncorrected, none of them in the last {span(look.seconds)}"


def excess(
    subject: Subject, controller: MemoryController, limits: Mapping[str, float]
) -> Iterator[Finding]:
    count = error_count(controller, "corrected")
    above = next((expected for expected, most in limits.items() if count > most), None)
    if above:
        yield too_many(subject, above, f"{count} corrected", at_dimms(controller, "corrected"))


def too_many(subject: Subject, expected: str, actual: str, dimms: str) -> Finding:
    """Too many corrected errors."""
    return fail(
        subject,
        expected=expected,
        actual=f"{actual}{dimms}",
        details={} if dimms else NO_DIMM,
        advice=WATCH,
    )


def invalid(controller: MemoryController) -> Iterator[str]:
    for field in ("uncorrected", "corrected"):
        value = getattr(controller, field)
        if value is None or value < 0:
            yield f"{field}: {controller.why(field) if value is None else value}"
    if controller.dimms is None:
        yield f"dimms: {controller.why('dimms')}"
    for dimm in controller.dimms or ():
        yield from invalid_dimm(dimm)


def invalid_dimm(dimm: Dimm) -> Iterator[str]:
    """Why counts that the driver has are unknown."""
    for field in ("uncorrected", "corrected"):
        value = getattr(dimm, field)
        if value is None and dimm.errors.get(field) != NOT_COUNTED:
            yield f"{dimm.id}: {field}: {dimm.why(field)}"
        elif value is not None and value < 0:
            yield f"{dimm.id}: {field}: {value}"


def growth_of(controller: MemoryController, field: str, look: Sample[Edac] | None) -> Growth | None:
    """How many errors came since the last look; None if the driver did not count all that time."""
    earlier = earlier_controller(controller, look)
    if look is None or earlier is None or controller.since_s is None:
        return None
    if controller.since_s < look.seconds + COUNTING:
        return None
    if getattr(earlier, field) is None or getattr(controller, field) is None:
        return None
    grown = since_look(error_count(earlier, field), error_count(controller, field), look.seconds)
    return None if grown and grown.again else grown


def earlier_controller(
    controller: MemoryController, look: Sample[Edac] | None
) -> MemoryController | None:
    """The controller at the last look."""
    known = (look.data.controllers if look and look.data else None) or ()
    return next(
        (controller_before for controller_before in known if controller_before.id == controller.id),
        None,
    )


def limits_of(
    controller: MemoryController, params: Params, paced: bool | None
) -> Mapping[str, float] | str:
    """The most corrected errors, by the text of the limit; or why they are unknown. `paced`:
    whether too many came per day since the last look; None: not known, so the mean of all its
    counting decides."""
    limits: dict[str, float] = {}
    if params.corrected is not None:
        limits[f"at most {params.corrected} corrected"] = params.corrected
    if params.corrected_per_day is not None and paced is None:
        if controller.since_s is None:
            return f"since_s: {controller.why('since_s')}"
        days = max(1.0, controller.since_s / DAY)
        most = params.corrected_per_day
        limits[f"at most {most:g} corrected a day"] = most * days
    return limits


NO_DIMM = {"DIMM": "not known"}


def at_dimms(
    controller: MemoryController, field: str, since: MemoryController | None = None
) -> str:
    """The DIMMs with errors, as ` (A1 ×2)`; empty if none is known. `since`: the earlier state of
    the controller; count only errors that came after it."""
    past_text = by_dimm(since, field) if since else {}
    fresh = {
        name: count - past_text.get(name, 0) for name, count in by_dimm(controller, field).items()
    }
    names = {dimm.id: name_of(dimm) for dimm in controller.dimms or ()}
    dimms_shown = [f"{names[id]} ×{count}" for id, count in fresh.items() if count > 0]
    return f" ({', '.join(dimms_shown)})" if dimms_shown else ""


def name_of(dimm: Dimm) -> str:
    return f"{dimm.label} ({dimm.id})" if dimm.label else dimm.id


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        "earlier.edac.controllers[].corrected",
        *reads_of("earlier.edac.controllers[].dimms[]", "corrected", "uncorrected"),
        *reads_of("earlier.edac.controllers[]", "id", "uncorrected"),
        *reads_of("edac.controllers[]", "id", "corrected"),
        *reads_of("edac.controllers[].dimms[]", "corrected", "size_mib", "uncorrected"),
        *reads_of("edac.controllers[]", "uncorrected", "since_s"),
        "host.virtualization",
        *reads_of("numa.nodes[]", "cpulist", "cpus_present", "id", "memory_total_kb"),
        "numa.online",
    ),
    judge=judge,
    unasked="for servers and workstations: `generic` has only checks for any node",
    actions={REPLACE: NeededAction.RMA},
)
