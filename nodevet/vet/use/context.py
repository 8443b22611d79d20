"""The project's catalog and baselines, which hosts are judged by."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.baseline import available, load
from nodevet.baseline.files import Parse, parse
from nodevet.checking.catalog import Catalog
from nodevet.model.baseline import Baseline
from nodevet.vet.use.max_age import MaxAge

if TYPE_CHECKING:  # a run without --since or fixes does not pay for it
    from nodevet.fixing.model import Fix
    from nodevet.vet.use.last_look import LastLook


class VetContext(msgspec.Struct, frozen=True, kw_only=True):
    """The baselines to judge by. `chosen`: the one baseline for every host, or None.

    `shipped_baselines` reads the shipped baselines, which stand in on a host that none of the
    project's own fits; none if the user named baselines.
    """

    baselines: tuple[Baseline, ...]
    catalog: Catalog
    today: date
    age: MaxAge | None = None  # of saved evidence; None: it is judged whatever its age
    chosen: Baseline | None = None
    since: "LastLook | None" = None  # what counters and the kernel log are compared with
    only: tuple[str, ...] = ()  # no other check is judged; empty: all of the baselines
    skip: tuple[str, ...] = ()  # these are not
    shipped_baselines: Callable[[], tuple[Baseline, ...]] = tuple


def open_project(project: Project | Path) -> tuple[Catalog, list[Path]]:
    """The catalog with the project's checks and fixes, and the project's baseline folders.

    Raises UserError if other users may change the project and the user did not accept that.
    """
    own = project if isinstance(project, Project) else Project(folder=project)
    require_accepted(own)
    folders = [folder for folder in [own.folder / "baselines"] if folder.is_dir()]
    return Catalog([own.folder / "checks"], [own.folder / "fixes"], own, read_fix), folders


def read_fix(path: Path) -> "tuple[str, Fix]":
    """A fix that is YAML; see nodevet.vet.command_fixes. Raises CatalogError."""
    from nodevet.vet.command_fixes import read_fix as read  # a run without fixes does not pay

    return read(path)


def require_accepted(project: Project, *, keeps_runs: bool = False) -> None:
    """Raises UserError if other users may change the project and the user did not accept that.

    `keeps_runs`: whether the command keeps a run of fixes in the project's runs/.
    """
    if why := project.refusal():
        raise UserError(why)
    if keeps_runs and (why := project.data_refusal(project.folder / "runs", must_exist=False)):
        raise UserError(why)


def open_context(project: Project | Path, names: Sequence[str], parse: Parse = parse) -> VetContext:
    """The baselines to judge by; one named baseline is for every host. `parse`: what makes trees of
    their texts."""
    catalog, folders = open_project(project)
    wanted_names = list(names) or candidates(folders)
    baselines = load(wanted_names, folders=folders, catalog=catalog, parse=parse)
    others = () if names else sorted(name for name, _ in available([]) if name not in wanted_names)
    return VetContext(
        baselines=baselines,
        catalog=catalog,
        today=date.today(),
        chosen=baselines[0] if len(names) == 1 else None,
        shipped_baselines=cache(lambda: load(others, catalog=catalog, parse=parse)),
    )


def parser_of(targets: Sequence[str], inventories: Sequence[str] = ()) -> Parse:
    """What makes trees of baselines. A check of this machine alone keeps them for the next one."""
    return parse if tuple(targets) != ("@local",) or inventories else keeping_parser()


def keeping_parser() -> Parse:
    """What keeps the trees that it makes."""
    from nodevet.document.kept_trees import KeptTrees

    return KeptTrees().parse


def candidates(folders: Sequence[Path]) -> list[str]:
    """The project's baselines, or the shipped ones if it has none."""
    everything = available(folders)
    own = [name for name, path in everything if path.parent in folders]
    return own or [name for name, _ in everything]
