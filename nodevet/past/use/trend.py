"""Read the trend of a check, or of a field of the evidence, from the store."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nodevet.base import typed
from nodevet.base.errors import UserError
from nodevet.base.problems import did_you_mean
from nodevet.checking.catalog import Catalog
from nodevet.evidence.sections import unknown_path
from nodevet.model import Verdict
from nodevet.past.trend import (
    CheckTrend,
    FieldTrend,
    check_points,
    count_judged,
    field_point,
    series,
    unit_of,
    values,
)
from nodevet.past.use.nights import usual_series
from nodevet.store.records.model import RecordedRun
from nodevet.store.records.spans import TROUBLE

if TYPE_CHECKING:
    from nodevet.store import Store


class _Document(msgspec.Struct):
    sections: dict[str, msgspec.Raw]


class _Section(msgspec.Struct):
    data: Any = None


def find_trend(
    store: "Store",
    what: str,
    catalog: Catalog,
    *,
    host: str | None,
    name: str | None,
    most: int,
) -> CheckTrend | FieldTrend:
    """The trend over the last runs of a series, the oldest first. Raises UserError if `what` is
    neither a check nor a field of the evidence."""
    runs = _runs(store, name, most)
    if "." not in what:
        return _check_trend(store, what, catalog, runs, host)
    if why := unknown_path(what):
        raise UserError(f"{what}: {why}; `nodevet probe` prints every field with its value")
    return _field_trend(store, what, runs, host)


def _runs(store: "Store", name: str | None, most: int) -> list[RecordedRun]:
    """The runs of one series, since other sweeps have other hosts. None: the series of the last
    sweep.
    """
    return store.runs(series=usual_series(store) if name is None else name, limit=most)[::-1]


def _check_trend(
    store: "Store", check: str, catalog: Catalog, runs: Sequence[RecordedRun], host: str | None
) -> CheckTrend:
    known = check in catalog.ids
    standing = store.standing_verdicts(check, [run.id for run in runs], host=host)
    if not known and not any(verdict in TROUBLE for _, _, verdict in standing):
        hint = did_you_mean(check, catalog.ids, "`nodevet list checks` names them")
        raise UserError(
            f"no check is named {check!r}; {hint}\n"
            "a field of the evidence has dots: gpu.gpus[].temperature_gpu_c"
        )
    vetted = None
    if host is not None:
        vetted = Counter(visit.run for visit in store.visits_of(host) if visit.baseline)
    title = catalog.title(check) if known else ""
    return check_trend(store, check, runs, standing, vetted=vetted, title=title)


def check_trend(
    store: "Store",
    check: str,
    runs: Sequence[RecordedRun],
    standing: Sequence[tuple[str, str, Verdict]],
    *,
    vetted: Mapping[str, int] | None = None,
    title: str = "",
) -> CheckTrend:
    """The trend of a check over these runs, the oldest first. `standing`: see Store.standing;
    `vetted`: the hosts that each run judged, if not all of its own."""
    failing = sorted({host for _, host, verdict in standing if verdict is Verdict.FAIL})
    visits = {
        run.id: {visit.host: visit.status for visit in store.visits(run.id, failing)}
        for run in runs
    }
    judged_hosts = {run.id: count_judged(run) for run in runs} if vetted is None else vetted
    points = check_points(runs, judged_hosts, standing, visits)
    return CheckTrend(check=check, title=title, points=points)


def _field_trend(
    store: "Store", path: str, runs: Sequence[RecordedRun], host: str | None
) -> FieldTrend:
    points, of_host = [], []
    for run in runs:
        run_values = list(_values(store, run, path, host))
        points.append(field_point(run, (value for _, value in run_values)))
        of_host.append(dict(run_values))
    if not any(point.count for point in points):
        raise UserError(
            f"{path}: the evidence of these {len(runs)} runs has no value"
            + (f" on {host}" if host else "")
        )
    return FieldTrend(
        field=path,
        unit=unit_of(path),
        host=host or "",
        points=tuple(points),
        series=series(of_host) if host and not any(point.values for point in points) else (),
    )


def _values(
    store: "Store", run: RecordedRun, path: str, host: str | None
) -> Iterator[tuple[str, Any]]:
    section, _, rest = path.partition(".")
    hosts = None if host is None else [host]
    for _, document in store.evidence(run.id, hosts=hosts, sections=[section]):
        if document is None:
            continue
        try:
            raw = typed.decode(document, _Document).sections.get(section)
            data = typed.decode(bytes(raw), _Section).data if raw else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):  # a node may send anything
            continue
        yield from values(data, rest)
