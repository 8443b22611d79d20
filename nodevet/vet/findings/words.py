"""Single findings in words: what differs, and on which subjects. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodevet.base.printable import brief, plain
from nodevet.base.ranges import is_number, ranges_text
from nodevet.evidence.sections import section_of
from nodevet.model import NODE, Finding, Verdict, show
from nodevet.sheet.text import count, cut_pair, plural

LIMIT = 56  # columns of one value in a folded line
SENTENCE = 400  # columns of one reason or waiver
WHOLE = 2000  # columns of a value, for whoever asks for everything
ADVICE = 600  # columns of one piece of advice: up to three sentences


def values(finding: Finding) -> tuple[str, str]:
    """Expected and actual value as printable text; the texts are alike only if the values are."""
    expected, actual = finding.text(finding.expected), finding.text(finding.actual)
    if expected == actual and finding.expected != finding.actual:
        return plain(_exact(finding.expected)), plain(_exact(finding.actual))
    return plain(expected), plain(actual)


def _exact(value: Any) -> str:
    import json  # two values that look alike are rare

    return json.dumps(value, default=repr)


def difference(finding: Finding, limit: int = LIMIT) -> tuple[str, str]:
    """The difference in a few words, and the reason if the words do not include it. A value has at
    most `limit` columns."""
    why = finding.why
    if finding.verdict is Verdict.UNKNOWN or finding.expected is finding.actual is None:
        return brief(why, max(SENTENCE, limit)) or "no reason was recorded", ""
    if lists := _lists(finding, limit):
        return lists, why
    narrowed = _narrowed(finding)
    expected, actual = cut_pair(*values(narrowed), limit)
    sole = _sole_key(narrowed)
    if sole and expected.startswith(sole) and actual.startswith(sole):
        expected = expected.removeprefix(sole)
    return f"{actual}, expected {expected}", why


def _sole_key(finding: Finding) -> str:
    """`fast: ` for two mappings that have only this key, to print it once."""
    expected, actual = finding.expected, finding.actual
    mappings = isinstance(expected, Mapping) and isinstance(actual, Mapping)
    if mappings and len(expected) == 1 and expected.keys() == actual.keys():
        return f"{plain(str(next(iter(expected))))}: "
    return ""


def _narrowed(finding: Finding) -> Finding:
    """Two long mappings, reduced to the keys that differ."""
    expected, actual = finding.expected, finding.actual
    if not (isinstance(expected, Mapping) and isinstance(actual, Mapping)):
        return finding
    if max(map(len, values(finding))) <= LIMIT:
        return finding
    keys = [key for key in {**expected, **actual} if expected.get(key) != actual.get(key)]
    return msgspec.structs.replace(
        finding,
        expected={key: expected.get(key) for key in keys},
        actual={key: actual.get(key) for key in keys},
    )


def _lists(finding: Finding, limit: int) -> str:
    """Missing and extra items of two long lists; empty if there are none."""
    expected, actual = finding.expected, finding.actual
    if not (isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple))):
        return ""
    if max(map(len, values(finding))) <= LIMIT:
        return ""
    missing, extra = _items_without(expected, actual), _items_without(actual, expected)
    lists = {"missing": missing, "not expected": extra}
    return "; ".join(
        f"{word} {brief(show(items), limit)}" for word, items in lists.items() if items
    )


def _items_without(items: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """The items that are not among the others; those that hold lists are compared as printed."""
    known = {_comparable(other) for other in others}
    return [item for item in items if _comparable(item) not in known]


def _comparable(item: Any) -> Any:
    return item if isinstance(item, (str, int, float)) else (_exact(item),)


def subjects_of(members: Iterable[tuple[str, Finding]]) -> tuple[str, bool]:
    """`GPU 4`, or `GPU 1,4-7` on one host, or `40 GPUs` over several; and whether they are named.

    Empty for the nodes themselves.
    """
    subjects = {
        (host, finding.subject.kind, finding.subject.noun, finding.subject.id)
        for host, finding in members
    }
    kinds: dict[tuple[str, str], list[str]] = {}
    for _, kind, noun, key in subjects:
        kinds.setdefault((kind, noun), []).append(key)
    kinds.pop((NODE.kind, NODE.noun), None)
    hosts = {host for host, *_ in subjects}
    parts = []
    named = True
    for (kind, text), keys in sorted(kinds.items()):
        ids, number = sorted({(len(key), key) for key in keys}), len(keys)
        noun = brief(text, LIMIT)
        if len(ids) == 1:
            parts.append(f"{noun} {brief(ids[0][1], LIMIT)}".strip())
        elif len(hosts) == 1 and all(is_number(key) for _, key in ids):
            parts.append(f"{noun} {ranges_text([int(key) for _, key in ids])}")
        else:
            named = False
            parts.append(count(number, noun, _plural(kind, noun)))
    return ", ".join(parts), named


def _plural(kind: str, noun: str) -> str:
    """Several of a kind: as the section of its name says it, else as English has it."""
    record = section_of(kind)
    return (record and record.plural) or plural(noun)


def listed(names: Iterable[str], most: int = 8) -> str:
    """`a, b, c and 5 more`, printable."""
    shown = [brief(name, LIMIT) for name in names]
    more = f" and {len(shown) - most + 1} more" if len(shown) > most else ""
    return ", ".join(shown[: most - 1] if more else shown) + more
