"""What nodevet asks of libssh, beside real sshds: algorithms, certificates, FIDO keys, descriptors,
and pyinfra's own deploys through `@nodevet/HOST`."""

import base64
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import gevent
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from ssh.error_codes import SSH_AGAIN

from nodevet.fleet import Visit
from nodevet.fleet.ssh import algorithms
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.link import Link, SshError, Stream
from nodevet.fleet.ssh.public_key import PublicKey, read_line, string, write_string
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, make_key

Go = Callable[..., dict[str, Visit]]
SK = b"sk-ssh-ed25519@openssh.com"
APPLICATION = b"ssh:"
PLAIN = HostConfig("gpu7", 22, "root", (), None, False, ("gpu7",), (), ())


def test_libssh_offers_just_the_algorithms_that_nodevet_names() -> None:
    """Its proposal, RFC 4253 section 7.1: a version of libssh without one of them is noticed."""
    wanted = algorithms.settings(PLAIN, ())
    with socket.create_server(("127.0.0.1", 0)) as server:
        received: list[bytes] = []
        thread = threading.Thread(target=_take_proposal, args=(server, received))
        thread.start()
        link = Link(socket.create_connection(server.getsockname()), "root", wanted)
        with pytest.raises(SshError):
            link.handshake()
        link.close()
        thread.join()
    lists = _name_lists(received[0])
    extras = {"ext-info-c", "kex-strict-c-v00@openssh.com"}
    assert [name for name in lists[0] if name not in extras] == list(algorithms.KEX)
    assert lists[1] == list(algorithms.HOST_KEYS)
    assert lists[2] == lists[3] == list(algorithms.CIPHERS)
    assert lists[4] == lists[5] == list(algorithms.MACS)


def _take_proposal(server: socket.socket, received: list[bytes]) -> None:
    """Read a client's version and its first packet, and hang up."""
    peer = server.accept()[0]
    with peer, peer.makefile("rb") as stream:
        peer.sendall(b"SSH-2.0-test\r\n")
        stream.readline()
        size, padding = struct.unpack(">IB", stream.read(5))
        received.append(stream.read(size - 1)[: size - padding - 1])


