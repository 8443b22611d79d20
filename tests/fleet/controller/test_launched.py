"""Hosts that are visited from elsewhere: every one is answered for once, whatever a launcher does.

The bastions are sshds on loopback, with the nodevet of this environment.
"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from far_processes import alive, children_of, wait_for
from network_apart import NetworkApart, NoNamespaceError
from passing_port import PassingPort

from nodevet import __version__
from nodevet.fleet import FleetError, Options, Visit, visit
from nodevet.fleet.controller import launched, launcher_process
from nodevet.fleet.controller.shards import order_of
from nodevet.fleet.launchers import Launcher, Launchers, launcher
from nodevet.fleet.protocol.framing import write_order
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("small_orders")]
SHARD = Path(sys.executable).with_name("nodevet-shard")
HOSTS = 12

Tools = dict[str, Callable[..., object]]
Go = Callable[..., dict[str, Visit]]


@pytest.fixture(scope="module")
def bastion(
    sshd: Callable[..., Sshd],
    node: Sshd,
    key: KeyPair,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Launcher]:
    """A launcher through an sshd of its own, whose home has what reaches the nodes."""
    folder = tmp_path_factory.mktemp("bastions")

    def make(name: str, program: str = str(SHARD), **options: object) -> Launcher:
        server = sshd(**options)
        known = folder / f"{name}.known"
        known.write_text(server.known_hosts)
        ssh = server.folder / "home" / ".ssh"
        ssh.mkdir(mode=0o700, parents=True, exist_ok=True)
        (ssh / "known").write_text(node.known_hosts)
        words = f"ssh -F /dev/null -i {key.path} -o UserKnownHostsFile={known} -p {server.port}"
        one = launcher(
            name,
            f"{words} root@{server.address} {program}",
            ssh_config=os.devnull,
            known_hosts=str(ssh / "known"),
            key_file=str(key.path),
        )
        servers[name] = server
        return one

    servers: dict[str, Sshd] = {}
    make.servers = servers
    return make


def through(*launchers: Launcher, **options: object) -> dict[str, object]:
    """Options by which all of these launchers may reach every host."""
    return {"engine": Launchers(launchers), **options}


def wrapped(tmp_path: Path, name: str, script: str) -> str:
    """A program that stands for one that is not here, as an argv wrapper."""
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_bastion_visits_hosts_with_its_own_files(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go
) -> None:
    visits = go(hosts("healthy"), **through(bastion("plain")))
    assert Counter((one.status, one.why) for one in visits.values()) == {(Status.VETTED, ""): HOSTS}
    assert len({one.evidence for one in visits.values()}) == 1


def test_a_bastion_without_the_keys_reports_each_host_as_not_visited(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go
) -> None:
    one = replace(bastion("keyless"), key_file=None)
    visits = go(hosts("healthy", 3), **through(one))
    assert {one.status for one in visits.values()} == {Status.NOT_VISITED}
    assert all("permission denied for root" in one.why for one in visits.values())


def test_another_shard_takes_over_from_a_killed_one(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], tools: Tools
) -> None:
    killed, other = bastion("killed"), bastion("other")
    server = bastion.servers["killed"]
    before = tools["children"]()
    seen = []
    visits = visit(hosts("late"), Options(ssh_config=Path(os.devnull), **through(killed, other)))
    for one in visits:
        if not seen:
            wait_for(lambda: bool(server.sessions()))
            for pid in server.sessions():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
        seen.append(one)
    assert Counter(one.host for one in seen) == {host.name: 1 for host in hosts("late")}
    assert {(one.status, one.why) for one in seen} == {(Status.VETTED, "")}
    assert tools["children"]() == before


def test_late_answers_of_a_disconnected_shard_are_ignored(
    bastion: Callable[..., Launcher],
    hosts: Callable[..., list[Host]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launched, "SILENCE", 5)
    monkeypatch.setattr(launcher_process, "BEAT", 1)
    cut, other = bastion("cut"), bastion("other2")
    server = bastion.servers["cut"]
    seen = []
    visits = visit(hosts("late"), Options(ssh_config=Path(os.devnull), **through(cut, other)))
    stopped: list[int] = []
    for one in visits:
        if not seen:
            wait_for(lambda: bool(server.sessions()))
            stopped = server.sessions()[:2]
            for pid in stopped:  # the connection is there, and nothing comes through it
                os.kill(pid, signal.SIGSTOP)
        seen.append(one)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert Counter(one.host for one in seen) == {host.name: 1 for host in hosts("late")}
    assert {(one.status, one.why) for one in seen} == {(Status.VETTED, "")}


@pytest.fixture
def network() -> Iterator[NetworkApart]:
    try:
        found = NetworkApart()
    except NoNamespaceError as error:
        pytest.skip(f"this machine gives no network namespace: {error}")
    try:
        yield found
    finally:
        found.end()


def test_a_network_outage_midway_loses_no_host_and_counts_none_twice(
    bastion: Callable[..., Launcher],
    hosts: Callable[..., list[Host]],
    network: NetworkApart,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is told that no packet arrives: neither ssh nor the sshd of the bastion."""
    monkeypatch.setattr(launched, "SILENCE", 4)
    monkeypatch.setattr(launcher_process, "BEAT", 1)
    reached, other = bastion("far"), bastion("near")
    server = bastion.servers["far"]
    with closing(PassingPort(server, listening=network.listening())) as port:
        words = [word if word != str(server.port) else str(port.port) for word in reached.argv]
        words[1:1] = ["-o", "StrictHostKeyChecking=no"]
        far = replace(reached, argv=(*network.enter, *words))
        engine = Launchers((far, other), {"@both": ("far", "near"), "@far": ("far",)})
        wanted = [*hosts("late", 8, "both"), *hosts("hangs", 2, "far")]
        seen: list[Visit] = []
        for one in visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine)):
            if not seen:
                wait_for(lambda: bool(server.sessions()))
                network.down()
            seen.append(one)
        assert server.sessions()  # the bastion knows nothing of it yet
        network.up()
        wait_for(lambda: not server.sessions())
    assert Counter(one.host for one in seen) == {host.name: 1 for host in wanted}
    ends = {one.host: (one.status, one.why) for one in seen}
    lost = {ends.pop(host.name) for host in hosts("hangs", 2, "far")}
    assert lost == {(Status.TIMEOUT, "launcher far was silent for 4 s and was given up")}
    assert set(ends.values()) == {(Status.VETTED, "")}


