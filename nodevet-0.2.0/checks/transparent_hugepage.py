"""Transparent huge pages are set as expected.

**Why it matters.** With `always` the kernel compacts memory while a job allocates, which stalls the
job and makes its memory larger than it requested. With `never` large arrays cause more TLB misses.
Vendors give different advice, and if nodes differ, the ranks of one job run at different speeds.

**Read from** /sys/kernel/mm/transparent_hugepage/enabled and defrag; see
Documentation/admin-guide/mm/transhuge.rst in the kernel tree.

**Verdicts.** A list names every allowed value. A kernel without huge pages is unknown, because it
does not have these files.

**To fix it** a tmpfiles.d rule that writes the word sets it now (`systemd-tmpfiles --create`) and
at every boot; `transparent_hugepage=` on the kernel's command line is older advice. First check
what else sets it: tuned sets it in most profiles.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if, values_at
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, Value, one_or_more

FIELDS = ("enabled", "defrag")
Enabled = Literal["always", "madvise", "never"]
Defrag = Literal["always", "defer", "defer+madvise", "madvise", "never"]


class Params(CheckParams):
    """`transparent_hugepage: madvise` or
    `transparent_hugepage: {enabled: [madvise, always], defrag: madvise}`"""

    bare: ClassVar[str] = "enabled"

    enabled: Enabled | Annotated[tuple[Enabled, ...], Meta(min_length=1)] | None = None
    """One allowed word, or a list."""
    defrag: Defrag | Annotated[tuple[Defrag, ...], Meta(min_length=1)] | None = None
    """One allowed word, or a list."""

    def __post_init__(self) -> None:
        one_or_more(self, *FIELDS)
        if self.enabled is None and self.defrag is None:
            raise ValueError("give enabled or defrag")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for field in FIELDS:
        if words := getattr(params, field):
            yield judge_field(evidence, field, words)


def judge_field(evidence: Evidence, field: str, words: tuple[str, ...]) -> Finding:
    subject = Subject(kind="transparent_hugepage", id=field)
    values = values_at(evidence, (Memory, f"thp_{field}"), subject=subject)
    if isinstance(values, Finding):
        return values
    return ok_if(values[0] in words, subject, expected=" or ".join(words), actual=values[0])


def learn(evidence: Evidence) -> Value:
    data = evidence[Memory].data or Memory()
    words = {"enabled": data.thp_enabled, "defrag": data.thp_defrag}
    return {name: word for name, word in words.items() if word} or None


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=reads_of("memory", "thp_defrag", "thp_enabled"),
    judge=judge,
    unasked="vendors give different advice: write transparent_hugepage: madvise",
    learn=learn,
    severity=Severity.WARNING,
)
