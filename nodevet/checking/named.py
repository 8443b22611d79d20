"""Things that a baseline names and the probe is asked for: kernel parameters, systemd units."""

from collections.abc import Collection, Iterator

from nodevet.evidence.core import NOT_ASKED, Data, Section, unread
from nodevet.model import Finding, Subject, unknown

READ_AGAIN = "the evidence was saved before the baseline named this: visit the host again"


def each_named(
    section: Section[Data], names: Collection[str], *, label: str, listed: str, kind: str
) -> Iterator[tuple[Subject, str] | Finding]:
    """Of every name its subject, or the unknown finding that says why it cannot be judged.

    `label`: the section's name; `listed`: its field that holds the items, which have a `name`;
    `kind`: the subjects' kind. Never empty: without a name it is one unknown finding.
    """
    if not names:
        yield unknown(why="the baseline names nothing to check")
    items = getattr(section.data, listed) if section.data else None
    found = frozenset(item.name for item in items or ())
    for name in names:
        subject = Subject(kind=kind, id=name)
        if section.data is None:
            yield unknown(subject, why=f"{label}: {section.why}")
        elif items is None:
            yield unread(subject, section.data, listed)
        elif name not in found:
            yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
        else:
            yield subject, name