@pytest.mark.parametrize("only", [False, True])
def test_hosts_of_an_unusable_launcher_move_to_another_or_report_why(
    bastion: Callable[..., Launcher],
    hosts: Callable[..., list[Host]],
    go: Go,
    tmp_path: Path,
    only: bool,
) -> None:
    """Another of the site takes their hosts; without one each host says which failed, and why."""
    other_version = (
        f'{sys.executable} -c \'import nodevet; nodevet.__version__ = "0.0.1"\n'
        "from nodevet.fleet.worker import relay; relay.main()'"
    )
    here = f"{sys.executable} -I -m nodevet.fleet.worker.relay"
    bad = {
        "without": (
            bastion("without", "/no/such/folder/nodevet-shard"),
            "exited with 127: .*/no/such/folder/nodevet-shard",
        ),
        "closed": (
            launcher("closed", "ssh -F /dev/null -p 9 root@127.0.0.1"),
            "ended without a greeting: exited with 255: .*refused",
        ),
        "missing": (
            launcher("missing", "/no/such/kubectl exec -i pod --"),
            "cannot start a child process: No such file or directory",
        ),
        "older": (
            launcher("older", wrapped(tmp_path, "kubectl", f"exec {other_version}")),
            rf"has nodevet 0\.0\.1 \(protocol 1\), this is nodevet {__version__} \(protocol 1\)",
        ),
        "garbage": (
            launcher("garbage", wrapped(tmp_path, "garbage", "yes this is not a shard")),
            "gave no greeting; it wrote: this is not a shard",
        ),
        "forged": (
            launcher(
                "forged",
                wrapped(
                    tmp_path,
                    "forged",
                    f"{sys.executable} -c 'from nodevet.fleet.protocol.greeting import *;"
                    "import sys; sys.stdout.buffer.write(write_greeting(greeting()))'\n"
                    'printf \'{"number": 0, "status": "vetted", "why": "", "seconds": 1, "bytes": '
                    "99999999999}\\n'; sleep 60",
                ),
            ),
            "wrote malformed output: not the length of a body",
        ),
        "refuses": (
            Launcher("refuses", tuple(here.split()), known_hosts="/no/such/known_hosts"),
            "refused: known_hosts /no/such/known_hosts: no such file",
        ),
    }
    good = () if only else (bastion("good"),)
    if only:
        wanted = hosts("healthy", 2)
        for one, why in bad.values():
            for seen in go(wanted, **through(one)).values():
                assert seen.status is Status.NOT_VISITED
                assert seen.evidence is None and not seen.again
                assert_matches(why, seen.why, f"launcher {one.name} ")
    else:
        visits = go(hosts("healthy"), **through(*(one for one, _ in bad.values()), *good))
        assert {(one.status, one.why) for one in visits.values()} == {(Status.VETTED, "")}


