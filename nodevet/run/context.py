"""What hosts are vetted by: the project's catalog and baselines."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from nodevet.baseline import available, load
from nodevet.catalog import Catalog
from nodevet.model import Baseline


class MaxAge(msgspec.Struct, frozen=True, kw_only=True):
    """How old evidence may be that is judged. Seconds; `now` since 1970 UTC."""

    now: float
    most: float


class VetContext(msgspec.Struct, frozen=True, kw_only=True):
    """What visits are judged by. `chosen` is the one baseline for every host, if there is one."""

    baselines: tuple[Baseline, ...]
    catalog: Catalog
    today: date
    age: MaxAge | None = None  # of saved evidence; None: it is judged whatever its age
    chosen: Baseline | None = None


def open_project(project: Path) -> tuple[Catalog, list[Path]]:
    """The catalog with the project's checks and fixes, and the project's baseline folders."""
    folders = [folder for folder in [project / "baselines"] if folder.is_dir()]
    return Catalog([project / "checks"], [project / "fixes"]), folders


def open_context(project: Path, names: Sequence[str]) -> VetContext:
    """The baselines to judge by; one named baseline is for every host."""
    catalog, folders = open_project(project)
    found = load(list(names) or candidates(folders), folders=folders, catalog=catalog)
    chosen = found[0] if len(names) == 1 else None
    return VetContext(baselines=found, catalog=catalog, today=date.today(), chosen=chosen)


def candidates(folders: Sequence[Path]) -> list[str]:
    """The project's baselines, or the shipped ones if it has none."""
    everything = available(folders)
    own = [name for name, path in everything if path.parent in folders]
    return own or [name for name, _ in everything]
