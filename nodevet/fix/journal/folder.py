"""The folder of a run: the plan with its signatures, the journal, the evidence, the results."""

import os
import pwd
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from nodevet import __version__
from nodevet.base import typed
from nodevet.base.files import open_regular, write_whole
from nodevet.base.trust import distrust
from nodevet.fix.approval.signatures import Signature
from nodevet.fix.journal import journal
from nodevet.fix.journal.account import NOT_ATTEMPTED, account
from nodevet.fix.journal.contents import CONTENTS, ContentStore
from nodevet.fix.journal.journal import Journal, JournalError, RunBegin, RunEnd
from nodevet.fix.journal.owner import boot_id
from nodevet.fix.journal.records import JournalRecord
from nodevet.fix.model import Plan
from nodevet.fix.plan import plan_file
from nodevet.fix.upgrades import RESULT as RESULTS
from nodevet.fix.upgrades import UpgradeError, upgraded
from nodevet.fixing.result import SCHEMA, Approval, HostResult, Outcome, Result
from nodevet.model import Host

PLAN = "plan.json"
REACH = "reach.json"
RESULT = "result.json"
NOTHING = (
    "the run ended before it started, and changed no node: apply the plan again, with "
    "another folder"
)
TOLD_AGAIN = frozenset({"accept_new"})
"""Options of one command only, which are never kept: the next command must repeat them."""


class RunError(Exception):
    """A run's folder cannot be created or used; the message says why and what to do."""


class SavedReach(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes were reached, for `--resume` and `rollback`."""

    hosts: tuple[Host, ...]
    options: Mapping[str, Any] = {}
    inventories: tuple[str, ...] | None = None
    """Absolute paths, for the next commands; empty: by their names; None: not known."""

    @property
    def reusable_part(self) -> "SavedReach":
        """The part that a later command may use."""
        options = {key: self.options[key] for key in self.options if key not in TOLD_AGAIN}
        return replace(self, options=options)


def _ended_applies(records: Sequence[JournalRecord]) -> tuple[bool, bool]:
    """Whether an apply ended before the first rollback, and whether one ended, resumed, after it.
    Each of them kept its result."""
    kinds: list[str] = []
    before = after = False
    for record in records:
        if isinstance(record, RunBegin):
            kinds.append(record.kind)
        elif isinstance(record, RunEnd) and kinds[-1:] == ["apply"]:
            before, after = before or "rollback" not in kinds, after or "rollback" in kinds
    return before, after


class RunFolder:
    """Raises RunError for a file that cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost: dict[str, None] = {}  # files that could not be kept, and why

    @classmethod
    def fresh(cls, parent: Path, plan: Plan) -> "RunFolder":
        """`<plan id>-<n>` with the next number; made by the journal, the first to write there."""
        number = 1
        while (parent / f"{plan.id}-{number}").exists():
            number += 1
        return cls(parent / f"{plan.id}-{number}")

    def begin(
        self, name: str, plan: bytes, signatures: Sequence[Signature], reach: SavedReach
    ) -> None:
        """Keep the inputs of the run; `name`: of the plan's file."""
        self._write(PLAN, plan)
        for signature in signatures:
            signer = Path(signature.name).name.removeprefix(f"{name}.")
            self._write(f"{PLAN}.{signer}", signature.data)
        self._write(REACH, msgspec.json.format(msgspec.json.encode(reach.reusable_part), indent=1))

    @property
    def contents(self) -> ContentStore:
        """The contents of files that the run read."""
        return ContentStore(self.path / CONTENTS)

    @property
    def plan_file(self) -> Path:
        return self.path / PLAN

    def plan(self) -> tuple[bytes, Plan]:
        """The plan byte by byte, and decoded. Raises PlanError too."""
        text = self._read(PLAN)
        return text, plan_file.read(text)

    def reach(self) -> SavedReach:
        """How the nodes were reached: addresses, keys, and ssh_config, whose commands run here.

        No signature covers that, so nodevet uses it only if nobody but root and the user of this
        process could have written it.
        """
        why = self._open_to_others()  # before it is read: it cannot be replaced afterwards
        text = self._read(REACH)
        if why:
            raise RunError(
                f"{why}; {REACH} there says how to reach the nodes, and is not used: name the "
                "inventory with -i, and --ssh-config and --known-hosts if they are needed"
            )
        try:
            return typed.decode(text, SavedReach).reusable_part
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path / REACH}: {error}; name the inventory with -i") from error

    def _open_to_others(self) -> str:
        """Who else could have written the stored reach; empty if no one could."""
        return distrust(self.path / REACH, must_exist=True)

    def keep_evidence(self, host: str, name: str, document: bytes) -> None:
        """Keep evidence of a node: before, after, rebooted, ...; the last one of a name stays.

        If that fails, it is only noted in `lost`.
        """
        self._keep(f"evidence/{_file(host)}/{name}.json", document)

    def keep(self, reports: Mapping[str, str]) -> None:
        """Keep reports, by file name; those that cannot be kept are in `lost`."""
        for file, text in reports.items():
            self._keep(file, text.encode("utf-8", "backslashreplace"))

    def _keep(self, name: str, data: bytes) -> None:
        try:
            self._write(name, data)
        except RunError as error:
            self.lost[str(error)] = None

    def account(self, records: Sequence[JournalRecord] | None = None) -> Result:
        """The result of the run from its journal, or from these records of it, not from kept
        results. Raises PlanError and JournalError too.
        """
        text, plan = self.plan()
        records = journal.read(self.path) if records is None else records
        if not records:
            raise RunError(f"{self.path}: {NOTHING}")
        result = self.whole(account(plan, records, folder=str(self.path)), records)
        if result.digest != plan_file.digest(text):
            raise RunError(f"{self.plan_file}: was changed since the run began; restore it")
        return result

    def whole(self, result: Result, records: Sequence[JournalRecord]) -> Result:
        """The result, or an unknown one if the journal has lost the end of the run.

        Lines that are missing in the middle break the chain. Lines that are missing at the end show
        only by the results next to the journal.
        """
        before, after = _ended_applies(records)
        is_told = before or (after and not any(map(self._kept_unknown, self._kept_rollbacks())))
        if is_told or not (self.path / RESULT).exists() or self._kept_unknown(RESULT):
            return result
        lost = (
            f"the end of the journal is missing: {RESULT} says how the apply ended, and "
            f"{journal.NAME} does not: the actions in between are neither reported nor rolled "
            f"back here; compare with {RESULT}, and look at the nodes by hand"
        )
        hosts = tuple(
            replace(host, outcome=Outcome.UNKNOWN, why="what was done there is not in the journal")
            if host.why == NOT_ATTEMPTED or host.outcome is Outcome.NOT_ATTEMPTED
            else host
            for host in result.hosts
        )
        unknown = "; ".join(filter(None, (result.unknown, lost)))
        return replace(result, unknown=unknown, hosts=hosts)

    def _kept_rollbacks(self) -> list[str]:
        return [path.name for path in self.path.glob("rollback-*.json")]

    def _kept_unknown(self, name: str) -> bool:
        """Whether a kept result says that the journal is not complete."""
        try:
            with open_regular(self.path / name) as file:
                text = file.read()
            document = typed.decode(text, dict[str, Any])
            schema = int(document.get("schema", SCHEMA))
            return bool(upgraded(document, schema, SCHEMA, RESULTS).get("unknown"))
        except (OSError, ValueError, TypeError, RecursionError, UpgradeError):
            return False

    def next_stem(self, word: str) -> str:
        """`word-<n>` with the next number."""
        number = 1
        while (self.path / f"{word}-{number}.json").exists():
            number += 1
        return f"{word}-{number}"

    def _read(self, name: str) -> bytes:
        try:
            with open_regular(self.path / name) as file:
                return file.read()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._is_empty():
                raise RunError(f"{self.path}: {NOTHING}") from error
            raise RunError(
                f"{self.path / name}: {error.strerror}; is {self.path} the folder of a run?"
            ) from error

    def _is_empty(self) -> bool:
        """Whether the journal was created, and nothing else."""
        try:
            return (self.path / journal.NAME).stat().st_size == 0
        except OSError:
            return False

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, data, durable=True, mode=journal.MODE)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror}") from error


