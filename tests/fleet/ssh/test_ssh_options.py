"""Options of ssh_config that choose keys and algorithms, with real servers."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fleet import Visit
from nodevet.fleet.ssh.algorithms import choose
from nodevet.fleet.ssh.errors import SshConfigError, UnreachableError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.host_keys import HostKeys
from nodevet.fleet.ssh.known_hosts import KnownHosts, parse, spell
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line, make_key

ED = "ssh-ed25519"
NONE = r"host key not known \(add it with ssh-keyscan, or --accept-new\)"
OF_CA = "host key not known; .* names a certificate authority .* certificates are not supported .*"


def keygen(*words: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True, capture_output=True)


def typed(path: Path, *kind: str) -> KeyPair:
    keygen("-t", *kind, "-N", "", "-f", path)
    return KeyPair(path)


# How known_hosts and ssh_config speak of a server that has keys of all types; what comes of it.
# {ed}, {ecdsa}, {rsa}, {other}: keys; {at}: its name in known_hosts; {dir}: a folder of files.
CASES = {
    "ecdsa": ("{at} {ecdsa}", "", ""),
    "rsa": ("{at} {rsa}", "", ""),
    "rsa-too-small": ("{at} {rsa}", "RequiredRSASize 4096", "host key of 2048 bits: .*"),
    "by-choice": (
        "{at} {other}\n{at} {ecdsa}", "HostKeyAlgorithms ecdsa-sha2-nistp256,ssh-rsa", "",
    ),
    "not-by-choice": (
        "{at} {other}\n{at} {ecdsa}", "HostKeyAlgorithms ssh-ed25519", "host key changed: .*:1",
    ),
    "without-one": ("{at} {ecdsa}\n{at} {other}", "HostKeyAlgorithms -ssh-ed25519", ""),
    "system-file": ("", "GlobalKnownHostsFile {dir}/no {dir}/system", ""),
    "no-system-file": ("", "GlobalKnownHostsFile none", NONE),
    "no-file": ("{at} {ed}", "UserKnownHostsFile none", NONE),
    "revoked": ("{at} {ed}", "RevokedHostKeys {dir}/revoked", "host key revoked .*/revoked.*"),
    "others-revoked": ("{at} {ecdsa}", "RevokedHostKeys {dir}/revoked", ""),
    "krl": ("{at} {ed}", "RevokedHostKeys {dir}/krl", "RevokedHostKeys .*: a KRL is not supp.*"),
    "no-revoked": ("{at} {ed}", "RevokedHostKeys {dir}/no", "RevokedHostKeys .*: No such file.*"),
    "certified-known": ("{at} {ed}", "", ""),
    "certified-by-authority": ("@cert-authority * {other}", "", OF_CA),
    "known-and-revoked": ("{at} {ed}\n@revoked * {ed}", "", "host key revoked .*"),
    "cipher": ("{at} {ed}", "Ciphers aes256-ctr,aes128-gcm@openssh.com\nMACs hmac-sha2-512", ""),
    "no-cipher": (
        "{at} {ed}", "Ciphers 3des-cbc,none",
        "ssh_config: ciphers 3des-cbc,none: nodevet has none of these",
    ),
    "kex": ("{at} {ed}", "KexAlgorithms curve25519-sha256", ""),
    "certificate": ("{at} {ed}", "IdentityFile {dir}/signed\nCertificateFile {dir}/a-cert.pub\n"
                    "CertificateFile {dir}/signed.crt", ""),
    "wrong-certificate": (
        "{at} {ed}", "IdentityFile {dir}/signed\nCertificateFile {dir}/a-cert.pub",
        r"permission denied for root \(offered: \S+/signed\)",
    ),
    "certificate-and-plain": (
        "{at} {ed}", "IdentityFile {dir}/plain\nCertificateFile {dir}/plain.crt", "",
    ),
    "no-such-key": (
        "{at} {ed}", "PubkeyAcceptedAlgorithms -ssh-ed25519*\nIdentityFile {dir}/plain",
        r"permission denied for root \(ssh_config does not allow the key of type ssh-ed25519\)",
    ),
    "bound": ("{at} {ed}", "BindAddress 127.0.0.1\nAddressFamily inet", ""),
    "inet6": ("{at} {ed}", "AddressFamily inet6", "name not found"),
}  # fmt: skip


@pytest.fixture(scope="module")
def visits(
    tmp_path_factory: pytest.TempPathFactory,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> dict[str, Visit]:
    folder = tmp_path_factory.mktemp("options")
    authority, signed, other = (make_key(folder / name) for name in ("ca", "signed", "other"))
    wrong = make_key(folder / "wrong-ca")
    plain = make_key(folder / "plain")
    ed = make_key(folder / "ed")
    keygen("-s", authority.path, "-I", "x", "-n", "root", signed.path.with_suffix(".pub"))
    (folder / "signed-cert.pub").rename(folder / "signed.crt")
    keygen("-s", wrong.path, "-I", "x", "-n", "root", plain.path.with_suffix(".pub"))
    (folder / "plain-cert.pub").rename(folder / "plain.crt")
    make_key(folder / "a")
    keygen("-s", authority.path, "-I", "x", "-n", "root", folder / "a.pub")
    keygen("-s", authority.path, "-I", "x", "-h", ed.path.with_suffix(".pub"))
    ecdsa, rsa = typed(folder / "ecdsa", "ecdsa"), typed(folder / "rsa", "rsa", "-b", "2048")
    server = sshd(
        host_key=ed,
        authorized_key=f"{key.public.strip()}\n{plain.public.strip()}",
        extra=[
            f"HostKey {ecdsa.path}", f"HostKey {rsa.path}", f"HostCertificate {folder}/ed-cert.pub",
            f"TrustedUserCAKeys {authority.path}.pub",
        ],
    )  # fmt: skip
    spoken = {
        name: " ".join(each.public.split()[:2])
        for name, each in {"ed": ed, "ecdsa": ecdsa, "rsa": rsa, "other": other}.items()
    }
    at = known_hosts_line(server.address, server.port, ed).split()[0]
    (folder / "system").write_text(f"{at} {spoken['ed']}\n")
    (folder / "revoked").write_text(f"# these\n{ed.public}")
    keygen("-k", "-f", folder / "krl", ed.path.with_suffix(".pub"))
    lines = []
    for name, (known, said, _) in CASES.items():
        words = {"at": at, "dir": folder, **spoken}
        (folder / f"known-{name}").write_text(known.format(**words) + "\n")
        lines += [f"Host {name}", *said.format(**words).split("\n")]
    lines += ["Host *", f"HostName {server.address}", f"Port {server.port}", "User root"]
    lines += [f"UserKnownHostsFile {folder}/known-%n", "GlobalKnownHostsFile none"]
    lines += ["IdentityAgent none", "IdentitiesOnly yes"]
    lines += ["Host * !certificate !wrong-certificate !certificate-and-plain !no-such-key"]
    (folder / "config").write_text("\n".join([*lines, f"IdentityFile {key.path}", ""]))
    hosts = [Host(name=name, python=fake["healthy"]) for name in CASES]
    return go(hosts, ssh_config=folder / "config")


@pytest.mark.parametrize("name", CASES)
def test_d9_keys_and_algorithms_are_as_ssh_config_says(visits: dict[str, Visit], name: str) -> None:
    why, visit = CASES[name][2], visits[name]
    assert re.fullmatch(why, visit.why), visit.why
    assert visit.status is (Status.NOT_VISITED if why else Status.VETTED)


@pytest.mark.parametrize("line", ["[::1]:2222", "::1", "[gpu7]:2222", "fe80::1%eth0"])
def test_d9_ipv6_addresses_match_known_hosts_entries_as_in_ssh(tmp_path: Path, line: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{line} {ED} AAAA\n")
    for host in ("::1", "gpu7", "fe80::1%eth0"):
        for port in (22, 2222):
            name = spell(host, port)
            found = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True)
            assert bool(KnownHosts(parse(file.read_text(), "kh")).lookup(name)) == (
                found.returncode == 0
            )


def host_config(path: Path, **more: object) -> HostConfig:
    return HostConfig(
        "gpu7", 22, "root", (), None, False, ("gpu7",), (), (str(path),), system_known_hosts=(),
        **more,
    )  # fmt: skip


def test_d9_check_host_ip_refuses_a_key_that_differs_from_that_of_the_address(
    tmp_path: Path,
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu7 {ED} AAAA\n192.0.2.7 {ED} BBBB\n")
    keys = HostKeys(known_hosts=None, accept_new=False, patience=1)
    keys.check(host_config(file), ED, "AAAA", "192.0.2.7")
    keys.check(host_config(file, check_ip=True), ED, "AAAA", "192.0.2.8")
    with pytest.raises(UnreachableError, match=r"known_hosts:2 \(CheckHostIP\)"):
        keys.check(host_config(file, check_ip=True), ED, "AAAA", "192.0.2.7")


def test_d9_an_accepted_name_is_hashed_where_ssh_would(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    keys = HostKeys(known_hosts=None, accept_new=True, patience=1)
    keys.check(host_config(file, hash_names=True), ED, "AAAA")
    assert file.read_text().startswith("|1|")
    subprocess.run(["ssh-keygen", "-F", "gpu7", "-f", file], check=True, capture_output=True)
    keys.check(host_config(file, hash_names=True), ED, "AAAA")
    assert len(file.read_text().splitlines()) == 1


OURS = ("a", "b", "ab")


@pytest.mark.parametrize(
    ("wish", "left"),
    [
        ("b,x,a", ("b", "a")),
        ("+x", OURS),
        ("-a*", ("b",)),
        ("^ab", ("ab", "a", "b")),
        ("x", None),
        ("-*", None),
    ],
)
def test_d9_lists_of_algorithms_are_combined_as_in_ssh(
    wish: str, left: tuple[str, ...] | None
) -> None:
    if left is None:
        with pytest.raises(SshConfigError, match=r"macs .*: nodevet has none of these"):
            choose("macs", wish, OURS)
    else:
        assert choose("macs", wish, OURS) == left
