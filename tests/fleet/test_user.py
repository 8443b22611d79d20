"""`--user`, and `user` of nodevet.toml, where the inventory names nobody."""

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
def test_it_is_for_hosts_without_one(
    sshd: Callable[..., Sshd],
    key: KeyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str | None,
    words: tuple[str, ...],
    status: str,
) -> None:
    server = sshd()
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("User nobody\n")
    (tmp_path / "known").write_text(server.known_hosts)
    (tmp_path / "any.yaml").write_text(ANY)
    host = {"address": server.address, "port": server.port, "key_file": str(key.path)}
    inventory = {"nodevet": 1, "hosts": {NAME: {**host, **({"user": named} if named else {})}}}
    (tmp_path / "fleet.yaml").write_text(json.dumps(inventory))
    (tmp_path / "nodevet.toml").write_text(
        '[sweep.nightly]\ninventory = "fleet.yaml"\nuser = "root"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", *words, "-i", "fleet.yaml", *OPTIONS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    (report,) = json.loads(done.stdout)["hosts"]
    assert report["status"] == status, done.stderr
