"""Check host keys against the user's known_hosts files, and add the first key of a new host.

Shard process only. Several processes may accept keys at the same time: each holds a lock on the
file while it reads it again and writes, so that all of them take the first key.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import gevent

from nodevet.base.durations import elapsed
from nodevet.base.files import read_input
from nodevet.fleet.ssh.errors import LocalError, OtherKeyError, SshConfigError, TooLateError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.known_hosts import Judgement, KnownHosts, Trust, hash_name, parse, spell

NOWHERE = "/dev/null"
KRL = b"SSHKRL\n"
GLANCE = 0.02  # seconds between two tries for the lock


class HostKeys:
    """The keys that the user trusts, and those accepted during the run."""

    def __init__(self, *, known_hosts: str | None, accept_new: bool, patience: float) -> None:
        """`known_hosts`: a file instead of the user's. `patience`: seconds to wait for the lock."""
        self._override = known_hosts
        self._accept_new = accept_new
        self._patience = patience
        self._known: dict[tuple[str, ...], _KnownFiles] = {}

    def types(self, config: HostConfig) -> tuple[str, ...]:
        """The key types known for a host, as far as that is cheap to find out before `check`."""
        return self._files_of(config).hosts.types(config.names)

    def check(self, config: HostConfig, key_type: str, key: str, address: str = "") -> None:
        """Check the key that a host shows (base64); with `accept_new` store a new host's key.

        Raises LocalError if the key is not trusted (OtherKeyError if `types` may now name the type
        of another key that is), SshConfigError for a file that cannot be read, TooLateError if
        another process holds the file's lock. `address`: the host's, if nothing is between.
        """
        if config.revoked and key in _revoked_keys(config.revoked):
            raise LocalError(f"host key revoked ({config.revoked})")
        known = self._files_of(config)
        judgement = known.judge(config, key_type, key)
        if config.check_ip and address != config.hostname and not _is_local(address):
            names = (spell(address, config.port),)
            by_address = known.hosts.judge(names, (), key_type, key)
            if by_address.trust in (Trust.CHANGED, Trust.REVOKED):
                why = f"expected the one of its address in {by_address.where} (CheckHostIP)"
                raise LocalError(f"host key changed: {why}")
        if self._accept_new and _is_new(judgement):
            judgement = self._accept(config, key_type, key)
        _explain(judgement, key_type)

    def _accept(self, config: HostConfig, key_type: str, key: str) -> Judgement:
        """Add the key, unless the files by now have an entry of the host."""
        path = next(iter(self._user_files(config)), NOWHERE)
        if path == NOWHERE:
            raise LocalError(f"host key not known, and {path} cannot store it")
        name = hash_name(config.names[0]) if config.hash_names else config.names[0]
        try:
            with _open_locked(Path(path), self._patience) as descriptor:
                known = self._files_of(config)
                known.refresh()
                judgement = known.judge(config, key_type, key)
                if _is_new(judgement):
                    _append(descriptor, f"{name} {key_type} {key}\n".encode())
                    known.refresh()
                    judgement = known.judge(config, key_type, key)
        except OSError as error:
            why = f"{path}: {error.strerror}; the accepted host key must be stored there"
            raise LocalError(why) from error
        return judgement

    def _files_of(self, config: HostConfig) -> "_KnownFiles":
        paths = self._user_files(config)
        paths = paths if self._override is not None else (*paths, *config.system_known_hosts)
        if paths not in self._known:
            self._known[paths] = _KnownFiles(paths)
        return self._known[paths]

    def _user_files(self, config: HostConfig) -> tuple[str, ...]:
        """The files to search before the system's; new keys go to the first."""
        return config.known_hosts if self._override is None else (self._override,)


class _KnownFiles:
    """The entries of those files that exist."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.hosts = KnownHosts([])
        self._texts = dict.fromkeys(paths, b"")
        self.refresh()

    def refresh(self) -> None:
        """Read the files again. Raises SshConfigError for one that cannot be read."""
        texts = {path: _read(path) for path in self._texts}
        if not all(_is_extended(self._texts[path], text) for path, text in texts.items()):
            self.hosts = KnownHosts([])
            self._texts = dict.fromkeys(texts, b"")
        for path, before in self._texts.items():
            new = texts[path][len(before) :].decode("utf-8", "replace")
            self.hosts.add(parse(new, path, line=before.count(b"\n") + 1))
        self._texts = texts

    def judge(self, config: HostConfig, key_type: str, key: str) -> Judgement:
        return self.hosts.judge(config.names, config.portless, key_type, key)


def _is_extended(before: bytes, now: bytes) -> bool:
    """Whether only complete lines were added to complete lines, or nothing."""
    return now == before or (now.startswith(before) and before[-1:] in (b"", b"\n"))


def _read(path: str) -> bytes:
    try:
        return read_input(Path(path))
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SshConfigError(f"known_hosts {path}: {error.strerror}") from error


@contextmanager
def _open_locked(path: Path, patience: float) -> Iterator[int]:
    """The file, locked and open for appending.

    Raises OSError and TooLateError.
    """
    end = time.monotonic() + patience
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _lock(descriptor):
                if time.monotonic() > end:
                    raise TooLateError(f"timed out after {elapsed(patience)} ({path} is locked)")
                gevent.sleep(GLANCE)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # ends the lock; a file that replaced it is opened next


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _append(descriptor: int, line: bytes) -> None:
    """Write a complete line durably, or nothing. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        line = b"\n" + line  # an editor may leave the last line open
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            os.write(descriptor, line[written:])  # raises the reason, such as a full disk
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # the first error is the better reason
            os.ftruncate(descriptor, size)
        raise


@cache
def _revoked_keys(path: str) -> frozenset[str]:
    """The keys of a RevokedHostKeys file, base64. Raises SshConfigError."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SshConfigError(f"RevokedHostKeys {path}: {error.strerror}") from error
    if text.startswith(KRL):
        raise SshConfigError(f"RevokedHostKeys {path}: a KRL is not supported, a list of keys is")
    lines = (line.split() for line in text.decode("utf-8", "replace").split("\n"))
    return frozenset(words[1] for words in lines if len(words) > 1 and words[0][0] != "#")


def _is_local(address: str) -> bool:
    return not address or ip_address(address.partition("%")[0]).is_loopback


def _is_new(judgement: Judgement) -> bool:
    return judgement.trust is Trust.UNKNOWN and not judgement.types


def _explain(judgement: Judgement, key_type: str) -> None:
    """Raises LocalError for a key that is not known."""
    trust, where = judgement.trust, judgement.where
    if trust is Trust.KNOWN:
        return
    if trust is Trust.REVOKED:
        raise LocalError(f"host key revoked ({where})")
    if trust is Trust.CHANGED:
        raise LocalError(f"host key changed: expected the one in {where}")
    if trust is Trust.AUTHORITY:
        raise LocalError(
            f"host key not known; {where} names a certificate authority for it, and host "
            "certificates are not supported (add its own key with ssh-keyscan)"
        )
    if judgement.types:
        detail = f"server offers {key_type}, known_hosts has {', '.join(judgement.types)}"
        raise OtherKeyError(f"host key not known: {detail} ({where})")
    raise LocalError("host key not known (add it with ssh-keyscan, or --accept-new)")
