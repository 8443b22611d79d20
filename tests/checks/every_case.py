"""A test of a case runs through all cases of a check, and names each case that fails."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def every_case(test: Callable[..., None]) -> Callable[..., None]:
    """The test of a `case`, as one test of each check; it reports all cases that fail."""
    signature = inspect.signature(test)
    others = [each for name, each in signature.parameters.items() if name != "case"]
    asked = [*map(_parameter, ("check_id", "own_cases")), *others]

    @wraps(test)
    def of_check(check_id: str, own_cases: list[Any], **fixtures: Any) -> None:
        failures = [
            (f"{check_id}: the case {case.name!r} {problem}", error)
            for case in own_cases
            for problem, error in _failure(test, case, fixtures)
        ]
        if failures:
            raise AssertionError("\n".join(text for text, _ in failures)) from failures[0][1]

    of_check.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
    return of_check


def _parameter(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _failure(
    test: Callable[..., None], case: Any, fixtures: dict[str, Any]
) -> list[tuple[str, Exception]]:
    """How the test of this case failed, if it did."""
    try:
        test(case=case, **fixtures)
    except AssertionError as error:
        return [(str(error), error)]
    except Exception as error:
        return [(f"raises {type(error).__name__}: {error}", error)]
    return []
