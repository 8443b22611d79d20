"""Visits that are recorded in the store that an option, the environment or nodevet.toml names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from nodevet.base.errors import UserError
from nodevet.cli.speech import say
from nodevet.model import Host, Run
from nodevet.vet.terminal.output import Sinks
from nodevet.vet.terminal.progress import watched
from nodevet.vet.terminal.since import SINCE_STORE
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.vet import vet

if TYPE_CHECKING:
    from nodevet.fleet import Options
    from nodevet.settings.model import FailOn
    from nodevet.store import Store
    from nodevet.vet.use.recording import Budget, Recording

UNRECORDED = 2  # exit code: the run is reported, and not recorded as was asked


class Remembering(Struct, frozen=True, kw_only=True):
    """What is remembered and recorded. Without a store, nothing."""

    store: "Store | None" = None
    url: str | None = None
    lost: bool = False  # a store that was asked for could not be opened

    def __bool__(self) -> bool:
        return self.store is not None


@contextmanager
def opened(
    option: str | None, settings: str | None, *, reaches: bool, asked: bool = False
) -> Iterator[Remembering]:
    """The store; see `nodevet.vet.use.which_store.recorded_in`. `asked`: by the command itself.

    One that cannot be opened is told, and the run goes on without. Raises StoreError for an address
    that is not valid.
    """
    from nodevet.vet.use.which_store import named, recorded_in

    url = recorded_in(option, settings, reaches=reaches)
    if url is None:
        yield Remembering()
        return
    from nodevet.store import StoreError, open_store
    from nodevet.store.engine import parsed

    if url:
        parsed(url)
    try:
        store = open_store(url or None)
    except StoreError as error:
        asked = asked or bool(named(option, settings))
        hint = "" if asked else "; `--store none` records nothing"
        say(f"this run is not recorded: {error}{hint}")
        yield Remembering(lost=asked)
        return
    with store:
        yield Remembering(store=store, url=url)


class Visited(Struct, frozen=True, kw_only=True):
    """A run, and whether it could be recorded as was asked."""

    run: Run
    broken: str = ""
    store: str | None = None  # where it is recorded; empty: the user's own

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """While reports are written. Only then is the run recorded as reported: what it saw is
        news to the next one if a report could not be written, or it was killed before."""
        yield
        if self.store is None or self.broken:
            return
        from nodevet.store import StoreError, open_store

        try:
            with open_store(self.store or None, create=False) as store:
                store.reported_with(self.run.id, self.run.exit_code)
        except StoreError as error:
            say(f"the next run takes what this one saw for new: {error}")

    def code(self, sinks: Sinks) -> int:
        return UNRECORDED if self.broken else sinks.code(self.run)


def visited(
    hosts: Sequence[Host],
    context: VetContext,
    options: "Options",
    sinks: Sinks,
    memory: Remembering,
    *,
    fail_on: "FailOn",
    series: str = "",
    whole: bool = False,
    budget: "Budget | None" = None,
    resume: str | None = None,
    alone: bool = False,
) -> Visited:
    """Vet the hosts, and record each as it comes in if anything is remembered.

    `alone`: see Store.begin. Raises StoreHeldError.
    """
    if fail_on.new and not memory:
        raise UserError(f"--fail-on {fail_on} needs a store: what is new is told by what it holds")
    with watched(len(hosts), sinks) as listener:
        if memory.store is None:
            run = vet(
                hosts,
                context,
                options,
                fail_on=fail_on.severity,
                save=sinks.keep,
                listener=listener,
            )
            return told(None, run, memory)
        from nodevet.vet.use.recording import Recording
        from nodevet.vet.use.resume import resumed

        earlier = resumed(memory.store, resume, context, hosts) if resume else None
        if earlier is not None:
            hosts = earlier.left
        recording = Recording(
            memory.store,
            listener,
            series=earlier.recorded.series if earlier else series,
            whole=whole,
            fail_on_new=fail_on.new,
            alone=alone,
            budget=budget,
            addresses=_addresses(hosts),
            earlier=earlier,
            keep=sinks.keep,
        )
        with recording:
            run = vet(
                hosts,
                context,
                options,
                fail_on=fail_on.severity,
                save=recording.keep,
                listener=recording,
            )
    return told(recording, run, memory)


def recorded(
    memory: Remembering, hosts: Sequence[Host], listener: VetListener
) -> "Recording | None":
    """What records a run of these hosts by hand, if anything is remembered."""
    if memory.store is None:
        return None
    from nodevet.vet.use.recording import Recording

    return Recording(memory.store, listener, addresses=_addresses(hosts))


def told(recording: "Recording | None", run: Run, memory: Remembering) -> Visited:
    """The run with its news. What is not recorded is said."""
    if recording is None:
        return Visited(run=run, broken="not opened" if memory.lost else "")
    if recording.broken is not None:
        say(f"this run is not all recorded: {recording.broken}")
    broken = str(recording.broken or "")
    return Visited(run=recording.run or run, broken=broken, store=memory.url)


def _addresses(hosts: Sequence[Host]) -> Mapping[str, str]:
    return {host.name: host.address or host.name for host in hosts}


def since_store(context: VetContext, memory: Remembering) -> VetContext:
    """The context of a run with `--since store`. Raises UserError if nothing is remembered."""
    if not memory and not memory.lost:
        raise UserError(f"--since {SINCE_STORE} needs a store: name one with --store")
    return with_store(context, memory, None, None)


def with_store(
    context: VetContext, memory: Remembering, series: str | None, sample: Any
) -> VetContext:
    """The context of a run that judges by what came since the last one that was reported."""
    if memory.store is None or sample:
        return context
    from nodevet.vet.use.last_look import StoredLook

    return structs.replace(context, since=StoredLook(memory.store, series))
