"""A second chance at the end of a sweep, for what may pass; and the deadline of all of it."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from passing_port import PassingPort

from nodevet.fleet import Options, Visit, visit
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line

Go = Callable[..., dict[str, Visit]]


def test_a_transient_failure_is_tried_again_and_reported_as_a_second_try(
    sshd: Callable[..., Sshd], key: KeyPair, fake: dict[str, str], go: Go, tmp_path: Path
) -> None:
    """One host answers the second visit, and one never does."""
    server = sshd()
    known = tmp_path / "known"

    def host(name: str, port: int, **more: object) -> Host:
        given = {"user": "root", "key_file": str(key.path), "python": fake["healthy"], **more}
        return Host(name=name, address="127.0.0.1", port=port, **given)

    with closing(PassingPort(server, 1)) as passing, closing(PassingPort(server, 99)) as gone:
        lines = [known_hosts_line("127.0.0.1", it.port, server.host_key) for it in (passing, gone)]
        known.write_text(server.known_hosts + "".join(lines))
        hosts = [
            host("passing", passing.port),
            host("gone", gone.port),
            host("good", server.port),
            host("no-login", server.port, key_file="/no/such/key"),
            host("slow", server.port, python=fake["hangs"]),
        ]
        options = {"known_hosts": known, "deadline": 30, "probe_deadline": 1}
        visits = go(hosts, second_try=True, **options)
        told = {name: (one.status, bool(one.first)) for name, one in visits.items()}
        assert told == {
            "passing": (Status.VETTED, True),
            "gone": (Status.UNREACHABLE, True),
            "good": (Status.VETTED, False),
            "no-login": (Status.NOT_VISITED, False),
            "slow": (Status.TIMEOUT, True),
        }
        assert visits["passing"].first.startswith("connection closed during key exchange")
        assert visits["slow"].first == visits["slow"].why
        assert gone.taken == 2  # none is visited three times
        assert passing.taken == 2
        once = go(hosts[1:3], **options)
        assert not any(one.first for one in once.values())
        assert gone.taken == 3


def test_hosts_not_reached_by_the_deadline_are_named(
    sshd: Callable[..., Sshd], hosts_on: Callable[..., list[Host]], go: Go, tmp_path: Path
) -> None:
    server = sshd()
    known = tmp_path / "known"
    known.write_text(server.known_hosts)
    answering = {f"healthy{n}": "healthy" for n in range(2)}
    hosts = hosts_on(server, {**answering, **{f"hangs{n}": "hangs" for n in range(5)}})
    refused = Host(name="refused", address="127.0.0.1", port=9)
    visits = go(
        [refused, *hosts],
        known_hosts=known,
        within=600,
        vetted=2,
        parallel=4,
        second_try=True,
    )
    assert Counter(one.status for one in visits.values()) == {
        Status.VETTED: 2,
        Status.INTERRUPTED: 5,
        Status.UNREACHABLE: 1,
    }
    assert visits["hangs0"].why == "not done within 10 min, the deadline of the whole run"
    assert (visits["refused"].why, visits["refused"].first) == ("connection refused", "")


def test_a_deadline_of_zero_seconds_is_refused() -> None:
    with pytest.raises(ValueError, match="within"):
        Options(within=0)
    assert list(visit([], Options(within=1))) == []
