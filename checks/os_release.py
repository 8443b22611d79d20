"""The node runs the expected distribution and version.

**Why it matters.** A node from an old image, or one upgraded by itself, has other libraries and
defaults than its peers: jobs fail on it alone, and packages of the driver do not fit.

**Read from** /etc/os-release, else /usr/lib/os-release: ID and VERSION_ID.

**Verdicts.** Each may be one word or several; `*` stands for any text. A rolling distribution
tells no VERSION_ID, so that its version is unknown.

**To fix it** install the node again from the image that the others have; an upgrade in place leaves
it different.
"""

from collections.abc import Iterator

from nodevet.checking.expected import Words, matches, said
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Value, fail, ok, unknown

INSTALL = "install the node again from the image that the others have"


class Params(CheckParams):
    """`os_release: {id: ubuntu, version: "22.04"}` or
    `os_release: {id: [rhel, rocky], version: "9.*"}`"""

    id: Words | None = None
    """The distribution, ubuntu, or several."""
    version: Words | None = None
    """Its version, in quotes, or several: "22.04", "9.*"."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[HostInfo]
    wanted = {"id": params.id, "version": params.version}
    given = {name: words for name, words in wanted.items() if words is not None}
    if not given:
        yield unknown(why="the baseline names no distribution")
        return
    if section.data is None:
        yield unknown(why=f"host: {section.why}")
        return
    actual = {name: getattr(section.data, f"os_{name}") for name in given}
    known = {name: text for name, text in actual.items() if text is not None}
    bad = [name for name, text in known.items() if not matches(text, given[name])]
    unread = [name for name in given if name not in known]
    if unread and not bad:
        yield unknown(why=f"os_{unread[0]}: {section.data.why(f'os_{unread[0]}')}")
        return
    told = bad or list(given)
    yield (fail if bad else ok)(
        expected={name: said(given[name]) for name in told},
        actual={name: known[name] for name in told},
        advice=INSTALL if bad else "",
    )


def learn(evidence: Evidence) -> Value:
    data = evidence[HostInfo].data
    fields = {"id": data.os_id, "version": data.os_version} if data else {}
    return {name: text for name, text in fields.items() if text} or None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=("host.os_id", "host.os_version"),
    judge=judge,
    learn=learn,
    severity=Severity.WARNING,
)
