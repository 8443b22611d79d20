"""Why a node is drained, as Slurm keeps it: one line for people, and for programs to take apart.

    nodevet:local power_limit 490 W, expected 700 W (GPU 0-7); cpu_governor

The first word names the run; `local` is the node's own health check, and `plan-ID` is the plan that
apply drained the node for. A part for each check follows, separated by `; `. A part that does not
fit is only the name of its check; if the names do not fit either, the line ends in `; ...`.

A site may put a tag before each part, by which other programs know the reason: `[HC] nodevet:local
xid; [HC] cpu_governor`. Slurm keeps the tags; everything here works on the reason without. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodevet.base.printable import brief
from nodevet.model import HostReport, Run
from nodevet.vet.findings.fold import Line, lines

PREFIX = "nodevet:"
LOCAL = "local"
PLAN = "plan-"
PROLOG_ERROR = "Prolog error"  # what Slurm itself says of a prolog that failed
VISIT = "visit"  # in place of a check: the node could not be vetted at all
MORE = "..."
LONGEST = 200  # characters of a reason
LONGEST_PART = 140
RUN = r"local|plan-[A-Za-z0-9]{8,16}|[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}"
FORM = re.compile(rf"nodevet:({RUN}) ([^\[\]]+)")  # one_line leaves no bracket in it
CHECK = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
TAGS = re.compile(r"(^|; )\[[A-Za-z0-9_-]{1,32}\] ")
MARKS = str.maketrans({'"': "'", "`": "'"} | dict.fromkeys("$\\|[]&", "?"))


class Trouble(NamedTuple):
    """What fails, or cannot be judged, in one check of a node."""

    check: str
    what: str


class DrainReason(NamedTuple):
    """A reason of nodevet's own, taken apart."""

    run: str
    checks: frozenset[str]
    whole: bool  # whether it names every check


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
    """A reason of nodevet's without its tags, whatever they are; another reason as it is.

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
    parts = match[2].split("; ")
    names = [part.partition(" ")[0] for part in parts if part != MORE]
    if not names or not all(map(CHECK.fullmatch, names)):
        return None
    return DrainReason(match[1], frozenset(names), MORE not in parts)


def one_line(text: str, limit: int = LONGEST) -> str:
    """Text that others wrote, harmless in a reason: no quotes, brackets, separators or `Key=`.

    >>> one_line('x" State=RESUME; $(id)\\n')
    "x' State:RESUME, ?(id)?n"
    """
    cut = brief(" ".join(text.split(" ")), limit).replace(";", ",").translate(MARKS)
    return re.sub(r"(?<=\w)=", ":", cut).strip()


def troubles_of(run: Run, report: HostReport) -> list[Trouble]:
    """What counts against one host of a run, the worst first; failures alone if there are any."""
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
