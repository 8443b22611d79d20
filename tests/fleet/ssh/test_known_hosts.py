"""known_hosts as ssh reads it, compared with ssh-keygen -F where that has an opinion."""

import base64
import hashlib
import hmac
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet.fleet.ssh.known_hosts import Judgement, KnownHosts, Trust, parse, spell
from nodevet.fleet.ssh.words import is_listed

A, B = "AAAAkeyA", "AAAAkeyB"
ED, RSA = "ssh-ed25519", "ssh-rsa"


def judge(text: str, *, kind: str = ED, key: str = A, names: tuple[str, ...] = ("gpu7",)) -> Trust:
    return KnownHosts(parse(text, "kh")).judge(names, (), kind, key).trust


@pytest.mark.parametrize(
    ("text", "trust"),
    [
        (f"gpu7 {ED} {A}", Trust.KNOWN),
        (f"GPU7 {ED} {A} a comment", Trust.KNOWN),
        (f"gpu6,gpu7\t{ED} {A}", Trust.KNOWN),
        (f"gpu* {ED} {A}", Trust.KNOWN),
        (f"gpu?,!gpu8 {ED} {A}", Trust.KNOWN),
        (f"gpu7 {ED} {B}\ngpu7 {ED} {A}", Trust.KNOWN),
        ("", Trust.UNKNOWN),
        (f"gpu70 {ED} {A}", Trust.UNKNOWN),
        (f"gpu*,!gpu7 {ED} {A}", Trust.UNKNOWN),
        (f"#gpu7 {ED} {A}", Trust.UNKNOWN),
        (f"gpu7 {ED}", Trust.UNKNOWN),
        (f"[gpu7]:2222 {ED} {A}", Trust.UNKNOWN),
        (f"gpu7 {RSA} {B}", Trust.UNKNOWN),
        (f"gpu7 {ED} {B}", Trust.CHANGED),
        (f"gpu7 {ED} {A}\n@revoked gpu7 {ED} {A}", Trust.REVOKED),
        (f"@revoked * {ED} {A}\ngpu7 {ED} {A}", Trust.REVOKED),
        (f"@revoked gpu7 {ED} {B}\ngpu7 {ED} {A}", Trust.KNOWN),
        (f"@revoked gpu7 {ED} {A}", Trust.REVOKED),
        (f"@cert-authority gpu* {ED} {B}", Trust.AUTHORITY),
        (f"@cert-authority gpu* {ED} {A}", Trust.AUTHORITY),
        (f"@cert-authority gpu* {ED} {B}\ngpu7 {ED} {A}", Trust.KNOWN),
        (f"@cert-authority gpu* {ED} {B}\ngpu7 {ED} {B}", Trust.CHANGED),
        (f"|1|not|base64! {ED} {A}\ngpu7 {ED} {A}", Trust.KNOWN),
    ],
)
def test_known_hosts_decides_whether_a_key_is_trusted(text: str, trust: Trust) -> None:
    assert judge(text) is trust


def test_an_entry_without_the_port_can_confirm_a_key_but_not_reject_it() -> None:
    hosts = KnownHosts(parse(f"gpu7 {ED} {A}", "kh"))
    names, portless = ("[gpu7]:2222",), ("gpu7",)
    assert hosts.judge(names, portless, ED, A).trust is Trust.KNOWN
    assert hosts.judge(names, portless, ED, B).trust is Trust.UNKNOWN


def test_a_changed_key_is_reported_with_its_file_and_line() -> None:
    hosts = KnownHosts(parse(f"# mine\n\ngpu7 {ED} {B}\n", "/home/me/kh"))
    assert hosts.judge(("gpu7",), (), ED, A).where == "/home/me/kh:3"


def test_only_plain_entries_count_as_known_key_types_of_a_host() -> None:
    text = f"gpu7 {RSA} {A}\n@cert-authority * {ED} {B}\n@revoked gpu7 ecdsa {B}\n"
    assert KnownHosts(parse(text, "kh")).types(("gpu7",)) == (RSA,)


