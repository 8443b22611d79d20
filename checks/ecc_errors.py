"""No GPU has more memory errors than the baseline allows.

**Why it matters.** An uncorrectable error kills the job that hits it, and results written before
may be corrupt. A GPU whose SRAM has passed NVIDIA's threshold keeps killing jobs until it is
replaced.

**Read from** NVML: nvmlDeviceGetTotalEccErrors, nvmlDeviceGetMemoryErrorCounter (DRAM, SRAM; before
Turing L1, L2, register file, textures and CBU) and nvmlDeviceGetSramEccErrorStatus. Volatile counts
begin at the last reset or load of the driver. The board keeps aggregate counts.

**Verdicts.** By default an uncorrectable error since the last reset fails, and so does a passed
SRAM threshold. Corrected errors do no harm, and old errors were repaired: the check judges these
counts only if the baseline limits them, for all memory or for SRAM and DRAM separately. NVML gives
a total and its parts: the check judges the larger of the total and the sum, and reports a
difference. A GPU without ECC, or with ECC off, is not applicable (`ecc_mode` judges that). A count
that this GPU or driver does not report is not applicable, either. If a GPU in MIG mode reports no
total, its MIG devices are judged: too many errors fail; few errors are not applicable, because they
are only a part. With `--since`, a volatile count above its limit is ok if no error came since the
last look: the aggregate count, which no reset clears, has not moved, and no memory repair is
pending.

**To fix it** drain the node and reset the GPU (`nvidia-smi --gpu-reset -i BUS_ID`), or reboot;
`row_remapping` says whether a row remap is pending. If errors come back, run `dcgmi diag -r 3` and
the vendor's field diagnostics. If the SRAM has passed its threshold, have the board replaced.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta
from msgspec.structs import asdict

from nodevet.checking.sampled_gpus import SAMPLED_GPUS, GpuBefore, gpu_before
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import EccCounts, Gpu, board, subject_of
from nodevet.evidence.kernel_log import span
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    fail,
    not_applicable,
    ok,
    unknown,
)

NOT_TOLD = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND")
NO_SUCH_PART = (
    *NOT_TOLD,
    "NVML_ERROR_INVALID_ARGUMENT",
)  # the driver does not know the location
TOTALS = tuple(
    f"{life}_{severity}"
    for life in ("volatile", "aggregate")
    for severity in ("uncorrected", "corrected")
)
PARTS = ("dram", "sram", "cache")
FIELDS_OF = {
    f"{life}_{severity}": {part: f"{life}_{part}_{severity}" for part in PARTS}
    for life, _, severity in (field.partition("_") for field in TOTALS)
}
"""The counts of the parts of each total."""

APART = tuple(FIELDS_OF[total][part] for total in TOTALS for part in ("sram", "dram"))
"""The separate counts of SRAM and of DRAM, which a baseline may limit, too."""
FLAG = "sram_threshold_exceeded"
NO_RESET = (
    "no reset clears this: drain the node and have the GPU replaced; attach "
    "nvidia-bug-report.sh's output and these SRAM counts to the RMA"
)
RESET = (
    "drain the node and run nvidia-bug-report.sh while the counts are there; then reset "
    "the GPU with no job left, or reboot, and see row_remapping. If errors come back, "
    "run `dcgmi diag -r 3` or field diagnostics, and RMA the GPU"
)

Most = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`ecc_errors: {}` or `ecc_errors: {volatile_uncorrected: 0, volatile_corrected: 10000}`"""

    volatile_uncorrected: Most | None = 0
    """The highest allowed count, as in every field below; null: not judged."""
    volatile_corrected: Most | None = None
    aggregate_uncorrected: Most | None = None
    aggregate_corrected: Most | None = None
    volatile_sram_uncorrected: Most | None = None
    """Errors of the SRAM alone; the `dram` fields limit those of the board's other memory."""
    volatile_sram_corrected: Most | None = None
    volatile_dram_uncorrected: Most | None = None
    volatile_dram_corrected: Most | None = None
    aggregate_sram_uncorrected: Most | None = None
    aggregate_sram_corrected: Most | None = None
    aggregate_dram_uncorrected: Most | None = None
    aggregate_dram_corrected: Most | None = None
    sram_threshold: bool = True
    """Whether a GPU fails if it reports that its SRAM has passed NVIDIA's threshold."""

    def __post_init__(self) -> None:
        if not limits(self):
            raise ValueError("give a limit for at least one count")


