"""The node has as many NVMe drives as the baseline expects.

**Why it matters.** If the node no longer finds a drive, its array is degraded or its scratch space
is smaller, and no error follows: the data set then lies on the wrong disk.

**Read from** `/sys/bus/pci/devices`: functions of class 0108, with any driver or none, without
virtual functions.

**Verdicts.** `count` is the exact number, `minimum` the least. A drive whose configuration reads as
ff no longer answers, and does not count. If the class of a function was not read, the check is
unknown.

**To fix it** see in the BMC's inventory which slot lacks its drive; reseat the drive, and check the
slot's bifurcation in the BIOS and its cable.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import Area, Check, CheckParams, Finding, Value, fail, ok, unknown

FEWER = (
    "see in the BMC's inventory which slot lacks its drive; reseat the drive, then check the "
    "slot's bifurcation in the BIOS and its cable"
)
MORE = "the baseline is for a node with fewer drives: correct `count`, or set `minimum`"


class Params(CheckParams):
    """`nvme_count: 8` or `nvme_count: {minimum: 4}`"""

    bare: ClassVar[str] = "count"

    count: Annotated[int, Meta(ge=0, le=256)] | None = None
    minimum: Annotated[int, Meta(ge=0, le=256)] | None = None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Pci]
    functions = section.data.functions if section.data else None
    if section.status == "absent":
        functions = ()
    if functions is None:
        yield unknown(why=f"PCI: {section.data.why('functions') if section.data else section.why}")
    elif params.count is None and params.minimum is None:
        yield unknown(why="the baseline sets neither count nor minimum")
    else:
        yield judge_drives(functions, params)


def judge_drives(functions: tuple[PciFunction, ...], params: Params) -> Finding:
    for function in functions:
        for field in ("class_code", *(("physfn", "revision") if function.kind == "nvme" else ())):
            if getattr(function, field) is None:
                return unknown(why=f"{function.address}: {field}: {function.why(field)}")
    drives = [function for function in functions if function.kind == "nvme" and not function.physfn]
    silent = [drive.address for drive in drives if drive.revision == "ff"]
    actual = len(drives) - len(silent)
    why = f"no longer answers: {', '.join(silent[:8])}" if silent else ""
    if params.count is not None and actual != params.count:
        advice = FEWER if actual < params.count else MORE
        return fail(expected=params.count, actual=actual, why=why, advice=advice)
    if params.minimum is not None and actual < params.minimum:
        least = f"at least {params.minimum}"
        return fail(expected=least, actual=actual, why=why, advice=FEWER)
    expected = params.count if params.count is not None else f"at least {params.minimum}"
    return ok(expected=expected, actual=actual, why=why)


def learn(evidence: Evidence) -> Value:
    functions = (data.functions if (data := evidence[Pci].data) else None) or ()
    drives = [
        function for function in functions if function.kind == "nvme" and function.physfn == ""
    ]
    return sum(drive.revision not in (None, "ff") for drive in drives) or None


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=reads_of("pci.functions[]", "class_code", "physfn", "revision"),
    judge=judge,
    unasked="only the site knows how many drives its nodes have",
    learn=learn,
)
