"""Plans and runs of fixes, recorded in the store.

Nothing about fixes depends on it: whatever goes wrong with the store is told, and neither stops nor
delays a host. The journal in the run's folder is the whole truth; what is recorded is read from it,
so that recording it again replaces what was there.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nodevet.fix.events import Event, HostEnded, RunBegun
from nodevet.fix.journal import journal
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import JournalError
from nodevet.fix.journal.tries import recorded_plan, tries
from nodevet.fix.listener import FixListener
from nodevet.fix.model import Plan, PlanError
from nodevet.fix.plan.plan_file import digest, write
from nodevet.settings import SettingsError, settings
from nodevet.vet.use.stores import recorded_in

if TYPE_CHECKING:
    from nodevet.store import Store

EVERY = 5.0  # seconds from one look at a run that goes on to the next
PATIENCE = 2.0  # seconds, after which it is told that the store is waited for
Told = Callable[[str], None]


def meant(option: str | None, *, reaches: bool, told: Told) -> str | None:
    """The store that is meant, by the rules of `nodevet check`: its URL; empty: the user's own;
    None: none. Raises StoreError for an option that is no address; any other trouble is told.
    """
    from nodevet.store import StoreError
    from nodevet.store.engine import parse_url

    try:
        named = settings().store_url if option is None and reaches else None
        url = recorded_in(option, named, reaches=reaches)
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
    return _kept(url, lambda store: store.record_plan(recorded_plan(plan, digest(text)), text))


def remember_run(url: str, folder: Path) -> str:
    """Record what is in a run's journal, with its plan. Why it could not be; empty if it was, or if
    there is nothing yet."""
    try:
        records = journal.read(folder) if (folder / journal.NAME).exists() else ()
        if not records:
            return ""
        text, plan = RunFolder(folder).plan()
        found = list(tries(plan, records, str(folder.resolve())))
    except (JournalError, PlanError, RunError) as error:
        return str(error)

    def record(store: "Store") -> None:
        store.record_plan(recorded_plan(plan, digest(text)), text)
        for run, actions, proofs in found:
            store.record_fix_run(run, actions, proofs)

    return _kept(url, record)


def _kept(url: str, record: "Callable[[Store], None]") -> str:
    from nodevet.store import StoreError, open_store

    try:
        with open_store(url or None) as store:
            record(store)
    except StoreError as error:
        return str(error)
    return ""


class FixRecording:
    """Records a run as its hosts end, so that one that is killed has left what it did, and all of
    it at the end; in a thread of its own, for which no host waits."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._woken = threading.Event()
        self._over = threading.Event()
        self._why = ""
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def hearing(self, listener: FixListener) -> FixListener:
        """A listener that hears what another one does, and wakes the recording."""
        return _Waking(listener, self._woken)

    def end(self, told: Told) -> str:
        """Why not all of it is recorded; empty if it is. Ctrl-C ends the wait for the store."""
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
            last = self._over.is_set()
            try:
                self._why = remember_run(self._url, self._folder)
            except Exception as error:  # nothing that goes wrong here may cost a run of fixes
                self._why = f"internal error (please report): {type(error).__name__}: {error}"
            if last:
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

    def heard(self, event: Event) -> None:
        self._inner.heard(event)
        if isinstance(event, (RunBegun, HostEnded)):
            self._woken.set()
