"""What hosts are vetted by: the project's catalog and baselines."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nodevet.baseline import available, load
from nodevet.catalog import Catalog
from nodevet.model import Baseline

if TYPE_CHECKING:
    from nodevet.run.last_look import LastLook


class MaxAge(msgspec.Struct, frozen=True, kw_only=True):
    """How old evidence may be that is judged. Seconds; `now` since 1970 UTC."""

    now: float
    most: float


class VetContext(msgspec.Struct, frozen=True, kw_only=True):
    """What visits are judged by. `chosen` is the one baseline for every host, if there is one.

    `shipped` reads those that stand in on a host that none of a project's own fits; none if the
    baselines were named.
    """

    baselines: tuple[Baseline, ...]
    catalog: Catalog
    today: date
    age: MaxAge | None = None  # of saved evidence; None: it is judged whatever its age
    chosen: Baseline | None = None
    since: "LastLook | None" = None  # what counters and the kernel log are compared with
    shipped: Callable[[], tuple[Baseline, ...]] = tuple


def open_project(project: Path) -> tuple[Catalog, list[Path]]:
    """The catalog with the project's checks and fixes, and the project's baseline folders."""
    folders = [folder for folder in [project / "baselines"] if folder.is_dir()]
    return Catalog([project / "checks"], [project / "fixes"]), folders


def open_context(project: Path, names: Sequence[str]) -> VetContext:
    """The baselines to judge by; one named baseline is for every host."""
    catalog, folders = open_project(project)
    asked = list(names) or candidates(folders)
    found = load(asked, folders=folders, catalog=catalog)
    others = () if names else sorted(name for name, _ in available([]) if name not in asked)
    return VetContext(
        baselines=found,
        catalog=catalog,
        today=date.today(),
        chosen=found[0] if len(names) == 1 else None,
        shipped=cache(lambda: load(others, catalog=catalog)),
    )


def candidates(folders: Sequence[Path]) -> list[str]:
    """The project's baselines, or the shipped ones if it has none."""
    everything = available(folders)
    own = [name for name, path in everything if path.parent in folders]
    return own or [name for name, _ in everything]
