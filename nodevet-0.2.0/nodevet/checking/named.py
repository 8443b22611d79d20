"""Helpers of checks that judge the data of one section, several parts, or things that a baseline
names, such as kernel parameters and systemd units."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from nodevet.evidence.core import NOT_ASKED, Data, Section, SectionRecord, unread
from nodevet.evidence.document import Evidence
from nodevet.model import CheckParams, Finding, Subject, unknown

READ_AGAIN = "the evidence was saved before the baseline named this: visit the host again"
ASK_AGAIN = "the evidence was saved before the baseline asked for this: visit the host again"

Part = TypeVar("Part")
Record = TypeVar("Record", bound=SectionRecord)
Params = TypeVar("Params", bound=CheckParams)


def reads_of(path: str, *fields: str) -> tuple[str, ...]:
    """Part of `reads`: the paths of fields of one record.

    >>> reads_of("host", "clock_s", "uptime_s")
    ('host.clock_s', 'host.uptime_s')
    """
    return tuple(f"{path}.{field}" for field in fields)


def judge_each(
    parts: Iterable[Part | Finding], judge: Callable[[Part], Iterable[Finding]]
) -> Iterator[Finding]:
    """The findings about each part; a finding in place of a part stays as it is."""
    for part in parts:
        yield from (part,) if isinstance(part, Finding) else judge(part)


def of_section(
    record: type[Record], label: str
) -> Callable[
    [Callable[[Record, Evidence, Params], Iterable[Finding]]],
    Callable[[Evidence, Params], Iterator[Finding]],
]:
    """Decorates the `judge` of a check that reads one section: `judge` gets the section's data.
    Without data the check is unknown. `label`: the section's name in the finding."""

    def decorate(
        judge: Callable[[Record, Evidence, Params], Iterable[Finding]],
    ) -> Callable[[Evidence, Params], Iterator[Finding]]:
        def judge_section(evidence: Evidence, params: Params) -> Iterator[Finding]:
            section = evidence[record]
            if section.data is None:
                yield unknown(why=f"{label}: {section.why}")
            else:
                yield from judge(section.data, evidence, params)

        return judge_section

    return decorate


def unread_section(section: Section[Any], label: str) -> Finding:
    """The unknown finding about a section without data, which the probe reads only on request."""
    if section.why == NOT_ASKED:
        return unknown(why=section.why, advice=ASK_AGAIN)
    return unknown(why=f"{label}: {section.why}")


def each_named(
    section: Section[Data], names: Collection[str], *, label: str, listed: str, kind: str
) -> Iterator[tuple[Subject, Any] | Finding]:
    """The subject and the item of each name, or the unknown finding that says why the name cannot
    be judged.

    `label`: the section's name; `listed`: its field that holds the items, which have a `name`;
    `kind`: the subjects' kind. Never empty: without a name it is one unknown finding.
    """
    if not names:
        yield unknown(why="the baseline names nothing to check")
    items = getattr(section.data, listed) if section.data else None
    by_name = {item.name: item for item in items or ()}
    for name in names:
        subject = Subject(kind=kind, id=name)
        if section.data is None:
            yield unknown(subject, why=f"{label}: {section.why}")
        elif items is None:
            yield unread(subject, section.data, listed)
        elif name not in by_name:
            yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
        else:
            yield subject, by_name[name]
