"""Learn from one node what each check should expect of such nodes."""

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

SAYS_NOTHING = "the evidence has no value for it"
NONSENSE = "the evidence has an impossible value for it"
NEEDS_A_NAME = "only you can say what to expect"


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What one check learned: the fields of its params as plain data, or why there are none."""

    check: str
    fields: Mapping[str, Value] | None = None
    why: str = ""


Lessons = Mapping[str, Lesson]
"""By check."""


def learn(evidence: Evidence, catalog: Catalog, checks: Iterable[str]) -> Lessons:
    """What these checks learn from one node. Raises CatalogError for a broken check."""
    return {name: _lesson(name, catalog.check(name), evidence) for name in checks}


def _lesson(name: str, check: Check, evidence: Evidence) -> Lesson:
    if check.learn is None:
        if params_of(check, {}) is None:
            return Lesson(check=name, why=NEEDS_A_NAME)
        return Lesson(check=name, fields={})
    try:
        want = check.learn(evidence)
    except Exception as error:  # an error in a user's own check
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
    """The findings of a check with these params on a node."""
    wish = Expectation(check=name, params=params, severity=Severity.CRITICAL, origin="")
    baseline = Baseline(name="", path="", expectations=(wish,))
    return judge(evidence, baseline, catalog, host=host, today=date.min)
