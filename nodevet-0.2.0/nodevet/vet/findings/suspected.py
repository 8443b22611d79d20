"""The budget rule in words: what must be read before any single host. Pure."""

from nodevet.base.printable import brief
from nodevet.model import Run, Suspicion
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import listed

LONGEST = 400  # columns of the hosts of one
FIRST = "suspect the rule, the controller or the site first"


def suspicions(run: Run) -> list[str]:
    """A sentence for each, printable."""
    return [sentence(suspicion) for suspicion in run.news.suspicions] if run.news else []


def sentence(suspicion: Suspicion) -> str:
    """`SUSPICIOUS: 40 of 128 hosts begin to fail power_limit at once: suspect … first`."""
    share = f"{len(suspicion.hosts):,} of {count(suspicion.judged, 'host')}"
    what = (
        f"begin to fail {listed(suspicion.checks)}"
        if suspicion.checks
        else "can no longer be vetted"
    )
    why = (
        f" ({'; '.join(brief(text, LONGEST) for text in suspicion.changed)})"
        if suspicion.changed
        else ""
    )
    hosts = brief(nodeset(suspicion.hosts), LONGEST)
    return f"SUSPICIOUS: {share} {what} at once: {FIRST}{why}: {hosts}"
