"""A real OpenSSH server on loopback, as a stand-in for a node."""

import fcntl
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PRIVSEP = Path("/run/sshd")  # an sshd of root refuses to start without it
OURS = 0o711  # its mode where we made it; distributions make it 0755
START = 15  # seconds
MOST_ADDRESSES = 16  # of one sshd: MAX_LISTEN_SOCKS in its source


class SshdError(Exception):
    """The server cannot be started; the message says why."""


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair as files. `public` is its line: type, key, comment."""

    path: Path

    @property
    def public(self) -> str:
        return self.path.with_name(f"{self.path.name}.pub").read_text(encoding="ascii").strip()


def make_key(path: Path, comment: str = "nodevet-sim") -> KeyPair:
    """A new key pair, without a passphrase. Raises SshdError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return KeyPair(path)


def known_hosts_line(address: str, port: int, key: KeyPair) -> str:
    """The host's key as a line of known_hosts."""
    name = address if port == 22 else f"[{address}]:{port}"
    kind, blob = key.public.split()[:2]
    return f"{name} {kind} {blob}\n"


def write_inventory(path: Path, nodes: "Mapping[str, Sshd]", key: KeyPair) -> None:
    """Running servers as a nodevet inventory in YAML, each under a name, for the current user."""
    hosts = {name: {"address": node.address, "port": node.port} for name, node in nodes.items()}
    defaults = {"user": getpass.getuser(), "key_file": str(key.path)}
    text = json.dumps({"nodevet": 1, "defaults": defaults, "hosts": hosts}, indent=2)
    path.write_text(f"{text}\n", encoding="utf-8")


def write_known_hosts(path: Path, nodes: "Iterable[Sshd]") -> None:
    """The host keys of running servers."""
    path.write_text("".join(node.known_hosts for node in nodes), encoding="utf-8")