@pytest.mark.parametrize("name", ["gpu7", "[gpu7]:2222", "10.0.0.7"])
def test_hashed_names_are_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kh"
    file.write_text("".join(f"{one} {ED} {A}\n" for one in ("gpu7", "[gpu7]:2222", "10.0.0.7")))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    text = file.read_text()
    assert name not in text
    hosts = KnownHosts(parse(text, "kh"))
    assert [entry.key for entry in hosts.lookup(name)] == [A]
    assert hosts.lookup(name + "0") == []


@pytest.mark.parametrize(
    "patterns", ["gpu*", "gpu?", "*,!gpu7", "!gpu7,*", "g*7", "[gpu7]:22*", "*"]
)
@pytest.mark.parametrize("name", ["gpu7", "gpu77", "[gpu7]:2222", "login"])
def test_patterns_match_as_ssh_keygen_matches_them(
    tmp_path: Path, patterns: str, name: str
) -> None:
    file = tmp_path / "kh"
    file.write_text(f"{patterns} {ED} {A}\n")
    found = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True, text=True)
    assert is_listed(name, patterns.split(",")) == (found.returncode == 0)


def test_a_name_includes_its_port_unless_it_is_22() -> None:
    assert (spell("gpu7", 22), spell("gpu7", 2222)) == ("gpu7", "[gpu7]:2222")


def hashed(name: str) -> str:
    """As `ssh-keygen -H` writes a name."""
    salt = hashlib.sha1(name.encode()).digest()
    parts = salt, hmac.digest(salt, name.encode(), "sha1")
    return "|".join(("", "1", *(base64.b64encode(part).decode() for part in parts)))


def effort(lines: int, asked: int) -> int:
    """How many calls it takes to know the keys of some hosts among so many hashed lines."""
    hosts = [f"gpu{number}" for number in range(lines)]
    text = "".join(f"{hashed(host)} {ED} {host}Key\n" for host in hosts)
    known, calls = KnownHosts(parse(text, "kh")), 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for host in hosts[-asked:]:
            names = (host, f"10.0.0.{host[3:]}")
            known.types(names)
            assert known.judge(names, (), ED, f"{host}Key").trust is Trust.KNOWN
    finally:
        sys.setprofile(None)
    return calls


def test_d18_a_known_host_costs_the_same_however_many_hashed_names_there_are() -> None:
    assert effort(lines=2000, asked=20) <= effort(lines=50, asked=20) * 1.1


def test_d18_a_second_lookup_of_an_unknown_key_does_not_hash_every_name_again() -> None:
    text = "".join(f"{hashed(f'gpu{number}')} {ED} {A}{number}\n" for number in range(500))
    hosts = KnownHosts(parse(text, "kh"))
    assert hosts.judge(("gpu7",), (), ED, B).trust is Trust.CHANGED
    calls = 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert hosts.judge(("gpu7",), (), ED, B).where == "kh:8"
    finally:
        sys.setprofile(None)
    assert calls < 200


@pytest.mark.parametrize("marker", ["@revoked ", "@cert-authority "])
def test_d18_markers_of_hashed_names_count(marker: str) -> None:
    text = f"{marker}{hashed('gpu7')} {ED} {A}\n{hashed('gpu7')} {ED} {A}\n"
    assert judge(text) is (Trust.REVOKED if "revoked" in marker else Trust.KNOWN)
    assert judge(text.split("\n", maxsplit=1)[0]) is (
        Trust.REVOKED if "revoked" in marker else Trust.AUTHORITY
    )


def test_d18_entries_that_come_later_are_found_under_a_name_that_was_looked_up() -> None:
    hosts = KnownHosts(parse(f"{hashed('gpu8')} {ED} {A}\n", "kh"))
    assert hosts.judge(("gpu7",), (), ED, A).trust is Trust.UNKNOWN
    hosts.add(parse(f"{hashed('gpu7')} {ED} {B}\n", "kh", line=2))
    assert hosts.judge(("gpu7",), (), ED, A) == Judgement(Trust.CHANGED, "kh:2")
    hosts.add(parse(f"{hashed('gpu7')} {ED} {A}\n", "kh", line=3))
    assert hosts.judge(("gpu7",), (), ED, A) == Judgement(Trust.KNOWN, "kh:3")
