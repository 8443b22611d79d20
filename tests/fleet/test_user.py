"""`--user` where the inventory names nobody, and what `--verbose` prints."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet_sim.sshd import KeyPair, Sshd

NAME = socket.gethostname()
ANY = "nodevet: 1\ntitle: any\nexpect: {clock_skew: 3600}\n"
OPTIONS = ("-b", "any.yaml", "--store", "none", "--format", "json")
OPTIONS += ("--ssh-config", "config", "--known-hosts", "known")


Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def check(
    sshd: Callable[..., Sshd], key: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Check:
    """Runs a command on one host, whose user the inventory may name."""
    server = sshd()
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("User nobody\n")
    (tmp_path / "known").write_text(server.known_hosts)
    (tmp_path / "any.yaml").write_text(ANY)
    (tmp_path / "nodevet.toml").write_text(
        '[sweep.nightly]\ninventory = "fleet.yaml"\nuser = "root"\n'
    )
    host = {"address": server.address, "port": server.port, "key_file": str(key.path)}

    def run(*words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        inventory = {"nodevet": 1, "hosts": {NAME: {**host, **({"user": user} if user else {})}}}
        (tmp_path / "fleet.yaml").write_text(json.dumps(inventory))
        return subprocess.run(
            [sys.executable, "-m", "nodevet", *words, "-i", "fleet.yaml", *OPTIONS],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("named", "words", "status"),
    [
        (None, ("check",), "not_visited"),
        (None, ("check", "--user", "root"), "vetted"),
        ("root", ("check", "--user", "nosuch"), "vetted"),
        (None, ("sweep",), "vetted"),
        (None, ("sweep", "--user", "nosuch"), "not_visited"),
    ],
)
def test_the_user_option_is_for_hosts_without_a_user(
    check: Check, named: str | None, words: tuple[str, ...], status: str
) -> None:
    done = check(*words, user=named)
    (report,) = json.loads(done.stdout)["hosts"]
    assert report["status"] == status, done.stderr


@pytest.mark.parametrize("command", ["check", "sweep"])
def test_verbose_prints_what_ssh_did(check: Check, key: KeyPair, command: str) -> None:
    done = check(command, "-v", "--user", "root")
    steps = [line for line in done.stderr.splitlines() if line.startswith(f"nodevet: {NAME}: ")]
    for text in ("log in as root on 127.", "connected after ", "SSH-2.0-OpenSSH", "SHA256:"):
        assert text in "\n".join(steps), done.stderr
    assert steps[-2:] == [
        f"nodevet: {NAME}: offered key {key.path}",
        f"nodevet: {NAME}: the server accepted it",
    ]
    refused = check(command, "--verbose", "--user", "nosuch")
    assert refused.stderr.count("offered key") == 1 and "accepted it" not in refused.stderr
    assert "offered key" not in check(command).stderr
