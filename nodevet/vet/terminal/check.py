"""`nodevet check`, once its command line is understood."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodevet.base.errors import UserError
from nodevet.base.last_verdict import clocks
from nodevet.base.project import Project
from nodevet.cli.display import Display
from nodevet.cli.speech import say

if TYPE_CHECKING:
    from nodevet.fleet import Options
    from nodevet.model import Host
    from nodevet.model.run import Run
    from nodevet.settings.model import FailOn
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.use.context import VetContext
    from nodevet.vet.use.keep_verdict import Keeping
    from nodevet.vet.use.looks import Looks
    from nodevet.vet.use.visited import Visited

HERE = Project()


def check(
    targets: tuple[str, ...] = (),
    inventories: tuple[str, ...] = (),
    limit: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    skip: tuple[str, ...] = (),
    formats: tuple[str, ...] = (),
    everything: bool = False,
    shadow: bool = False,
    fail_on: str = "warning",
    store: str | None = None,
    resume: str | None = None,
    from_run: str | None = None,
    evidence: tuple[Path, ...] = (),
    max_age: float | None = None,
    looks: int | None = None,
    save: Path | None = None,
    since: tuple[Path, ...] = (),
    expect_hostname: bool = True,
    project: Project = HERE,
    display: Display | None = None,
    **reach: Any,
) -> int:
    """Vet hosts, report on them, and return the exit code. The arguments are the options of the
    command."""
    from nodevet.settings.model import fail_on as asked
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.since import asks_store, tell_not_compared, with_since
    from nodevet.vet.use.context import open_context, parser_of
    from nodevet.vet.use.narrow import narrow_context
    from nodevet.vet.use.reach import check_options
    from nodevet.vet.use.targets import Targets
    from nodevet.vet.use.visited import Visited

    began = clocks()
    least = asked(fail_on)
    _only_judged(evidence, from_run, store, save, reach["sample"], resume, looks, since, least)
    sinks = Sinks(formats, save, display, everything=everything, remembers=max_age is not None)
    opened = open_context(project, names, parser_of(targets, inventories))
    context = narrow_context(opened, only, skip)
    if not from_run:
        context = with_since(context, since, reach["sample"])
    chosen = Targets(
        names=targets, inventories=inventories, limit=limit, expect_hostname=expect_hostname
    )
    keeping: Keeping | None = None
    counted: Looks | None = None
    if from_run:
        from nodevet.vet.terminal.from_run import judged_again

        run, context = judged_again(
            from_run,
            store,
            context,
            chosen,
            sinks,
            since=since,
            max_age=max_age,
            fail_on=least.severity,
        )
        done = Visited(run=run)
    elif evidence:
        from nodevet.vet.terminal.replayed import judged_saved

        run = judged_saved(
            evidence, context, chosen, sinks, max_age=max_age, fail_on=least.severity
        )
        done = Visited(run=run)
    else:
        if only or skip:
            store = _not_recorded(store, resume, least, since)
        if max_age is not None:
            _only_printed(sinks, save, inventories, since, store)
        hosts = chosen.hosts()
        if max_age is not None:
            keeping = _keeping(max_age, hosts, began)
        counted = _looks(hosts, looks) if looks else None
        if save and not sinks.display.quiet:
            from nodevet.vet.use import saved

            _tell_strangers(save, saved.strangers(save, hosts, chosen), inventories)
        reached = check_options(reach, context, hosts)
        done, context = _visited(
            hosts, context, reached, sinks, least, store, resume, last_look=asks_store(since)
        )
    tell_not_compared(context, quiet=sinks.display.quiet)
    with done.reporting():
        sinks.finish(done.run, shadow=shadow)
    code = _counted(counted, done, sinks)
    if keeping and code == 0:  # that of the format, which may see a warning where the run passes
        _keep(keeping, done.run, sinks, context, project)
    return code


def _keeping(most: float, hosts: "Sequence[Host]", began: tuple[float, float]) -> "Keeping":
    from nodevet.vet.use.keep_verdict import Keeping

    return Keeping(sys.argv[1:], most, hosts, began)


def _looks(hosts: "Sequence[Host]", most: int) -> "Looks":
    from nodevet.vet.use.looks import Looks

    return Looks(sys.argv[1:], hosts, most)


def _visited(
    hosts: "Sequence[Host]",
    context: "VetContext",
    reached: "Options",
    sinks: "Sinks",
    least: "FailOn",
    store: str | None,
    resume: str | None,
    *,
    last_look: bool,
) -> "tuple[Visited, VetContext]":
    """Visit hosts. Recorded are those of SSH; this machine alone if a store is named."""
    from nodevet.vet.terminal.progress import Watcher
    from nodevet.vet.use.reach import judged_alone
    from nodevet.vet.use.stores import named, recorded_in
    from nodevet.vet.use.visited import open_memory, since_store, visited

    reaches = any(not host.local for host in hosts)
    site = None
    if reaches and store is None:
        from nodevet.settings import settings

        site = settings().store_url
    url = recorded_in(store, site, reaches=reaches)
    with (
        Watcher(sinks, len(hosts)) as watcher,
        open_memory(url, watcher, asked=bool(named(store, site))) as memory,
    ):
        if resume and not memory:
            raise UserError("--resume needs the store in which the run was recorded")
        if last_look:
            context = since_store(context, memory)
        if not memory and not sinks.saves:
            reached = judged_alone(reached, context)
        done = visited(
            hosts, context, reached, sinks, memory, watcher, fail_on=least, resume=resume
        )
        return done, context


def _only_judged(
    evidence: tuple[Path, ...],
    from_run: str | None,
    store: str | None,
    save: Path | None,
    sample: float | None,
    resume: str | None,
    looks: int | None,
    since: tuple[Path, ...],
    least: "FailOn",
) -> None:
    """Refuse options that make no sense with saved evidence. Raises UserError."""
    if evidence and from_run:
        raise UserError("--evidence and --from-run: give only one of them")
    from nodevet.vet.terminal.since import asks_store

    option = "--from-run" if from_run else "--evidence"
    if store and evidence:
        raise UserError("--store cannot be used with --evidence: only visits are recorded")
    if asks_store(since) and (evidence or from_run):
        raise UserError("--since store works only with visits: it uses the last recorded one")
    if looks and (evidence or from_run):
        raise UserError(f"--looks cannot be used with {option}: it counts looks at this machine")
    if resume and (evidence or from_run):
        raise UserError(f"--resume cannot be used with {option}: it visits hosts")
    if least.new and (evidence or from_run):
        raise UserError(f"--fail-on {least} works only with visits: only they are recorded")
    if sample and (evidence or from_run):
        raise UserError(f"--sample cannot be used with {option}: nothing is read")
    if save and (evidence or from_run):
        raise UserError(f"--save cannot be used with {option}, which judges saved evidence")


def _not_recorded(
    store: str | None, resume: str | None, least: "FailOn", since: tuple[Path, ...]
) -> str:
    """The word for no store: later runs must not be compared with a run of some checks. Raises
    UserError if an option needs a store."""
    from nodevet.vet.terminal.since import asks_store

    options = {
        "--store": store not in (None, "none"),
        "--resume": resume,
        "--fail-on new": least.new,
    }
    for option, is_given in {**options, "--since store": asks_store(since)}.items():
        if is_given:
            raise UserError(f"{option} cannot be used with --only or --skip: nothing is recorded")
    return "none"


def _keep(
    keeping: "Keeping", run: "Run", sinks: "Sinks", context: "VetContext", project: Project
) -> None:
    """Keep the printed verdict for the next check. An error is only a warning."""

    (sink,) = sinks.sinks
    if why := keeping.keep(run, sinks.shown, context, project.folder, dated=sink.format == "table"):
        say(why)


def _counted(looks: "Looks | None", done: "Visited", sinks: "Sinks") -> int:
    """The exit code; with --looks, from this look and the ones before."""

    code = done.code(sinks)
    if looks is None or done.broken:
        return code
    code, why = looks.code(done.run, code)
    if why:
        say(why)
    return code


def _only_printed(
    sinks: "Sinks",
    save: Path | None,
    inventories: tuple[str, ...],
    since: tuple[Path, ...],
    store: str | None,
) -> None:
    """Refuse options that a verdict from the cache cannot honour: it is only printed, and no
    inventory is read. Raises UserError."""
    files = (
        save
        or (store and store != "none")
        or any(sink.file or sink.streamed for sink in sinks.sinks)
    )
    if files or inventories or since:
        raise UserError(
            "--max-age without --evidence reuses the last verdict: it reads no inventory and "
            "writes no file. Leave out -i, --save, --since, --store, jsonl and reports to "
            "files, or --max-age"
        )


def _tell_strangers(save: Path, names: list[str], inventories: tuple[str, ...]) -> None:
    from nodevet.sheet.text import nodeset

    if names:
        where = "not in the inventory" if inventories else "not of this run"
        say(
            f"--save {save}: holds evidence of hosts that are {where}: {nodeset(names)}; "
            "`nodevet check --evidence` judges it too: remove what you do not need"
        )
