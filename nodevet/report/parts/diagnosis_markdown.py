"""A diagnosis for an incident's ticket, as Markdown: what others wrote stands in code spans."""

from collections.abc import Iterator, Sequence

from nodevet.diagnosis.model import Diagnosis, GpuDiagnosis, HostDiagnosis, Ruling
from nodevet.report.parts import diagnosis_words as words
from nodevet.report.parts.spans import cell, code, table
from nodevet.report.parts.text import name

LONGEST = 500  # characters of a reason


def document(incident: Diagnosis, most: int) -> str:
    """At most so many characters: hosts that have no room are counted."""
    text = "\n".join(_head(incident)) + "\n"
    for place, host in enumerate(incident.hosts):
        block = "\n".join(_host(host)) + "\n"
        if len(text) + len(block) > most - 100:
            short = "\n".join(_brief(host)) + "\n"
            if len(text) + len(short) > most - 100:
                left = len(incident.hosts) - place
                return text + f"{left:,} more hosts have no room here: see the HTML page.\n"
            block = short
        text += block
    return text


def _head(incident: Diagnosis) -> Iterator[str]:
    yield f"# {words.headline(incident)}"
    yield ""
    yield f"**{words.closing(incident)}**"
    yield ""
    told = f"Watched for {incident.seconds:.3g} s from {code(incident.started)}"
    yield f"{told}, run {code(incident.id)}, nodevet {code(incident.nodevet)}."
    yield ""
    if incident.stragglers:
        yield "## Stragglers"
        yield ""
        for each in incident.stragglers:
            yield f"- {code(f'{name(each.host)} GPU {each.gpu}')}: {code(each.sentence)}"
            yield from (f"  - it alone: {code(suspect)}" for suspect in each.suspects)
        yield ""


def _host(host: HostDiagnosis) -> Iterator[str]:
    yield from _brief(host)
    for group in words.alike(host.gpus):
        yield from _proof(group)
    yield from _suspects(host)
    if missing := words.unread(host.gpus):
        yield "Not read:"
        yield ""
        for why, gpus, figures in missing:
            yield f"- {gpus}: {figures}: {code(why[:LONGEST])}"
        yield ""


def _brief(host: HostDiagnosis) -> Iterator[str]:
    """What is said of each GPU."""
    yield f"## {code(name(host.host))}"
    yield ""
    if not host.gpus:
        yield from (f"No diagnosis: {code(words.no_diagnosis(host)[:LONGEST])}", "")
        return
    for group in words.alike(host.gpus):
        first = group[0]
        yield f"- **{words.label(group)}: {words.cause(first)}** " + (
            f"(confidence {first.confidence.value}): {code(first.sentence)}"
        )
        yield from (f"  - also: {code(line)}" for line in first.also)
        yield f"  - next: {first.next_step}"
    yield ""


def _proof(group: Sequence[GpuDiagnosis]) -> Iterator[str]:
    """The numbers of one GPU of several that are alike: they are the same."""
    first = group[0]
    yield f"### {words.label(group)}"
    yield ""
    rows = [(what, cell(value), cell(note)) for what, value, note in _rows(first)]
    yield from table(words.PROOF_HEADS, rows)
    fired = [ruling for ruling in first.rulings if ruling.holds is not False]
    for ruling in fired:
        yield f"- {_ruling(ruling)}"
    if not fired:
        yield "- no rule holds"
    yield from (f"- job: {code(words.job_text(job))}" for gpu in group for job in gpu.jobs)
    yield ""


def _ruling(ruling: Ruling) -> str:
    state, margin, cause, rule, conditions = words.ruling_row(ruling)
    by = f" by {margin}" if margin else ""
    return f"**{cause}** {state}{by}: {rule}: {code('; '.join(conditions))}"


def _rows(gpu: GpuDiagnosis) -> list[tuple[str, str, str]]:
    return [words.proof_row(figure) for figure in words.proving(gpu)]


def _suspects(host: HostDiagnosis) -> Iterator[str]:
    found, rest = words.suspects(host)
    if not found:
        return
    yield "Suspects, the likeliest first:"
    yield ""
    for line in found:
        fix = words.fix(host, line)
        yield f"- {code(line.text)}: {line.reason}" + (f"; {code(fix)}" if fix else "")
    if rest:
        yield f"- {code(rest)}"
    yield ""
