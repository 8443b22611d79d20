"""ssh_config, jump hosts, certificates, agents and accept-new, with real servers and programs."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodevet.fleet import FleetError, Options, Visit, visit
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line, make_key

NOT_VISITED, UNREACHABLE, VETTED = Status.NOT_VISITED, Status.UNREACHABLE, Status.VETTED


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, KeyPair]]:
    """A real ssh-agent with one key; its socket."""
    folder = tmp_path_factory.mktemp("agent")
    key = make_key(folder / "id")
    socket = folder / "socket"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not socket.exists():
            assert process.poll() is None
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        subprocess.run(["ssh-add", "-q", str(key.path)], check=True, env=env)
        yield socket, key
    finally:
        process.terminate()
        process.wait()


EXPECTED = {
    "alias": (VETTED, ""),
    "included": (VETTED, ""),
    "behind": (VETTED, ""),
    "behind-two": (VETTED, ""),
    "by-command": (VETTED, ""),
    "by-command-third-time": (VETTED, ""),
    "certified": (VETTED, ""),
    "with-agent": (VETTED, ""),
    "key-alias": (VETTED, ""),
    "behind-unknown": (NOT_VISITED, r"jump host \[127.*\]:\d+: host key not known.*"),
    "behind-refused": (UNREACHABLE, r"jump host \[127.*\]:\d+ cannot connect: .*"),
    "behind-nothing": (NOT_VISITED, r"jump host nowhere.invalid: name not found.*"),
    "round-and-round": (NOT_VISITED, "ProxyJump is a loop: .*"),
    "command-fails": (UNREACHABLE, "connection closed before the SSH banner"),
    "not-certified": (NOT_VISITED, r"permission denied for root \(offered: \S+/id_ed25519\)"),
    "without-agent": (
        NOT_VISITED,
        r"permission denied for root \(no key to offer: no ssh-agent, no key file\)",
    ),
    "encrypted-key": (NOT_VISITED, r"key file \S+ is encrypted; add it to an ssh-agent"),
    "not-a-key": (NOT_VISITED, r"key file \S+ is not a private key"),
}


@pytest.fixture(scope="module")
def configured(
    tmp_path_factory: pytest.TempPathFactory,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    agent: tuple[Path, KeyPair],
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> dict[str, Visit]:
    folder = tmp_path_factory.mktemp("ssh")
    socket, agent_key = agent
    authority, holder, stranger = (make_key(folder / name) for name in ("ca", "holder", "stranger"))
    sign = ["ssh-keygen", "-q", "-s", authority.path, "-I", "nodevet", "-n", "root"]
    subprocess.run([*sign, f"{holder.path}.pub"], check=True, capture_output=True)
    node = sshd(addresses=["127.3.0.1", "127.3.0.2", "127.3.0.3"])
    bastion = sshd(addresses=["127.3.1.1", "127.3.1.2"])
    unknown = sshd(addresses=["127.3.2.1"])
    certified = sshd(
        addresses=["127.3.3.1"], extra=[f"TrustedUserCAKeys {authority.path}.pub"],
        authorized_key=stranger.public,
    )  # fmt: skip
    with_agent = sshd(addresses=["127.3.4.1"], authorized_key=agent_key.public)
    locked, junk = folder / "locked", folder / "junk"
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked]
    subprocess.run(keygen, check=True, capture_output=True)
    junk.write_text("not a key\n")

    known = "".join(server.known_hosts for server in (node, bastion, certified, with_agent))
    known += f"the-alias {node.host_key.public}\n"
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(
        known.replace(known_hosts_line("127.3.0.3", node.port, node.host_key), "")
    )
    config = folder / "config"
    busy = folder / "busy"
    busy.write_text(
        f"""#!/bin/sh
        mkdir {folder}/first 2>/dev/null && exit 255
        mkdir {folder}/second 2>/dev/null && printf 'Exceeded MaxStartups\\r\\n' && exit 255
        exec ssh -F {config} -W "$1" bastion
        """
    )
    busy.chmod(0o755)
    (folder / "more").write_text(f"Host included\n  HostName 127.3.0.2\n  Port {node.port}\n")

    def stanza(name: str, server: Sshd, *lines: str, number: int = 0) -> str:
        where = f"HostName {server.addresses[number]}", f"Port {server.port}"
        return "\n  ".join((f"Host {name}", *where, *lines)) + "\n"

    config.write_text(
        f"Include {folder}/more\n"
        + stanza("alias", node)
        + stanza("key-alias", node, "HostKeyAlias the-alias", number=2)
        + stanza("bastion", bastion)
        + stanza("second", bastion, number=1)
        + stanza("unknown", unknown)
        + stanza("behind", node, "ProxyJump bastion")
        + stanza("behind-two", node, "ProxyJump bastion,second")
        + stanza("behind-unknown", node, "ProxyJump unknown")
        + stanza("behind-nothing", node, "ProxyJump nowhere.invalid")
        + stanza("round-and-round", node, "ProxyJump round-and-round")
        + "Host behind-refused\n  HostName 127.3.0.1\n  Port 1\n  ProxyJump bastion\n"
        + stanza("by-command", node, f"ProxyCommand ssh -F {config} -W %h:%p bastion")
        + stanza("by-command-third-time", node, f"ProxyCommand {busy} %h:%p")
        + stanza("command-fails", node, "ProxyCommand false")
        + stanza("certified", certified, f"IdentityFile {holder.path}", "IdentityAgent none")
        + stanza("not-certified", certified, f"IdentityFile {key.path}", "IdentityAgent none")
        + stanza("with-agent", with_agent, f"IdentityAgent {socket}", "IdentityFile none")
        + stanza("without-agent", with_agent, "IdentityAgent none", "IdentityFile none")
        + f"Host * !with-agent !without-agent\n  IdentityFile {key.path}\n"
        "Host *\n  User root\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {known_hosts}\n  StrictHostKeyChecking yes\n"
    )
    keys = {"encrypted-key": str(locked), "not-a-key": str(junk)}
    hosts = [
        Host(
            name=name,
            python=fake["healthy"],
            key_file=keys.get(name),
            address=node.address if name in keys else None,
            port=node.port if name in keys else None,
        )
        for name in EXPECTED
    ]
    return go(hosts, ssh_config=config, parallel=8)


@pytest.mark.parametrize("name", EXPECTED)
def test_ssh_config_is_followed(configured: dict[str, Visit], name: str) -> None:
    status, why = EXPECTED[name]
    visit = configured[name]
    assert re.fullmatch(why, visit.why), visit.why
    assert visit.status is status


@pytest.fixture
def at(sshd: Callable[..., Sshd], key: KeyPair, fake: dict[str, str]) -> Callable[..., Host]:
    def host(name: str, server: Sshd, number: int = 0) -> Host:
        return Host(
            name=name,
            address=server.addresses[number],
            port=server.port,
            user="root",
            key_file=str(key.path),
            python=fake["healthy"],
        )

    return host


def test_accept_new_adds_a_key_once_and_refuses_a_changed_one(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    at: Callable[..., Host],
    go: Callable[..., dict[str, Visit]],
) -> None:
    server = sshd(addresses=["127.3.9.1", "127.3.9.2", "127.3.9.3"])
    other = make_key(tmp_path / "other")
    known_hosts = tmp_path / "new" / "known_hosts"
    known_hosts.parent.mkdir()
    kept = known_hosts_line("127.3.9.2", server.port, other)
    kept += "@cert-authority [127.3.9.3]* " + " ".join(other.public.split()[:2]) + "\n"
    known_hosts.write_text(kept.removesuffix("\n"))  # as an editor may leave it
    hosts = [at("new", server), at("changed", server, 1), at("authority", server, 2)]
    options = {"known_hosts": known_hosts, "host_keys": "accept-new"}

    visits = go(hosts, **options)
    assert visits["new"].status is VETTED, visits["new"].why
    assert visits["changed"].why.startswith("host key changed")
    assert "certificate authority" in visits["authority"].why
    added = known_hosts_line("127.3.9.1", server.port, server.host_key)
    assert known_hosts.read_text() == kept + added

    assert go(hosts[:1], **options)["new"].status is VETTED
    assert known_hosts.read_text() == kept + added
    assert go(hosts[:1], known_hosts=known_hosts)["new"].status is VETTED


def test_a_key_known_under_the_inventory_name_counts(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    at: Callable[..., Host],
    go: Callable[..., dict[str, Visit]],
) -> None:
    server = sshd(addresses=["127.3.8.1"])
    other = make_key(tmp_path / "other")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(
        known_hosts_line("right", server.port, server.host_key)
        + known_hosts_line("wrong", server.port, other)
    )
    visits = go([at("right", server), at("wrong", server)], known_hosts=known_hosts)
    assert visits["right"].status is VETTED
    assert visits["wrong"].why.startswith("host key changed")


@pytest.mark.parametrize("name", ["ssh_config", "known_hosts"])
def test_a_file_that_is_not_there_is_reported_before_any_visit(tmp_path: Path, name: str) -> None:
    with pytest.raises(FleetError, match=f"{name} .*/nowhere: no such file"):
        list(visit([Host(name="gpu1")], Options(**{name: tmp_path / "nowhere"})))


def test_an_unreadable_ssh_config_is_reported_for_every_host(
    tmp_path: Path, go: Callable[..., dict[str, Visit]]
) -> None:
    config = tmp_path / "config"
    config.write_text("Match nonsense\n")
    visits = go([Host(name="gpu1"), Host(name="gpu2")], ssh_config=config)
    assert {visit.status for visit in visits.values()} == {NOT_VISITED}
    assert visits["gpu1"].why.startswith(f"ssh_config {config}: ")
