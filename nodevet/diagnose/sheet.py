"""A diagnosis as a sheet: each GPU in a sentence, the numbers that prove it, the suspects. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from nodevet.base.printable import brief, plain
from nodevet.diagnose import phrases
from nodevet.diagnose.axis import Axis
from nodevet.diagnose.job_sheet import job_blocks, of_late_ranks
from nodevet.diagnose.model import (
    FINE,
    UNDECIDED,
    Cause,
    Diagnosis,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    MissingGpu,
    Ruling,
    Timeline,
)
from nodevet.diagnose.suspects import SuspectLine
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    FactBlock,
    GroupBlock,
    ListBlock,
    ListItem,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
    TimeBlock,
    TimeLine,
    TimeStrip,
)
from nodevet.sheet.text import name

FEW = 4  # GPUs whose course is not folded
LONGEST = 2000  # columns of one text
TONES = {
    **{Cause.GPU: "ok", Cause.IDLE: "", Cause.REQUESTS: ""},
    **dict.fromkeys(UNDECIDED, "unknown"),
}
GRAVE = (Cause.LOST, Cause.STUCK, Cause.THROTTLED)
FAMILIES = (
    ("GPU", ("SM busy", "memory busy", "GPU memory used")),
    ("Clock and power, as a share of their limits", ("SM clock", "power")),
    ("PCIe", ("PCIe in", "PCIe out")),
    ("CPU of the hottest threads, as a share of one core", ("CPU of ",)),
    ("All CPUs", ("CPU user", "CPU system", "CPU iowait")),
    ("Pressure", ("all waited for",)),
)
"""The lines that share a chart, by the beginning of their names; the first match counts."""
OTHERS = "More"


def diagnosis_sheet(incident: Diagnosis, *, rules: bool = False) -> Sheet:
    """Every host and GPU. `rules`: in a terminal, too, which rules held and by what margin."""
    axis = Axis.of(incident)
    few = sum(len(host.gpus) for host in incident.hosts) <= FEW
    hosts = [
        _host(host, f"h{place}", axis, rules, few) for place, host in enumerate(incident.hosts)
    ]
    if incident.job:
        hosts = of_late_ranks(hosts, incident, incident.job)
    return Sheet(
        title=phrases.headline(incident),
        kind="diagnose",
        blocks=(
            *_about(incident),
            *_missing(incident),
            *(job_blocks(incident, incident.job, axis) if incident.job else ()),
            *_overview(incident),
            *_stragglers(incident),
            *hosts,
        ),
        end=phrases.closing(incident),
        more="more hosts",
    )


def _about(incident: Diagnosis) -> Iterator[FactBlock]:
    facts = (
        ("watched", f"for {incident.seconds:.3g} s from {incident.started.replace('T', ' ')}"),
        ("run", incident.id),
        ("nodevet", incident.nodevet),
    )
    rows = tuple((label, brief(value, LONGEST)) for label, value in facts)
    yield FactBlock(media=Medium.DOCUMENT, rows=rows)


def _missing(incident: Diagnosis) -> Iterator[GroupBlock]:
    """GPUs that should be there, before everything else."""
    blocks = tuple(
        GroupBlock(
            title=brief(f"{name(host.host)}: {phrases.missing_label(gpu)}", LONGEST),
            tag=Cell("missing", "fail"),
            blocks=(FactBlock(rows=tuple(phrases.folded(_missing_rows(gpu)))),),
        )
        for host in incident.hosts
        for gpu in host.missing
    )
    if blocks:
        yield GroupBlock(title="Missing GPUs", blocks=blocks)


def _missing_rows(gpu: MissingGpu) -> Iterator[tuple[str, str]]:
    yield from (("seen", brief(fact, LONGEST)) for fact in gpu.facts)
    yield from (("next", brief(step, LONGEST)) for step in phrases.steps(gpu.next_step))


def _overview(incident: Diagnosis) -> Iterator[TableBlock]:
    """If there are several hosts or GPUs: a row for each, with a link to it."""
    rows = [row for place, host in enumerate(incident.hosts) for row in _rows(host, f"h{place}")]
    if len(rows) > 1:
        heads = ("host", "GPUs", "cause", "what it does")
        yield TableBlock(media=Medium.PAGE, heads=heads, rows=tuple(rows))


def _rows(host: HostDiagnosis, anchor: str) -> Iterator[tuple[Cell, ...]]:
    host_cell = Cell(brief(name(host.host), LONGEST), link=anchor)
    for missing in host.missing:
        label, fact = brief(phrases.missing_label(missing)), brief(missing.facts[0], LONGEST)
        yield host_cell, Cell(label), Cell("missing", "fail"), Cell(fact)
    if not host.gpus:
        why = brief(phrases.no_diagnosis(host), LONGEST)
        yield host_cell, Cell(""), Cell("no diagnosis", "unreached"), Cell(why)
    for place, group in enumerate(phrases.alike(host.gpus)):
        gpu = group[0]
        yield (
            host_cell if place == 0 else Cell(""),
            Cell(phrases.label(group), link=f"{anchor}g{place}"),
            Cell(phrases.cause_text(gpu), _tone(gpu)),
            Cell(brief(phrases.claim(gpu), LONGEST)),
        )


def _tone(gpu: GpuDiagnosis) -> str:
    return TONES.get(gpu.cause, "fail" if gpu.cause in GRAVE else "warning")


def _stragglers(incident: Diagnosis) -> Iterator[FactBlock]:
    """GPUs that are not like the others which do the same."""
    rows = [
        (brief(f"{name(odd.host)} GPU {odd.gpu}"), brief(text, LONGEST))
        for odd in incident.stragglers
        for text in (
            *phrases.steps(odd.sentence),
            *(f"only here: {suspect}" for suspect in odd.suspects),
        )
    ]
    if rows:
        yield FactBlock(title="Stragglers", rows=tuple(phrases.folded(rows)))


def _host(host: HostDiagnosis, anchor: str, axis: Axis, rules: bool, few: bool) -> GroupBlock:
    title = brief(name(host.host), LONGEST)
    if not host.gpus:
        why = brief(phrases.no_diagnosis(host), LONGEST)
        return GroupBlock(title=title, anchor=anchor, note=f"no diagnosis: {why}", blocks=())
    groups = enumerate(phrases.alike(host.gpus))
    return GroupBlock(
        title=title,
        anchor=anchor,
        note=phrases.watched_text(host),
        blocks=(
            *(_gpus(host, group, f"{anchor}g{n}", axis, rules, few) for n, group in groups),
            *_suspects(host),
            *_unread(host),
            *_course("The whole host", host, None, axis, folded=False),
        ),
    )


def _gpus(
    host: HostDiagnosis,
    group: Sequence[GpuDiagnosis],
    anchor: str,
    axis: Axis,
    rules: bool,
    few: bool,
) -> GroupBlock:
    """A group of GPUs whose texts are the same."""
    gpu = group[0]
    folded = not few and gpu.cause in FINE
    return GroupBlock(
        title=phrases.label(group),
        anchor=anchor,
        tag=Cell(phrases.cause_text(gpu), _tone(gpu)),
        note=f"confidence {gpu.confidence.value}",
        blocks=(
            TextBlock(text=brief(phrases.claim(gpu), LONGEST)),
            *_facts(group),
            *_proof(gpu),
            *_open_rules(gpu),
            *_rules(gpu, rules),
            *(
                block
                for member in group
                for block in _course(f"GPU {member.index}", host, member.index, axis, folded=folded)
            ),
        ),
    )


def _facts(group: Sequence[GpuDiagnosis]) -> Iterator[FactBlock]:
    """Of a mixture in two blocks: the names of its causes are wider than other labels."""
    proofs = [(label, brief(text, LONGEST)) for label, text in phrases.proof_rows(group[0])]
    rest = list(_about_gpus(group))
    parts = (proofs, rest) if group[0].cause is Cause.MIXED else ([*proofs, *rest],)
    yield from (FactBlock(rows=tuple(phrases.folded(rows))) for rows in parts)


def _about_gpus(group: Sequence[GpuDiagnosis]) -> Iterator[tuple[str, str]]:
    """Whose jobs they have, what else stands out, and what to do."""
    gpu = group[0]
    for member in group if len(group) == 1 else ():
        yield from (("job", brief(phrases.job_text(job), LONGEST)) for job in member.jobs)
    yield from (("owner", brief(text, LONGEST)) for text in phrases.owner_texts(group))
    yield from (("also", brief(line, LONGEST)) for line in gpu.also)
    steps = phrases.steps(phrases.next_text(group))
    yield from (("next", brief(step, LONGEST)) for step in steps)


def _proof(gpu: GpuDiagnosis) -> Iterator[TableBlock]:
    """The numbers of one GPU; the others in its group have the same."""
    rows = tuple(map(_proof_row, phrases.proof_figures(gpu)))
    if rows:
        yield TableBlock(media=Medium.DOCUMENT, heads=phrases.PROOF_HEADS, rows=rows)


def _proof_row(figure: Figure) -> tuple[Cell, ...]:
    what, value, note = phrases.proof_row(figure)
    return Cell(what), Cell(value, right=True), Cell(note, "quiet")


def _open_rules(gpu: GpuDiagnosis) -> Iterator[ListBlock]:
    """For a ticket: the rules that hold, or could not be decided."""
    fired = [ruling for ruling in gpu.rulings if ruling.holds is not False]
    items = tuple(map(_ruling, fired)) or (ListItem("no rule holds"),)
    yield ListBlock(media=Medium.MARKDOWN, items=items)


def _rules(gpu: GpuDiagnosis, in_terminal: bool) -> Iterator[AnyBlock]:
    if in_terminal:
        yield ListBlock(media=Medium.TERMINAL, items=tuple(map(_ruling, gpu.rulings)))
    yield GroupBlock(
        title="Rules, and the margin by which each holds or does not",
        media=Medium.PAGE,
        folded=True,
        blocks=(ListBlock(items=tuple(map(_ruling, _by_margin(gpu)))),),
    )


def _ruling(ruling: Ruling) -> ListItem:
    text = brief(phrases.ruling_text(ruling), LONGEST)
    return ListItem(text, strong=ruling.holds is True)


def _by_margin(gpu: GpuDiagnosis) -> list[Ruling]:
    """What holds first, then what could not be decided, then the nearest."""
    order = {True: 0, None: 1, False: 2}
    return sorted(gpu.rulings, key=lambda ruling: (order[ruling.holds], -_nearness(ruling)))


def _nearness(ruling: Ruling) -> float:
    return (ruling.margin or 0.0) if phrases.margin(ruling) else 0.0


def _suspects(host: HostDiagnosis) -> Iterator[AnyBlock]:
    """Settings that differ from the baseline and can make a GPU slow: first those that can lead to
    a cause that was found."""
    suspects, rest = phrases.suspects(host)
    likely = tuple(_suspect(host, line) for line in suspects if line.likely)
    others = tuple(_suspect(host, line) for line in suspects if not line.likely)
    if likely:
        yield ListBlock(title="Suspects", label="suspect", items=likely)
    if others:
        yield ListBlock(title="Differences with another effect", label="differs", items=others)
    if not suspects:
        yield TextBlock(
            media=Medium.PAGE,
            tone="quiet",
            text="No setting that differs from the baseline can make a GPU slow.",
        )
    if rest:
        yield TextBlock(text=brief(rest, LONGEST), tone="quiet")


def _suspect(host: HostDiagnosis, line: SuspectLine) -> ListItem:
    text, fix = brief(line.text, LONGEST), brief(phrases.fix(host, line), LONGEST)
    return ListItem(text, line.reason, fix, strong=line.likely)


def _unread(host: HostDiagnosis) -> Iterator[ListBlock]:
    rows = phrases.unread(host.gpus)
    items = tuple(
        ListItem(brief(f"{gpus}: {figures}", LONGEST), brief(why, LONGEST))
        for why, gpus, figures in rows
    )
    if items:
        yield ListBlock(title="Not read", media=Medium.DOCUMENT, items=items)


def _course(
    title: str, host: HostDiagnosis, gpu: int | None, axis: Axis, *, folded: bool
) -> Iterator[GroupBlock]:
    """The readings of a GPU, or of the whole host."""
    drawn = tuple(strips(line for line in host.timelines if line.gpu == gpu))
    if drawn:
        block = TimeBlock(strips=drawn, seconds=axis[1], later=axis.later(host))
        heading = f"{title} during the watch"
        yield GroupBlock(title=heading, media=Medium.PAGE, folded=folded, blocks=(block,))


def strips(lines: Iterable[Timeline]) -> list[TimeStrip]:
    """The lines of each family and unit together, in the order of FAMILIES."""
    order = [*(title for title, _ in FAMILIES), OTHERS]

    def key(line: Timeline) -> tuple[int, str]:
        return order.index(_family(line.name)), line.unit

    return [
        TimeStrip(
            title=order[place],
            unit=unit,
            lines=tuple(
                TimeLine(name=plain(line.name), unit=line.unit, points=line.points, most=line.most)
                for line in group
            ),
        )
        for (place, unit), group in groupby(sorted(lines, key=key), key=key)
    ]


def _family(name: str) -> str:
    starts = ((title, start) for title, names in FAMILIES for start in names)
    return next((title for title, start in starts if name.startswith(start)), OTHERS)
