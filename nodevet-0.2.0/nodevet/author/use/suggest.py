"""Suggest settings that shipped baselines for the same hardware have and a project's own lack."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from nodevet.base.project import Project
from nodevet.baseline import BaselineErrors, available, load
from nodevet.baseline.library import ENDINGS
from nodevet.checking.catalog import Catalog
from nodevet.document.flow import flow
from nodevet.model import Baseline, CheckParams, Expectation, Value
from nodevet.vet.use.context import candidates, open_project

GENERIC = "generic"


class SuggestedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line to add under `expect`."""

    check: str
    line: str  # nvlink: 18
    title: str


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """Suggestions for one baseline, from the most similar shipped one."""

    baseline: str
    like: str
    missing: tuple[SuggestedLine, ...]


def suggest(names: Sequence[str], project: Project | Path) -> tuple[Suggestions, ...]:
    """Suggestions for each of these baselines that can be used; without names, for the project's
    own."""
    catalog, folders = open_project(project)
    shipped = _load([name for name, _ in available([])], [], catalog)
    suggestions = []
    names = [name for name in names if Path(name).suffix in ("", *ENDINGS)]
    for name in names or candidates(folders):
        for baseline in _load([name], folders, catalog):
            others = [other for other in shipped if other.name != baseline.name]
            similar = _most_similar(baseline, others)
            if similar is not None:
                suggestions.append(_suggestions(baseline, similar, catalog))
    return tuple(suggestions)


def _load(names: Iterable[str], folders: Sequence[Path], catalog: Catalog) -> tuple[Baseline, ...]:
    try:
        return load(list(names), folders=folders, catalog=catalog)
    except BaselineErrors:
        return ()


def _most_similar(baseline: Baseline, shipped: Iterable[Baseline]) -> Baseline | None:
    """The baseline for the same GPUs with the most checks, else the one for any GPU."""
    devices = _devices(baseline)
    same = [candidate for candidate in shipped if devices & _devices(candidate)]
    if same:
        return max(same, key=lambda candidate: len(candidate.expectations))
    return next((candidate for candidate in shipped if candidate.name == GENERIC), None)


def _devices(baseline: Baseline) -> frozenset[str]:
    gpu = baseline.applies.gpu if baseline.applies else None
    return frozenset(gpu.devices if gpu else ())


def _suggestions(baseline: Baseline, similar: Baseline, catalog: Catalog) -> Suggestions:
    checks = {expectation.check for expectation in baseline.expectations}
    missing = [item for item in similar.expectations if item.check not in checks]
    return Suggestions(
        baseline=baseline.path,
        like=similar.name,
        missing=tuple(
            SuggestedLine(
                check=expectation.check,
                line=f"{expectation.check}: {flow(as_written(expectation))}",
                title=catalog.title(expectation.check),
            )
            for expectation in missing
        ),
    )


def as_written(expectation: Expectation) -> Value:
    """The params as written in a baseline: a plain value if only one field is set."""
    params: CheckParams = expectation.params
    values = {field.name: getattr(params, field.name) for field in msgspec.structs.fields(params)}
    fields = {
        field.name: values[field.name]
        for field in msgspec.structs.fields(params)
        if field.required or values[field.name] not in (field.default, (), [], {})
    }
    plain = msgspec.to_builtins(fields)
    for key in (params.bare, params.whole):
        if key is not None and set(plain) == {key}:
            value: Value = plain[key]
            return value[0] if isinstance(value, list) and len(value) == 1 else value
    return dict(plain)
