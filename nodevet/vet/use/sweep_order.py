"""One sweep as nodevet.toml describes it, with what a command line says instead."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from nodevet.base.durations import seconds_of
from nodevet.base.errors import UserError
from nodevet.base.problems import did_you_mean
from nodevet.base.project import Project
from nodevet.fleet import Options
from nodevet.settings import NAME, SiteSettings
from nodevet.settings.model import (
    BudgetSettings,
    FailOn,
    NotifySettings,
    RetentionSettings,
    SweepSettings,
    fail_on,
)
from nodevet.vet import defaults
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.engine import site_engine
from nodevet.vet.use.notify import NewsFilter, addresses
from nodevet.vet.use.reach import fleet_options
from nodevet.vet.use.recording import Budget
from nodevet.vet.use.stores import recorded_in
from nodevet.vet.use.targets import Targets

EXAMPLE = f"""\
write {NAME}, for example:
  [sweep.nightly]
  inventory = "fleet.yaml"
  outputs = {{ html = "report.html" }}"""
PATHS = ("heartbeat", "save", "ssh_config", "known_hosts")


class SweepOrder(Struct, frozen=True, kw_only=True):
    """One sweep: what it visits, judges by, writes and notifies."""

    name: str
    site: SiteSettings
    settings: SweepSettings
    project: Project
    store: str | None
    """The URL of the store; empty: the user's own, None: record nothing."""

    @property
    def inventories(self) -> tuple[str, ...]:
        return tuple(str(self.site.path(path)) for path in self.settings.inventory)

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names stay names; a file is relative to the folder of nodevet.toml."""
        return tuple(
            str(self.site.path(name)) if _is_file(name) else name for name in self.settings.baseline
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        """The reports that go to files, as `--format` takes them."""
        outputs = self.settings.outputs.items()
        return tuple(f"{name}:{self.site.path(file)}" for name, file in outputs)

    @property
    def save(self) -> Path | None:
        return self.path(self.settings.save)

    @property
    def targets(self) -> Targets:
        return Targets(
            names=tuple(self.settings.hosts),
            inventories=self.inventories,
            limit=tuple(self.settings.limit),
            expect_hostname=self.settings.expect_hostname,
        )

    @property
    def locks(self) -> tuple[str, ...]:
        """The inventories, or the hosts that it names, which no other sweep may visit meanwhile."""
        if self.inventories:
            return tuple(str(Path(path).resolve()) for path in self.inventories)
        return tuple(self.settings.hosts)

    @property
    def fail_on(self) -> FailOn:
        return fail_on(self.settings.fail_on)

    @property
    def budget(self) -> Budget | None:
        return _budget(self.site, self.settings.budget)

    @property
    def retention(self) -> RetentionSettings | None:
        own, all_sweeps = self.settings.retention, self.site.settings.retention
        retention = all_sweeps if own is None else own
        return (RetentionSettings() if retention is True else retention) or None

    @property
    def notices(self) -> NotifySettings | None:
        """Addresses and kinds of news; None: notify nobody."""
        own = self.settings.notify
        notices = own if isinstance(own, NotifySettings) else self.site.settings.notify
        return notices if own is not False and notices.urls else None

    def seconds(self, field: str) -> float | None:
        """A length of time of the settings."""
        text = getattr(self.settings, field)
        return seconds_of(text) if text else None

    def options(self, context: VetContext) -> Options:
        """The options of the visits. Raises AskError and UserError."""
        settings = self.settings
        return fleet_options(
            parallel=settings.parallel or defaults.PARALLEL,
            connect_timeout=self.seconds("connect_timeout") or defaults.CONNECT_TIMEOUT,
            deadline=self.seconds("deadline") or defaults.DEADLINE,
            ssh_config=self.path(settings.ssh_config),
            known_hosts=self.path(settings.known_hosts),
            accept_new=settings.accept_new,
            sudo=settings.sudo,
            user=settings.user,
            sample=self.seconds("sample"),
            context=context,
            choosing=True,
            engine=site_engine(self.site),
            second_try=settings.second_try,
            within=self.seconds("within"),
        )

    def path(self, text: str | None) -> Path | None:
        return self.site.path(text) if text else None


def budget_of(site: SiteSettings, name: str) -> Budget | None:
    """The failure budget of the sweep of this name; without such a sweep, that of all sweeps."""
    sweep = site.settings.sweep.get(name)
    return _budget(site, sweep.budget if sweep else None)


def _budget(site: SiteSettings, budget: BudgetSettings | bool | None) -> Budget | None:
    if budget is None:
        budget = site.settings.budget
    if budget is True:
        budget = site.settings.budget or BudgetSettings()
    return Budget(percent=budget.percent, hosts=budget.hosts) if budget else None


def wanted(notices: NotifySettings) -> NewsFilter:
    """Which news go into a notice."""
    return NewsFilter(
        new="new" in notices.on,
        fixed="fixed" in notices.on,
        severity=notices.severity,
        link=notices.link,
        length=notices.length,
    )


def urls(order: SweepOrder) -> tuple[str, ...]:
    """The addresses to notify. Raises UserError."""
    return addresses(order.notices.urls, order.site.folder) if order.notices else ()


def choose_sweep(
    site: SiteSettings,
    name: str | None,
    instead: Mapping[str, Any],
    *,
    store: str | None = None,
    project: Project | None = None,
) -> SweepOrder:
    """The sweep of this name, or the only one. `instead`: fields of its settings, whose paths are
    relative to the working directory; `store`: a URL in place of that of the file. Raises
    UserError."""
    sweeps = site.settings.sweep
    where = str(site.file) if site.file else ""
    if name is None and len(sweeps) > 1:
        raise UserError(f"{where} has several sweeps; name one: {', '.join(sweeps)}")
    if name is None and sweeps:
        name = next(iter(sweeps))
    if name is not None and name not in sweeps:
        near = did_you_mean(name, sweeps, f"it has {', '.join(sweeps)}" if sweeps else EXAMPLE)
        raise UserError(f"{where or NAME}: there is no sweep {name!r}; {near}")
    if name is None and not instead.get("inventory") and not instead.get("hosts"):
        problem = f"{where} has no sweep" if where else f"there is no {NAME} here or above"
        raise UserError(f"{problem}; {EXAMPLE}")
    fields = _absolute(instead)
    settings = structs.replace(sweeps[name], **fields) if name else SweepSettings(**fields)
    return SweepOrder(
        name=name or "sweep",
        site=site,
        settings=settings,
        project=project or Project(folder=site.path(settings.project or site.settings.project)),
        store=recorded_in(store, site.store_url, reaches=True),
    )


def _absolute(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with absolute paths."""
    absolute = dict(fields)
    for name in PATHS:
        if absolute.get(name):
            absolute[name] = str(Path(absolute[name]).absolute())
    for name in ("inventory", "baseline"):
        if name in absolute:
            absolute[name] = tuple(
                str(Path(text).absolute()) if name == "inventory" or _is_file(text) else text
                for text in absolute[name]
            )
    return absolute


def _is_file(baseline: str) -> bool:
    return baseline.endswith((".yaml", ".yml"))
