"""What people write of launchers and sites, and what it comes to."""

import pytest

from nodevet.base.errors import UserError
from nodevet.fleet.launchers import DaskPool, Launcher, Launchers, launcher
from nodevet.model import Host
from nodevet.vet.use.engine import engine

HOSTS = [
    Host(name="a1", groups=frozenset({"dc1", "h100"})),
    Host(name="b1", groups=frozenset({"dc2"})),
    Host(name="c1"),
]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("kubectl exec -i deploy/nodevet --", "kubectl exec -i deploy/nodevet -- nodevet-shard"),
        ("srun -N1", "srun -N1 nodevet-shard"),
        ("docker exec -i c /opt/n/bin/nodevet-shard", "docker exec -i c /opt/n/bin/nodevet-shard"),
    ],
)
def test_nodevet_shard_is_appended_to_the_launcher_command(text: str, command: str) -> None:
    assert list(launcher("x", text).command) == command.split()


def test_ssh_launchers_run_in_batch_mode() -> None:
    command = launcher("eu", "ssh -p 22 'bastion eu'").command
    assert command[:4] == ("ssh", "-T", "-o", "BatchMode=yes")
    assert command[-4:] == ("-p", "22", "bastion eu", "nodevet-shard")


def test_a_host_is_visited_by_the_launchers_of_its_site() -> None:
    given = {"eu": "ssh eu", "eu2": "ssh eu2", "here": "local"}
    found = engine(None, given, {"@dc1": ["eu", "eu2"], "@dc2": ["here", "local"]})
    assert isinstance(found, Launchers)
    assert [found.route(host) for host in HOSTS] == [("eu", "eu2"), ("here", "local"), ()]
    assert found.find_launcher("here").is_local and found.find_launcher("local") == Launcher(
        "local"
    )
    everywhere = engine(None, given, {"@dc1": ["eu"], "*": ["eu2"]})
    assert everywhere is not None
    assert [everywhere.route(host) for host in HOSTS] == [("eu",), ("eu2",), ("eu2",)]
    anywhere = engine(None, given, {})
    assert anywhere is not None
    assert {anywhere.route(host) for host in HOSTS} == {("eu", "eu2", "here")}


def test_a_host_of_two_sites_is_refused_unless_they_have_the_same_launchers() -> None:
    given = {"eu": "ssh eu", "us": "ssh us"}
    alike = engine(None, given, {"@dc1": ["eu", "us"], "@h100": ["us", "eu"]})
    assert alike is not None
    assert set(alike.route(HOSTS[0])) == {"eu", "us"}
    apart = engine(None, given, {"@dc1": ["eu"], "@h100": ["us"]})
    assert apart is not None
    with pytest.raises(ValueError, match=r"a1 belongs to several sites .*@dc1: eu; @h100: us"):
        apart.route(HOSTS[0])


@pytest.mark.parametrize(
    ("address", "launchers", "sites", "why"),
    [
        (None, {"e u": "ssh x"}, {}, "not a valid name"),
        (None, {"eu": ""}, {}, "launcher eu: no command"),
        (None, {"eu": "ssh 'x"}, {}, "launcher eu: No closing quotation"),
        (None, {"local": "ssh x"}, {}, "launcher local is this machine"),
        (None, {"eu": "ssh x"}, {"@dc1": ["eux"]}, "no launcher eux; did you mean eu"),
        (None, {"eu": "ssh x"}, {"dc1": ["eu"]}, "not a group such as @dc1"),
        (None, {"eu": "ssh x"}, {"@dc1": []}, "no launcher may reach it"),
        (None, {"eu": {"command": "ssh x", "key": "k"}}, {}, "unknown 'key'"),
        (None, {}, {"@dc1": ["eu"]}, "sites are given, and no launcher"),
        ("dask://x:1", {"eu": "ssh x"}, {}, "cannot be used together"),
        ("dask://x", {}, {}, "not a valid engine"),
        ("ray://x:1", {}, {}, "not a valid engine"),
        ("dask://x:1", {}, {"@dc1": ["a", "b"]}, "one resource"),
    ],
)
def test_invalid_launchers_and_sites_are_reported(address, launchers, sites, why) -> None:
    with pytest.raises(UserError, match=why):
        engine(address, launchers, sites)


def test_the_address_of_a_pool_is_converted_to_that_of_dask() -> None:
    found = engine("tls://sched:8786", {}, {"@dc1": ["eu"]})
    assert isinstance(found, DaskPool)
    assert found.address == "tls://sched:8786"
    assert found.route(HOSTS[0]) == ("eu",) and found.route(HOSTS[2]) == ("dask",)
    plain = engine("dask://[::1]:8786", {}, {})
    assert plain == DaskPool("tcp://[::1]:8786")
