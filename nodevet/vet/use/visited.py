"""Visit hosts and record the run in the store that an option, the environment or nodevet.toml
names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from nodevet.base.errors import UserError
from nodevet.model import Host
from nodevet.model.run import Run
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reports import Reports, Streaming
from nodevet.vet.use.vet import vet

if TYPE_CHECKING:
    from nodevet.fleet import Options
    from nodevet.settings.model import FailOn
    from nodevet.store import Store
    from nodevet.vet.use.recording import Budget, Recording

SINCE_STORE = "store"  # the word of `--since` in place of a folder
UNRECORDED = 2  # exit code: the run is reported, but not recorded as was asked


class RunMemory(Struct, frozen=True, kw_only=True):
    """The store that a run is compared with and recorded in; None: neither."""

    store: "Store | None" = None
    url: str | None = None
    lost: bool = False  # a store that was asked for could not be opened

    def __bool__(self) -> bool:
        return self.store is not None


@contextmanager
def open_memory(url: str | None, listener: VetListener, *, asked: bool) -> Iterator[RunMemory]:
    """The store at this URL; empty: the user's own, None: none. `asked`: whether the user named it.

    If it cannot be opened, the listener is warned and the run goes on without. Raises StoreError
    for an address that is not valid.
    """
    if url is None:
        yield RunMemory()
        return
    from nodevet.store import StoreError, open_store
    from nodevet.store.urls import parse_url

    if url:
        parse_url(url)
    try:
        store = open_store(url or None)
    except StoreError as error:
        hint = "" if asked else "; `--store none` records nothing"
        listener.warned(f"this run is not recorded: {error}{hint}")
        yield RunMemory(lost=asked)
        return
    with store:
        yield RunMemory(store=store, url=url)


class Visited(Struct, frozen=True, kw_only=True):
    """A run, and whether nodevet recorded it as requested."""

    run: Run
    listener: VetListener = field(default_factory=VetListener)
    broken: str = ""
    store: str | None = None  # where it is recorded; empty: the user's own

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Record the run as reported once its reports are written. If that fails, or the run is
        killed before, the next run will call the findings of this one new."""
        yield
        if self.store is None or self.broken:
            return
        from nodevet.store import StoreError, open_store

        try:
            with open_store(self.store or None, create=False) as store:
                store.reported_with(self.run.id, self.run.exit_code)
        except StoreError as error:
            self.listener.warned(f"the next run will call the findings of this one new: {error}")

    def code(self, reports: Reports) -> int:
        """The exit code of the command."""
        return UNRECORDED if self.broken else reports.code(self.run)


def visited(
    hosts: Sequence[Host],
    context: VetContext,
    options: "Options",
    reports: Reports,
    memory: RunMemory,
    listener: VetListener,
    *,
    fail_on: "FailOn",
    series: str = "",
    whole: bool = False,
    budget: "Budget | None" = None,
    resume: str | None = None,
    alone: bool = False,
) -> Visited:
    """Vet the hosts; stream each report, and record it if anything is recorded.

    `alone`: see Store.begin. Raises StoreHeldError.
    """
    if fail_on.new and not memory:
        raise UserError(f"--fail-on {fail_on} needs a store to compare with")
    with reports.streams() as streams:
        streaming = Streaming(streams, listener)
        if memory.store is None:
            run = vet(
                hosts,
                context,
                options,
                fail_on=fail_on.severity,
                save=reports.keep,
                listener=streaming,
            )
            return with_news(None, run, memory, listener)
        from nodevet.vet.use.recording import Recording
        from nodevet.vet.use.resume import resumed

        earlier = resumed(memory.store, resume, context, hosts) if resume else None
        if earlier is not None:
            hosts = earlier.left
        recording = Recording(
            memory.store,
            streaming,
            series=earlier.recorded.series if earlier else series,
            whole=whole,
            fail_on_new=fail_on.new,
            alone=alone,
            budget=budget,
            addresses=_addresses(hosts),
            earlier=earlier,
            keep=reports.keep,
        )
        with recording:
            run = vet(
                hosts,
                context,
                options,
                fail_on=fail_on.severity,
                save=recording.keep,
                listener=recording,
                earlier=earlier.reports if earlier else (),
            )
    return with_news(recording, run, memory, listener)


def recording_of(
    memory: RunMemory, hosts: Sequence[Host], listener: VetListener
) -> "Recording | None":
    """What records a run of these hosts, if anything is recorded."""
    if memory.store is None:
        return None
    from nodevet.vet.use.recording import Recording

    return Recording(memory.store, listener, addresses=_addresses(hosts))


def with_news(
    recording: "Recording | None", run: Run, memory: RunMemory, listener: VetListener
) -> Visited:
    """The run with its news. The listener is warned if a part is not recorded."""
    if recording is None:
        return Visited(run=run, listener=listener, broken="not opened" if memory.lost else "")
    if recording.broken is not None:
        listener.warned(f"a part of this run is not recorded: {recording.broken}")
    return Visited(
        run=recording.run or run,
        listener=listener,
        broken=str(recording.broken or ""),
        store=memory.url,
    )


def _addresses(hosts: Sequence[Host]) -> Mapping[str, str]:
    return {host.name: host.address or host.name for host in hosts}


def since_store(context: VetContext, memory: RunMemory) -> VetContext:
    """The context of a run with `--since store`. Raises UserError if nothing is recorded."""
    if not memory and not memory.lost:
        raise UserError(f"--since {SINCE_STORE} needs a store: name one with --store")
    return with_store(context, memory, None)


def with_store(context: VetContext, memory: RunMemory, series: str | None) -> VetContext:
    """The context of a run that judges counters and the kernel log by what came since the last
    reported run of the `series`, or of any."""
    if memory.store is None:
        return context
    from nodevet.vet.use.last_look import StoredLook

    return structs.replace(context, since=StoredLook(memory.store, series))