def assert_matches(pattern: str, text: str, start: str) -> None:
    assert text.startswith(start)
    assert re.search(pattern, text), text


OUTCOME = '{"number": %s, "status": "%s", "why": "", "seconds": 1, "bytes": 0}\n'
ATTACKS = {
    "a host that was not asked for": OUTCOME % (10**6, "vetted"),
    "a host from the end": OUTCOME % (-1, "vetted"),
    "one host twice": OUTCOME % (0, "timeout") + OUTCOME % (0, "timeout"),
    "an unknown status": OUTCOME % (0, "fine"),
    "a status of this side": OUTCOME % (0, "interrupted"),
    "a number that is a list": OUTCOME % ("[0]", "vetted"),
    "nothing but depth": "[" * 60_000 + "\n",
    "no end of a head": " " * 70_000,
    "a reason that is an object": '{"lost": 99, "why": {"a": []}, "bytes": 0}\n',
    "a lost host that is an object": '{"lost": {}, "why": "", "bytes": 0}\n',
    "refused by an object": '{"refused": {"\\ud800": null}, "bytes": 0}\n',
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_forged_shard_output_ends_the_launcher_and_each_host_is_reported_once(
    hosts: Callable[..., list[Host]], go: Go, tmp_path: Path, attack: str
) -> None:
    """Each host is told once, by the first good answer or by why there is none."""
    (tmp_path / "attack").write_text(attack)
    forging = wrapped(
        tmp_path,
        "forging",
        f"{sys.executable} -c 'from nodevet.fleet.protocol.greeting import *;"
        "import sys; sys.stdout.buffer.write(write_greeting(greeting()))'\n"
        f"cat {tmp_path}/attack; exec sleep 60",
    )
    visits = go(hosts("healthy", 3), **through(launcher("forging", forging)), second_try=True)
    told = [one for one in visits.values() if one.status is not Status.TIMEOUT]
    assert len(told) >= 2
    assert {one.status for one in told} == {Status.NOT_VISITED}
    for one in told:
        assert_matches("wrote malformed output|refused: ", one.why, "launcher forging ")
        assert one.why.isprintable() and not one.first


def test_a_launcher_tries_a_transient_failure_again(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], node: Sshd, go: Go
) -> None:
    one = bastion("second-try")
    with closing(PassingPort(node, refused=1)) as port:
        line = known_hosts_line("127.0.0.1", port.port, node.host_key)
        known = Path(str(one.known_hosts))
        known.write_text(known.read_text() + line)
        (wanted,) = hosts("healthy", 1, "dc2")
        passing = msgspec.structs.replace(wanted, address="127.0.0.1", port=port.port)
        visits = go([*hosts("healthy", 3), passing], **through(one), second_try=True)
        assert port.taken == 2
    assert {(each.status, each.why) for each in visits.values()} == {(Status.VETTED, "")}
    assert visits["dc2-00"].first.startswith("connection closed during key exchange")
    assert not any(visits[host.name].first for host in hosts("healthy", 3))


