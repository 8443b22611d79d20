"""The description of a job's input: the fields as people write them, and their numbers."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from nodevet.base.problems import did_you_mean
from nodevet.checking.feeding import units
from nodevet.checking.feeding.interval import UNKNOWN, Interval, exact_interval
from nodevet.model import FieldError, refuse

MOST_BATCHES = 64
LARGEST_BATCH = 10_000_000
LONGEST_STEP = 86_400.0  # seconds: a day
Read = TypeVar("Read")

UNIT = "[A-Za-z%µμ]"  # a number alone does not match
Size = Annotated[str, Meta(pattern=UNIT, title="a size such as 500 kB")]
Rate = Annotated[str, Meta(pattern=UNIT, title="a rate such as 2 GB/s")]
Time = Annotated[str, Meta(pattern=UNIT, title="a time such as 5.86 ms")]
Share = Annotated[str, Meta(pattern=UNIT, title="a share such as 40 %")]
Pace = Annotated[str, Meta(pattern=UNIT, title="a rate such as 250 MB/s, or a time such as 2 ms")]
Link = Annotated[str, Meta(pattern=UNIT, title="a link such as Gen4 x16, or a rate")]
Batch = Annotated[int, Meta(ge=1, le=LARGEST_BATCH)]
BatchSizes = Annotated[tuple[Batch, ...], Meta(min_length=1, max_length=MOST_BATCHES)]
Count = Annotated[int, Meta(ge=1, le=65_536)]


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file."""


class TransformFields(Fields, frozen=True, kw_only=True):
    """How samples are decoded and augmented for a step."""

    device: Literal["cpu", "gpu"] = "cpu"
    """Where the transform happens: in data loader workers, or on the GPU (DALI, nvJPEG). There, the
    link carries stored samples, and the transform takes time of the GPU"""
    worker_rate: Pace | None = None
    """The rate of one worker with a core of its own: 250 MB/s of stored samples, 500 samples/s, or
    2 ms of CPU time for each sample"""
    gpu_rate: Pace | None = None
    """The rate of preprocessing on one GPU beside its steps"""

    def __post_init__(self) -> None:
        refuse(_unreadable(self, worker_rate=_pace, gpu_rate=_pace))


class StorageFields(Fields, frozen=True, kw_only=True):
    """Where samples are read from."""

    read: Rate | None = None
    """The rate at which all GPUs of the node together can read"""
    latency: Time | None = None
    """The latency of one read of one sample"""
    concurrency: Count | None = None
    """Reads in flight at once on the node; default: one for each worker"""
    cached: Share | None = None
    """The share of reads that the page cache answers; they count as taking no time"""
    over: Literal["nvme", "network"] | None = None
    """The node's links that limit the rate, if `read` is not known"""

    def __post_init__(self) -> None:
        refuse(_unreadable(self, read=units.rate, latency=units.seconds, cached=units.share))
        if self.concurrency is not None and self.latency is None:
            raise FieldError("has no effect without a latency; add one", "concurrency")


class MeasuredFields(Fields, frozen=True, kw_only=True):
    """The output of `nodevet feed --measure`: rates for those that the file leaves out."""

    sample_size: Size | None = None
    """The bytes that were read for each sample"""
    worker_rate: Pace | None = None
    """The rate of one worker for each second of CPU time"""
    storage_read: Rate | None = None
    """The rate of reads, if the loader waited for them: `670 MB/s`, `640 MB/s to 670 MB/s` where
    more workers did not read more, `at least 185 MB/s` if only so many were measured"""
    storage_latency: Time | None = None
    """How long one worker alone waited for one sample"""
    storage_concurrency: Count | None = None
    """The number of workers from which on reads no longer came faster"""
    when: str = ""
    """When it was measured"""
    host: str = ""
    """The machine on which it was measured"""
    command: str = ""
    """The command that was measured"""

    def __post_init__(self) -> None:
        readers = {"sample_size": units.size, "worker_rate": _pace, "storage_read": rates_of}
        refuse(_unreadable(self, **readers, storage_latency=units.seconds))


