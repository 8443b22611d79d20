"""The errors of baselines, and warnings about settings that are allowed but probably mistakes."""

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from nodevet.base.problems import Problem
from nodevet.baseline.files import File
from nodevet.baseline.resolve import Resolved, resolve
from nodevet.checking.catalog import Catalog
from nodevet.document.tree import dotted
from nodevet.model import Severity


def lint(
    names: Sequence[str], *, folders: Sequence[Path] = (), catalog: Catalog, today: date
) -> tuple[Problem, ...]:
    """The errors of `load`, then warnings (`Problem.warning`) about the baselines without errors.

    Never raises for bad input.
    """
    resolution = resolve(names, folders=folders, catalog=catalog)
    warnings = list(resolution.warnings)
    wrong = {problem.place.file for problem in resolution.problems}
    for resolved in resolution.resolved:
        if wrong.isdisjoint(file.source.shown for file in resolved.files):
            warnings.extend(_expectations(resolved, catalog))
            warnings.extend(_unused(resolved))
            warnings.extend(_unfixable(resolved, catalog))
            warnings.extend(_expired(resolved, today))
    return (*resolution.problems, *dict.fromkeys(warnings))


def _expectations(resolved: Resolved, catalog: Catalog) -> Iterator[Problem]:
    """Warnings about a baseline that judges nothing, or GPUs but not their number."""
    file = resolved.files[-1]
    checks = [expectation.check for expectation in resolved.baseline.expectations]
    place = file.place("expect")
    if not checks:
        message = "the baseline expects nothing, so nothing is judged"
        yield _warn(file, ("expect",), message, "name checks and their expectations")
    per_gpu = [check for check in checks if _reads_each_gpu(check, catalog)]
    severities = {expectation.severity for expectation in resolved.baseline.expectations}
    if severities == {Severity.SHADOW}:
        message = "every check has severity shadow, so no host is judged"
        advice = "give at least one check a severity that counts"
        yield _warn(file, ("severity",), message, advice)
    if per_gpu and "gpu_count" not in checks:
        message = f"{per_gpu[0]} judges the GPUs of the node; a missing one goes unnoticed"
        yield file.problem(place, "expect", message, "add gpu_count", warning=True)


def _reads_each_gpu(check: str, catalog: Catalog) -> bool:
    return any(path.startswith("gpu.gpus[]") for path in catalog.check(check).reads)


def _unused(resolved: Resolved) -> Iterator[Problem]:
    """Warnings about settings for checks that the baseline does not expect."""
    file = resolved.files[-1]
    checks = {expectation.check for expectation in resolved.baseline.expectations}
    part = file.part
    if part is None:
        return
    advice = "add it to expect, or remove this"
    for check in part.severity or {}:
        if check not in checks:
            yield _warn(file, ("severity", check), "the check is not under expect", advice)
    for number, check in enumerate(part.fix):
        if check not in checks:
            step = check if file.entries("fix") else number
            yield _warn(file, ("fix", step), f"{check} is not under expect", advice)
    for number, waiver in enumerate(part.waivers):
        if waiver.check not in checks:
            at = ("waivers", number, "check")
            yield _warn(file, at, f"{waiver.check} is not under expect", advice)


def _unfixable(resolved: Resolved, catalog: Catalog) -> Iterator[Problem]:
    """Warnings about allowed fixes that do not exist or are never planned."""
    file = resolved.files[-1]
    expectations = {
        expectation.check: expectation for expectation in resolved.baseline.expectations
    }
    for number, (check, allowed) in enumerate(file.part.fixes.items() if file.part else ()):
        if allowed and check in expectations and check not in catalog.fixes:
            step = check if file.entries("fix") else number
            advice = "remove it; `nodevet list fixes` names those that can be fixed"
            yield _warn(file, ("fix", step), f"{check} has no fix, so nothing is planned", advice)
        elif allowed and check in expectations and expectations[check].severity is Severity.SHADOW:
            step = check if file.entries("fix") else number
            advice = "remove it, or give the check a severity that counts"
            message = f"{check} has severity shadow, so nothing is planned"
            yield _warn(file, ("fix", step), message, advice)


def _expired(resolved: Resolved, today: date) -> Iterator[Problem]:
    for file in resolved.files:
        for number, waiver in enumerate(file.part.waivers if file.part else ()):
            if waiver.until < today:
                message = f"expired on {waiver.until}: the findings that it covers fail again"
                advice = "remove the waiver, or agree on a new date"
                yield _warn(file, ("waivers", number, "until"), message, advice)


def _warn(file: File, path: tuple[str | int, ...], message: str, advice: str) -> Problem:
    return file.problem(file.place(*path), dotted(path), message, advice, warning=True)
