"""ssh_config as OpenSSH reads it: the same files, told to `ssh -G` and to us."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodevet.fleet.protocol.framing import SshTarget
from nodevet.fleet.ssh import ssh_config
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import (
    DEFAULT_KEYS,
    SYSTEM_FILES,
    USER_FILES,
    HostConfig,
    SshConfig,
    _files,
)
from nodevet.fleet.ssh.ssh_config import ConfigValues, load
from nodevet.fleet.ssh.words import hops

HOME = pwd.getpwuid(os.getuid()).pw_dir
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")

TOLD: dict[str, tuple[dict[str, tuple[str, ...]], tuple[str, ...]]] = {
    "port": ({"port": ("77",)}, ("-p", "77")),
    "user": ({"user": ("me",)}, ("-l", "me")),
    "hostname": ({"hostname": ("10.1.1.1",)}, ("-o", "HostName=10.1.1.1")),
}
DEFAULTS = {
    "addressfamily": "any", "bindaddress": None, "canonicalizehostname": "no",
    "checkhostip": "no", "hashknownhosts": "no", "hostkeyalias": None, "identitiesonly": "no",
    "identityagent": None, "pubkeyauthentication": "yes", "revokedhostkeys": None,
    "stricthostkeychecking": "ask",
}  # fmt: skip
AS_SHOWN = {"true": "yes", "false": "no"}  # ssh -G says these for some


def ours(config: Path | None, name: str, told: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    found = load(config and str(config)).lookup(name, told)
    return {
        **{keyword: found.first_value(keyword) or value for keyword, value in DEFAULTS.items()},
        "revokedhostkeys": _none(found.first_value("revokedhostkeys")),
        "hostname": found.hostname,
        "user": found.user,
        "port": str(found.port),
        "identityfile": found.values.get("identityfile", ()),
        "certificatefile": found.values.get("certificatefile", ()),
        "userknownhostsfile": " ".join(_files(found, "userknownhostsfile", USER_FILES)) or "none",
        "globalknownhostsfile": found.values.get("globalknownhostsfile", SYSTEM_FILES),
        "proxyjump": found.jumps,
        "proxycommand": _command(found),
        "identityagent": _socket(found),
    }


def _none(value: str | None) -> str | None:
    return None if (value or "none").lower() == "none" else value


def _command(found: ConfigValues) -> str | None:
    return None if found.jumps else _none(found.first_value("proxycommand"))


def _socket(found: ConfigValues) -> str | None:
    socket = found.first_value("identityagent")
    return found.path(socket) if socket else None


def theirs(config: Path, name: str, *words: str) -> dict[str, object] | None:
    """What ssh says; None where it refuses."""
    done = subprocess.run(
        ["ssh", "-G", "-F", config, *words, name], capture_output=True, text=True, timeout=30
    )
    if done.returncode:
        return None
    lines = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    first = dict(reversed(lines))

    def every(keyword: str) -> tuple[str, ...]:
        return tuple(value for each, value in lines if each == keyword)

    keys = every("identityfile")
    shown = {
        **{keyword: first.get(keyword, value) for keyword, value in DEFAULTS.items()},
        "hostname": first["hostname"],
        "user": first["user"],
        "port": first["port"],
        "identityfile": () if set(DEFAULT_KEYS) <= set(keys) else keys,
        "certificatefile": every("certificatefile"),
        "userknownhostsfile": first.get("userknownhostsfile", "none"),
        "globalknownhostsfile": tuple(first.get("globalknownhostsfile", "none").split()),
        "proxyjump": hops(first.get("proxyjump", "none")),
        "proxycommand": first.get("proxycommand"),
    }
    return {
        key: AS_SHOWN.get(value, value) if isinstance(value, str) else value
        for key, value in shown.items()
    }


def compare(
    config: Path, name: str, told: Mapping[str, tuple[str, ...]], *words: str
) -> dict[str, object] | None:
    """Both, which must be the same; None where both refuse."""
    expected = theirs(config, name, *words)
    if expected is None:
        with pytest.raises(SshConfigError):
            ours(config, name, told)
    else:
        assert ours(config, name, told) == expected
    return expected


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("NODEVET_X", "/some/where")


NAMES = ["gpu1", "gpu2", "GPU1", "login.lab", "10.0.0.7", "127.1", "::1", "fe80::0001"]
HOSTS = [
    *NAMES, "*", "gpu*", "gpu?", "!gpu1", "!gpu*", "*.lab", "10.0.*", '"gpu2"', "'gpu1'", "gpu[1]",
    "g**1", "gpu1,gpu2", "!*",
]  # fmt: skip
VALUES = {
    "HostName": ["%h.lab", "%h", "GPU9", "10.0.0.8", "::0001", "127.1", "a%%b", '"%h"'],
    "User": ["joe", '"ann b"', "'eve'", "a\\ b", "joe#x", "joe #x"],
    "Port": ["22", "2222", "ssh", "022", '"23"', "24 # x"],
    "IdentityFile": ["~/.ssh/a", "/k/%h", '"/k/a b"', "none", "/k/%%", "/k/${X}"],
    "CertificateFile": ["/c/a", "/c/%h", "none", "~/c"],
    "UserKnownHostsFile": [
        "/u/a", "/u/a /u/b", '"/u/a%h" ~/b', "none", "/u/%L%d%i%k%l%n%p%r%u%%",
        "/u/${NODEVET_X}", "~root/x",
    ],
    "GlobalKnownHostsFile": ["/g/a /g/b", "none", "/g/%h", '"/g/a"'],
    "HostKeyAlias": ["Alias", "%h"],
    "RevokedHostKeys": ["/r/a", "none", "~/r"],
    "StrictHostKeyChecking": ["yes", "no", "ASK", "off", "accept-new", "true"],
    "CheckHostIP": ["yes", "No", "true", "false"],
    "HashKnownHosts": ["yes", "no"],
    "IdentitiesOnly": ["yes", "no"],
    "IdentityAgent": ["none", "/a/%h", "$AGENT", "${NODEVET_X}", "~/a", "SSH_AUTH_SOCK"],
    "AddressFamily": ["inet", "inet6", "any", "INET"],
    "BindAddress": ["127.0.0.1", "x"],
    "PubkeyAuthentication": ["yes", "no", "unbound", "host-bound"],
    "CanonicalizeHostname": ["no", "yes", "false"],
    "ProxyJump": [
        "a", "joe@a:2222", "a,joe@b", "ssh://joe@a.b:22", "joe@[::1]", "[::1]:2222", "10.0.0.9",
        "a # x",
        "ssh://a/",
    ],
    "ProxyCommand": ["none", "nc %h %p", '"nc" \'a b\' # x', "= nc %h"],
    "IgnoreUnknown": ["NoSuch*"],
    "ForwardAgent": ["yes"],
    "SendEnv": ["LANG LC_*"],
    "ControlPath": ["/c/%C"],
    "Protocol": ["2"],
}  # fmt: skip
REFUSED = [
    "HostName %n", "HostName", "User x y", "Port 0", "Port 65536", "Port x", "Port -1",
    "IdentityFile /k/a /k/b", "UserKnownHostsFile none /x", "UserKnownHostsFile /u/%z",
    "UserKnownHostsFile /u/${NODEVET_NO}", "UserKnownHostsFile ~nobodyhere/x",
    "UserKnownHostsFile /u/%", "StrictHostKeyChecking maybe", "CheckHostIP maybe",
    "IdentitiesOnly on", "IdentitiesOnly yes no", "IdentityAgent $a-b", "AddressFamily ipv4",
    "PubkeyAuthentication maybe", "ProxyJump a:0", "ProxyJump a:x", "ProxyJump @a",
    "ProxyJump a, b",
    "ProxyCommand nc '", "User 'x", 'Host "gpu1', "Match host", "Match nonsense x", "Match # x",
    'Match exec "%z"', "Match all host gpu1", "NoSuchThing x y", 'Include ""', "Host ''",
]  # fmt: skip
CRITERIA = [
    "canonical", "final", "!final", "!canonical", "host gpu*", "host=gpu1", "!host gpu1",
    'host "gpu1,gpu2"', "host *.lab", "originalhost gpu1", "!originalhost gpu1,login.*",
    "originalhost GPU1", "user joe", "!user joe,ann", "localuser *", "localuser root",
    "exec true", "exec false", "!exec false", 'exec "test %h = gpu1"', "HOST gpu1",
    'exec "test %n%p%r = gpu122joe"', "exec \"test '%k' = alias\"",
]  # fmt: skip
INCLUDES = [
    "{0}/a", "{0}/b", '"{0}/a"', "'{0}/b'", "{0}/a {0}/b", "{0}/a {0}/a", "{0}/[ab]", "{0}/?",
    "{0}/no*", "{0}/none", "{0}/*.conf {0}/a", "{0}/with\\ blank", '"{0}/with blank" # x', "{0}",
    "{0}/[^b]",
]  # fmt: skip


@st.composite
def option(draw: st.DrawFn) -> str:
    keyword = draw(st.sampled_from(sorted(VALUES)))
    value = draw(st.sampled_from(VALUES[keyword]))
    if draw(st.integers(0, 9)) == 0:
        return f'"{keyword}" {value}'
    written = draw(st.sampled_from([keyword, keyword.lower(), keyword.upper()]))
    between = draw(st.sampled_from([" ", " ", " ", "=", " = ", "\t", "= ", "  "]))
    after = draw(st.sampled_from(["", "", "", " ", "\t", "\r", "\f"]))
    return draw(st.sampled_from(["", "", "  ", "\t"])) + written + between + value + after


def several(words: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=3).map(" ".join)


line = st.one_of(
    option(), option(), option(),
    several(HOSTS).map("Host {}".format),
    several(CRITERIA).map("Match {}".format),
    st.sampled_from(["", "  # comment", "#Host x", "\t", "Match all", "Match canonical all"]),
)  # fmt: skip
include = st.sampled_from(INCLUDES).map("Include {}".format)
leaf = st.lists(line, max_size=6)
stem = st.lists(st.one_of(line, line, line, include), max_size=9)


@st.composite
def files(draw: st.DrawFn, main: st.SearchStrategy[list[str]] = stem) -> dict[str, str]:
    """main, which may include all of the others, and a, which may include b."""
    found = {"main": draw(main), "a": draw(stem), "b": draw(leaf), "x.conf": draw(leaf)}
    if draw(st.integers(0, 5)) == 0:
        wrong = found[draw(st.sampled_from(sorted(found)))]
        wrong.insert(draw(st.integers(0, len(wrong))), draw(st.sampled_from(REFUSED)))
    texts = {name: "\n".join([*lines, ""]) for name, lines in found.items()}
    for many in ("{0}/a", "{0}/[ab]", "{0}/?", "{0}/[^b]"):
        texts["a"] = texts["a"].replace(many, "{0}/b")
    return {**texts, "with blank": "Port 4444\nUser blank\n"}


def write(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text.replace("{0}", str(folder)))
    return folder / "main"


@needs_ssh
@given(texts=files(), name=st.sampled_from(NAMES), told=st.sampled_from(["", *TOLD]))
@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_d9_every_host_resolves_as_ssh_resolves_it(
    tmp_path: Path, texts: dict[str, str], name: str, told: str
) -> None:
    values, words = TOLD[told] if told else ({}, ())
    compare(write(tmp_path, texts), name, values, *words)


@needs_ssh
@pytest.mark.parametrize("text", REFUSED)
def test_d9_a_config_that_ssh_refuses_is_refused(tmp_path: Path, text: str) -> None:
    for before in ("", "Host nobody\n"):
        config = write(tmp_path, {"main": f"{before}{text}\n"})
        expected = compare(config, "gpu1", {})
        assert before or expected is None


@needs_ssh
@pytest.mark.parametrize("name", NAMES)
def test_d9_the_connection_hash_token_expands_as_in_ssh(tmp_path: Path, name: str) -> None:
    compare(write(tmp_path, {"main": "UserKnownHostsFile /u/%C\nUser me\nPort 9\n"}), name, {})


@needs_ssh
@given(user=leaf, system=leaf, name=st.sampled_from(NAMES))
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_d9_the_systems_file_is_read_after_the_users(
    tmp_path: Path, user: list[str], system: list[str], name: str
) -> None:
    both = write(tmp_path, {"main": "\n".join([*user, "Match all", *system, ""])})
    expected = theirs(both, name)
    (tmp_path / ".ssh").mkdir(exist_ok=True)
    (tmp_path / ".ssh" / "config").write_text("\n".join(user))
    (tmp_path / "system").write_text("\n".join(system))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh_config, "SYSTEM_CONFIG", str(tmp_path / "system"))
        patch.setattr(ssh_config, "USER_CONFIG", str(tmp_path / ".ssh" / "config"))
        if expected is None:
            with pytest.raises(SshConfigError):
                ours(None, name, {})
        else:
            assert ours(None, name, {}) == expected


@needs_ssh
def test_d9_a_relative_include_is_read_from_the_users_ssh_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "d").mkdir(parents=True)
    for name, port in (("one", 1), ("d/two", 2), ("d/.three", 3)):
        (tmp_path / ".ssh" / name).write_text(f"Host {Path(name).name.strip('.')}\n Port {port}\n")
    config = write(tmp_path, {"main": "Include one d/* ~/.ssh/d/.th*\n", "one": "Port 9\n"})
    for name, port in (("one", "1"), ("two", "2"), ("three", "3")):
        assert load(str(config)).lookup(name, {}).port == int(port)
        shown = theirs(config, name)
        assert shown is not None and shown["port"] == port


@needs_ssh
@pytest.mark.parametrize(
    ("mode", "refused"), [(0o644, False), (0o600, False), (0o666, True), (0o602, True)]
)
def test_d9_an_included_file_that_others_may_write_is_refused(
    tmp_path: Path, mode: int, refused: bool
) -> None:
    config = write(tmp_path, {"main": "Include {0}/a\n", "a": "Port 9\n"})
    (tmp_path / "a").chmod(mode)
    assert (compare(config, "gpu1", {}) is None) is refused


def resolve(tmp_path: Path, text: str, **given: object) -> HostConfig:
    (tmp_path / "config").write_text(text)
    plain = dict.fromkeys(("address", "port", "user", "key_file", "known_hosts", "python"))
    target = {"number": 0, "name": "gpu1", "root": "/", "sudo": False, **plain, **given}
    return SshConfig(str(tmp_path / "config")).resolve(SshTarget(**target))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("KnownHostsCommand /bin/x", "KnownHostsCommand is not supported"),
        ("BindInterface eth0", "BindInterface is not supported"),
        ("PubkeyAuthentication no", "PubkeyAuthentication no is not supported"),
        ("ProxyCommand x\nProxyUseFdpass yes", "ProxyUseFdpass yes is not supported"),
        ("User %u", "User with % or .* is not supported"),
        ("RefuseConnection gone", "RefuseConnection: gone"),
        ("Match tagged x", "Match tagged is not supported"),
        ("Host gpu1\nProxyJump a\nUserKnownHostsFile /x/%C", "%C is not known here"),
        ("CanonicalizeHostname yes\nCanonicalizePermittedCNAMEs a:b", "CNAMEs is not supported"),
        ("NewerWord x", "IgnoreUnknown newerword skips it"),
        ("Include a\\x", "a path with a backslash is not supported"),
    ],
)
def test_d9_an_unsupported_setting_is_refused_by_name(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(SshConfigError, match=word):
        resolve(tmp_path, text)


def test_d9_the_inventory_overrides_ssh_config_and_its_tokens_are_not_expanded(
    tmp_path: Path,
) -> None:
    text = "HostName x\nUser x\nPort 1\nUserKnownHostsFile /y\nIdentityFile /k\n"
    route = resolve(
        tmp_path, text, address="fe80::1%eth0", port=2222, user="me", known_hosts="/x/100% my",
        key_file="/my key",
    )  # fmt: skip
    assert (route.hostname, route.port, route.user) == ("fe80::1%eth0", 2222, "me")
    assert route.known_hosts == ("/x/100% my",)
    assert [file.path for file in route.key_files] == ["/my key"]
    assert route.names == ("[fe80::1%eth0]:2222", "[gpu1]:2222")


def test_d9_keys_and_commands_have_their_tokens(tmp_path: Path) -> None:
    text = (
        "IdentityFile /k/%n.%h\nCertificateFile /c/%p\nHostName %h.lab\nHostKeyAlias A\n"
        "ProxyCommand nc -x %k %h %p %r %n %%\nUser me\n"
    )
    route = resolve(tmp_path, text)
    assert [(file.path, file.certificates) for file in route.key_files] == [
        ("/k/gpu1.gpu1.lab", ("/c/22",))
    ]
    assert route.proxy_command == "nc -x a gpu1.lab 22 me gpu1 %"
    with pytest.raises(SshConfigError, match="%l is not known here"):
        resolve(tmp_path, "ProxyCommand nc %l")


def test_d9_ssh_config_is_read_without_ssh_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve(tmp_path, "Host gpu*\n  Port 7\nMatch final\n  User me\n").port == 7