class WorkloadFields(Fields, frozen=True, kw_only=True):
    """The input side of a job. A missing value comes from the node, or is unknown."""

    step: Annotated[dict[str, Time], Meta(min_length=1)]
    """The accelerator's time for one step: by batch size `{32: 5.86 ms, 64: 6.7 ms}`, or
    `{fixed: 5 ms, per_sample: 26 us}`, or `{throughput: 2500 samples/s}`"""
    gpu_model: str = ""
    """The GPU model on which `step` was measured: A100; nodevet warns if the node has another"""
    batch_sizes: BatchSizes | None = None
    """The samples of one step of one GPU; default: the batch sizes of `step`"""
    sample_size: Size | None = None
    """The size of one sample as it is stored and read"""
    tensor_size: Size | None = None
    """The size of one sample as it goes to the GPU, if it differs and a CPU transforms it"""
    gpus: Count | None = None
    """The number of the job's GPUs on one node; default: all GPUs of the node"""
    workers: Count | None = None
    """Data loader workers for each GPU"""
    transform: TransformFields = msgspec.field(default_factory=TransformFields)
    """Preprocessing"""
    storage: StorageFields = msgspec.field(default_factory=StorageFields)
    """Where samples are read from"""
    link: Link | None = None
    """The link between host and GPU; default: the link that the node's GPUs negotiated"""
    dataset_size: Size | None = None
    """The size of all samples, which says whether the page cache can hold them"""
    measured: MeasuredFields = msgspec.field(default_factory=MeasuredFields)
    """The measured rates"""

    def __post_init__(self) -> None:
        sizes = _unreadable(self, sample_size=units.size, tensor_size=units.size,
                            dataset_size=units.size, link=link_of)  # fmt: skip
        refuse((*sizes, *_bad_steps(self), *_stated_and_measured(self)))


class WorkloadFile(WorkloadFields, frozen=True, kw_only=True):
    """A whole workload file."""

    nodevet: Literal[1]
    """The version of this format"""
    workload: Annotated[str, Meta(pattern=r"\S", title="text that is not empty")]
    """A few words about the job"""


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one step by batch size: a table or a line."""

    table: Mapping[int, float] = {}  # by batch, ascending
    fixed_s: float = 0.0
    per_sample_s: float = 0.0

    def seconds_for(self, batch: int) -> float:
        """The seconds of a batch size of the table, or of any on the line. Raises KeyError."""
        return self.table[batch] if self.table else self.fixed_s + self.per_sample_s * batch

    def interpolated_seconds(self, batch: int) -> float:
        """Like `seconds_for`, but interpolates between two batch sizes of the table; outside the
        table, the value at its end."""
        if not self.table:
            return self.seconds_for(batch)
        batches = list(self.table)
        place = bisect_left(batches, batch)
        if place == len(batches) or place == 0 or batches[place] == batch:
            return self.table[batches[min(place, len(batches) - 1)]]
        low, high = batches[place - 1 : place + 1]
        before, after = self.table[low], self.table[high]
        return before + (after - before) * (batch - low) / (high - low)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the file, in bytes, seconds and samples per second; null if the file has
    none."""

    name: str
    batches: tuple[int, ...]  # samples of one step of one GPU, ascending
    step: StepTime  # the accelerator's time for a step
    gpu_model: str  # that had this time; empty: not said
    sample_b: float | None  # of one sample as it is read
    tensor_b: float | None  # of one sample as it goes to the GPU
    gpus: int | None  # of the job on one node
    workers: int | None  # for each GPU
    transform_on: str  # cpu, gpu
    worker_rate: Interval  # samples/s of one worker with a core of its own
    gpu_rate: Interval  # samples/s of preprocessing on one GPU
    storage_read: Interval  # bytes/s of all GPUs of the node
    storage_latency_s: float | None  # of one read of one sample
    storage_concurrency: int | None  # reads under way at once; null: one for each worker
    storage_over: str | None  # nvme, network
    cached: float | None  # share of reads that the page cache answers
    link: Interval | None  # bytes/s of each GPU; null: not said
    link_words: str  # as the file has it
    dataset_b: float | None


def workload_of(fields: WorkloadFields, name: str) -> Workload:
    """The numbers of the fields, which were validated while they were decoded."""
    transform, storage, measured = fields.transform, fields.storage, fields.measured
    sample_b = _read(units.size, fields.sample_size or measured.sample_size)
    steps = _steps(fields.step)
    return Workload(
        name=name,
        batches=tuple(sorted(set(fields.batch_sizes or steps.table))),
        step=steps,
        gpu_model=fields.gpu_model,
        sample_b=sample_b,
        tensor_b=_read(units.size, fields.tensor_size) or sample_b,
        gpus=fields.gpus,
        workers=fields.workers,
        transform_on=transform.device,
        worker_rate=_samples(transform.worker_rate or measured.worker_rate, sample_b),
        gpu_rate=_samples(transform.gpu_rate, sample_b),
        storage_read=_read(rates_of, storage.read or measured.storage_read) or UNKNOWN,
        storage_latency_s=_read(units.seconds, storage.latency or measured.storage_latency),
        storage_concurrency=storage.concurrency,
        storage_over=storage.over,
        cached=_read(units.share, storage.cached),
        link=_read(link_of, fields.link),
        link_words=fields.link or "",
        dataset_b=_read(units.size, fields.dataset_size),
    )


def link_of(text: str) -> Interval:
    """Bytes per second of `Gen4 x16`, within bounds, or of `25 GB/s`. Raises ValueError."""
    lanes = units.link(text)
    if lanes is None:
        try:
            return exact_interval(units.rate(text))
        except ValueError as error:
            if "Gen" in text or "x" in text:
                raise ValueError(f"must be a link such as Gen4 x16, not {text[:40]}") from error
            raise
    return usable_rate(units.link_rate(*lanes))


