"""What the HTML page of a diagnosis shows, printable and bounded. Pure."""

from collections.abc import Iterator
from typing import Any

from nodevet.diagnosis.model import Cause, Diagnosis, GpuDiagnosis, HostDiagnosis, Ruling
from nodevet.printable import brief
from nodevet.report.parts import diagnosis_chart
from nodevet.report.parts import diagnosis_words as words
from nodevet.report.parts.text import count, name

MOST_HOSTS = 200
MOST_CHARTS = 64  # GPUs of which charts are drawn; the page would have megabytes
FEW = 4  # GPUs whose charts are all open
LONGEST = 2000  # columns of one text
TAGS = {Cause.GPU: "ok", Cause.IDLE: "", Cause.UNCLEAR: "unknown"}
GRAVE = (Cause.STUCK, Cause.THROTTLED)


def data(incident: Diagnosis) -> dict[str, Any]:
    """What the template is given."""
    hosts = incident.hosts[:MOST_HOSTS]
    axis = _axis(incident)
    several = sum(len(host.gpus) for host in incident.hosts)
    shown, drawn = [], 0
    for place, host in enumerate(hosts):
        shown.append(_host(host, f"h{place}", axis, drawn, few=several <= FEW))
        drawn += len(host.gpus)
    left = len(incident.hosts) - len(hosts)
    return {
        "headline": words.headline(incident),
        "facts": [
            brief(incident.started.replace("T", " "), LONGEST),
            words.closing(incident),
            f"run {brief(incident.id, LONGEST)}",
            f"nodevet {brief(incident.nodevet, LONGEST)}",
        ],
        "hosts": shown,
        "several": several > 1,
        "left": f"{count(left, 'more host')} not shown" if left else "",
        "undrawn": several > MOST_CHARTS,
        "most_charts": MOST_CHARTS,
        "stragglers": [
            (
                brief(f"{name(each.host)} GPU {each.gpu}", LONGEST),
                brief(each.sentence, LONGEST),
                [brief(one, LONGEST) for one in each.suspects],
            )
            for each in incident.stragglers
        ],
        "chart": diagnosis_chart,
    }


def _axis(incident: Diagnosis) -> tuple[float, float]:
    """(when the first began, seconds until the last ended): the axis that all charts share."""
    began = [host.began_s for host in incident.hosts if host.began_s is not None]
    first = min(began, default=0.0)
    ends = [
        _later(host, first) + at
        for host in incident.hosts
        for line in host.timelines
        for at, _ in line.points[-1:]
    ]
    return first, max(ends, default=0.0) or incident.seconds or 1.0


def _later(host: HostDiagnosis, first: float) -> float:
    return max(0.0, (host.began_s or first) - first)


def _host(
    host: HostDiagnosis, anchor: str, axis: tuple[float, float], drawn: int, *, few: bool
) -> dict[str, Any]:
    suspects, rest = words.suspects(host)
    first, seconds = axis
    of_host = [line for line in host.timelines if line.gpu is None]
    return {
        "name": brief(name(host.host), LONGEST),
        "anchor": anchor,
        "told": words.watched(host) if host.gpus else "",
        "why": "" if host.gpus else brief(words.no_diagnosis(host), LONGEST),
        "groups": list(_groups(host, anchor, axis, drawn, few=few)),
        "strips": diagnosis_chart.strips(of_host, seconds, _later(host, first)),
        "suspects": [
            (
                brief(line.text, LONGEST),
                line.reason,
                line.likely,
                brief(words.fix(host, line), LONGEST),
            )
            for line in suspects
        ],
        "rest": brief(rest, LONGEST),
        "unread": [[brief(each, LONGEST) for each in row] for row in words.unread(host.gpus)],
    }


def _groups(
    host: HostDiagnosis, anchor: str, axis: tuple[float, float], drawn: int, *, few: bool
) -> Iterator[dict[str, Any]]:
    room = MOST_CHARTS - drawn
    for place, group in enumerate(words.alike(host.gpus)):
        first = group[0]
        yield {
            "anchor": f"{anchor}g{place}",
            "label": words.label(group),
            "model": brief(first.name or "", 80),
            "cause": words.cause(first),
            "tag": _tag(first),
            "confidence": first.confidence.value,
            "sentence": brief(first.sentence, LONGEST),
            "next": first.next_step,
            "also": [brief(line, LONGEST) for line in first.also],
            "jobs": [brief(words.job_text(job), LONGEST) for gpu in group for job in gpu.jobs],
            "proof": [words.proof_row(figure) for figure in words.proving(first)],
            "rules": [words.ruling_row(ruling) for ruling in _by_margin(first)],
            "open": few or first.cause not in words.FINE,
            "charts": [
                (f"GPU {gpu.index}" if len(group) > 1 else "", _strips(host, gpu, axis))
                for gpu in group[: max(0, room)]
            ],
        }
        room -= len(group)


def _tag(gpu: GpuDiagnosis) -> str:
    grave = gpu.cause in GRAVE
    return TAGS.get(gpu.cause, "fail" if grave else "fail warning")


def _by_margin(gpu: GpuDiagnosis) -> list[Ruling]:
    """What holds first, then what could not be decided, then the nearest."""
    order = {True: 0, None: 1, False: 2}
    return sorted(gpu.rulings, key=lambda each: (order[each.holds], -_nearness(each)))


def _nearness(ruling: Ruling) -> float:
    return (ruling.margin or 0.0) if words.margin(ruling) else 0.0


def _strips(
    host: HostDiagnosis, gpu: GpuDiagnosis, axis: tuple[float, float]
) -> list[diagnosis_chart.Strip]:
    first, seconds = axis
    lines = [line for line in host.timelines if line.gpu == gpu.index]
    return diagnosis_chart.strips(lines, seconds, _later(host, first))