def _name_lists(packet: bytes) -> list[list[str]]:
    lists, rest = [], packet[17:]  # the message's number and a cookie
    for _ in range(10):
        names, rest = string(rest)
        lists.append(names.decode().split(","))
    return lists


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_certificate_of_each_type_is_shown(
    tmp_path: Path, sshd: Callable[..., Sshd], fake: dict[str, str], go: Go, kind: str
) -> None:
    authority, key = make_key(tmp_path / "ca"), tmp_path / "id"
    node = sshd(authorized_key="", extra=[f"TrustedUserCAKeys {authority.path}.pub"])
    _run("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key)
    assert _visit(tmp_path, node, key, fake, go).status is Status.NOT_VISITED
    _run("ssh-keygen", "-q", "-s", authority.path, "-I", "x", "-n", "root", f"{key}.pub")
    visit = _visit(tmp_path, node, key, fake, go)
    assert (visit.status, visit.why) == (Status.VETTED, "")


def _visit(folder: Path, node: Sshd, key: Path, fake: dict[str, str], go: Go, *lines: str) -> Visit:
    (folder / "known_hosts").write_text(node.known_hosts)
    words = ["User root", f"IdentityFile {key}", *(lines or ["IdentityAgent none"])]
    (folder / "config").write_text("\n".join([*words, ""]))
    host = Host(name="node", address=node.address, port=node.port, python=fake["healthy"])
    return go([host], ssh_config=folder / "config", known_hosts=folder / "known_hosts")["node"]


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


OLD = {
    "Ciphers": "aes128-cbc",
    "KexAlgorithms": "diffie-hellman-group14-sha1",
    "HostKeyAlgorithms": "ssh-rsa",
}


@pytest.mark.parametrize("keyword", OLD)
def test_old_server_is_reached_if_ssh_config_allows_its_algorithm(
    tmp_path: Path, sshd: Callable[..., Sshd], key: KeyPair, fake: dict[str, str], go: Go,
    keyword: str,
) -> None:  # fmt: skip
    _run("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", tmp_path / "host")
    node = sshd(host_key=KeyPair(tmp_path / "host"), extra=[f"{keyword} {OLD[keyword]}"])
    lines = "IdentityAgent none", f"{keyword} +{OLD[keyword]}"
    refused = _visit(tmp_path, node, key.path, fake, go)
    assert refused.status is Status.UNREACHABLE
    assert refused.why.startswith("no common algorithm: "), refused.why
    allowed = _visit(tmp_path, node, key.path, fake, go, *lines)
    assert (allowed.status, allowed.why) == (Status.VETTED, "")


class FidoAgent:
    """An agent with one key of a FIDO token, in software: PROTOCOL.u2f of OpenSSH."""

    def __init__(self, path: Path, *others: bytes) -> None:
        """`others`: keys that it lists first."""
        self._others = others
        self._key = Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.blob = b"".join(map(write_string, (SK, public, APPLICATION)))
        self.signatures = 0
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer = self._server.accept()[0]
                with peer, peer.makefile("rb") as stream:
                    while head := stream.read(4):
                        message = stream.read(struct.unpack(">I", head)[0])
                        peer.sendall(write_string(self._reply(message)))

    def _reply(self, message: bytes) -> bytes:
        if message[0] == 11:  # list
            blobs = *self._others, self.blob
            keys = [write_string(blob) + write_string(b"a token") for blob in blobs]
            return struct.pack(">BI", 12, len(keys)) + b"".join(keys)
        blob, rest = string(message[1:])
        assert blob == self.blob
        self.signatures += 1
        state = struct.pack(">BI", 1, self.signatures)  # touched; the token's counter
        digests = [hashlib.sha256(text).digest() for text in (APPLICATION, string(rest)[0])]
        signature = self._key.sign(digests[0] + state + digests[1])
        return b"\x0e" + write_string(write_string(SK) + write_string(signature) + state)

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@contextmanager
def fido_agent(path: Path, *others: bytes) -> Iterator[FidoAgent]:
    agent = FidoAgent(path, *others)
    try:
        yield agent
    finally:
        agent.end()


def test_key_of_a_fido_token_logs_in_by_its_agent(
    tmp_path: Path, sshd: Callable[..., Sshd], fake: dict[str, str], go: Go
) -> None:
    with fido_agent(tmp_path / "agent") as agent:
        line = f"{SK.decode()} {read_line(_line(agent.blob)).base64}"
        node = sshd(authorized_key=line)
        visit = _visit(
            tmp_path, node, Path("none"), fake, go, f"IdentityAgent {tmp_path / 'agent'}"
        )
        assert (visit.status, visit.why) == (Status.VETTED, "")
        assert agent.signatures == 1


def _line(blob: bytes) -> str:
    return f"key {base64.b64encode(blob).decode()}"


def test_link_leaves_no_descriptor_behind(sshd: Callable[..., Sshd]) -> None:
    """libssh owns a descriptor of its own, and closes it whether or not the server agreed."""
    node = sshd()

    def connect(**settings: str) -> None:
        sock = socket.create_connection((node.address, node.port))
        link = Link(sock, "root", {**algorithms.settings(PLAIN, ()), **settings})
        with suppress(SshError):
            link.handshake()
            link.open()  # not before a login
        link.close()

    connect()
    before = _descriptors()
    for _ in range(5):
        connect()
        connect(HOSTKEYS="rsa-sha2-512")  # the server has none
    assert _descriptors() == before


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_shard_that_vets_imports_neither_pyinfra_nor_paramiko() -> None:
    """They take more time than all visits of a small fleet."""
    program = (
        "import sys, nodevet.fleet.worker.shard\n"
        "sys.exit(any(name in sys.modules for name in ('pyinfra', 'paramiko', 'cryptography')))"
    )
    assert subprocess.run([sys.executable, "-I", "-c", program], check=False).returncode == 0


DEPLOY = """\
from io import BytesIO
from pyinfra.operations import files, server

files.put(src=BytesIO(b"one\\ntwo\\n"), dest={file!r}, mode="640")
server.shell(commands=["cat {file} >&2; echo $((6 * 7)) > {file}.sum"])
server.shell(commands=["head -c 3000000 /dev/zero > {file}.big"])
files.get(src={file!r}, dest={copy!r})
files.get(src="{file}.big", dest="{copy}.big")
"""


def test_pyinfra_deploys_through_the_connector(
    tmp_path: Path, sshd: Callable[..., Sshd], key: KeyPair
) -> None:
    """pyinfra's own command, facts and operations; a host whose key is not known is refused."""
    node = sshd()
    (tmp_path / "known_hosts").write_text(node.known_hosts)
    data = {
        "ssh_port": node.port,
        "ssh_user": "root",
        "ssh_key": str(key.path),
        "ssh_known_hosts_file": str(tmp_path / "known_hosts"),
    }
    name = f"@nodevet/{node.address}"
    (tmp_path / "inventory.py").write_text(f"nodes = [({name!r}, {data!r})]\n")
    file, copy = str(tmp_path / "put"), str(tmp_path / "copy")
    (tmp_path / "deploy.py").write_text(DEPLOY.format(file=file, copy=copy))

    done = _pyinfra(tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(copy).read_bytes() == Path(file).read_bytes() == b"one\ntwo\n"
    assert Path(file).stat().st_mode & 0o777 == 0o640
    assert Path(f"{copy}.big").stat().st_size == 3_000_000
    assert Path(f"{file}.sum").read_text() == "42\n"

    (tmp_path / "known_hosts").write_text("")
    done = _pyinfra(tmp_path)
    assert done.returncode != 0 and "host key not known" in done.stderr + done.stdout


def _pyinfra(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("pyinfra")), "-y", "inventory.py", "deploy.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


LOGGED_IN = """\
import sys, nodevet.fleet.worker.shard  # gevent patches
import gevent
from pathlib import Path
from ssh.key import import_privkey_file
from nodevet.fleet.ssh import algorithms
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.link import ForwardError, Link
from gevent import socket

address, port, key, *words = sys.argv[1:]
plain = HostConfig("gpu7", 22, "root", (), None, False, ("gpu7",), (), ())
sock = socket.create_connection((address, int(port)))
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)  # less than a node's window
link = Link(sock, "root", algorithms.settings(plain, ()))
link.handshake()
link.login(import_privkey_file(key))
"""

READS_LATER = """
file = words[0]
stream = link.open()
stream.begin(f"while [ ! -e {file} ]; do sleep 0.1; done; wc -c; exit 255")
print("begun", flush=True)
sys.stdin.readline()
gevent.spawn_later(0.5, Path(file).touch)
output = b"".join(chunk for _, chunk in stream.converse(bytes(5_000_000)))
print(output.decode().strip(), stream.exit_code())
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_node_that_reads_late_does_not_block_other_work(
    tmp_path: Path, sshd: Callable[..., Sshd], key: KeyPair, frozen: bool
) -> None:
    """Its window is full, or the connection; it reads on once this process has done more."""
    node, file = sshd(), tmp_path / "go"
    words = [node.address, str(node.port), str(key.path), str(file)]
    program = subprocess.Popen(
        [sys.executable, "-c", LOGGED_IN + READS_LATER, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "begun\n"
            sessions = node.sessions() if frozen else []
            _signal(sessions, signal.SIGSTOP)
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()
            assert _appears(file)
            _signal(sessions, signal.SIGCONT)
            assert program.communicate(timeout=60)[0] == "5000000 255\n"
        finally:
            program.kill()


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        os.kill(process, number)


def _appears(file: Path) -> bool:
    end = time.monotonic() + 120
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return file.exists()


FORWARDS = """
from gevent.monkey import get_original

def failure(port):
    try:
        link.forward("127.0.0.1", port)
    except ForwardError as error:
        return str(error)

visits = [gevent.spawn(failure, int(port)) for port in words]
gevent.sleep(0)
get_original("time", "sleep")(1)  # both replies arrive before either is read
for visit in visits:
    print(visit.get())
"""


def test_the_failure_reason_of_one_forward_is_not_reported_for_another(
    sshd: Callable[..., Sshd], key: KeyPair
) -> None:
    """libssh keeps the last reason alone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = str(server.getsockname()[1])
    node = sshd(extra=[f"PermitOpen 127.0.0.1:{closed}"])
    words = [node.address, str(node.port), str(key.path), closed, "1"]
    done = subprocess.run(
        [sys.executable, "-c", LOGGED_IN + FORWARDS, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    refused, forbidden = done.stdout.splitlines()
    assert refused in ("Connection refused", "")
    assert forbidden in ("open failed", "administratively prohibited: open failed", "")
    assert refused or forbidden


def test_keys_that_libssh_does_not_know_are_passed_over(
    tmp_path: Path, sshd: Callable[..., Sshd], fake: dict[str, str], go: Go
) -> None:
    odd = write_string(b"ssh-odd") + write_string(b"numbers")
    with fido_agent(tmp_path / "agent", odd) as agent:
        node = sshd(authorized_key=f"{SK.decode()} {read_line(_line(agent.blob)).base64}")
        visit = _visit(
            tmp_path, node, Path("none"), fake, go, f"IdentityAgent {tmp_path / 'agent'}"
        )
        assert (visit.status, visit.why) == (Status.VETTED, "")


class OddChannel:
    """A channel that the server closes in place of running a command, after an odd exit code."""

    def request_exec(self, command: str) -> int:
        return SSH_AGAIN

    def is_closed(self) -> bool:
        return True

    def get_exit_state(self) -> tuple[int, bytes, bool]:
        return 256, b"", False


@pytest.fixture
def odd_stream() -> Iterator[Stream]:
    ours, theirs = socket.socketpair()
    link = Link(ours, "root", {})
    with theirs:
        yield Stream(link, OddChannel())
        link.close()


def test_command_whose_channel_the_server_closes_does_not_start(odd_stream: Stream) -> None:
    with gevent.Timeout(5), pytest.raises(SshError):
        odd_stream.begin("true")


def test_exit_code_may_be_larger_than_a_byte(odd_stream: Stream) -> None:
    assert odd_stream.exit_code() == 256


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\1", write_string(b"\1\0\1")])
def test_broken_rsa_key_of_an_agent_has_no_size(rest: bytes) -> None:
    """It is offered like any other, unless ssh_config wants a size; libssh then refuses it."""
    key = PublicKey(write_string(b"ssh-rsa") + rest)
    assert key.rsa_bits == 0
    assert algorithms.is_allowed(PLAIN, key)
    sized = replace(PLAIN, algorithms=(("requiredrsasize", "2048"),))
    assert not algorithms.is_allowed(sized, key)
