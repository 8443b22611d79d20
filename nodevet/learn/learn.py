"""What every check would want of a node that is as good as this one."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import msgspec

from nodevet.base.printable import sentence
from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence
from nodevet.model import Baseline, Check, Expectation, Finding, Severity, Value

SAYS_NOTHING = "what was read does not say"
NONSENSE = "what was read is nothing that a node can be"
NEEDS_A_NAME = "it is for you to say what is wanted"


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What one check learnt: the fields of its params as plain data, or why there is nothing."""

    check: str
    fields: Mapping[str, Value] | None = None
    why: str = ""


Lessons = Mapping[str, Lesson]
"""By check."""


def learn(evidence: Evidence, catalog: Catalog, checks: Iterable[str]) -> Lessons:
    """What these checks learn from one node. Raises CatalogError for a check that is broken."""
    return {name: _lesson(name, catalog.check(name), evidence) for name in checks}


def _lesson(name: str, check: Check, evidence: Evidence) -> Lesson:
    if check.learn is None:
        if params_of(check, {}) is None:
            return Lesson(check=name, why=NEEDS_A_NAME)
        return Lesson(check=name, fields={})
    try:
        want = check.learn(evidence)
    except Exception as error:  # a fault in a user's own check
        return Lesson(
            check=name, why=sentence(f"its learn failed: {type(error).__name__}: {error}")
        )
    if want is None:
        return Lesson(check=name, why=SAYS_NOTHING)
    fields = want if isinstance(want, Mapping) else {str(check.params.bare): want}
    plain = msgspec.to_builtins(fields)
    if params_of(check, plain) is None:
        return Lesson(check=name, why=NONSENSE)
    return Lesson(check=name, fields=plain)


def findings_by(
    name: str, params: Any, evidence: Evidence, catalog: Catalog, *, host: str
) -> tuple[Finding, ...]:
    """What a check with these params says of a node."""
    wish = Expectation(check=name, params=params, severity=Severity.CRITICAL, origin="")
    baseline = Baseline(name="", path="", expectations=(wish,))
    return judge(evidence, baseline, catalog, host=host, today=date.min)