def usable_rate(rate: float) -> Interval:
    """The bytes per second that a PCIe link of this encoding rate can move."""
    return Interval(rate * units.AT_LEAST, rate)


def _steps(step: dict[str, str]) -> StepTime:
    if "throughput" in step:
        return StepTime(per_sample_s=1 / units.per_second(step["throughput"]))
    if "fixed" in step or "per_sample" in step:
        fixed, per_sample = (_read(units.seconds, step.get(key)) for key in ("fixed", "per_sample"))
        return StepTime(fixed_s=fixed or 0.0, per_sample_s=per_sample or 0.0)
    table = {int(batch): units.seconds(time) for batch, time in step.items()}
    return StepTime(table=dict(sorted(table.items())))


WORDS = ("fixed", "per_sample", "throughput")
BATCH = re.compile(r"[1-9][0-9]{0,8}")  # 032 would be 32 a second time


def _bad_steps(fields: WorkloadFields) -> Iterator[FieldError]:
    """The errors in the times of steps, and about batches without a time."""
    sizes, words = [], []
    for key, text in fields.step.items():
        if BATCH.fullmatch(key) and int(key) <= LARGEST_BATCH:
            sizes.append(int(key))
        elif key in WORDS:
            words.append(key)
        else:
            hint = did_you_mean(key, WORDS, f"write a batch size, or {', '.join(WORDS)}")
            yield FieldError(f"is not a batch size; {hint}", "step", key)
            continue
        yield from _bad_time(key, text)
    if words and sizes:
        yield FieldError("has both batch sizes and words; keep one of the two", "step", words[0])
    if "throughput" in words and len(words) > 1:
        yield FieldError("is enough alone; leave out the others", "step", "throughput")
    yield from _without_step_time(fields, sizes)


def _without_step_time(fields: WorkloadFields, sizes: list[int]) -> Iterator[FieldError]:
    if fields.batch_sizes is None:
        if not sizes:
            yield FieldError("names no batch sizes; add batch_sizes: with a list of them", "step")
        elif len(sizes) > MOST_BATCHES:
            yield FieldError(f"has more than {MOST_BATCHES} batch sizes", "step")
        return
    for place, batch in enumerate(fields.batch_sizes):
        if sizes and batch not in sizes:
            message = f"step has no time for a batch of {batch}; add it there"
            yield FieldError(message, "batch_sizes", place)


def _bad_time(key: str, text: str) -> Iterator[FieldError]:
    try:
        seconds = 0.0 if key == "throughput" else units.seconds(text)
        if key == "throughput":
            units.per_second(text)
    except ValueError as error:
        yield FieldError(str(error), "step", key)
    else:
        if seconds > LONGEST_STEP:
            yield FieldError("is longer than a day; check its unit", "step", key)


def _stated_and_measured(fields: WorkloadFields) -> Iterator[FieldError]:
    """The fields that are both stated and measured."""
    for name, stated in (
        ("sample_size", fields.sample_size),
        ("worker_rate", fields.transform.worker_rate),
        ("storage_read", fields.storage.read),
        ("storage_latency", fields.storage.latency),
    ):
        if stated is not None and getattr(fields.measured, name) is not None:
            yield FieldError("is stated and measured; keep one of the two", "measured", name)


def _unreadable(fields: msgspec.Struct, **readers: Callable[[str], Any]) -> Iterator[FieldError]:
    """The errors of the fields whose text cannot be read."""
    for name, reader in readers.items():
        try:
            _read(reader, getattr(fields, name))
        except ValueError as error:
            yield FieldError(str(error), name)


def _read(reader: Callable[[str], Read], text: str | None) -> Read | None:
    return None if text is None else reader(text)


def _pace(text: str) -> float:
    return units.samples(text, 1.0)


def _samples(text: str | None, sample_b: float | None) -> Interval:
    """The samples per second; unknown for a rate in bytes if the size of a sample is not known."""
    if text is None:
        return UNKNOWN
    if sample_b is None:
        per_byte, per_two_bytes = units.samples(text, 1.0), units.samples(text, 2.0)
        return exact_interval(per_byte) if per_byte == per_two_bytes else UNKNOWN
    return exact_interval(units.samples(text, sample_b))


AT_LEAST, TO = "at least ", " to "


def rates_of(text: str) -> Interval:
    """Bytes per second of `2 GB/s`, `1.8 GB/s to 2 GB/s`, `at least 2 GB/s`. Raises ValueError."""
    if text.startswith(AT_LEAST):
        return Interval(units.rate(text[len(AT_LEAST) :]), None)
    low, _, high = text.partition(TO)
    if not high:
        return exact_interval(units.rate(low))
    if units.rate(low) > units.rate(high):
        raise ValueError(f"must go from a lower rate to a higher one, not {text[:60]}")
    return Interval(units.rate(low), units.rate(high))
