"""What apply and rollback share: their plan, terms for nodes, and reports at the end."""

import getpass
import hashlib
import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.base.files import read_input
from nodevet.base.nodeset import NodesetError, names_in
from nodevet.base.printable import brief
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.fix import formats
from nodevet.fix.events import FixListener
from nodevet.fix.formats import FixRun
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import JournalRecord, JournalState, RunBegin
from nodevet.fix.model import Plan, PlanError
from nodevet.fix.plan.holders import holder_names
from nodevet.fix.plan.plan_file import digest, read
from nodevet.fix.rollout.session import SessionTerms
from nodevet.fix.settings import Rollout
from nodevet.fixing.result import Result
from nodevet.sheet.text import nodeset

UNKNOWN = ("INVENTORY",)
"""The inventories of a run, if they are not known."""


def inventories_of(run: RunFolder) -> Sequence[str]:
    """The inventories of a run, from its folder; empty if hosts are reached by their names."""
    try:
        inventories = run.reach().inventories
    except RunError:
        inventories = None
    return UNKNOWN if inventories is None else inventories


def read_plan(file: Path) -> tuple[bytes, Plan]:
    """A plan byte by byte, and decoded. Raises UserError and PlanError."""
    try:
        text = read_input(file)
    except FileNotFoundError as error:
        raise UserError(f"{file}: there is no such file; check the path") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        return text, read(text)
    except PlanError as error:
        raise PlanError(f"{file}: {wrong_kind_text(file, DocumentKind.PLAN) or error}") from error


def open_run(folder: Path) -> RunFolder:
    """The folder of an earlier run. Raises UserError for a folder of another kind."""
    if kind_problem := wrong_kind_text(folder, DocumentKind.FIX_RUN):
        raise UserError(f"{folder}: {kind_problem}")
    return RunFolder(folder)


@contextmanager
def resumable(
    run: RunFolder,
    again: str,
    listener: FixListener,
    *,
    named: Sequence[str] = (),
    then: str = "",
) -> Iterator[None]:
    """Say where a run is stored, how to watch it, and how to continue it: by `again` with the
    baselines `named`, which starts nothing more if `then` must follow. If the run is interrupted,
    print that command again.
    """
    folder = shlex.quote(str(run.path))
    command_line = shlex.join(["nodevet", *again.split(), str(run.path)])
    command_line += "".join(f" -b {shlex.quote(name)}" for name in named)
    listener.note(f"run {folder}; watch it: nodevet status {folder}")
    listener.note(f"if it is interrupted: {command_line}" + (f", then {then}" if then else ""))
    try:
        yield
    except KeyboardInterrupt:
        advice = (
            f"read them with: {command_line}, then {then}"
            if then
            else f"go on with: {command_line}"
        )
        listener.note(f"nodevet leaves the current hosts as they are; {advice}")
        raise


def chosen_hosts(names: Sequence[str], hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts of a plan that these nodesets name; all without names. Raises UserError if a name
    is not in the plan."""
    if not names:
        return tuple(hosts)
    try:
        expected = {
            node for name in names for node in ([name] if name in hosts else names_in(name))
        }
    except NodesetError as error:
        raise UserError(f"--host: {error}") from error
    if unknown := expected - set(hosts):
        hosts_text = brief(nodeset(hosts), 400)
        raise UserError(
            f"--host: {nodeset(sorted(unknown))}: not in the plan, which is for {hosts_text}"
        )
    return tuple(host for host in hosts if host in expected)


def same_plan(run: RunFolder, text: bytes, state: JournalState) -> JournalState:
    """Raises UserError if the stored plan is no longer the one that the run began with."""
    if state.run is not None and state.run.plan != digest(text):
        raise UserError(f"{run.plan_file}: was changed since the run began; restore it")
    return state


def terms_of(
    run: RunFolder, rollout: Rollout, plan: Plan, records: Sequence[JournalRecord]
) -> SessionTerms:
    """The terms of sessions, with the text of the lock. `records`: of the run's journal."""
    return SessionTerms(
        who=f"{user()}@{socket.gethostname()}, run {run.path.resolve().name}, pid {os.getpid()}",
        settle=rollout.settle,
        reboot=rollout.reboots_each,
        power_cycle=rollout.power_cycle,
        reboot_seconds=rollout.reboot_timeout,
        boot_settle=rollout.boot_settle,
        drain_hook=rollout.drain_hook,
        drain_seconds=rollout.drain_timeout,
        plan=plan.id,
        run=run_mark(records),
        harmless=holder_names(rollout.holders),
    )


def run_mark(records: Sequence[JournalRecord]) -> str:
    """8 hex digits that tell a run from others of its plan, by its first record: its resumes and
    its rollbacks have the same."""
    begin = next(record for record in records if isinstance(record, RunBegin))
    words = (begin.controller, begin.boot_id, str(begin.pid), begin.at)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]


def user() -> str:
    """The user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in this container
        return f"uid {os.getuid()}"


def keep(run: RunFolder, result: Result, stem: str) -> Result:
    """Keep the reports in the run's folder; returns the result, which says if some are missing."""
    endings = formats.endings()
    run.keep({f"{stem}{endings[form]}": render_report(run, form, result) for form in endings})
    return with_lost(result, tuple(run.lost)) if run.lost else result


def render_report(
    run: RunFolder,
    form: str,
    result: Result,
    *,
    inventories: Sequence[str] | None = None,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """The report in this format, with contents of files from the run's folder."""
    inventories = inventories_of(run) if inventories is None else inventories
    details = FixRun(run.contents.find, shlex.quote(str(run.path)), inventories)
    return formats.render(form, result, details, colour=colour, width=width)


def with_lost(result: Result, lost: Sequence[str]) -> Result:
    """The result of a run whose reports could not all be kept."""
    rest = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    unknown = f"not everything could be stored: {lost[0]}{rest}"
    return replace(result, unknown="; ".join(filter(None, (result.unknown, unknown))))
