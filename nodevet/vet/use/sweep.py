"""One sweep as it is to be made: what nodevet.toml says of it, and what a command line says
instead."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from nodevet.base.durations import seconds_of
from nodevet.base.errors import UserError
from nodevet.base.problems import did_you_mean
from nodevet.settings import NAME, SiteSettings
from nodevet.settings.model import (
    BudgetSettings,
    LauncherSettings,
    NotifySettings,
    RetentionSettings,
    SweepSettings,
)
from nodevet.vet.use.notify import Wanted, addresses
from nodevet.vet.use.recording import Budget

EXAMPLE = f"""\
write {NAME}, for example:
  [sweep.nightly]
  inventory = "fleet.yaml"
  outputs = {{ html = "report.html" }}"""


class Sweep(Struct, frozen=True, kw_only=True):
    """One sweep, every path ready to be opened."""

    name: str
    found: SiteSettings
    said: SweepSettings
    store: str | None
    engine: str | None
    launchers: Mapping[str, str | Mapping[str, str]]
    sites: Mapping[str, Sequence[str]]

    @property
    def inventories(self) -> tuple[str, ...]:
        return tuple(str(self.found.path(path)) for path in self.said.inventory)

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names stay names; a file is relative to the folder of nodevet.toml."""
        return tuple(
            str(self.found.path(name)) if name.endswith((".yaml", ".yml")) else name
            for name in self.said.baseline
        )

    @property
    def project(self) -> Path:
        return self.found.path(self.said.project or self.found.settings.project)

    @property
    def formats(self) -> tuple[str, ...]:
        """As `--format` has them; the table goes to standard output."""
        told = (f"{name}:{self.found.path(file)}" for name, file in self.said.outputs.items())
        return ("table", *told)

    @property
    def locks(self) -> tuple[str, ...]:
        """What no other sweep may visit meanwhile: its inventories, or what it names."""
        if self.inventories:
            return tuple(str(Path(path).resolve()) for path in self.inventories)
        return tuple(self.said.hosts)

    @property
    def budget(self) -> Budget | None:
        return _budget(self.found, self.said.budget)

    @property
    def retention(self) -> RetentionSettings | None:
        said = self.found.settings.retention if self.said.retention is None else self.said.retention
        return (RetentionSettings() if said is True else said) or None

    @property
    def told(self) -> NotifySettings | None:
        """Whom to tell, and of what; None: nobody."""
        said = self.said.notify
        found = said if isinstance(said, NotifySettings) else self.found.settings.notify
        return found if said is not False and found.urls else None

    def path(self, text: str | None) -> Path | None:
        return self.found.path(text) if text else None


def budget_of(found: SiteSettings, name: str) -> Budget | None:
    """That of a sweep, or of all where there is none of this name."""
    said = found.settings.sweep.get(name)
    return _budget(found, said.budget if said else None)


def _budget(found: SiteSettings, said: BudgetSettings | bool | None) -> Budget | None:
    if said is None:
        said = found.settings.budget
    if said is True:
        said = found.settings.budget or BudgetSettings()
    return Budget(percent=said.percent, hosts=said.hosts) if said else None


def wanted(said: NotifySettings) -> Wanted:
    return Wanted(
        new="new" in said.on,
        fixed="fixed" in said.on,
        severity=said.severity,
        link=said.link,
        length=said.length,
    )


def urls(sweep: Sweep) -> tuple[str, ...]:
    """Every address. Raises UserError."""
    return addresses(sweep.told.urls, sweep.found.folder) if sweep.told else ()


def chosen(found: SiteSettings, name: str | None, instead: Mapping[str, Any]) -> Sweep:
    """The sweep of this name, or the only one; `instead` of what it says. Raises UserError."""
    sweeps = found.settings.sweep
    where = str(found.file) if found.file else ""
    if name is None and len(sweeps) > 1:
        raise UserError(f"{where} has several sweeps; name one: {', '.join(sweeps)}")
    if name is None and sweeps:
        name = next(iter(sweeps))
    if name is not None and name not in sweeps:
        near = did_you_mean(name, sweeps, f"it has {', '.join(sweeps)}" if sweeps else EXAMPLE)
        raise UserError(f"{where or NAME}: there is no sweep {name!r}; {near}")
    hosts = bool(instead.get("inventory") or instead.get("hosts"))
    if name is None and not hosts:
        told = f"{where} has no sweep" if where else f"there is no {NAME} here or above"
        raise UserError(f"{told}; {EXAMPLE}")
    said = _changed(sweeps[name], found, instead) if name else _of_options(instead)
    settings = found.settings
    return Sweep(
        name=name or "sweep",
        found=found,
        said=said,
        store=found.store_url,
        engine=settings.engine,
        launchers={
            key: _launcher(each) if isinstance(each, LauncherSettings) else each
            for key, each in settings.launchers.items()
        },
        sites={
            site: (names,) if isinstance(names, str) else names
            for site, names in settings.sites.items()
        },
    )


def _launcher(said: LauncherSettings) -> Mapping[str, str]:
    return {key: value for key, value in structs.asdict(said).items() if value is not None}


def _changed(said: SweepSettings, found: SiteSettings, instead: Mapping[str, Any]) -> SweepSettings:
    """Paths of a command line are relative to where it is run, and those of the file to that."""
    return structs.replace(said, **_absolute(instead))


def _of_options(instead: Mapping[str, Any]) -> SweepSettings:
    return SweepSettings(**_absolute(instead))


def _absolute(instead: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(instead)
    if found.get("inventory"):
        found["inventory"] = tuple(str(Path(each).absolute()) for each in found["inventory"])
    for field in ("heartbeat", "save", "ssh_config", "known_hosts", "project"):
        if found.get(field):
            found[field] = str(Path(found[field]).absolute())
    if "outputs" in found:
        found["outputs"] = {
            name: str(Path(file).absolute()) for name, file in found["outputs"].items()
        }
    if "baseline" in found:
        found["baseline"] = tuple(
            str(Path(each).absolute()) if each.endswith((".yaml", ".yml")) else each
            for each in found["baseline"]
        )
    return found


def reach(sweep: Sweep, given: Mapping[str, Any], chosen_options: frozenset[str]) -> dict[str, Any]:
    """The options of the visits: of the command line if they are on it, else of the file."""
    said = sweep.said
    told = {
        "parallel": said.parallel,
        "connect_timeout": seconds_of(said.connect_timeout) if said.connect_timeout else None,
        "deadline": seconds_of(said.deadline) if said.deadline else None,
        "sample": seconds_of(said.sample) if said.sample else None,
        "ssh_config": sweep.path(said.ssh_config),
        "known_hosts": sweep.path(said.known_hosts),
        "accept_new": said.accept_new or None,
        "sudo": said.sudo or None,
    }
    return {
        key: value if key in chosen_options or told.get(key) is None else told[key]
        for key, value in given.items()
    }