class Opening:
    """One try of a run, apply or rollback, from its first record to its result."""

    def __init__(
        self,
        folder: RunFolder,
        text: bytes,
        plan: Plan,
        log: Journal,
        approvals: Sequence[Approval],
        options: Mapping[str, Any],
        *,
        kind: str = "apply",
        hosts: Sequence[str] = (),
    ) -> None:
        """Writes the first record. Raises JournalError."""
        self._plan = plan
        self._journal = log
        self._clock = time.monotonic()
        log.write(
            RunBegin(
                kind=kind,
                hosts=tuple(hosts),
                nodevet=__version__,
                started=datetime.now().astimezone().isoformat(timespec="seconds"),
                plan=plan_file.digest(text),
                path=str(folder.plan_file),
                approvals=tuple(approvals),
                options=options,
                user=operator(),
                controller=socket.gethostname(),
                pid=os.getpid(),
                boot_id=boot_id(),
            )
        )

    def result(self, hosts: Sequence[HostResult], stopped: str = "") -> Result:
        """Write the last record; returns the result from the journal.

        If the journal could not be completed, the results in `hosts` are used instead.
        """
        log = self._journal
        unknown = f"not everything could be stored: {log.low}; free some space" if log.low else ""
        seconds = round(time.monotonic() - self._clock, 3)
        end = RunEnd(outcome="", stopped=stopped, seconds=seconds, unknown=unknown)
        result = account(self._plan, (*log.records, end))
        with suppress(JournalError):
            log.write(replace(end, outcome=str(result.exit_code)))
        if not log.broken:
            return account(self._plan, log.records)
        result_by_host = {host.host: host for host in hosts}
        return replace(
            result,
            unknown=f"{log.broken}; the journal lacks the state of the nodes then in progress",
            hosts=tuple(result_by_host.get(host.host, host) for host in result.hosts),
        )


def _file(host: str) -> str:
    """A host's name as a file name that is neither a path nor `..`."""
    name = quote(host, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def operator() -> str:
    """The user of this process, or the user who became root by sudo."""
    sudo = os.environ.get("SUDO_USER", "")
    if os.getuid() == 0 and sudo:
        return sudo
    return _user_name(os.getuid())


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # no name in this container
        return f"uid {uid}"
