"""The reason of a drain: one line that people read and nodevet parses.

    nodevet:local power_limit 490 W, expected 700 W (GPU 0-7); cpu_governor

The first word names the run; `local` is the node's own health check, and `plan-ID-RUN` is the plan
that apply drained the node for, and the run of it; a drain by hand has no `-RUN`. While apply works
on a node that was drained before, `plan-ID-RUN+` comes before that word:
`nodevet:plan-7f3a91c2-0c51b9e4+local xid`. A part for each check follows, separated by `; `. A part
that does not fit is only the name of its check; if the names do not fit either, the line ends in
`; ...`.

A site may put a tag before each part, by which other programs know the reason: `[HC] nodevet:local
xid; [HC] cpu_governor`. Slurm keeps the tags; this module works on reasons without tags. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodevet.base.plan_marks import MARK
from nodevet.base.printable import brief
from nodevet.model import HostReport
from nodevet.model.run import Run
from nodevet.vet.findings.fold import Line, lines

PREFIX = "nodevet:"
LOCAL = "local"
PLAN = "plan-"
PROLOG = "prolog"  # the run of a node that Slurm drained since its prolog failed
PROLOG_ERROR = "Prolog error"  # the reason that Slurm gives if a prolog fails
VISIT = "visit"  # instead of a check: nodevet could not vet the node at all
MORE = "..."
LONGEST = 200  # characters of a reason
LONGEST_PART = 140
PLAN_RUN = f"plan-{MARK}"
RUN = rf"local|prolog|{PLAN_RUN}|[0-9]{{8}}T[0-9]{{6}}\.[0-9]{{3}}Z-[0-9a-f]{{8}}"
NO_BRACKETS = r"[^\[\]]+"  # one_line replaces them
FORM = re.compile(rf"nodevet:((?:{PLAN_RUN}\+)*)({RUN}) ({NO_BRACKETS})")
CHECK = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
TAGS = re.compile(r"(^|; )\[[A-Za-z0-9_-]{1,32}\] ")
MARKS = str.maketrans({'"': "'", "`": "'"} | dict.fromkeys("$\\|[]&", "?"))


class Trouble(NamedTuple):
    """A check that fails or is unknown, and its difference in words."""

    check: str
    what: str


class DrainReason(NamedTuple):
    """A parsed reason of nodevet."""

    run: str
    checks: frozenset[str]
    whole: bool  # whether it names every check
    plans: tuple[str, ...] = ()  # that apply drained the node for, or works on it for: their marks


def reason_text(run: str, troubles: Sequence[Trouble]) -> str:
    """The reason for the troubles of one node, at least one.

    >>> reason_text("local", [Trouble("power_limit", "490 W, expected 700 W")])
    'nodevet:local power_limit 490 W, expected 700 W'
    """
    text = f"{PREFIX}{run} "
    by_check = {trouble.check: trouble for trouble in reversed(troubles)}
    checks = [trouble.check for trouble in troubles if by_check[trouble.check] is trouble]
    for place, check in enumerate(checks):
        separator = "; " if place else ""
        rest = sum(len(name) + 2 for name in checks[place + 1 :])
        part = f"{separator}{check} {one_line(by_check[check].what, LONGEST_PART)}".rstrip()
        if len(text) + len(part) + rest > LONGEST:
            part = f"{separator}{check}"
        if len(text) + len(part) + len(MORE) + 2 > LONGEST:
            return f"{text}; {MORE}"
        text += part
    return text


def tagged(reason: str, tag: str) -> str:
    """The reason as Slurm keeps it, with a tag before each part; no tag if it is empty.

    >>> tagged("nodevet:local xid 79 (GPU 3); power_limit", "HC")
    '[HC] nodevet:local xid 79 (GPU 3); [HC] power_limit'
    """
    return "; ".join(f"[{tag}] {part}" for part in reason.split("; ")) if tag else reason


def untagged(text: str) -> str:
    """A reason of nodevet without its tags; any other reason unchanged.

    >>> untagged("[HC] nodevet:local xid 79 (GPU 3); [HC] power_limit")
    'nodevet:local xid 79 (GPU 3); power_limit'
    >>> untagged("[HC] bad PSU")
    '[HC] bad PSU'
    """
    bare = TAGS.sub(r"\1", text)
    return bare if bare.startswith(PREFIX) else text


def parse(text: str) -> DrainReason | None:
    """A reason that nodevet wrote; None for any other.

    >>> parse("nodevet:local xid 79 (GPU 3); power_limit").checks == {"xid", "power_limit"}
    True
    >>> parse("nodevet: looks odd, bob") is parse("bad PSU") is None
    True
    """
    match = FORM.fullmatch(text)
    if match is None:
        return None
    parts = match[3].split("; ")
    names = [part.partition(" ")[0] for part in parts if part != MORE]
    if not names or not all(map(CHECK.fullmatch, names)):
        return None
    plans = (run for run in (*match[1].split("+"), match[2]) if run.startswith(PLAN))
    ids = tuple(run.removeprefix(PLAN) for run in plans)
    return DrainReason(match[2], frozenset(names), MORE not in parts, ids)


def marked(written: str, plan: str) -> str:
    """A reason that says that apply works on the node for a plan.

    >>> marked("[HC] nodevet:local xid", "7f3a91c2")
    '[HC] nodevet:plan-7f3a91c2+local xid'
    """
    if written == PROLOG_ERROR:
        written = f"{PREFIX}{PROLOG} {VISIT} {PROLOG_ERROR}"
    return written.replace(PREFIX, f"{PREFIX}{PLAN}{plan}+", 1)


def unmarked(written: str, plan: str) -> str:
    """A reason without the mark of a plan; some other word must name its run.

    >>> unmarked(marked("Prolog error", "7f3a91c2"), "7f3a91c2")
    'Prolog error'
    >>> unmarked("nodevet:plan-11111111+plan-7f3a91c2 xid", "7f3a91c2")
    'nodevet:plan-11111111 xid'
    """
    text = written.replace(f"{PLAN}{plan}+", "", 1).replace(f"+{PLAN}{plan} ", " ", 1)
    return PROLOG_ERROR if text.startswith(f"{PREFIX}{PROLOG} ") else text


def one_line(text: str, limit: int = LONGEST) -> str:
    """A text made harmless for a reason: without quotes, brackets, separators and `Key=`.

    >>> one_line('x" State=RESUME; $(id)\\n')
    "x' State:RESUME, ?(id)?n"
    """
    cut = brief(" ".join(text.split(" ")), limit).replace(";", ",").translate(MARKS)
    return re.sub(r"(?<=\w)=", ":", cut).strip()


def troubles_of(run: Run, report: HostReport) -> list[Trouble]:
    """The troubles of one host of a run, the worst first; only failures if there are any."""
    from msgspec import UNSET
    from msgspec.structs import replace

    counting = [line for line in lines(replace(run, hosts=(report,), news=UNSET)) if line.fails]
    failures = [line for line in counting if line.label == "FAIL"]
    chosen = failures or [line for line in counting if line.label != "WAIVED"]
    return [trouble for line in chosen for trouble in _of_line(line)]


def _of_line(line: Line) -> Iterable[Trouble]:
    where = f" ({line.subjects})" if line.subjects else ""
    kind = "" if line.label == "FAIL" else f"{line.label.lower()}: "
    first, *others = line.checks or (VISIT,)
    yield Trouble(first, f"{kind}{line.what}{where}")
    yield from (Trouble(check, "") for check in others)
