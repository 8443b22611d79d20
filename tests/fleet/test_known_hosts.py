"""known_hosts as ssh reads it, compared with ssh-keygen -F where that has an opinion."""

import subprocess
from pathlib import Path

import pytest

from nodevet.fleet.known_hosts import KnownHosts, Trust, matches, parse, spell

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
def test_what_is_known_of_a_key(text: str, trust: Trust) -> None:
    assert judge(text) is trust


def test_the_name_without_its_port_confirms_and_never_condemns() -> None:
    hosts = KnownHosts(parse(f"gpu7 {ED} {A}", "kh"))
    names, portless = ("[gpu7]:2222",), ("gpu7",)
    assert hosts.judge(names, portless, ED, A).trust is Trust.KNOWN
    assert hosts.judge(names, portless, ED, B).trust is Trust.UNKNOWN


def test_where_points_at_the_line() -> None:
    hosts = KnownHosts(parse(f"# mine\n\ngpu7 {ED} {B}\n", "/home/me/kh"))
    assert hosts.judge(("gpu7",), (), ED, A).where == "/home/me/kh:3"


def test_the_types_known_for_a_host() -> None:
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
    assert matches(name, patterns) == (found.returncode == 0)


def test_spelling() -> None:
    assert (spell("gpu7", 22), spell("gpu7", 2222)) == ("gpu7", "[gpu7]:2222")
