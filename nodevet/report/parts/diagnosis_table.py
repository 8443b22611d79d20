"""A diagnosis as people read it in a terminal: one paragraph for each GPU. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.diagnosis.model import Cause, Diagnosis, GpuDiagnosis, HostDiagnosis
from nodevet.printable import plain
from nodevet.report.parts import diagnosis_words as words
from nodevet.report.parts.grid import BOLD, GREEN, RED, YELLOW, sgr
from nodevet.report.parts.text import name, wrap

WIDTH = 100
COLOURS = {Cause.GPU: GREEN, Cause.IDLE: BOLD, Cause.UNCLEAR: YELLOW}


def table(incident: Diagnosis, *, colour: bool, width: int | None, rules: bool) -> str:
    """Every host and GPU. `rules`: which rules held and which did not, with their margins too."""
    room = width or WIDTH
    lines: list[str] = []
    for host in incident.hosts:
        lines += [*_host(host, colour, room, rules), ""]
    lines += list(_stragglers(incident, room))
    lines += wrap(words.closing(incident), room)
    return "\n".join(lines) + "\n"


def _host(host: HostDiagnosis, colour: bool, room: int, rules: bool) -> Iterator[str]:
    if not host.gpus:
        yield from wrap(f"{name(host.host)}: no diagnosis: {words.no_diagnosis(host)}", room)
        return
    yield from wrap(f"{name(host.host)}: {words.watched(host)}", room)
    for group in words.alike(host.gpus):
        yield from _gpus(group, colour, room, rules)
    found, rest = words.suspects(host)
    for line in found:
        fix = words.fix(host, line)
        yield from _indented("suspect", plain(f"{line.text}: {line.reason}"), room, "  ")
        if fix:
            yield f"    {fix}"
    if rest:
        yield from _indented("", rest, room, "  ")


def coloured(gpu: GpuDiagnosis, text: str) -> str:
    """Text in the colour of a GPU's cause."""
    return sgr(text, COLOURS.get(gpu.cause, RED))


def _gpus(group: Sequence[GpuDiagnosis], colour: bool, room: int, rules: bool) -> Iterator[str]:
    first = group[0]
    cause = words.cause(first)
    shown_cause = coloured(first, cause) if colour else cause
    yield f"  {words.label(group)}: {shown_cause} (confidence {first.confidence.value})"
    yield from _indented("", plain(first.sentence), room)
    for job in first.jobs if len(group) == 1 else ():
        yield from _indented("job", words.job_text(job), room)
    for line in first.also:
        yield from _indented("also", plain(line), room)
    yield from _indented("next", first.next_step, room)
    if rules:
        for ruling in first.rulings:
            yield from _indented("", plain(words.ruling_text(ruling)), room)


def _indented(label: str, text: str, room: int, margin: str = "    ") -> Iterator[str]:
    head = f"{margin}{label}: " if label else margin
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
