"""The journal of a run: JSON Lines, one record a line, written before each action.

Every record is on the disk before `write` returns, and an action begins after its `ActionBegin`.
So a controller that is killed at any instant leaves a file that shows which actions were done,
which were not, and whose end is unknown.
"""

import errno
import fcntl
import hashlib
import os
import threading
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import msgspec

from nodevet.base import typed
from nodevet.base.files import open_regular, sync_folder
from nodevet.base.printable import brief
from nodevet.base.trust import distrust
from nodevet.base.upgrades import Upgrades
from nodevet.fix.journal.contents import CONTENTS, ContentStore
from nodevet.fix.journal.records import (
    EARLIEST,
    LONGEST_OUTPUT,
    SCHEMA,
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    HostBegin,
    HostEnd,
    HostState,
    JournalError,
    JournalRecord,
    JournalState,
    RunBegin,
    RunEnd,
    Stage,
    StepEnd,
    StepFailed,
    StepLooked,
    StepReverted,
    StepReverting,
    StepState,
    StepVerified,
    state,
)
from nodevet.fix.upgrades import JOURNAL, UpgradeError, upgraded

__all__ = [
    "NAME",
    "ActionBegin",
    "ActionEnd",
    "ActionUnknown",
    "HostBegin",
    "HostEnd",
    "HostState",
    "Journal",
    "JournalError",
    "JournalRecord",
    "JournalState",
    "RunBegin",
    "RunEnd",
    "Stage",
    "StepEnd",
    "StepFailed",
    "StepLooked",
    "StepReverted",
    "StepReverting",
    "StepState",
    "StepVerified",
    "parse",
    "read",
    "state",
]

NAME = "journal.jsonl"
RESERVE = "journal.reserve"
MODE = 0o600  # of every file of a run: they name hosts, users and values
FULL = (errno.ENOSPC, errno.EDQUOT)
_DECODER: msgspec.json.Decoder[Any] = typed.decoder(JournalRecord)


