"""Output of a Nagios plug-in: how the run ended, performance data, then how nodes ended.

A node whose rollback failed, or whose state is unknown, is CRITICAL: a person must look at it. One
that failed and was rolled back, was refused or was not attempted is a WARNING.
"""

from collections.abc import Iterator

from nodevet.remedy.report.words import facts, folded, summary, tally
from nodevet.remedy.result import Result
from nodevet.report import nagios

CODES = {0: 0, 1: 1, 3: 2}  # exit code of the run -> of a plug-in


def status(result: Result) -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN: a run of no node tells nothing."""
    return CODES[result.exit_code] if result.hosts else 3


def render(result: Result) -> str:
    headline = f"{result.kind} {result.plan}: {summary(result)}"
    return nagios.page(status(result), headline, _performance(result), _details(result))


def _performance(result: Result) -> Iterator[str]:
    yield f"nodes={len(result.hosts)};;;0"
    for outcome, number in tally(result).items():
        yield f"{outcome.value}={number};;;0;{len(result.hosts)}"
    yield f"time={result.seconds:.3f}s;;;0"


def _details(result: Result) -> Iterator[str]:
    for outcome, hosts, why in folded(result):
        yield " ".join(filter(None, (outcome.words.upper(), hosts, why)))
    yield from (f"{key}: {value}" for key, value in facts(result))
