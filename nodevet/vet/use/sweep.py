"""A sweep: lock, visit, record, notify, report and delete old evidence, as nodevet.toml says."""

import random
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from nodevet.base.durations import elapsed
from nodevet.base.errors import UserError
from nodevet.fleet.model import OnSteps
from nodevet.model import Status
from nodevet.model.run import Run
from nodevet.vet.use.after_run import act_all
from nodevet.vet.use.context import open_context
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reports import Reports
from nodevet.vet.use.sweep_lock import locked
from nodevet.vet.use.sweep_order import SweepOrder, urls, wanted
from nodevet.vet.use.visited import UNRECORDED, RunMemory, Visited, open_memory, visited, with_store

if TYPE_CHECKING:
    from nodevet.store import Store


class Swept(Struct, frozen=True, kw_only=True):
    """A sweep that ended."""

    run: Run
    exit_code: int


def sweep(
    order: SweepOrder,
    listener: VetListener | None = None,
    *,
    reports: Reports | None = None,
    lock: bool = True,
    on_steps: OnSteps | None = None,
) -> Swept:
    """Make one sweep. It needs no terminal: `reports` are the files of the settings if none are
    given. Without `lock` it also runs while another sweep visits the same inventory. `on_steps`:
    see nodevet.fleet.Options.

    Raises HeldError and StoreHeldError if another sweep runs, and UserError if the settings are
    wrong or a report could not be written.
    """
    listener = listener or VetListener()
    reports = reports or Reports(order.outputs, order.save)
    people = urls(order)  # before hours are spent on news that nobody can be sent
    _wait(order, listener)
    with locked(order.locks, f"nodevet sweep {order.name}") if lock else nullcontext():
        done = _visit(order, listener, reports, on_steps, lock=lock)
        done, not_notified = _notify(order, done, people)
        try:
            with done.reporting():
                reports.finish(done.run)
        except UserError:
            _ended(order, done, UNRECORDED, not_notified)
            raise
        code = done.code(reports)
        _ended(order, done, code, not_notified)
        if not done.broken:
            act_all(order, listener.warned)
            _delete_old_evidence(order, listener)
    return Swept(run=done.run, exit_code=code)


def _wait(order: SweepOrder, listener: VetListener) -> None:
    """Wait for a random part of `jitter`."""
    if jitter := order.seconds("jitter"):
        seconds = random.uniform(0, jitter)  # noqa: S311
        listener.warned(f"begins in {elapsed(seconds)}")
        time.sleep(seconds)


def _visit(
    order: SweepOrder,
    listener: VetListener,
    reports: Reports,
    on_steps: OnSteps | None,
    *,
    lock: bool,
) -> Visited:
    """Vet and record the hosts."""
    with open_memory(order.store, listener, asked=True) as memory:
        if lock and memory.store is not None:
            _refuse_running(memory.store, order.name)
        _beat(order, listener, {"start_timestamp_seconds": time.time()})
        context = open_context(order.project, order.baselines)
        hosts = order.targets.hosts()
        if order.settings.since:
            context = with_store(context, memory, order.name)
        done = visited(
            hosts,
            context,
            replace(order.options(context), on_steps=on_steps),
            reports,
            memory,
            listener,
            fail_on=order.fail_on,
            series=order.name,
            whole=not order.targets.limit,
            budget=order.budget,
            alone=lock,
        )
        _note(order, done, memory, listener)
        for line in context.since.not_compared() if context.since else ():
            listener.noted(line)
        return done


def _refuse_running(store: "Store", name: str) -> None:
    """Raises StoreHeldError if this sweep goes on, before anything is written: Store.begin asks
    again, and the run then goes on without a store that cannot be read."""
    from nodevet.store.errors import StoreError, StoreHeldError

    try:
        store.require_free(name)
    except StoreHeldError:
        raise
    except StoreError:
        pass


def _note(order: SweepOrder, done: Visited, memory: RunMemory, listener: VetListener) -> None:
    if order.budget and not memory:
        listener.noted(f"{order.name}: not recorded: the failure budget is not checked")
    if done.run.news and not done.run.news.since:
        listener.noted(f"{order.name}: the first recorded sweep; nothing is marked as new")


def _notify(
    order: SweepOrder, done: Visited, people: tuple[str, ...]
) -> tuple[Visited, tuple[str, ...]]:
    """Send what is new or fixed. The run, which names who could not be notified; and these."""
    from nodevet.vet.use.notify import message, notify

    if order.notices is None or not people:
        return done, ()
    notice = message(done.run, order.name, wanted(order.notices))
    failed = notify(people, notice) if notice else ()
    for address in failed:
        done.listener.warned(f"warning: could not notify {address}")
    if not failed or not done.run.news:
        return done, failed
    news = structs.replace(done.run.news, not_notified=failed)
    return structs.replace(done, run=structs.replace(done.run, news=news)), failed


def _delete_old_evidence(order: SweepOrder, listener: VetListener) -> None:
    """As the settings say. An error is only a warning."""
    from nodevet.store import StoreError, open_store
    from nodevet.store.records.retention import Retention

    if order.retention is None or order.store is None:
        return
    retention = order.retention
    policy = Retention(daily=retention.daily, weekly=retention.weekly, monthly=retention.monthly)
    try:
        with open_store(order.store or None) as store:
            store.prune(policy)
    except StoreError as error:
        listener.warned(f"warning: old evidence was not deleted: {error}")


def _ended(order: SweepOrder, done: Visited, code: int, not_notified: tuple[str, ...]) -> None:
    vetted = sum(host.status is Status.VETTED for host in done.run.summaries)
    values = {
        "end_timestamp_seconds": time.time(),
        "exit_code": code,
        "hosts": len(done.run.hosts),
        "vetted_hosts": vetted,
        "notify_failed": len(not_notified),
    }
    _beat(order, done.listener, values)


def _beat(order: SweepOrder, listener: VetListener, values: Mapping[str, float]) -> None:
    """Write the heartbeat. An error is only a warning."""
    from nodevet.base.outputs import FileError
    from nodevet.vet.use.heartbeat import beat

    path = order.path(order.settings.heartbeat)
    if path is None:
        return
    try:
        beat(path, order.name, values)
    except FileError as error:
        listener.warned(f"warning: heartbeat: {error}")
