"""The GPUs are as near to each other on the PCI bus as the baseline says.

**Why it matters.** GPUs without NVLink between them talk over PCIe: at full rate below one switch,
at a fraction of it across the link between CPUs. A riser in another slot, a replaced motherboard or
a BIOS with other defaults moves a GPU, and every collective is as slow as its slowest pair of GPUs.

**Read from** the path of each GPU in `/sys/bus/pci/devices`, and its NUMA node. Levels are those
of `nvidia-smi topo -m`, without NVLinks: `PIX` (one switch), `PXB` (several switches), `PHB` (one
host bridge), `NODE` (one NUMA node), `SYS` (between NUMA nodes).

**Verdicts.** `pairs` gives the number of pairs of GPUs at each level, whatever their order.
`matrix` gives the whole matrix: one row for each GPU in NVML's order, with `X` for the GPU itself.
A pair whose level cannot be determined is unknown. In a virtual machine the bus is the
hypervisor's, so the check is not applicable.

**To fix it** move the GPU, or its riser, to the slot that the chassis manual gives; check the BIOS
for NUMA and sub-NUMA clustering. If every pair differs, the baseline may be for another chassis.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated

from msgspec import UNSET, Meta

from nodevet.checking.pci_path import (
    LEVELS,
    READS,
    Distance,
    Level,
    distance_between,
    one_node,
    without_real_bus,
)
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu, pci_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, subject_of
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Value, compare, unknown

ADVICE = (
    "compare the slot and riser of the GPU and the BIOS's NUMA settings (NPS, sub-NUMA "
    "clustering) with the chassis manual and with a node that passes"
)
Row = Annotated[
    str,
    Meta(
        title="a row of levels",
        pattern=r"^ *(X|PIX|PXB|PHB|NODE|SYS)( +(X|PIX|PXB|PHB|NODE|SYS))* *$",
    ),
]
Placed = tuple[Gpu, PciFunction]


class Params(CheckParams):
    """`gpu_topology: {pairs: {NODE: 12, SYS: 16}}` or `gpu_topology: {matrix: [X PIX, PIX X]}`"""

    pairs: Mapping[Level, Annotated[int, Meta(ge=0)]] = {}
    """The number of pairs of GPUs, by level."""
    matrix: tuple[Row, ...] = ()
    """One row for each GPU: its level to every GPU."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = without_real_bus(evidence)
    if virtual is not None:
        yield virtual
        return
    placed: list[Placed] = []
    complete = True
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            complete = False
            yield gpu
            continue
        function = pci_of(evidence, gpu)
        if isinstance(function, Finding):
            complete = False
            yield function
        else:
            placed.append((gpu, function))
    alone = one_node(evidence)
    if not params.pairs and not params.matrix:
        yield unknown(why="the baseline gives neither pairs nor matrix")
    if params.pairs and complete:
        yield not_all(evidence) or judge_pairs(placed, params.pairs, alone)
    if params.matrix:
        yield from judge_rows(placed, params.matrix, alone)


def not_all(evidence: Evidence) -> Finding | None:
    """Why some GPUs may be missing from the list."""
    gpus, bus = evidence[Gpus].data, evidence[Pci].data
    if gpus is not None and gpus.count is None:
        return unread(NODE, gpus, "count")
    for function in (bus.functions if bus else None) or ():
        for field in ("class_code", "vendor"):
            if getattr(function, field) is None:
                return unknown(why=f"{function.address}: {field}: {function.why(field)}")
    return None


def judge_pairs(placed: list[Placed], expected: Mapping[Level, int], alone: bool | None) -> Finding:
    counts: Counter[str] = Counter()
    for (_, one), (_, other) in combinations(placed, 2):
        distance = distance_between(one, other, alone)
        if not distance.level:
            return unknown(why=distance.why)
        counts[distance.level] += 1
    expected_counts = {level: expected[level] for level in LEVELS if expected.get(level)}
    actual = {level: counts[level] for level in LEVELS if counts[level]}
    advice = "" if expected_counts == actual else ADVICE
    cause = UNSET if sum(expected_counts.values()) == counts.total() else "gpu_count"
    return compare(NODE, expected=expected_counts, actual=actual, advice=advice, cause=cause)


def judge_rows(
    placed: list[Placed], matrix: tuple[str, ...], alone: bool | None
) -> Iterator[Finding]:
    if len(matrix) != len(placed):
        why = f"the matrix has {len(matrix)} GPUs, the node has {len(placed)}"
        yield unknown(why=why, cause="gpu_lost")
        return
    for at, (gpu, one) in enumerate(placed):
        row = [
            Distance("") if other is one else distance_between(one, other, alone)
            for _, other in placed
        ]
        missing = next((distance.why for distance in row if distance.why), "")
        actual = " ".join(distance.level or "X" for distance in row)
        expected = " ".join(matrix[at].split())
        if missing:
            yield unknown(subject_of(gpu), why=missing)
        else:
            advice = "" if expected == actual else ADVICE
            yield compare(subject_of(gpu), expected=expected, actual=actual, advice=advice)


def learn(evidence: Evidence) -> Value:
    entries = [pci_of(evidence, entry) for entry in answering_gpus(evidence)]
    functions = [entry for entry in entries if isinstance(entry, PciFunction)]
    alone = one_node(evidence)
    if without_real_bus(evidence) is not None or len(functions) < max(2, len(entries)):
        return None
    counts = Counter(
        distance_between(one, other, alone).level for one, other in combinations(functions, 2)
    )
    return None if "" in counts else {"pairs": {x: counts[x] for x in LEVELS if counts[x]}}


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(*IN_HAND, *READS, "gpu.gpus[].bus_id"),
    judge=judge,
    unasked="each board connects GPUs in its own way: say gpu_topology with yours",
    learn=learn,
)
