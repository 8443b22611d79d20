"""Two hundred hosts in one run, each way that a host can be bad among them."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from free_ports import free_port
from slow_machine import slowness

from nodevet.base.durations import elapsed
from nodevet.evidence.document import decode
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line, make_key

pytestmark = pytest.mark.timeout(400)
HOSTS = 200
LIMITS = {"CONNECT": 8, "PROBE": 30, "VISIT": 50}  # seconds on an idle machine
PYTHON_36 = Path.home() / ".pyenv/versions/3.6.15/bin/python3"
PYTHON_2 = Path.home() / ".pyenv/versions/2.7.18/bin/python2"

NOT_VISITED, VETTED, UNREACHABLE = Status.NOT_VISITED, Status.VETTED, Status.UNREACHABLE
TIMEOUT, FAILED = Status.TIMEOUT, Status.PROBE_FAILED

EXPECTED = {
    "real": (VETTED, ""),
    "python-3.6": (VETTED, ""),
    "stderr-flood": (VETTED, ""),
    "noisy-shell": (VETTED, ""),
    "full-disk": (VETTED, ""),
    "wrong-user-key": (NOT_VISITED, r"permission denied for root \(offered: \S+\)"),
    "no-login": (
        FAILED,
        r"the user.s login shell on the node ran no command: This account is not available\.; .*",
    ),
    "busy": (UNREACHABLE, "the SSH server is busy: Exceeded MaxStartups"),
    "changed-key": (NOT_VISITED, r"host key changed: expected the one in .*known_hosts:\d+"),
    "unknown-key": (
        NOT_VISITED,
        r"host key not known \(add it with ssh-keyscan, or --accept-new\)",
    ),
    "revoked-key": (NOT_VISITED, r"host key revoked \(.*known_hosts:\d+\)"),
    "only-authority": (NOT_VISITED, r"host key not known; .*:\d+ names a certificate authority.*"),
    "refused": (UNREACHABLE, "connection refused"),
    "missing-key-file": (NOT_VISITED, "key file not found: /no/such/key"),
    "bad-port": (NOT_VISITED, "port is '70000' for bad-port; it must be 1 to 65535"),
    "no-such-name": (NOT_VISITED, "name not found.*"),
    "not-ssh": (UNREACHABLE, "not an SSH server"),
    "hangs-up": (UNREACHABLE, "connection closed before the SSH banner"),
    "black-hole": (TIMEOUT, r"timed out after CONNECT \(connecting\)"),
    "never-accepts": (TIMEOUT, r"timed out after CONNECT \(waiting for the SSH banner\)"),
    "silent": (TIMEOUT, r"timed out after CONNECT \(waiting for the SSH banner\)"),
    "banner-then-silence": (TIMEOUT, r"timed out after CONNECT \(key exchange\)"),
    "stopped-session": (TIMEOUT, r"timed out after VISIT \(running the probe\)"),
    "hanging-probe": (TIMEOUT, r"timed out after PROBE \(running the probe\)"),
    "killed-mid-answer": (
        FAILED,
        r"(truncated response: 9 of \d+ bytes; )?connection lost",
    ),
    "cut-short": (FAILED, r"truncated response: 1000 of \d+ bytes"),
    "altered": (FAILED, "corrupted response: its SHA-256 differs"),
    "flood": (FAILED, "more than 1 MiB of output"),
    "no-python": (FAILED, "/no/such/python3 not found on the node"),
    "python-2": (FAILED, r"\S+python2 on the node is not Python 3.6 or newer"),
    "failing-probe": (FAILED, r"command on the node exited with 3: no such \\x1b\[31mluck"),
    "silent-probe": (FAILED, "no evidence in the response"),
}
NOT_HERE = {  # hosts whose Python this machine does not have
    name
    for name, python in {"python-3.6": PYTHON_36, "python-2": PYTHON_2}.items()
    if not python.exists()
}

NOISE = r"""printf 'Welcome!\377\376 \036NODEVET x 12 y\n'; printf 'motd\n' >&2
/bin/sh -c "$SSH_ORIGINAL_COMMAND"; code=$?
printf '\377bye\n'; exit $code"""


def listener(stack: ExitStack, say: bytes | None, *, close: bool = False) -> int:
    """A server that says this to whoever connects (None: does not even accept); its port."""
    sock = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
    if say is not None:

        def serve() -> None:
            held = []
            while True:
                try:
                    peer = sock.accept()[0]
                except OSError:
                    break
                peer.sendall(say)
                if close:
                    peer.close()
                else:
                    held.append(peer)
            for peer in held:
                peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(sock.shutdown, socket.SHUT_RDWR)
    return sock.getsockname()[1]


def black_hole(stack: ExitStack) -> int:
    """A port whose queue is full, so that the kernel drops every SYN."""
    sock = stack.enter_context(socket.socket())
    sock.bind(("127.0.0.1", 0))
    sock.listen(0)
    for _ in range(3):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(sock.getsockname())
    return sock.getsockname()[1]


class Swept(NamedTuple):
    """A sweep: its visits, the limits that it had, and the seconds that it took."""

    visits: dict[str, Visit]
    limits: dict[str, int]
    seconds: float


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> Iterator[Swept]:
    folder = tmp_path_factory.mktemp("sweep")
    plain = [sshd(addresses=[f"127.1.{row}.{n}" for n in range(1, 17)]) for row in range(4)]
    noisy = folder / "noisy"
    noisy.write_text(f"#!/bin/sh\n{NOISE}\n")
    full = folder / "full"
    full.write_text('#!/bin/sh\nulimit -f 0\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    for script in (noisy, full):
        script.chmod(0o755)
    other = make_key(folder / "other")
    trusted = sshd(addresses=[f"127.2.0.{n}" for n in range(1, 6)])
    special = {
        "no-login": sshd(command="echo This account is not available.; exit 1"),
        "noisy-shell": sshd(command=str(noisy)),
        "full-disk": sshd(command=str(full)),
    }

    def known(address: str, by: KeyPair, marker: str = "") -> str:
        return marker + known_hosts_line(address, trusted.port, by)

    lines = [
        "# the traps come first: none of them may hide what follows",
        known("127.2.0.3", trusted.host_key, "@revoked ").strip(),
        known("127.2.0.3", trusted.host_key).strip(),
        known("127.2.0.4", other, "@cert-authority ").strip(),
        "this line makes no sense",
        known("127.2.0.1", other).strip(),
        *(server.known_hosts.strip() for server in (*plain, *special.values())),
    ]
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("\n".join(lines) + "\n")

    def host(name: str, **options: object) -> Host:
        return Host(name=name, **{"user": "root", "key_file": str(key.path)} | options)

    def at(name: str, server: Sshd, **options: object) -> Host:
        return host(name, address=server.address, port=server.port, **options)

    with ExitStack() as stack:

        def port(name: str, port: int) -> Host:
            return host(name, address="127.0.0.1", port=port)

        def trust(name: str, number: int) -> Host:
            return host(name, address=f"127.2.0.{number}", port=trusted.port)

        def runs(name: str, act: str) -> Host:
            return at(name, plain[0], python=fake[act])

        bad = [
            at("real", plain[1]),
            at("python-3.6", plain[1], python=str(PYTHON_36)),
            at("python-2", plain[1], python=str(PYTHON_2)),
            at("no-python", plain[1], python="/no/such/python3"),
            at("noisy-shell", special["noisy-shell"]),
            at("no-login", special["no-login"]),
            at("full-disk", special["full-disk"]),
            at("wrong-user-key", plain[1], key_file=str(other.path)),
            at("missing-key-file", plain[1], key_file="/no/such/key"),
            trust("changed-key", 1),
            trust("unknown-key", 2),
            trust("revoked-key", 3),
            trust("only-authority", 4),
            port("refused", free_port()),
            port("bad-port", 70000),
            port("black-hole", black_hole(stack)),
            port("never-accepts", listener(stack, None)),
            port("silent", listener(stack, b"")),
            port("banner-then-silence", listener(stack, b"SSH-2.0-Silence\r\n")),
            port("not-ssh", listener(stack, b"HTTP/1.1 400 Bad Request\r\n\r\n")),
            port("busy", listener(stack, b"Exceeded MaxStartups\r\n", close=True)),
            port("hangs-up", listener(stack, b"", close=True)),
            host("no-such-name", address="no-such-name.invalid"),
            runs("stopped-session", "stopped"),
            runs("hanging-probe", "hangs"),
            runs("killed-mid-answer", "killed"),
            runs("cut-short", "cut"),
            runs("altered", "altered"),
            runs("flood", "flood"),
            runs("stderr-flood", "errors"),
            runs("failing-probe", "fails"),
            runs("silent-probe", "silent"),
        ]
        bad = [one for one in bad if one.name not in NOT_HERE]
        good = [
            host(
                f"good{number:03}",
                address=plain[number % 4].addresses[number % 16],
                port=plain[number % 4].port,
                python=fake["healthy"],
            )
            for number in range(HOSTS - len(bad))
        ]
        hosts = [one for pair in zip(good, bad, strict=False) for one in pair] + good[len(bad) :]
        times, started = 3 if slowness() > 2 else 1, time.monotonic()
        limits = {name: times * seconds for name, seconds in LIMITS.items()}
        visits = go(
            hosts,
            known_hosts=known_hosts,
            parallel=48,
            connect_timeout=limits["CONNECT"],
            deadline=limits["VISIT"],
            probe_deadline=limits["PROBE"],
            max_output=1 << 20,
        )
        yield Swept(visits, limits, time.monotonic() - started)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in NOT_HERE])
def test_each_bad_host_gets_its_own_outcome(swept: Swept, name: str) -> None:
    status, why = EXPECTED[name]
    for limit, seconds in swept.limits.items():
        why = why.replace(limit, elapsed(seconds))
    visit = swept.visits[name]
    assert (visit.status, visit.why) == (status, visit.why)
    assert re.fullmatch(why, visit.why)
    assert (visit.evidence is not None) == (status is VETTED)
    assert visit.seconds < 1.3 * swept.limits["VISIT"]


def test_the_healthy_hosts_are_vetted(swept: Swept) -> None:
    visits = swept.visits
    good = [visit for name, visit in visits.items() if name.startswith("good")]
    assert len(visits) == HOSTS
    assert {(visit.status, visit.why) for visit in good} == {(VETTED, "")}
    assert {visit.evidence for visit in good} == {good[0].evidence}
    assert swept.seconds < 3 * swept.limits["VISIT"]


@pytest.mark.parametrize(
    "name", sorted({"real", "python-3.6", "noisy-shell", "full-disk"} - NOT_HERE)
)
def test_the_evidence_of_the_real_probe_arrives_whole(swept: Swept, name: str) -> None:
    evidence = decode(swept.visits[name].evidence or b"")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert evidence[HostInfo].data is not None
    assert evidence[HostInfo].data.boot_id == boot_id