def test_a_launcher_that_died_visits_its_hosts_once_more_if_it_is_the_only_one(
    bastion: Callable[..., Launcher],
    hosts: Callable[..., list[Host]],
    fake: dict[str, str],
    go: Go,
    tmp_path: Path,
) -> None:
    """Where there is no other: one that had greeted may be there again."""
    visited = tmp_path / "visited"
    python = wrapped(
        tmp_path,
        "python",
        f"[ -e {visited} ] && exec {fake['healthy']}\ntouch {visited}\nexec {fake['hangs']}",
    )
    dying = wrapped(
        tmp_path,
        "dying",
        f"[ -e {visited} ] && exec {SHARD}\nexec 3<&0\n{SHARD} <&3 & shard=$!\n"
        f"until [ -e {visited} ]; do sleep 0.1; done\nkill -9 $shard; wait $shard",
    )
    one = replace(bastion("again"), name="dying", argv=(dying,))
    wanted = [msgspec.structs.replace(host, python=python) for host in hosts("healthy", 1)]
    seen = go(wanted, **through(one), second_try=True)["dc1-00"]
    assert (seen.status, seen.why) == (Status.VETTED, "")
    assert seen.first.startswith("launcher dying exited with 137")


def test_the_deadline_of_the_run_ends_remote_shards(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go, tools: Tools
) -> None:
    one = bastion("deadline")
    wanted = [*hosts("healthy", 2), *hosts("hangs", 4, "dc2")]
    visits = go(wanted, **through(one), within=600, vetted=2)
    found = Counter(each.status for each in visits.values())
    assert found == {Status.VETTED: 2, Status.INTERRUPTED: 4}
    assert not tools["lingering"]([bastion.servers["deadline"]])


def test_output_of_the_login_shell_before_the_greeting_is_skipped(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go, tmp_path: Path
) -> None:
    shell = wrapped(
        tmp_path,
        "login",
        'printf "Welcome to \\036NODEVET\\n{}\\n"; exec sh -c "$SSH_ORIGINAL_COMMAND"',
    )
    visits = go(hosts("healthy", 6), **through(bastion("banner", command=shell)))
    assert {(one.status, one.why) for one in visits.values()} == {(Status.VETTED, "")}


def test_a_slow_shard_delays_no_other(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    late = wrapped(tmp_path, "srun", f"sleep 50; touch {begun}; exec {SHARD}")
    slow = launcher("slow", f"{late} -N1")
    visits = go(hosts("healthy"), **through(slow, bastion("quick")))
    assert {(one.status, one.why) for one in visits.values()} == {(Status.VETTED, "")}
    assert not begun.exists()


def test_hosts_are_visited_only_by_the_launchers_of_their_site(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], go: Go
) -> None:
    """What only a failing launcher may reach is told; what goes from here is visited from here."""
    broken, good = launcher("broken", "/no/such/srun"), bastion("site")
    engine = Launchers((broken, good), {"@dc1": ("site",), "@dc2": ("broken",)})
    alone = [msgspec.structs.replace(one, local=True, root="/") for one in hosts("late", 1, "dc2")]
    wanted = [*hosts("healthy", 4), *hosts("healthy", 3, "dc2")[1:], *alone]
    visits = go([*wanted, *hosts("healthy", 2, "dc3")], engine=engine)
    found = {name: one.status for name, one in visits.items()}
    assert {found[f"dc1-{n:02}"] for n in range(4)} == {Status.VETTED}
    assert {found[f"dc2-{n:02}"] for n in (1, 2)} == {Status.NOT_VISITED}
    assert found["dc2-00"] is Status.VETTED
    why = visits["dc3-00"].why  # by this machine's known_hosts, which has none
    assert why.startswith("host key not known")


