"""No GPU's memory has had more errors than the baseline allows.

**Why it matters.** An uncorrectable error kills the job that meets it, and what it
left may be wrong. A GPU whose SRAM has passed NVIDIA's threshold goes on doing that
until it is replaced.

**Read from** NVML: nvmlDeviceGetTotalEccErrors, nvmlDeviceGetMemoryErrorCounter (SRAM)
and nvmlDeviceGetSramEccErrorStatus. Volatile counts begin at the last reset or load of
the driver, aggregate ones are kept in the board.

**Verdicts.** Without further words, an uncorrectable error since the last reset is
wrong, and so is a passed SRAM threshold. Corrected errors harm nothing, and old ones
were dealt with: their counts are judged where the baseline gives the most that is
allowed. A GPU without ECC, or with ECC off, is exempt: `ecc_mode` judges that. A count
that this GPU or driver does not tell is exempt too, and said.

**To put it right** drain the node and reset the GPU, or reboot; `row_remapping` says
whether memory waits to be repaired. Errors that come again: run the vendor's field
diagnostics. A passed SRAM threshold: have the board replaced.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from nodevet.evidence import NOT_SUPPORTED, EccCounts, Evidence, Gpu, board, each_gpu, subject_of
from nodevet.model import Check, Finding, Want, exempt, ok, unknown, wrong

NOT_TOLD = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND")

Most = Annotated[int, Field(ge=0)]


class EccErrors(Want):
    """`ecc_errors: {}` or `ecc_errors: {volatile_uncorrected: 0, volatile_corrected: 10000}`"""

    volatile_uncorrected: Most | None = 0
    """The most that is allowed, as of every count below; null: it is not judged."""
    volatile_corrected: Most | None = None
    aggregate_uncorrected: Most | None = None
    aggregate_corrected: Most | None = None
    aggregate_sram_uncorrected: Most | None = None
    sram_threshold: bool = True
    """Whether a GPU that says that its SRAM has passed NVIDIA's threshold is wrong."""

    @model_validator(mode="after")
    def _something(self) -> "EccErrors":
        if not limits(self):
            raise ValueError("give the most that is allowed of at least one count")
        return self


def limits(want: EccErrors) -> dict[str, int]:
    """The most that is allowed, by field of the evidence; a flag counts as 0 or 1."""
    counts = want.model_dump(exclude={"sram_threshold"}, exclude_none=True)
    return {**counts, **({"sram_threshold_exceeded": 0} if want.sram_threshold else {})}


def judge(evidence: Evidence, want: EccErrors) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        else:
            yield from judge_gpu(gpu, limits(want))


def judge_gpu(gpu: Gpu, most: dict[str, int]) -> Iterator[Finding]:
    subject, ecc = subject_of(gpu), gpu.ecc
    untold = [field for field in most if is_untold(ecc, field)]
    unread = [field for field in most if field not in untold and not is_count(ecc, field)]
    told = {field: getattr(ecc, field) for field in most if field not in (*untold, *unread)}
    above = {field: count for field, count in told.items() if count > most[field]}
    why = "; ".join(f"{field}: {reason(ecc, field)}" for field in unread)
    if above:
        allowed = {field: type(above[field])(most[field]) for field in above}
        yield wrong(subject, expected=allowed, actual=above, why=why, advice=advice(gpu, above))
    elif unread:
        yield unknown(subject, why=why)
    elif told:
        allowed = {field: type(told[field])(most[field]) for field in told}
        yield ok(subject, expected=allowed, actual=told)
    if untold:
        yield exempt(subject, why=f"this GPU or driver does not tell: {', '.join(untold)}")


def is_untold(ecc: EccCounts, field: str) -> bool:
    return getattr(ecc, field) is None and ecc.errors.get(field) in NOT_TOLD


def is_count(ecc: EccCounts, field: str) -> bool:
    return getattr(ecc, field) is not None and getattr(ecc, field) >= 0


def reason(ecc: EccCounts, field: str) -> str:
    count = getattr(ecc, field)
    return ecc.why(field) if count is None else f"{count} is no count"


def advice(gpu: Gpu, above: dict[str, int]) -> str:
    if "sram_threshold_exceeded" in above or "aggregate_sram_uncorrected" in above:
        return (
            f"no reset clears this: drain the node and have {board(gpu)} replaced; the RMA wants "
            "nvidia-bug-report.sh and these SRAM counts"
        )
    if "volatile_uncorrected" in above:
        return (
            f"drain the node and run nvidia-bug-report.sh while the counts{of(gpu)} are there; "
            "then reset the GPU with no job left, or reboot, and see row_remapping. If errors come "
            f"again, `dcgmi diag -r 3` or field diagnostics, and an RMA of {board(gpu)}"
        )
    if "aggregate_uncorrected" in above:
        return (
            "the board keeps these for good, and no reset clears them: see whether they still "
            f"rise; if so run field diagnostics, and have {board(gpu)} replaced"
        )
    return "they harm no job: note the counts, and run `dcgmi diag -r 3` if they rise by the day"


def of(gpu: Gpu) -> str:
    """In which memory the uncorrectable errors were: ` (DRAM 2, SRAM 1)`."""
    counts = {"DRAM": gpu.ecc.volatile_dram_uncorrected, "SRAM": gpu.ecc.volatile_sram_uncorrected}
    told = ", ".join(f"{memory} {count}" for memory, count in counts.items() if count)
    return f" ({told})" if told else ""


CHECK = Check(
    wants=EccErrors,
    reads=(
        "gpu.gpus[].ecc.volatile_uncorrected",
        "gpu.gpus[].ecc.volatile_corrected",
        "gpu.gpus[].ecc.aggregate_uncorrected",
        "gpu.gpus[].ecc.aggregate_corrected",
        "gpu.gpus[].ecc.aggregate_sram_uncorrected",
        "gpu.gpus[].ecc.sram_threshold_exceeded",
    ),
    judge=judge,
)
