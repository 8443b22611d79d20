"""What baselines for the same hardware usually say, and a project's own ones do not."""

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
    """One line that could stand under `expect`."""

    check: str
    line: str  # nvlink: 18
    title: str


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """For one baseline, from the shipped one that is most like it."""

    baseline: str
    like: str
    missing: tuple[SuggestedLine, ...]


def suggest(names: Sequence[str], project: Project | Path) -> tuple[Suggestions, ...]:
    """For each of these baselines that can be used; without names, for the project's own."""
    catalog, folders = open_project(project)
    shipped = _loaded([name for name, _ in available([])], [], catalog)
    found = []
    for name in [name for name in names if _is_baseline(name)] or candidates(folders):
        for baseline in _loaded([name], folders, catalog):
            others = [one for one in shipped if one.name != baseline.name]
            like = _most_like(baseline, others)
            if like is not None:
                found.append(_suggestions(baseline, like, catalog))
    return tuple(found)


def _is_baseline(name: str) -> bool:
    return Path(name).suffix in ("", *ENDINGS)


def _loaded(
    names: Iterable[str], folders: Sequence[Path], catalog: Catalog
) -> tuple[Baseline, ...]:
    try:
        return load(list(names), folders=folders, catalog=catalog)
    except BaselineErrors:
        return ()


def _most_like(baseline: Baseline, shipped: Iterable[Baseline]) -> Baseline | None:
    """The one for the same GPUs that asks most, else the one for any GPU."""
    mine = _devices(baseline)
    same = [one for one in shipped if mine & _devices(one)]
    if same:
        return max(same, key=lambda one: len(one.expectations))
    return next((one for one in shipped if one.name == GENERIC), None)


def _devices(baseline: Baseline) -> frozenset[str]:
    gpu = baseline.applies.gpu if baseline.applies else None
    return frozenset(gpu.devices if gpu else ())


def _suggestions(baseline: Baseline, like: Baseline, catalog: Catalog) -> Suggestions:
    asked = {wish.check for wish in baseline.expectations}
    missing = [wish for wish in like.expectations if wish.check not in asked]
    return Suggestions(
        baseline=baseline.path,
        like=like.name,
        missing=tuple(
            SuggestedLine(
                check=wish.check,
                line=f"{wish.check}: {flow(said(wish))}",
                title=catalog.title(wish.check),
            )
            for wish in missing
        ),
    )


def said(wish: Expectation) -> Value:
    """The params as a baseline says them: a plain value where one field alone is said."""
    params: CheckParams = wish.params
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
