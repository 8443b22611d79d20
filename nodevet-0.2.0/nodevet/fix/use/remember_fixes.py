"""Records plans and runs of fixes in the store.

Fixes do not depend on it: a problem with the store is noted, and neither stops nor delays a host.
The journal in the run's folder is the whole truth. Records are made from it, so recording a run
again replaces its records.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nodevet.fix.events import Event, FixListener, HostEnded, RunBegun
from nodevet.fix.journal import journal
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import JournalError
from nodevet.fix.journal.tries import recorded_plan, tries
from nodevet.fix.model import Plan, PlanError
from nodevet.fix.plan.plan_file import digest, write
from nodevet.settings import SettingsError, settings
from nodevet.vet.use.stores import recorded_in

if TYPE_CHECKING:
    from nodevet.store import Store

EVERY = 5.0  # seconds between two records of a run that goes on
PATIENCE = 2.0  # seconds before a note says that nodevet waits for the store
Say = Callable[[str], None]


def meant(option: str | None, *, reaches: bool, told: Say) -> str | None:
    """The URL of the store to record in, by the rules of `nodevet check`; empty: the user's own;
    None: none. Raises StoreError for an invalid option; passes any other problem to `told`.
    """
    from nodevet.store import StoreError
    from nodevet.store.engine import parse_url

    try:
        setting = settings().store_url if option is None and reaches else None
        url = recorded_in(option, setting, reaches=reaches)
        if url:
            parse_url(url)
    except (SettingsError, StoreError) as error:
        if option is not None:
            raise
        told(f"nothing is recorded: {error}")
        return None
    return url


def remember_plan(url: str, plan: Plan) -> str:
    """Why a plan could not be recorded; empty if it was."""
    text = write(plan)
    return _record(url, lambda store: store.record_plan(recorded_plan(plan, digest(text)), text))


def remember_run(url: str, folder: Path) -> str:
    """Record a run's journal and plan. Returns why it could not; empty if it did, or if the journal
    is still empty."""
    try:
        records = journal.read(folder) if (folder / journal.NAME).exists() else ()
        if not records:
            return ""
        text, plan = RunFolder(folder).plan()
        recorded_tries = list(tries(plan, records, str(folder.resolve())))
    except (JournalError, PlanError, RunError) as error:
        return str(error)

    def record(store: "Store") -> None:
        store.record_plan(recorded_plan(plan, digest(text)), text)
        for run, actions, proofs in recorded_tries:
            store.record_fix_run(run, actions, proofs)

    return _record(url, record)


def _record(url: str, record: "Callable[[Store], None]") -> str:
    from nodevet.store import StoreError, open_store

    try:
        with open_store(url or None) as store:
            record(store)
    except StoreError as error:
        return str(error)
    return ""


class FixRecording:
    """Records a run whenever a host ends, so that a killed run leaves records too, and at the end.
    It has a thread of its own, so no host waits for it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._woken = threading.Event()
        self._over = threading.Event()
        self._why = ""
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def hearing(self, listener: FixListener) -> FixListener:
        """A listener that passes everything on, and wakes the recording."""
        return _Waking(listener, self._woken)

    def end(self, told: Say) -> str:
        """Why not everything is recorded; empty if it is. Ctrl-C ends the wait for the store."""
        self._over.set()
        self._woken.set()
        try:
            self._thread.join(PATIENCE)
            if self._thread.is_alive():
                told("waiting for the store, to record this run of fixes; Ctrl-C leaves it out")
            self._thread.join()
        except KeyboardInterrupt:
            return "interrupted"
        return self._why

    def _work(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            is_last = self._over.is_set()
            try:
                self._why = remember_run(self._url, self._folder)
            except Exception as error:  # nothing that goes wrong here may cost a run of fixes
                self._why = f"internal error (please report): {type(error).__name__}: {error}"
            if is_last:
                return
            self._over.wait(None if self._why else EVERY)  # a broken store is tried once more


class _Waking(FixListener):
    def __init__(self, inner: FixListener, woken: threading.Event) -> None:
        self._inner = inner
        self._woken = woken

    def note(self, text: str) -> None:
        self._inner.note(text)

    def note_in_signal(self, text: str) -> None:
        self._inner.note_in_signal(text)

    def on_event(self, event: Event) -> None:
        self._inner.on_event(event)
        if isinstance(event, (RunBegun, HostEnded)):
            self._woken.set()
