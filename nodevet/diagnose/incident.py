"""Incident bundles: one file with everything that nodevet watched on some hosts, to diagnose again.

`nodevet diagnose --capture FILE` writes one, gzipped if its name ends in .gz. With `--redact` it
holds what a diagnosis needs, with codes instead of the names of people, paths and machines; within
one bundle, a name always has the same code.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from nodevet import __version__
from nodevet.base import typed
from nodevet.base.bounds import at_most
from nodevet.base.errors import UserError
from nodevet.base.files import open_regular
from nodevet.base.outputs import file_errors, replace_data
from nodevet.diagnose.model import Diagnosis, HostDiagnosis, JobTarget
from nodevet.diagnose.phrases import missing_label
from nodevet.diagnose.ranks import is_local
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.evidence.telling import TELLING
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.vet.use.saved import KeptVisit, SavedEvidenceError, document_of, visit_of
from nodevet.vet.use.stores import NoHistoryError, NothingRecordedError, open_history

SCHEMA = 1
MOST_HOSTS = at_most(1 << 16)  # a gzip of 1 MiB can hold millions that say nothing
LARGEST = 256 << 20  # bytes of a bundle, unpacked
MODE = 0o600  # it names users, programs and paths
NEEDED = (
    *("gpu", "gpu_activity", "host_activity", "process_activity", "nccl_ras"),
    *("cpu", "cpufreq", "host", "memory", "numa", "pci", "processes"),
)
"""The sections that a redacted bundle keeps."""
LEFT_OUT = frozenset({"fstab", "swap_units", "swaps", "uid"})
"""The fields that no diagnosis needs, and that name people, paths or machines in passing."""
Code = Callable[[str], str]


class IncidentBundle(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a bundle."""

    nodevet_incident: int
    nodevet: str = ""
    redacted: bool = False  # names are codes; for who reads the file
    hosts: Annotated[tuple[KeptVisit, ...], MOST_HOSTS]
    job: JobTarget | None = None  # if the hosts were watched for it


class IncidentCapture:
    """Collects visits as they come in, and writes them as one bundle."""

    def __init__(self) -> None:
        self._kept: list[tuple[Visit, Host]] = []

    def keep(self, visit: Visit, host: Host) -> None:
        self._kept.append((visit, host))

    def write(self, path: Path, job: JobTarget | None, *, redact: bool) -> None:
        """See `write`."""
        write(path, self._kept, job, redact=redact)


def write(
    path: Path,
    visits: Iterable[tuple[Visit, Host]],
    job: JobTarget | None = None,
    *,
    redact: bool,
) -> None:
    """Write a bundle, readable by its owner only. Raises FileError, and UserError beyond
    LARGEST."""
    code = coder(os.urandom(16))
    documents: list[Mapping[str, Any]] = [document_of(visit, host) for visit, host in visits]
    if redact:
        documents = [redact_visit(document, code) for document in documents]
        job = job and redact_job(job, code)
    head = {"nodevet_incident": SCHEMA, "nodevet": __version__, "redacted": redact}
    text = msgspec.json.encode({**head, "hosts": documents, "job": job})
    if len(text) > LARGEST:
        raise UserError(
            f"{path}: the bundle would have {len(text) >> 20} MiB, and the limit is "
            f"{LARGEST >> 20} MiB; capture fewer hosts, or for a shorter time"
        )
    data = gzip.compress(text, 6, mtime=0) if path.suffix == ".gz" else text
    with file_errors(path):
        replace_data(path, data, MODE)


def read(path: Path) -> Sequence[tuple[Visit, Host]]:
    """The visits of a bundle. Raises SavedEvidenceError if it is unreadable or not a bundle."""
    return read_bundle(path)[0]