class Journal:
    """A journal that this process has locked until `close`.

    `contents`: files that records name by a hash, written before them. `records`: those in the
    journal. `torn`: bytes after the last complete line when it was opened. `write` may be called
    from several threads.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        records: tuple[JournalRecord, ...] = (),
        torn: bytes = b"",
        last: str = "",
    ):
        self.path = path
        self.contents = ContentStore(path.parent / CONTENTS)
        self._records = list(records)
        self.torn = torn
        self._last = last  # sha256 of the last line
        self._descriptor = descriptor
        self._turn = threading.Lock()
        self.broken = ""  # why nothing more can be written
        self.low = ""  # why no further node may begin: the disk is full and the reserve in use
        self._reserved = False

    @property
    def records(self) -> tuple[JournalRecord, ...]:
        with self._turn:
            return tuple(self._records)

    @classmethod
    def create(cls, folder: Path) -> "Journal":
        """A new journal in the folder of a run, which is created if missing."""
        path = folder / NAME
        _check_owner(path)
        try:
            _make_folder(folder)
        except OSError as error:
            raise JournalError(f"{folder}: cannot be made: {error.strerror}") from error
        _check_owner(path)  # others may have made the folder meanwhile
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, MODE)
        except FileExistsError as error:
            raise JournalError(
                f"{path}: a run is already stored there; resume it, or name another folder"
            ) from error
        except OSError as error:
            raise JournalError(f"{path}: cannot be made: {error.strerror}") from error
        try:
            _lock(descriptor, path)
            os.fsync(descriptor)
            sync_folder(folder)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise JournalError(f"{path}: cannot be made: {error.strerror}") from error
            raise
        return cls(path, descriptor)

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """The journal of a run to resume, by its file or folder.

        A torn last line is moved to `journal.jsonl.torn`: its action never began, or its end was
        never recorded.
        """
        path = _journal_file(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise JournalError(f"{path}: cannot be opened: {error.strerror}") from error
        try:
            _check_owner(path)
            _lock(descriptor, path)
            data = _contents(path)
            records, torn = parse(data, str(path))
            if torn:
                _save_torn(path.with_name(f"{path.name}.torn"), torn)
                os.ftruncate(descriptor, len(data) - len(torn))
                os.fsync(descriptor)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise JournalError(f"{path}: cannot be repaired: {error.strerror}") from error
            raise
        last = data[: len(data) - len(torn)].rstrip(b"\n").rpartition(b"\n")[2]
        return cls(path, descriptor, records, torn, _sha256(last) if records else "")

    def write(self, record: JournalRecord) -> None:
        """Append a record; it is on the disk when this returns.

        Raises JournalError. After that nothing more is written, and nothing more may be done to a
        node, since the last line on the disk is unknown.
        """
        record = _stamped(record)
        with self._turn:
            record = msgspec.structs.replace(record, prev=self._last or chain_start(record))
            line = _line(record)
            if self.broken:
                raise JournalError(self.broken)
            if self._descriptor < 0:
                raise JournalError(f"{self.path}: the journal is closed")
            try:
                self._append(line)
            except OSError as error:
                why = f"{self.path}: cannot be written: {error.strerror}"
                if error.errno not in FULL or not self._release(why):
                    self.broken = why
                    raise JournalError(why) from error
                try:
                    self._append(line)
                except OSError as again:
                    self.broken = f"{self.path}: cannot be written: {again.strerror}"
                    raise JournalError(self.broken) from again
            self._records.append(record)
            self._last = _sha256(line.removesuffix(b"\n"))

    def reserve(self, size: int) -> None:
        """Reserve bytes of the disk, with which nodes in progress can end if it fills up. Raises
        JournalError if there is too little space."""
        path = self._reserve
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, MODE)
            try:
                os.posix_fallocate(descriptor, 0, max(size, 1))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise JournalError(
                f"{path}: {size:,} bytes cannot be reserved: {error.strerror}; the run needs "
                f"them to end properly if the disk fills up: free some space"
            ) from error
        self._reserved = True

    @property
    def _reserve(self) -> Path:
        return self.path.with_name(RESERVE)

    def _let_go(self) -> None:
        if self._reserved:
            self._reserved = False
            with suppress(OSError):
                self._reserve.unlink()

    def _release(self, why: str) -> bool:
        """Free the reserve; False if there is none."""
        if not self._reserved:
            return False
        self._reserved = False
        try:
            self._reserve.unlink()
        except OSError:
            return False
        self.low = why
        return True

    def _append(self, line: bytes) -> None:
        rest, end = memoryview(line), os.fstat(self._descriptor).st_size
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):  # or the part that was written is a torn last line
                os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        """Unlock and close the journal. May be called again."""
        with self._turn:
            self._let_go()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path, *, first: bool = False) -> tuple[JournalRecord, ...]:
    """The records of a journal, by its file or folder, even while a run writes it; with `first`
    only the first one.

    Ignores a torn last line. Raises JournalError for any other line that is not a record.
    """
    path = _journal_file(path)
    try:
        data = _contents(path, first=first)
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
    return parse(data, str(path))[0]


class _Begin(msgspec.Struct, frozen=True):
    """The schema of a record that has one, and of those after it."""

    schema: int | None = None


def parse(
    data: bytes, name: str = NAME, upgrades: Upgrades = JOURNAL
) -> tuple[tuple[JournalRecord, ...], bytes]:
    """The records, and the bytes after the last complete line. `upgrades` convert records of an
    earlier schema.

    Raises JournalError, also if a line is not chained to the one before it.
    """
    *lines, torn = data.split(b"\n")
    records: list[JournalRecord] = []
    last, schema = "", EARLIEST
    for number, line in enumerate(lines, 1):
        try:
            if b'"schema"' in line:
                schema = typed.decode(line, _Begin).schema or schema
            record = _record(line, schema, upgrades)
        except UpgradeError as error:
            if not records and b'"schema"' not in line:
                raise JournalError(
                    f"{name}:1: the first record is not a run with its schema: is this a journal "
                    f"of this nodevet version?"
                ) from error
            raise JournalError(f"{name}:{number}: a journal of {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(
                f"{name}:{number}: not a record of a journal: {brief(str(error))}; the file was "
                "changed or damaged: look at the nodes of this run by hand"
            ) from error
        if not (records or isinstance(record, RunBegin)):
            raise JournalError(
                f"{name}:1: the first record is not the record of a run; is this a journal?"
            )
        if record.prev != (last or chain_start(record)):
            before = f"line {number - 1}" if records else "the plan"
            raise JournalError(
                f"{name}:{number}: does not match {before}: the file was "
                f"changed; look at the nodes of this run by hand"
            )
        records.append(record)
        last = _sha256(line)
    return tuple(records), torn


def _record(line: bytes, schema: int, upgrades: Upgrades) -> JournalRecord:
    if schema == SCHEMA:
        current: JournalRecord = _DECODER.decode(line)
        return current
    document = upgraded(msgspec.json.decode(line), schema, SCHEMA, upgrades)
    converted: JournalRecord = typed.convert(document, cast(Any, JournalRecord))
    return converted


def chain_start(record: JournalRecord) -> str:
    """The digest that the first line of a journal is chained to, from the run's plan."""
    return (
        _sha256(f"nodevet journal of {record.plan}".encode())
        if isinstance(record, RunBegin)
        else ""
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stamped(record: JournalRecord) -> JournalRecord:
    """The record with the current time, and with its output cut to LONGEST_OUTPUT."""
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    record = msgspec.structs.replace(record, at=at)
    if isinstance(record, ActionEnd):
        output = record.output.encode("utf-8", "backslashreplace")[-LONGEST_OUTPUT:]
        record = msgspec.structs.replace(record, output=output.decode("utf-8", "ignore"))
    return record


def _line(record: JournalRecord) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except (TypeError, ValueError) as error:
        raise JournalError(f"a record cannot be written as JSON: {error}") from error


def _journal_file(path: Path) -> Path:
    return path / NAME if path.is_dir() else path


def _contents(path: Path, *, first: bool = False) -> bytes:
    with open_regular(path) as file:
        return file.readline() if first else file.read()


def _check_owner(path: Path) -> None:
    """Raises JournalError if other users may change the journal."""
    if doubt := distrust(path):
        raise JournalError(
            f"{doubt}; nodevet keeps no run where other users may change it: correct that, or name "
            "another folder with --run"
        )


def _lock(descriptor: int, path: Path) -> None:
    """Lock the journal for a running apply or rollback; the kernel unlocks it if that dies."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JournalError(
            f"{path}: another nodevet works on this run; wait until it has ended"
        ) from error


def _save_torn(path: Path, torn: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(torn + b"\n")
        file.flush()
        os.fsync(descriptor)
    sync_folder(path.parent)


def _make_folder(folder: Path) -> None:
    """Create a folder and those above it, so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)
