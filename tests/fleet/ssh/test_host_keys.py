"""Accepted host keys: the first one is the key, in every process and for good."""

import fcntl
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fleet import Options, Visit
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.fleet.ssh.errors import TooLateError, UnreachableError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.host_keys import HostKeys
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line, make_key

ED = "ssh-ed25519"


def host_config(*known_hosts: Path | str, name: str = "gpu7") -> HostConfig:
    files = tuple(str(path) for path in known_hosts)
    return HostConfig(name, 22, "root", (), None, False, (name,), (), files, system_known_hosts=())


def accepting(patience: float = 5) -> HostKeys:
    return HostKeys(known_hosts=None, accept_new=True, patience=patience)


def test_d3_a_changed_key_is_refused_on_reconnect(
    tmp_path: Path, key: KeyPair, fake: dict[str, str]
) -> None:
    known_hosts = tmp_path / "known_hosts"
    options = Options(
        ssh_config=Path(os.devnull), known_hosts=known_hosts, host_keys="accept-new", deadline=30
    )
    address = "127.3.7.1"

    def server(name: str, port: int) -> Sshd:
        return Sshd(
            tmp_path / name, authorized_key=key.public, addresses=[address], port=port,
            host_key=make_key(tmp_path / f"{name}.key"),
        )  # fmt: skip

    with server("first", 0) as first:
        port = first.port
        line = known_hosts_line(address, port, first.host_key)
        host = Host(name="n1", address=address, port=port, user="root", key_file=str(key.path))
        with SshExecutor([host], options) as worker:
            worker.open("n1")
            assert known_hosts.read_text() == line
            worker.close("n1")
            first.stop()
            with server("second", port), pytest.raises(WorkError, match="host key changed"):
                worker.open("n1")
    assert known_hosts.read_text() == line


def test_d3_two_processes_accept_one_key_of_a_host(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> None:
    servers = [sshd(addresses=[f"127.3.7.{n}"]) for n in (2, 3)]
    config, known_hosts = tmp_path / "config", tmp_path / "known_hosts"
    config.write_text(f"Host *\n  HostKeyAlias one\n  UserKnownHostsFile {known_hosts}\n")
    hosts = [
        Host(
            name=f"gpu{number}", address=server.address, port=server.port, user="root",
            key_file=str(key.path), python=fake["healthy"],
        )
        for number, server in enumerate(servers)
    ]  # fmt: skip
    visits = go(hosts, ssh_config=config, host_keys="accept-new", shards=2).values()
    assert sorted(visit.status for visit in visits) == [Status.NOT_VISITED, Status.VETTED]
    (why,) = (visit.why for visit in visits if visit.why)
    assert why == f"host key changed: expected the one in {known_hosts}:1"
    (line,) = known_hosts.read_text().splitlines()
    assert line.startswith("one ssh-ed25519 ")


PROCESS = """
import sys
from nodevet.fleet.ssh.errors import UnreachableError
from tests.fleet.ssh.test_host_keys import accepting, host_config
path, mine = sys.argv[1:]
for number in range(50):
    try:
        accepting().check(host_config(path, name=f"gpu{number}"), "ssh-ed25519", mine)
    except UnreachableError as error:
        assert "changed" in str(error), error
"""


def test_d3_many_processes_write_one_entry_for_each_host(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "known_hosts"
    words = [sys.executable, "-c", PROCESS, path]
    started = [subprocess.Popen([*words, mine]) for mine in ("AAAA", "BBBB", "CCCC")]
    assert [process.wait() for process in started] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(f"gpu{n}" for n in range(50))
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_d3_entries_that_another_process_wrote_meanwhile_count(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("other ssh-ed25519 AAAA")  # not whole, as an editor may leave it
    keys = accepting()
    keys.check(host_config(path), ED, "AAAA")
    assert path.read_text() == "other ssh-ed25519 AAAA\ngpu7 ssh-ed25519 AAAA\n"
    with path.open("a") as file:
        file.write("gpu8 ssh-ed25519 AAAA\n")
    with pytest.raises(UnreachableError, match=r"host key changed: .*known_hosts:3$"):
        keys.check(host_config(path, name="gpu8"), ED, "BBBB")
    path.write_text("gpu9 ssh-ed25519 AAAA\n")  # rewritten, as ssh-keygen -R does
    with pytest.raises(UnreachableError, match=r"host key changed: .*known_hosts:1$"):
        keys.check(host_config(path, name="gpu9"), ED, "BBBB")
    assert path.read_text() == "gpu9 ssh-ed25519 AAAA\n"


def test_d3_a_key_that_cannot_be_kept_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="/dev/null cannot store it"):
        accepting().check(host_config("/dev/null"), ED, "AAAA")
    path = tmp_path / "known_hosts"
    path.write_text("gpu1 ssh-ed25519 AAAA\n")
    keys = accepting()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))  # as a full disk: half a line fits
    try:
        with pytest.raises(UnreachableError, match=r"File too large; .* must be stored there"):
            keys.check(host_config(path), ED, "AAAA")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "gpu1 ssh-ed25519 AAAA\n"


def test_d3_a_known_hosts_file_that_stays_locked_times_out(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        started = time.monotonic()
        with pytest.raises(TooLateError, match=r"timed out after 0\.2 s \(\S+ is locked\)"):
            accepting(0.2).check(host_config(path), ED, "AAAA")
        assert time.monotonic() - started >= 0.2
    assert path.read_text() == ""


def test_d18_a_key_of_another_type_known_under_a_hashed_name_is_asked_for(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> None:
    """ed25519 is asked for first: another host's hashed name has such a key."""
    second, known_hosts = tmp_path / "ecdsa", tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", second], check=True)
    address = "127.3.7.4"
    server = sshd(addresses=[address], extra=[f"HostKey {second}"])
    known_hosts.write_text(
        known_hosts_line("127.3.7.5", 22, server.host_key)
        + known_hosts_line(address, server.port, KeyPair(second))
    )
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known_hosts], check=True, capture_output=True)
    host = Host(
        name="n1", address=address, port=server.port, user="root", key_file=str(key.path),
        python=fake["healthy"],
    )  # fmt: skip
    assert go([host], known_hosts=known_hosts)["n1"].why == ""
