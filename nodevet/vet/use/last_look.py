"""The last look at each host, which `--since` names: read as new evidence of the host comes in."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from nodevet.base.printable import brief
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.evidence.core import SectionRecord
from nodevet.evidence.document import Evidence, EvidenceError, open_evidence
from nodevet.evidence.edac import Edac
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.last_look import evidence_since, gap
from nodevet.evidence.network import Network
from nodevet.evidence.nfs import Nfs
from nodevet.evidence.pci import Pci
from nodevet.sheet.text import count, nodeset
from nodevet.vet.use.saved import SavedEvidenceError, read_visit

if TYPE_CHECKING:
    from nodevet.store import Store

NOTHING = "no earlier evidence"
MOST_REASONS = 10
LONGEST = 400  # characters of a reason
COUNTING: tuple[type[SectionRecord], ...] = (Gpus, Pci, Network, Infiniband, Nfs, Edac)


class Ignored(NamedTuple):
    """Why a host, or a part of its evidence, is judged as without a last look."""

    why: str
    part: str = ""  # network, the kernel log; empty: all of it


class LastLook:
    """Earlier evidence of hosts, in folders and files of `check --save`.

    It holds no evidence, and reads a host's file on request.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Paths that are not there have nothing recorded. Raises SavedEvidenceError for a folder
        that is something else."""
        for path in paths:
            if path.is_dir() and (wrong := wrong_kind_text(path, DocumentKind.EVIDENCE)):
                raise SavedEvidenceError(f"{path}: {wrong}")
        self._folders = tuple(path for path in paths if not path.is_file())
        self._files: dict[str, Path] = {}
        self._nothing = NOTHING  # what to say of a host of which there is none
        for path in self._folders:
            if path.exists() and not path.is_dir():
                self._nothing = f"{path}: not a regular file"
        for path in paths:
            if path.is_file():
                try:
                    self._files[read_visit(path)[0].host] = path
                except OSError as error:
                    self._nothing = f"{path}: cannot be read: {error.strerror}"
                except SavedEvidenceError as error:
                    self._nothing = str(error)
        self._ignored: dict[str, tuple[Ignored, ...]] = {}

    def read(self, host: str) -> Evidence | str:
        """The earlier evidence of a host, or why it cannot be used."""
        paths = (folder / f"{quote(host, safe='')}.json" for folder in self._folders)
        path = self._files.get(host) or next(filter(os.path.lexists, paths), None)
        if path is None:
            return self._nothing
        try:
            visit, _ = read_visit(path)
            if visit.host != host:
                return f"{path}: evidence of {visit.host}"
            if visit.evidence is None:
                return f"no evidence was recorded: {visit.status.value.replace('_', ' ')}"
            return open_evidence(visit.evidence)
        except OSError as error:
            return f"{path}: cannot be read: {error.strerror}"
        except SavedEvidenceError as error:
            return str(error)
        except EvidenceError as error:
            return f"{path}: {error}"

    def evidence_since(self, host: str, evidence: Evidence, then: Evidence | str) -> Evidence:
        """A host's evidence, to be judged by what came since `then`; unchanged if that cannot be
        told, which is kept in `ignored`."""
        since_then = then if isinstance(then, str) else evidence_since(evidence, then)
        if isinstance(since_then, str):
            self._ignored[host] = (Ignored(since_then),)
            return evidence
        self._ignored[host] = tuple(_left_out(since_then))
        return since_then

    def in_this_process(self) -> "LastLook":
        """The same, for a forked process, which needs connections of its own. Raises StoreError."""
        return self

    def ignored_of(self, host: str) -> tuple[Ignored, ...]:
        return self._ignored.get(host, ())

    def add_ignored(self, host: str, ignored: tuple[Ignored, ...]) -> None:
        """Add what another process ignored."""
        self._ignored[host] = ignored

    @property
    def expected(self) -> str:
        """A reason that is not worth a line."""
        return ""

    @property
    def ignored(self) -> Mapping[Ignored, tuple[str, ...]]:
        """The hosts by reason."""
        hosts_by_reason: dict[Ignored, list[str]] = {}
        for host, reasons in self._ignored.items():
            for reason in reasons:
                hosts_by_reason.setdefault(reason, []).append(host)
        return {reason: tuple(hosts) for reason, hosts in hosts_by_reason.items()}

    def not_compared(self) -> Iterator[str]:
        """One line for each reason why hosts are judged as without a last look, the most frequent
        first."""
        reasons = [pair for pair in self.ignored.items() if pair[0].why != self.expected]
        reasons.sort(key=lambda pair: -len(pair[1]))
        for (why, part), hosts in reasons[:MOST_REASONS]:
            of_part = f" for {part}" if part else ""
            hosts_text = f"{count(len(hosts), 'host')}, {nodeset(hosts)}"
            yield f"--since ignored{of_part}: {brief(why, LONGEST)} ({hosts_text})"
        if (rest := len(reasons) - MOST_REASONS) > 0:
            yield f"--since ignored: {rest} more reasons are not listed"


class StoredLook(LastLook):
    """The evidence of the last sweep of the same name whose reports were written; without a name,
    of the last run."""

    def __init__(self, store: "Store", series: str | None) -> None:
        super().__init__(())
        self._store = store
        self._series = series

    def in_this_process(self) -> LastLook:
        return StoredLook(self._store.in_this_process(), self._series)

    @property
    def expected(self) -> str:
        """A host that was not swept yet."""
        return NOTHING if self._series is not None else ""

    def read(self, host: str) -> Evidence | str:
        """See LastLook.read."""
        from nodevet.store import StoreError

        try:
            recorded_evidence = self._store.last_evidence(host, series=self._series, reported=True)
            return open_evidence(recorded_evidence[1]) if recorded_evidence else self._nothing
        except StoreError as error:
            return f"the store cannot be read: {error}"
        except EvidenceError as error:
            return f"the recorded evidence: {error}"


def _left_out(evidence: Evidence) -> Iterable[Ignored]:
    """The parts that the last look did not read."""
    then = evidence.since.sections if evidence.since else {}
    for record in COUNTING:
        section = record.__module__.rpartition(".")[2]
        if evidence[record].data is not None and then[record].data is None:
            yield Ignored("it was not read then", section)
    if why := gap(evidence):
        yield Ignored(why, "the kernel log")