class Sshd:
    """One sshd process, for the current user, on loopback addresses only.

    With `port` 0 a free one is found. `env` is what its sessions see in their environment; HOME is
    an empty folder by default, so that no start-up file of this user runs. `extra` are more lines
    of sshd_config; `command` is its ForceCommand, given the client's command in
    $SSH_ORIGINAL_COMMAND.
    """

    def __init__(
        self,
        folder: Path,
        *,
        authorized_key: str,
        host_key: KeyPair | None = None,
        addresses: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        env: Mapping[str, str] | None = None,
        command: str | None = None,
        extra: Iterable[str] = (),
    ) -> None:
        for address in addresses:
            if not address.startswith("127."):
                raise SshdError(f"{address} is not a loopback address")
        if len(addresses) > MOST_ADDRESSES:
            raise SshdError(f"{len(addresses)} addresses; one sshd takes {MOST_ADDRESSES}")
        self.folder = folder
        self.addresses = tuple(addresses)
        self.port = port
        self._authorized_key = authorized_key
        self._host_key = host_key
        self._env = {"HOME": str(folder / "home"), **(env or {})}
        self._command = command
        self._extra = tuple(extra)
        self._process: subprocess.Popen[bytes] | None = None
        self._privsep: int | None = None

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def host_key(self) -> KeyPair:
        if self._host_key is None:
            raise SshdError("sshd has no host key before it is started")
        return self._host_key

    @property
    def pid(self) -> int:
        if self._process is None:
            raise SshdError("sshd is not running")
        return self._process.pid

    @property
    def known_hosts(self) -> str:
        """The lines that make this server known under each of its addresses."""
        return "".join(known_hosts_line(name, self.port, self.host_key) for name in self.addresses)

    def __enter__(self) -> "Sshd":
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        if self._host_key is None:
            path = self.folder / "host_key"
            self._host_key = KeyPair(path) if path.exists() else make_key(path)
        self._privsep = _hold_privsep() if os.geteuid() == 0 else None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def sessions(self) -> list[int]:
        """The processes below the server: one or two for each connection, and what they run."""
        return _descendants(self.pid) if self._process is not None else []

    def stop(self) -> None:
        """End the server and every session below it."""
        process, self._process = self._process, None
        if process is not None:
            below = _descendants(process.pid)
            process.terminate()
            process.wait()
            for pid in below:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if self._privsep is not None:
            _release_privsep(self._privsep)
            self._privsep = None

    def _start(self) -> None:
        """Start on the wanted port, or try until a free one stays free. Raises SshdError."""
        log: str | None = ""
        for _ in range(1 if self.port else 10):
            port = self.port or _free_port(self.address)
            log = self._launch(port)
            if log is None:
                self.port = port
                return
            if "Address already in use" not in log:
                break
        raise SshdError(f"sshd did not start on {self.address}: {log or 'no reason given'}")

    def _launch(self, port: int) -> str | None:
        """Start sshd and wait until it listens; returns its log if it does not."""
        config = self.folder / "sshd_config"
        config.write_text("\n".join((*self._config(port), "")), encoding="utf-8")
        log = self.folder / "sshd.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*_leash(), _sshd(), "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        end = time.monotonic() + START
        while log.read_bytes().count(b"Server listening on") < len(self.addresses):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                return log.read_text(encoding="utf-8", errors="replace").strip()
            time.sleep(0.005)
        self._process = process
        return None

    def _config(self, port: int) -> list[str]:
        authorized = self.folder / "authorized_keys"
        authorized.write_text(f"{self._authorized_key}\n", encoding="utf-8")
        lines = [f"ListenAddress {address}" for address in self.addresses]
        lines += [
            f"Port {port}",
            f"HostKey {self.host_key.path}",
            f"AuthorizedKeysFile {authorized}",
            "PidFile none",
            "LogLevel INFO",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "PrintMotd no",
            "PrintLastLog no",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "MaxStartups 1000",
            "Subsystem sftp internal-sftp",
        ]
        if _version() >= (9, 8):
            lines.append("PerSourcePenalties no")
        # with a nested SHLVL bash leaves the user's ~/.bashrc alone
        env = {"SHLVL": "1", **self._env}
        pairs = " ".join(f'"{name}={value}"' for name, value in env.items())
        lines.append(f"SetEnv {pairs}")
        if self._command is not None:
            lines.append(f"ForceCommand {self._command}")
        return [*self._extra, *lines]  # sshd takes the first value of an option


def _sshd() -> str:
    """The absolute path of sshd, without which it refuses to run. Raises SshdError."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SshdError("sshd is not installed (Debian: openssh-server)")
    return os.path.abspath(program)  # noqa: PTH100  # a link must stay a link


def _leash() -> tuple[str, ...]:
    """What makes the server end should this process be killed before it can see to that."""
    return ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()


def _version() -> tuple[int, int]:
    """OpenSSH's version, as `ssh -V` prints it."""
    output = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _free_port(address: str) -> int:
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def _run(*argv: str) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise SshdError(f"{argv[0]} is not installed (Debian: openssh-client)") from error
    except subprocess.CalledProcessError as error:
        raise SshdError(f"{shlex.join(argv)}: {error.stderr.strip()}") from error


def _descendants(pid: int) -> list[int]:
    """Every process below one, from /proc/<pid>/task/<tid>/children."""
    pids: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                children = [int(word) for word in task.read_text(encoding="ascii").split()]
                pids += children
                waiting += children
    return pids


def _hold_privsep() -> int:
    """Create sshd's empty folder if it is missing; a shared lock on it while it is in use."""
    while True:
        with suppress(FileExistsError):
            PRIVSEP.mkdir()
            PRIVSEP.chmod(OURS)
        try:
            descriptor = os.open(PRIVSEP, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another one ended in between
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), PRIVSEP.stat()):
                return descriptor
        os.close(descriptor)


def _release_privsep(descriptor: int) -> None:
    """Remove the folder if we made it and no other server of ours uses it."""
    try:
        if os.fstat(descriptor).st_mode & 0o777 == OURS:
            with suppress(BlockingIOError, OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                PRIVSEP.rmdir()
    finally:
        os.close(descriptor)
