"""JUnit XML: one testsuite per host, compressed in memory. Pure."""

# mypy: allow-untyped-calls

from collections import Counter
from collections.abc import Iterable, Iterator

from junitparser import JUnitXml, TestCase, TestSuite

from nodevet.base.printable import plain
from nodevet.sheet.packed import PackedText
from nodevet.sheet.text import name

COUNTED = ("tests", "failures", "errors", "skipped")


def page(title: str, suites: Iterable[tuple[TestSuite, float]], seconds: float) -> Iterator[str]:
    """The document of suites, each with its duration in seconds."""
    counts: Counter[str] = Counter()
    body = PackedText()
    for suite, duration in suites:
        suite.update_statistics()  # this sets its time, from the cases
        suite.time = duration
        counts.update({kind: getattr(suite, kind) for kind in COUNTED})
        body.add(suite.tostring().decode())
    xml = JUnitXml(title)
    for kind in COUNTED:
        setattr(xml, kind, counts[kind])
    xml.time = seconds
    text = xml.tostring().decode()
    head = text.removesuffix(" />")
    yield f"{head}>" if counts else text
    yield from body
    yield "</testsuites>\n" if counts else "\n"


def suite_of(
    host: str, started: str, properties: Iterable[tuple[str, str]], cases: Iterable[TestCase]
) -> TestSuite:
    """One host's suite; properties without a value are left out."""
    suite = TestSuite(name(host))
    suite.timestamp = plain(started)
    suite.hostname = name(host)
    for key, value in properties:
        if value:
            suite.add_property(key, plain(value))
    suite.extend(cases)
    return suite
