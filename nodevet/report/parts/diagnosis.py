"""A diagnosis as people read it in a terminal: one paragraph for each GPU. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.diagnosis.model import Cause, Diagnosis, GpuDiagnosis, HostDiagnosis, Ruling
from nodevet.diagnosis.stragglers import told
from nodevet.diagnosis.words import number, shown
from nodevet.evidence.lists import spans
from nodevet.printable import plain
from nodevet.report.parts.grid import BOLD, GREEN, RED, YELLOW, sgr
from nodevet.report.parts.text import count, name, wrap

WIDTH = 100
COLOURS = {Cause.GPU: GREEN, Cause.IDLE: BOLD, Cause.UNCLEAR: YELLOW}


def diagnosis_text(
    incident: Diagnosis, *, colour: bool = False, width: int | None = None, rules: bool = False
) -> str:
    """Every host and GPU. `rules`: which rules held and which did not, with their margins too."""
    room = width or WIDTH
    lines: list[str] = []
    for host in incident.hosts:
        lines += [*_host(host, colour, room, rules), ""]
    lines += list(_stragglers(incident, room))
    lines += wrap(_closing(incident), room)
    return "\n".join(lines) + "\n"


def _host(host: HostDiagnosis, colour: bool, room: int, rules: bool) -> Iterator[str]:
    if not host.gpus:
        why = plain(host.why) or host.status.value
        yield from wrap(f"{name(host.host)}: no diagnosis: {why}", room)
        return
    over = "" if host.overhead is None else f", which took {number(host.overhead)} % of one core"
    yield f"{name(host.host)}: watched for {number(host.seconds)} s{over}"
    for group in alike(host.gpus):
        yield from _gpus(group, colour, room, rules)
    for suspect in host.suspects:
        yield from _indented("suspect", plain(told(suspect)), room)


def alike(gpus: Sequence[GpuDiagnosis]) -> list[list[GpuDiagnosis]]:
    """GPUs of which the same can be said, word for word, together."""
    groups: dict[tuple[object, ...], list[GpuDiagnosis]] = {}
    for gpu in gpus:
        key = (gpu.cause, gpu.causes, gpu.confidence, gpu.sentence, gpu.also)
        groups.setdefault(key, []).append(gpu)
    return list(groups.values())


def _gpus(group: Sequence[GpuDiagnosis], colour: bool, room: int, rules: bool) -> Iterator[str]:
    first = group[0]
    label = ("GPU " if len(group) == 1 else "GPUs ") + spans(gpu.index for gpu in group)
    cause = first.cause.value
    if first.cause is Cause.MIXED:
        cause = " + ".join(each.value for each in first.causes)
    shown_cause = sgr(cause, COLOURS.get(first.cause, RED)) if colour else cause
    yield f"  {label}: {shown_cause} (confidence {first.confidence.value})"
    yield from _indented("", plain(first.sentence), room)
    for job in first.jobs if len(group) == 1 else ():
        helpers = f", {count(job.helpers, 'helper process')}" if job.helpers else ""
        memory = f", {job.memory_b / 2**30:.1f} GiB" if job.memory_b else ""
        yield from _indented("job", f"{plain(job.command) or '?'} {job.pid}{memory}{helpers}", room)
    for line in first.also:
        yield from _indented("also", plain(line), room)
    yield from _indented("next", first.next_step, room)
    if rules:
        for ruling in first.rulings:
            yield from _indented("", plain(ruling_text(ruling)), room)


def ruling_text(ruling: Ruling) -> str:
    """A rule and what was held against it: `[holds 1.4] storage-bound: …`."""
    word = {True: "holds", False: "does not hold", None: "undecided"}[ruling.holds]
    margin = "" if ruling.margin is None else f" by {number(ruling.margin)}"
    told = "; ".join(
        f"{shown(each.figure)} ({'at least' if each.at_least else 'at most'} "
        f"{number(each.threshold)})"
        for each in ruling.conditions
    )
    return f"[{word}{margin}] {ruling.cause.value}: {ruling.rule}: {told}"


def _indented(label: str, text: str, room: int) -> Iterator[str]:
    head = f"    {label}: " if label else "    "
    for place, line in enumerate(wrap(text, max(30, room - len(head)))):
        yield (head if place == 0 else " " * len(head)) + line


def _stragglers(incident: Diagnosis, room: int) -> Iterator[str]:
    for each in incident.stragglers:
        yield from wrap(
            f"straggler: {name(each.host)} GPU {each.gpu}: {plain(each.sentence)}", room
        )
        for suspect in each.suspects:
            yield from _indented("it alone", plain(suspect), room)
    if incident.stragglers:
        yield ""


def _closing(incident: Diagnosis) -> str:
    gpus = [gpu for host in incident.hosts for gpu in host.gpus]
    counts = {cause: sum(gpu.cause is cause for gpu in gpus) for cause in Cause}
    told = [f"{several} {cause.value}" for cause, several in counts.items() if several]
    lost = sum(not host.gpus for host in incident.hosts)
    parts = [f"{count(len(gpus), 'GPU')} on {count(len(incident.hosts), 'host')}", *told]
    if lost:
        parts.append(f"{count(lost, 'host')} without a diagnosis")
    if incident.apart_s is not None:
        parts.append(f"begun within {incident.apart_s:.1f} s of one another")
    if incident.interrupted:
        parts.append("interrupted")
    return " · ".join(parts)