def read_bundle(path: Path) -> tuple[Sequence[tuple[Visit, Host]], JobTarget | None]:
    """The same, and the job for which the hosts were watched."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise SavedEvidenceError(f"{path}: cannot be read: {error.strerror}") from error
    if data[:2] == b"\x1f\x8b":
        data = unpacked(data, path)
    if len(data) > LARGEST:
        raise SavedEvidenceError(f"{path}: more than {LARGEST >> 20} MiB: not an incident bundle")
    try:
        bundle = typed.decode(data, IncidentBundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        kind_hint = wrong_kind_text(path, DocumentKind.INCIDENT)
        why = kind_hint or f"not an incident bundle: {error}"
        hint = "" if kind_hint else "; `nodevet diagnose --capture FILE` writes one"
        raise SavedEvidenceError(f"{path}: {why}{hint}") from error
    if bundle.nodevet_incident != SCHEMA:
        raise SavedEvidenceError(
            f"{path}: an incident bundle of schema {bundle.nodevet_incident}; "
            f"this nodevet reads {SCHEMA}"
        )
    return [visit_of(document, path) for document in bundle.hosts], bundle.job


def unpacked(data: bytes, path: Path) -> bytes:
    """The text of a gzipped bundle, LARGEST of it at most. Raises SavedEvidenceError."""
    unpack = zlib.decompressobj(wbits=31)
    with suppress(zlib.error):
        text = unpack.decompress(data, LARGEST + 1)
        if unpack.eof or len(text) > LARGEST:
            return text
    raise SavedEvidenceError(f"{path}: the gzip is damaged or truncated")


def coder(salt: bytes) -> Code:
    """The code of a name; without the salt, nobody can try out names."""

    def code(name: str) -> str:
        if not name:
            return name
        return "redacted-" + hashlib.blake2b(name.encode(), key=salt, digest_size=5).hexdigest()

    return code


def redact_visit(visit: Mapping[str, Any], code: Code) -> Mapping[str, Any]:
    """A saved visit without names."""
    cleared = {
        **visit,
        "host": code(visit["host"]),
        "groups": [],
        "why": "",
        "expect_hostname": False,
    }
    if visit["why"]:
        cleared["why"] = "redacted"
    if visit["evidence"] is None:
        return cleared
    try:
        document = msgspec.json.decode(bytes(visit["evidence"]))
        sections = {
            name: redact_value(section, code)
            for name, section in document["sections"].items()
            if name in NEEDED
        }
    except RecursionError:
        why = "the evidence is nested too deeply to be redacted"
        return {**cleared, "status": Status.PROBE_FAILED, "why": why, "evidence": None}
    cleared["evidence"] = {**document, "sections": sections, "earlier": None}
    return cleared


def redact_job(job: JobTarget, code: Code) -> JobTarget:
    """A job without names; the owner's uid is in no redacted evidence either."""
    return replace(
        job,
        name=code(job.name),
        hosts=tuple(map(code, job.hosts)),
        ids=tuple(map(code, job.ids)),
        uid=None,
        missing=("redacted",) * len(job.missing),
        changed=job.changed and "it changed during the watch",
        listed=tuple(replace(row, host=code(row.host)) for row in job.listed),
    )


def redact_value(value: Any, code: Code) -> Any:
    """A value with its names replaced; a reason may quote names, so only its error name stays."""
    if isinstance(value, list):
        return [redact_value(item, code) for item in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        if key == "errors" and isinstance(item, dict):
            result[key] = {field: first_word(why) for field, why in item.items()}
        elif key == "why":
            result[key] = first_word(item)
        elif key in LEFT_OUT:
            result[key] = None
        elif key == "master" and is_local(item):
            result[key] = item  # else those of all hosts would look like one
        elif key in TELLING:
            result[key] = code_names(item, code)
        else:
            result[key] = redact_value(item, code)
    return result


def code_names(value: Any, code: Code) -> Any:
    """The code of a name, or of each name in a list."""
    if isinstance(value, str):
        return code(value)
    if isinstance(value, list):
        return [code_names(item, code) for item in value]
    return redact_value(value, code)


def first_word(why: Any) -> str:
    """`ENOENT` and `NVML_ERROR_…` stay; a sentence may name a person or a host."""
    word = str(why).split(" ")[0].rstrip(":")
    return word if word.isupper() else "redacted"


def remember(diagnosis: Diagnosis, path: Path) -> str:
    """Record the bundle in this file and its diagnosis in the store that the environment or
    nodevet.toml names, or the user's own. Returns why that failed; empty on success, or without
    a store.
    """
    from nodevet.store import StoreError

    try:
        with open_regular(path) as file:
            bundle = file.read()
        with open_history(None) as store:
            texts = {host.host: diagnosis_text(host) for host in diagnosis.hosts}
            store.record_incident(texts, bundle, diagnosis.started)
    except (NoHistoryError, NothingRecordedError):
        return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    except (StoreError, UserError) as error:
        return str(error)
    return ""


def diagnosis_text(host: HostDiagnosis) -> str:
    """`missing: GPU at 0000:41:00.0; GPU 0: throttled`, or why there is no diagnosis."""
    absent = [f"missing: {missing_label(gpu)}" for gpu in host.missing]
    causes = [f"GPU {gpu.index}: {gpu.cause.value}" for gpu in host.gpus]
    return "; ".join([*absent, *causes]) or host.why or "no GPU was seen"
