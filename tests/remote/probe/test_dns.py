"""The resolver: what its files say, and names that a real getaddrinfo looks up."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet.remote.probe.collectors import dns
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]


def node(root: Path, config: str | None, upstream: str | None = None) -> str:
    (root / "etc").mkdir()
    for name, text in (("etc", config), ("run/systemd/resolve", upstream)):
        if text is not None:
            (root / name).mkdir(parents=True, exist_ok=True)
            (root / name / "resolv.conf").write_text(text)
    return str(root.resolve())


@pytest.mark.parametrize(
    ("config", "upstream", "servers", "search"),
    [
        ("# a\nnameserver 10.0.0.2\nnameserver fd00::2 # b\n", None, ("10.0.0.2", "fd00::2"), ()),
        (" nameserver 1.1.1.1\n;nameserver 2.2.2.2\nnameserver\n", None, (), ()),
        ("nameserver 10.0.0.2;a\nnameserver 10.0.0.3#b\n", None, ("10.0.0.2", "10.0.0.3"), ()),
        ("search a b\nsearch c d.e\n", None, (), ("c", "d.e")),
        ("domain a\n", None, (), ("a",)),
        ("nameserver 127.0.0.53\nsearch .\n", "nameserver 10.0.0.2\n", ("10.0.0.2",), (".",)),
        ("nameserver 127.0.0.53\n", "search a\n", (), ()),
        (None, None, (), ()),
    ],
)
def test_servers_of_resolv_conf_are_read(
    tmp_path: Path,
    check: Check,
    config: str | None,
    upstream: str | None,
    servers: tuple[str, ...],
    search: tuple[str, ...],
) -> None:
    data = check("dns", dns.collect(node(tmp_path, config, upstream), {}))
    assert (data.nameservers, data.search, data.names) == (servers, search, ())
    assert data.stub is (upstream is not None)


def test_what_cannot_be_read_is_unknown(tmp_path: Path, check: Check) -> None:
    data = check("dns", dns.collect(node(tmp_path, "nameserver 127.0.0.53\n"), {}))
    assert data.nameservers is None and data.search == ()
    assert data.why("nameservers") == "/run/systemd/resolve/resolv.conf: ENOENT"
    (tmp_path / "etc/resolv.conf").unlink()
    (tmp_path / "etc/resolv.conf").mkdir()
    data = check("dns", dns.collect(str(tmp_path.resolve()), {}))
    assert (data.nameservers, data.search, data.stub) == (None, None, None)
    (tmp_path / "etc/resolv.conf").rmdir()
    (tmp_path / "etc/resolv.conf").write_text("nameserver 10.0.0.2\n" * 33)
    data = check("dns", dns.collect(str(tmp_path.resolve()), {}))
    assert data.why("nameservers") == "more than 32 nameservers or search domains"


def test_names_are_looked_up_on_a_running_machine_only(tmp_path: Path, check: Check) -> None:
    asks = {"asks": {"dns": ["localhost"]}}
    assert dns.ALONE(asks) and not dns.ALONE({})
    data = check("dns", dns.collect(node(tmp_path, ""), asks))
    assert data.why("names") == "names are resolved on a running machine only"


def test_names_are_looked_up_with_getaddrinfo(check: Check) -> None:
    names = ["localhost", "127.0.0.9", "no-such-name.invalid"]
    found = {
        each.name: each
        for each in check("dns", dns.collect("/", {"asks": {"dns": names}, "deadline": 60.0})).names
    }
    told = socket.getaddrinfo("localhost", None, 0, socket.SOCK_STREAM)
    assert set(found["localhost"].addresses) == {row[4][0] for row in told}
    assert found["127.0.0.9"].addresses == ("127.0.0.9",) and found["127.0.0.9"].why_not == ""
    gone = found["no-such-name.invalid"]
    assert gone.addresses == () and gone.why_not and gone.seconds >= 0


def test_a_lookup_that_hangs_does_not_affect_other_names(
    monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    hanging = "if name == 'b.example':\n        time.sleep(60)\n    try:"
    monkeypatch.setattr(dns, "RESOLVE", dns.RESOLVE.replace("try:", hanging, 1))
    limit = round(min(slowness(), 9.0), 1)
    asks = {"asks": {"dns": ["b.example", "localhost"]}, "deadline": limit + dns.SPARE}
    late, good = check("dns", dns.collect("/", asks)).names
    assert late.why_not == f"no answer within {limit:g} s" and late.addresses == ()
    assert good.addresses and good.why_not == ""


def test_a_child_that_fails_leaves_the_addresses_unknown(
    monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(dns, "RESOLVE", "raise SystemExit(3)")
    (one,) = check("dns", dns.collect("/", {"asks": {"dns": ["localhost"]}})).names
    assert one.addresses is None and "ended with 3" in one.why("addresses")


def test_the_resolver_is_absent_in_a_tree_without_etc(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no /etc"):
        dns.collect(str(tmp_path), {})