def limits(params: Params) -> dict[str, int]:
    """The highest allowed counts, by field of the evidence; a flag counts as 0 or 1."""
    counts = {name: most for name, most in asdict(params).items() if name != "sram_threshold"}
    flag = {FLAG: 0} if params.sram_threshold else {}
    return {**{name: most for name, most in counts.items() if most is not None}, **flag}


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    most = limits(params)
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        else:
            before = gpu_before(evidence, gpu)
            yield from judge_gpu(gpu, most, before if before and before.look else None)


class Count(NamedTuple):
    """A count to judge. `untold`: the fields that this GPU does not report; `unread`: why others
    are not known; `apart`: how the total and the sum of its parts differ."""

    value: int | None
    untold: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    apart: str = ""


def judge_gpu(gpu: Gpu, limits: dict[str, int], before: GpuBefore | None) -> Iterator[Finding]:
    """`before`: the same GPU at the last look."""
    subject = subject_of(gpu)
    unchanged = unchanged_counts(gpu, before, limits) if before and before.gpu else {}
    most = {**limits, **unchanged}
    counts = {field: error_count(gpu.ecc, field) for field in most}
    values = {field: count.value for field, count in counts.items() if count.value is not None}
    untold = [field for count in counts.values() for field in count.untold]
    unreported = [field for field in most if field != FLAG and field in untold]
    parts = by_mig_device(gpu, [field for field in unreported if field not in values])
    above = {field: count for field, count in values.items() if count > most[field]}
    sums = {field: part.value for field, part in parts.items() if part.value is not None}
    above |= {field: count for field, count in sums.items() if count > most[field]}
    unread = [why for count in (*counts.values(), *parts.values()) for why in count.unread]
    apart = [count.apart for count in counts.values() if count.apart]
    differ = "; ".join(apart)
    if above:
        yield fail(
            subject,
            expected=of_type(above, most),
            actual=above,
            why=differ,
            advice=advice(above),
            details={**board(gpu), **uncorrected_details(gpu)},
        )
    if unread:
        yield unknown(subject, why="; ".join(unread if above else (*unread, *apart)))
    elif values and not above and not parts:
        shown = ", ".join(f"{field} {count}" for field, count in unchanged.items())
        ago = f"no more since the last look {span(before.seconds)} ago" if before else ""
        since = f"{shown}: {ago}" if shown else ""
        why = "; ".join(filter(None, (differ, since)))
        yield ok(subject, expected=of_type(values, most), actual=values, why=why)
    if untold:
        shown = ", ".join(f"{field} {count}" for field, count in sums.items())
        also = f"; the counts of its MIG devices are {shown}" if shown else ""
        yield not_applicable(
            subject, why=f"this GPU or driver does not report: {', '.join(untold)}{also}"
        )


def of_type(counts: dict[str, int], most: dict[str, int]) -> dict[str, int]:
    """The limits of these counts; the limit of a flag is a flag."""
    return {field: type(count)(most[field]) for field, count in counts.items()}


def unchanged_counts(gpu: Gpu, before: GpuBefore, most: dict[str, int]) -> dict[str, int]:
    """The volatile counts above their limit that did not grow since the last look. The aggregate
    counts prove this, even if a reset cleared the volatile ones."""
    fields: dict[str, int] = {}
    earlier = before.gpu
    if (
        earlier is None
        or not is_fit(gpu)
        or (gpu.uuid, gpu.serial) != (earlier.uuid, earlier.serial)
    ):
        return fields
    for field, limit in most.items():
        life, _, severity = field.partition("_")
        if life != "volatile":
            continue
        now, was = error_count(gpu.ecc, field).value, error_count(earlier.ecc, field).value
        ever, before_it = (getattr(ecc, f"aggregate_{severity}") for ecc in (gpu.ecc, earlier.ecc))
        if None in (now, was, ever, before_it) or ever != before_it:
            continue
        if now is not None and was is not None and limit < now <= min(was, ever):
            fields[field] = now
    return fields


def is_fit(gpu: Gpu) -> bool:
    """Whether the GPU reports that no repair of its memory is pending, neither of rows nor of
    pages."""
    records = (gpu.remapping, gpu.retired_pages)
    pending_states = [record.pending for record in records if not unsupported(record, "pending")]
    return bool(pending_states) and all(pending is False for pending in pending_states)