def test_a_host_of_two_sites_is_refused_before_the_sweep_begins(
    hosts: Callable[..., list[Host]],
) -> None:
    engine = Launchers((launcher("a", "x"), launcher("b", "x")), {"@dc1": ("a",), "@k": ("b",)})
    both = [msgspec.structs.replace(hosts("late", 1)[0], groups=frozenset({"dc1", "k"}))]
    with pytest.raises(FleetError, match="several sites"):
        list(visit(both, Options(engine=engine)))


def test_closing_the_iterator_ends_remote_shards(
    bastion: Callable[..., Launcher], hosts: Callable[..., list[Host]], tools: Tools
) -> None:
    one = bastion("interrupted")
    server = bastion.servers["interrupted"]
    wanted = [*hosts("healthy", 1, "dc0"), *hosts("hangs", 8)]
    visits = visit(wanted, Options(ssh_config=Path(os.devnull), **through(one)))
    assert next(visits).host == "dc0-00"
    far = server.sessions()
    assert len(far) > 3
    visits.close()
    assert not tools["lingering"]([server], 15)
    wait_for(lambda: not any(map(alive, far)))


def test_another_launcher_visits_the_hosts_of_a_remote_shard_that_died(
    hosts: Callable[..., list[Host]], tools: Tools, go: Go, tmp_path: Path, key: KeyPair, node: Sshd
) -> None:
    known = tmp_path / "known"
    known.write_text(node.known_hosts)
    dying = wrapped(
        tmp_path,
        "dying",
        f"exec {sys.executable} -c 'from nodevet.fleet.controller import shards\n"
        'shards.PROGRAM = "nodevet.no_such_module"\n'
        "from nodevet.fleet.worker import relay; relay.main()'",
    )
    paths = {"known_hosts": str(known), "key_file": str(key.path), "ssh_config": os.devnull}
    bad = launcher("bad", f"{dying} x", **paths)
    docker = wrapped(tmp_path, "docker", 'shift; exec "$@"')
    good = launcher("good", f"{docker} x {SHARD}", **paths)
    wanted = hosts("healthy", 8)
    alone = go(wanted, **through(bad))
    assert {one.status for one in alone.values()} == {Status.PROBE_FAILED}
    assert all(
        one.why.startswith("launcher bad ") and "No module named" in one.why
        for one in alone.values()
    )
    both = go(wanted, **through(bad, good))
    assert {(one.status, one.why) for one in both.values()} == {(Status.VETTED, "")}


@pytest.fixture
def relay() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-I", "-m", "nodevet.fleet.worker.relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        yield process


def test_a_remote_shard_ends_when_its_input_ends(relay: subprocess.Popen[bytes]) -> None:
    said, complaint = relay.communicate(b"", timeout=120)
    assert said.startswith(b"\n\x1eNODEVET-SHARD {") and relay.returncode == 0
    assert complaint == b""


def test_a_remote_shard_ends_when_its_reader_ends(
    relay: subprocess.Popen[bytes],
    hosts: Callable[..., list[Host]],
    node: Sshd,
    key: KeyPair,
    tmp_path: Path,
) -> None:
    """A shard ends with the one who reads its answers, also while it has none to write."""
    known = tmp_path / "known"
    known.write_text(node.known_hosts)
    wanted = [
        msgspec.structs.replace(one, key_file=str(key.path), known_hosts=str(known))
        for one in hosts("hangs", 2)
    ]
    options = Options(ssh_config=Path(os.devnull), deadline=80)
    order = order_of(range(2), wanted, options, 2)
    assert relay.stdin is not None
    relay.stdin.write(write_order(order))
    relay.stdin.flush()
    wait_for(lambda: len(node.sessions()) >= 2)
    (shard,) = children_of(relay.pid)
    relay.kill()
    relay.wait()
    wait_for(lambda: not alive(shard) and not node.sessions(), 15)


def test_a_malformed_order_is_refused_in_one_line(relay: subprocess.Popen[bytes]) -> None:
    _, complaint = relay.communicate(b'{"bytes": 0, "targets": 7}\n', timeout=120)
    assert relay.returncode == 1
    assert complaint.startswith(b"malformed order: ") and complaint.count(b"\n") == 1
