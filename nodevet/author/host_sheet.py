"""One host of a run in full, for people: what it is, and every finding with all that it says. Pure.

Findings that say the same are told once, with all their subjects; nothing is cut.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from nodevet.base.printable import plain
from nodevet.model import Finding, HostReport, Run, Severity, Status, Verdict
from nodevet.sheet.text import columns, name, wrap
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import with_causes
from nodevet.vet.findings.facts import baseline_of, rows
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.words import in_ranges, values

WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)
TINTS = {Verdict.FAIL: "31", Verdict.UNKNOWN: "35", Verdict.WAIVED: "2"}
INDENT = "  "
LABELS = 10  # columns of the labels below a finding
NARROWEST = 24  # columns of what stands beside them


def render(
    run: Run, host: HostReport, *, check: str = "", colour: bool = False, width: int | None = None
) -> str:
    """The host with its findings, of one check if `check` names it."""
    told = (*with_causes(host, run.fail_on), *(host.shadow or ()))
    findings = [one for one in told if not check or one.check == check]
    blocks = [_head(run, host, colour)] if not check else []
    for group in _alike(findings):
        blocks.append([_title(group, colour), *_below(group, width)])
    only = Run(
        id=run.id, nodevet=run.nodevet, started=run.started, seconds=0.0,
        hosts=(HostReport(host=host.host, status=host.status, findings=tuple(findings)),),
    )  # fmt: skip
    rest = [[line.label, line.check, line.what, line.subjects] for line in passed(only)]
    if rest:
        blocks.append(columns(rest))
    if not findings:
        what = f"the check {plain(check)}" if check else "any check"
        blocks.append([f"{name(host.host)}: nothing was said by {what}"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(run: Run, host: HostReport, colour: bool) -> list[str]:
    counts = Counter(finding.verdict for finding in host.findings)
    order = (*WORST, Verdict.OK, Verdict.NOT_APPLICABLE)
    told = [f"{counts[each]} {each.value.replace('_', ' ')}" for each in order if counts[each]]
    outcome = host.outcome.words.upper()
    title = f"{name(host.host)}  {outcome}  {', '.join(told)}".rstrip()
    known = {
        "why": host.why,
        "first try": host.first_try or "",
        "baseline": baseline_of(host) if host.baseline else "none",
        "groups": ", ".join(host.groups),
        **(dict(rows(host.facts)) if host.facts else {}),
        "machine id": host.machine_id or "",
        "boot id": host.boot_id or "",
        "read at": read_at(host) or "unknown",
        "run": f"{run.id}, started {run.started}" if run.id else "",
    }
    if host.status is not Status.VETTED:
        known["baseline"] = host.baseline
    shown = columns([[label, plain(text)] for label, text in known.items() if text])
    return [f"\x1b[1m{title}\x1b[0m" if colour else title, *(INDENT + row for row in shown)]


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The findings that are no ok, the worst first; those that say the same together."""
    groups: dict[object, list[Finding]] = {}
    shown = [finding for finding in findings if finding.verdict in WORST]
    for one in sorted(shown, key=lambda one: (WORST.index(one.verdict), -one.severity.rank)):
        said = (
            one.verdict, one.check, one.severity, values(one), one.unit, one.why, one.advice,
            one.waiver, one.origin, str(one.cause),
        )  # fmt: skip
        groups.setdefault(said, []).append(one)
    return list(groups.values())


def _title(group: Sequence[Finding], colour: bool) -> str:
    one = group[0]
    word = one.verdict.value.upper()
    tint = "33" if one.verdict is Verdict.FAIL and one.severity is not Severity.CRITICAL else ""
    label = f"\x1b[{tint or TINTS[one.verdict]}m{word}\x1b[0m" if colour else word
    subjects = plain(in_ranges(each.subject.label for each in group if each.subject.label))
    return "  ".join(filter(None, (label, plain(one.check), subjects, one.severity.value)))


def _below(group: Sequence[Finding], width: int | None) -> Iterator[str]:
    """All that the findings say, a label and a text each."""
    one = group[0]
    expected, actual = values(one)
    valued = not (one.expected is one.actual is None)
    told = [
        ("expected", expected if valued else ""),
        ("actual", actual if valued else ""),
        ("why", plain(one.why)),
        ("follows", f"from what {plain(one.cause)} says" if one.cause else ""),
        ("advice", plain(one.advice)),
        ("waiver", plain(one.waiver)),
        *((plain(each.subject.label) or "node", _part(each)) for each in group),
        ("from", plain(one.origin)),
    ]
    for label, text in told:
        if text:
            yield from _row(label, text, width)


def _part(finding: Finding) -> str:
    """What is of this part alone: where it is, its serial, when it last happened."""
    subject, details = finding.subject, finding.details or {}
    said = [
        subject.bus_id or "",
        subject.uuid or "",
        *(f"{key} {value}" for key, value in details.items() if value != subject.bus_id),
        f"last at {finding.last}" if finding.last else "",
    ]
    return plain(", ".join(part for part in said if part))


def _row(label: str, text: str, width: int | None) -> Iterator[str]:
    lead = f"{INDENT}{label:{LABELS}}"
    if not lead.endswith(" "):
        lead += INDENT
    room = max(NARROWEST, (width or 1 << 30) - len(lead))
    first, *rest = wrap(text, room)
    yield f"{lead}{first}"
    yield from (" " * len(lead) + line for line in rest)