def by_mig_device(gpu: Gpu, fields: Sequence[str]) -> dict[str, Count]:
    """The counts of all MIG devices together, if a GPU in MIG mode does not report its own.

    They are only a part: too many errors fail, but few errors prove nothing."""
    if not gpu.mig_current or not fields:
        return {}
    if gpu.mig_devices is None and gpu.errors.get("mig_devices") not in (None, *NOT_TOLD):
        untold = f"mig_devices: {gpu.why('mig_devices')}"
        return {field: Count(None, unread=(untold,)) for field in fields}
    by_field = {}
    for field in fields:
        counts = [error_count(device.ecc, field) for device in gpu.mig_devices or ()]
        known = [count.value for count in counts if count.value is not None]
        unread = dict.fromkeys(why for count in counts for why in count.unread)
        why = tuple(f"of a MIG device: {reason}" for reason in unread)
        by_field[field] = Count(sum(known) if known else None, unread=why)
    return by_field


def error_count(ecc: EccCounts, field: str) -> Count:
    """A count by its field; a total also by the sum of its parts."""
    if field not in TOTALS:
        return own_count(ecc, field, NOT_TOLD if field == FLAG else NO_SUCH_PART)
    total = own_count(ecc, field, NOT_TOLD)
    parts = {part: own_count(ecc, name, NO_SUCH_PART) for part, name in FIELDS_OF[field].items()}
    if parts["sram"].untold and not parts["cache"].untold:
        del parts["sram"]
    else:
        del parts["cache"]
    values = {
        part: part_count.value for part, part_count in parts.items() if part_count.value is not None
    }
    known = [count for count in (total.value, sum(values.values()) if values else None)
             if count is not None]  # fmt: skip
    untold = [name for part_count in (total, *parts.values()) for name in part_count.untold]
    unread = [why for part_count in (total, *parts.values()) for why in part_count.unread]
    if not known and not unread:
        untold = [field]
    apart = ""
    if len(known) == 2 and len(set(known)) == 2:
        shown = ", ".join(f"{part} {count}" for part, count in values.items())
        apart = f"{field}: the total is {known[0]}, but its parts add up to {known[1]} ({shown})"
    return Count(max(known, default=None), tuple(untold), tuple(unread), apart)


def own_count(ecc: EccCounts, field: str, not_told: tuple[str, ...]) -> Count:
    """A count by its own field. `not_told`: NVML's answers if the GPU has no such count."""
    count = getattr(ecc, field)
    if count is None and ecc.errors.get(field) in not_told:
        return Count(None, untold=(field,))
    if count is None:
        return Count(None, unread=(f"{field}: {ecc.why(field)}",))
    if count < 0:
        return Count(None, unread=(f"{field}: {count} is not a valid count",))
    return Count(count)


def lives(life: str) -> tuple[str, ...]:
    """The fields of uncorrectable errors: `volatile_uncorrected`, `volatile_dram_uncorrected`."""
    total = f"{life}_uncorrected"
    return (total, *FIELDS_OF[total].values())


def advice(above: dict[str, int]) -> str:
    if FLAG in above or "aggregate_sram_uncorrected" in above:
        return NO_RESET
    if any(field in above for field in lives("volatile")):
        return RESET
    if any(field in above for field in lives("aggregate")):
        return (
            "the board keeps these permanently, and no reset clears them: check whether they "
            "still rise; if so, run field diagnostics and have the GPU replaced"
        )
    return "no job is affected: note the counts, and run `dcgmi diag -r 3` if they rise daily"


def uncorrected_details(gpu: Gpu) -> dict[str, str]:
    """The uncorrectable errors of each memory: `DRAM 2, SRAM 1`."""
    ecc = gpu.ecc
    counts = {"DRAM": ecc.volatile_dram_uncorrected, "SRAM": ecc.volatile_sram_uncorrected}
    counts["caches"] = ecc.volatile_cache_uncorrected
    shown = ", ".join(f"{memory} {count}" for memory, count in counts.items() if count)
    return {"uncorrected since the last reset": shown} if shown else {}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *SAMPLED_GPUS,
        *(f"earlier.gpu.gpus[].ecc.{field}" for field in (*TOTALS, *APART)),
        "gpu.gpus[].remapping.pending",
        "gpu.gpus[].retired_pages.pending",
        *(f"gpu.gpus[].ecc.{field}" for field in TOTALS),
        *(f"gpu.gpus[].ecc.{name}" for names in FIELDS_OF.values() for name in names.values()),
        "gpu.gpus[].ecc.sram_threshold_exceeded",
        "gpu.gpus[].mig_current",
        *(f"gpu.gpus[].mig_devices[].ecc.{field}" for field in TOTALS),
        *(
            f"gpu.gpus[].mig_devices[].ecc.{name}"
            for names in FIELDS_OF.values()
            for name in names.values()
        ),
    ),
    judge=judge,
    actions={NO_RESET: NeededAction.RMA, RESET: NeededAction.GPU_RESET},
)
