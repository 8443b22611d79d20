"""How hosts are reached: the options of a visit."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nodevet.fleet import Options
from nodevet.fleet.model import OnSteps
from nodevet.model import Host
from nodevet.vet.use.asks import TO_CHANGE, asks, asks_each, sections_of, sections_to_fix
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.engine import engine_for

if TYPE_CHECKING:  # a run of this machine alone does not pay for it
    from nodevet.fleet.launchers import Engine

MANY = 100  # hosts, from which on a run is a sweep


def check_options(reach: Mapping[str, Any], context: VetContext, hosts: Sequence[Host]) -> Options:
    """The options of a check of these hosts, from those of its command line. Raises AskError and
    UserError."""
    again = len(hosts) >= MANY if reach["second_try"] is None else reach["second_try"]
    options = {**reach, "second_try": again}
    return fleet_options(context=context, choosing=True, engine=engine_for(hosts), **options)


def judged_alone(options: Options, context: VetContext) -> Options:
    """The options of a visit whose evidence nobody keeps: the probe compiles and reads only the
    sections that the one baseline judges."""
    return _of_sections(options, None if context.chosen is None else sections_of(context))


def planned_alone(options: Options, context: VetContext) -> Options:
    """The same for a plan: also what its fixes read."""
    return _of_sections(options, None if context.chosen is None else sections_to_fix(context))


def fixed_alone(options: Options, context: VetContext, checks: Collection[str]) -> Options:
    """The options of a visit that applies the fixes of these checks: the probe reads only what
    these checks judge, what their fixes read, and what decides whether they may be applied."""
    return _of_sections(
        options, sections_to_fix(msgspec.structs.replace(context, shipped_baselines=tuple), checks)
    )


def reverted_alone(options: Options) -> Options:
    """The options of a visit that reverts fixes: no check judges it."""
    return _of_sections(options, TO_CHANGE)


def _of_sections(options: Options, read: Collection[str] | None) -> Options:
    """`read`: None for all sections."""
    return options if read is None else replace(options, sections=tuple(sorted(read)))


def fleet_options(
    *,
    parallel: int,
    connect_timeout: float,
    deadline: float,
    ssh_config: Path | str | None,
    known_hosts: Path | str | None,
    accept_new: bool,
    sudo: bool,
    user: str | None = None,
    sample: float | None = None,
    context: VetContext | None = None,
    fixes: bool = False,
    commands: bool = True,
    choosing: bool = False,
    engine: "Engine | None" = None,
    second_try: bool = False,
    within: float | None = None,
    on_steps: OnSteps | None = None,
) -> Options:
    """The options of a visit, which takes `sample` seconds longer. `context`: what baselines ask
    the probe for; `fixes`: also what the fixes of their checks ask for; `commands`: also the
    commands that they run. `choosing`: nodevet chooses each host's baseline from these, and reads
    only what those that may fit need. `on_steps`: see Options. `engine`: see
    nodevet.vet.use.engine. Raises AskError and UserError."""
    wishes = {"fixes": fixes, "commands": commands}
    return Options(
        parallel=parallel,
        connect_timeout=connect_timeout,
        deadline=deadline + (sample or 0.0),
        probe_deadline=deadline * 2 / 3 + sample if sample else None,
        sample=sample or 0.0,
        ssh_config=Path(ssh_config) if ssh_config is not None else None,
        known_hosts=Path(known_hosts) if known_hosts is not None else None,
        host_keys="accept-new" if accept_new else "strict",
        sudo=sudo,
        user=user,
        engine=engine,
        second_try=second_try,
        within=within,
        on_steps=on_steps,
        asks=asks(context, **wishes) if context and not choosing else {},
        asks_each=asks_each(context, **wishes) if context and choosing else None,
    )
