"""The node runs the expected distribution and version.

**Why it matters.** A node from an old image, or a node that was upgraded by itself, has other
libraries and defaults than its peers: jobs fail only there, and packages of the driver do not fit.

**Read from** /etc/os-release, else /usr/lib/os-release: ID and VERSION_ID.

**Verdicts.** `id` and `version` may each be one word or a list; `*` stands for any text. A rolling
distribution has no VERSION_ID, so its version is unknown.

**To fix it** reinstall the node from the image of the other nodes; an upgrade in place leaves
differences.
"""

from collections.abc import Iterator

from nodevet.checking.aspects import aspect_findings, aspect_if, unread_aspect
from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import reads_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Severity, Value, unknown

INSTALL = "reinstall the node from the image of the other nodes"


class Params(CheckParams):
    """`os_release: {id: ubuntu, version: "22.04"}` or
    `os_release: {id: [rhel, rocky], version: "9.*"}`"""

    id: Words | None = None
    """The distribution, such as ubuntu, or a list."""
    version: Words | None = None
    """Its version, in quotes, or a list: "22.04", "9.*"."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[HostInfo]
    expected = {"id": params.id, "version": params.version}
    named = {name: words for name, words in expected.items() if words is not None}
    if not named:
        yield unknown(why="the baseline names no distribution")
        return
    if section.data is None:
        yield unknown(why=f"host: {section.why}")
        return
    aspects = []
    for name, words in named.items():
        actual = getattr(section.data, f"os_{name}")
        aspects.append(
            unread_aspect(section.data, f"os_{name}")
            if actual is None
            else aspect_if(
                name,
                matches(actual, words),
                expected=words_text(words),
                actual=actual,
                advice=INSTALL,
            )
        )
    yield from aspect_findings(NODE, aspects)


def learn(evidence: Evidence) -> Value:
    data = evidence[HostInfo].data
    fields = {"id": data.os_id, "version": data.os_version} if data else {}
    return {name: text for name, text in fields.items() if text} or None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=reads_of("host", "os_id", "os_version"),
    judge=judge,
    unasked="only the site knows its release: write os_release: {id: ubuntu}",
    learn=learn,
    severity=Severity.WARNING,
)
