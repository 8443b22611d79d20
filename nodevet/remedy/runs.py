"""The folder of a run: the plan with its signatures, the journal, the evidence, the results."""

import os
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
from nodevet.model import Host
from nodevet.remedy import journal, nouns
from nodevet.remedy.allowed import Approval
from nodevet.remedy.journal import Run, RunState
from nodevet.remedy.nouns import Plan
from nodevet.remedy.result import SCHEMA, HostResult, Outcome, Result
from nodevet.remedy.signatures import Signature

PLAN = "plan.json"
REACH = "reach.json"
OPEN = frozenset({Outcome.DOUBT, Outcome.HALF, Outcome.UNTOUCHED})
"""What a resumed run looks at again."""
TOLD_ANEW = frozenset({"accept_new"})
"""What is true of one command only, and is never kept: whoever goes on says it again."""


class RunError(Exception):
    """A run's folder that cannot be made or used; the message says why and what to do."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes were reached: what `--resume` and `rollback` take up again."""

    hosts: tuple[Host, ...]
    options: Mapping[str, Any] = {}

    @property
    def kept(self) -> "Reach":
        """What a later command may take up."""
        options = {key: self.options[key] for key in self.options if key not in TOLD_ANEW}
        return replace(self, options=options)


class RunFolder:
    """Raises RunError for a file that cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def fresh(cls, parent: Path, plan: Plan) -> "RunFolder":
        """`<plan id>-<n>` with the next number; made by the journal, the first to write there."""
        number = 1
        while (parent / f"{plan.id}-{number}").exists():
            number += 1
        return cls(parent / f"{plan.id}-{number}")

    def begin(self, name: str, plan: bytes, signatures: Sequence[Signature], reach: Reach) -> None:
        """Keep what the run is made from; `name` is that of the plan's file."""
        self._write(PLAN, plan)
        for signature in signatures:
            signer = Path(signature.name).name.removeprefix(f"{name}.")
            self._write(f"{PLAN}.{signer}", signature.data)
        self._write(REACH, msgspec.json.format(msgspec.json.encode(reach.kept), indent=1))

    @property
    def plan_file(self) -> Path:
        return self.path / PLAN

    def plan(self) -> tuple[bytes, Plan]:
        """The plan byte by byte, and decoded. Raises PlanError too."""
        text = self._read(PLAN)
        return text, nouns.read(text)

    def reach(self) -> Reach:
        text = self._read(REACH)
        try:
            return msgspec.json.decode(text, type=Reach).kept
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path / REACH}: {error}; name the inventory with -i") from error

    def keep_evidence(self, host: str, name: str, document: bytes) -> None:
        """Evidence of a node: before, after, rebooted, ...; the last one of a name stays."""
        self._write(f"evidence/{_file(host)}/{name}.json", document)

    def keep_host(self, result: HostResult) -> None:
        """One node's result as soon as it has one."""
        self._write(f"hosts/{_file(result.host)}.json", msgspec.json.encode(result))

    def host(self, name: str) -> HostResult | None:
        """The kept result of a node; None where there is none, or none that can be read."""
        path = self.path / "hosts" / f"{_file(name)}.json"
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(path.read_bytes(), type=HostResult)
        return None

    def finished(self, run: RunState | None) -> dict[str, HostResult]:
        """The nodes that an earlier try left in a known state, with their results."""
        found = {}
        for name, host in run.hosts.items() if run else ():
            known = self.host(name)
            if known and known.outcome.value == host.outcome and known.outcome not in OPEN:
                found[name] = known
        return found

    def keep(self, reports: Mapping[str, str]) -> None:
        """Reports, by file name."""
        for file, text in reports.items():
            self._write(file, text.encode("utf-8", "backslashreplace"))

    def latest(self) -> Result:
        """The result that was kept last, of the run or of a rollback."""
        found = [*self.path.glob("result.json"), *self.path.glob("rollback-*.json")]
        if not found:
            raise RunError(
                f"{self.path}: no result is kept there: it is no folder of a run, or the run was "
                "ended before it had one; go on with `nodevet apply --resume`"
            )
        path = max(found, key=lambda each: each.stat().st_mtime_ns)
        try:
            result = msgspec.json.decode(path.read_bytes(), type=Result)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RunError(f"{path}: not the result of a run: {error}") from error
        if result.schema != SCHEMA:
            raise RunError(
                f"{path}: has schema {result.schema}, this nodevet reads {SCHEMA}; read it with "
                "the nodevet that wrote it"
            )
        return result

    def next_stem(self, word: str) -> str:
        """`word-<n>` with the next number."""
        number = 1
        while (self.path / f"{word}-{number}.json").exists():
            number += 1
        return f"{word}-{number}"

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._is_empty():
                raise RunError(
                    f"{self.path}: the run ended before it began, and nothing was done on any "
                    "node: apply the plan anew"
                ) from error
            raise RunError(
                f"{self.path / name}: {error.strerror}; is {self.path} the folder of a run?"
            ) from error

    def _is_empty(self) -> bool:
        """Whether the journal was made, and nothing else followed."""
        try:
            return (self.path / journal.NAME).stat().st_size == 0
        except OSError:
            return False

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise RunError(f"{path}: cannot be written: {error.strerror}") from error


class Opening:
    """A run from its first record to its result."""

    def __init__(
        self,
        folder: RunFolder,
        text: bytes,
        plan: Plan,
        approvals: Sequence[Approval],
        options: Mapping[str, Any],
    ) -> None:
        self._folder = folder
        self._digest = nouns.digest(text)
        self._plan = plan
        self._approvals = tuple(approvals)
        self._options = options
        self._started = datetime.now().astimezone()
        self._clock = time.monotonic()

    def record(self) -> Run:
        """What the journal says first."""
        return Run(
            plan=self._digest,
            path=str(self._folder.plan_file),
            approvals=self._approvals,
            options=self._options,
            controller=socket.gethostname(),
            pid=os.getpid(),
            boot_id=_boot_id(),
        )

    def result(self, kind: str, hosts: Sequence[HostResult], stopped: str = "") -> Result:
        return Result(
            kind=kind,
            nodevet=__version__,
            plan=self._plan.id,
            digest=self._digest,
            author=self._plan.author,
            approvals=self._approvals,
            started=self._started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._clock, 3),
            options=self._options,
            stopped=stopped,
            hosts=tuple(hosts),
        )


def _file(host: str) -> str:
    """A host's name as one name of a file: neither a path, nor a folder above."""
    name = quote(host, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _boot_id() -> str:
    """Of this machine; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
