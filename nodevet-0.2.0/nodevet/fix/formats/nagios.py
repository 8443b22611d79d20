"""Output of a Nagios plug-in: a status line with performance data, then details.

A host whose rollback failed, or whose state is unknown, is CRITICAL: a person must look at it. A
host that failed and was rolled back, was refused or was not attempted is a WARNING.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodevet.fix import result_text
from nodevet.sheet import plugin

if TYPE_CHECKING:
    from nodevet.fixing.result import Result
    from nodevet.resource import Contents

ENDING = ".nagios"
CODES = {0: 0, 1: 1, 3: 2}  # exit code of the run -> of a plug-in


def exit_code(result: "Result") -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN; a run over no host is UNKNOWN."""
    return CODES[result.exit_code] if result.hosts else 3


def render(result: "Result", contents: "Contents") -> str:
    headline = f"{result.kind} {result.plan}: {result_text.summary(result)}"
    return plugin.page(exit_code(result), headline, _fix_performance(result), _fix_details(result))


def _fix_performance(result: "Result") -> Iterator[str]:
    yield f"hosts={len(result.hosts)};;;0"
    for outcome, number in result_text.tally(result).items():
        yield f"{outcome.value}={number};;;0;{len(result.hosts)}"
    yield f"time={result.seconds:.3f}s;;;0"


def _fix_details(result: "Result") -> Iterator[str]:
    for outcome, hosts, why in result_text.fold_hosts(result):
        yield " ".join(filter(None, (outcome.words.upper(), hosts, why)))
    yield from (f"{key}: {value}" for key, value in result_text.facts(result))
