"""A fleet of answers: one real sshd, and for each host a stand-in for its python3 that gives what
the night's file holds."""

import getpass
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import five_nights

from nodevet_sim.sshd import KeyPair, Sshd

ANSWER = """#!{python} -ISE
import hashlib, json, sys
stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
stdin.read(int(stdin.readline()))
request = json.loads(stdin.read())
try:
    text = open({file!r}, "rb").read()
except OSError:
    sys.exit("no answer")
digest = hashlib.sha256(text).hexdigest()
head = "\\n\\x1eNODEVET %s %d %s\\n" % (request["nonce"], len(text), digest)
stdout.write(head.encode() + text)
stdout.flush()
"""

BASELINE = """\
nodevet: 1
expect:
  power_limit: 700
  cpu_governor: performance
  persistence_mode: true
"""
HOSTS = tuple(f"gpu{number:03d}" for number in range(1, 7))
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(1, 7))
Change = Callable[[dict[str, Any]], object]


class AnsweringFleet:
    """Hosts whose answers are files, and `nodevet` as its user runs it in a folder of its own."""

    def __init__(self, folder: Path, sshd: Sshd, key: KeyPair) -> None:
        self.folder = folder
        self.nights = 0
        self.answers = folder / "answers"
        self.answers.mkdir()
        hosts = {}
        for host, address in zip(HOSTS, sshd.addresses, strict=True):
            hosts[host] = {"python": self.script(host), "address": address}
        defaults = {
            "user": getpass.getuser(),
            "key_file": str(key.path),
            "port": sshd.port,
            "known_hosts": str(folder / "known_hosts"),
        }
        (folder / "known_hosts").write_text(sshd.known_hosts)
        inventory = {"nodevet": 1, "defaults": defaults, "hosts": hosts}
        (folder / "fleet.yaml").write_text(json.dumps(inventory))
        (folder / "site.yaml").write_text(BASELINE)
        self.settings('outputs = { json = "last.json" }\n')
        self.night()

    @property
    def state(self) -> str:
        return os.environ["XDG_STATE_HOME"]

    def script(self, host: str) -> str:
        """What stands in for the host's python3."""
        script = self.answers / host
        python = str(Path(sys.executable).resolve())
        script.write_text(ANSWER.format(python=python, file=str(self.answers / f"{host}.json")))
        script.chmod(0o755)
        return str(script)

    def settings(self, sweep: str = "", head: str = "") -> None:
        common = 'inventory = "fleet.yaml"\nbaseline = "site.yaml"\n'
        (self.folder / "nodevet.toml").write_text(f"{head}\n[sweep.nightly]\n{common}{sweep}")

    def night(self, changes: Mapping[str, Change] | None = None, gone: Sequence[str] = ()) -> None:
        """What the hosts will answer; `changes` of one that is well, by host."""
        self.nights += 1
        for host in HOSTS:
            file = self.answers / f"{host}.json"
            document = five_nights.document("gpu002", 1)
            document["sections"]["host"]["data"]["hostname"] = host
            document["sections"]["host"]["data"]["uptime_s"] += 86400 * self.nights
            number = HOSTS.index(host) + 1
            document["sections"]["host"]["data"]["machine_id"] = f"{number:032x}"
            document["sections"]["host"]["data"]["boot_id"] = f"{number:032x}"
            for gpu in document["sections"]["gpu"]["data"]["gpus"]:
                gpu["uuid"] = f"GPU-{number:08x}-0000-0000-0000-{gpu['index']:012x}"
            if changes and host in changes:
                changes[host](document["sections"])
            file.unlink(missing_ok=True)
            if host not in gone:
                file.write_text(json.dumps(document))

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *words],
            cwd=self.folder,
            env={**os.environ, "HOME": str(self.folder), "COLUMNS": "100", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done


def capped(sections: dict[str, Any]) -> None:
    """Its GPUs draw no more than 490 W."""
    for gpu in sections["gpu"]["data"]["gpus"]:
        gpu["power_limit_mw"] = 490_000


def saving(sections: dict[str, Any]) -> None:
    """Its CPUs save power."""
    for policy in sections["cpufreq"]["data"]["policies"]:
        policy["governor"] = "powersave"


def replaced(sections: dict[str, Any]) -> None:
    """It is another machine."""
    sections["host"]["data"]["machine_id"] = "f" * 32
    sections["host"]["data"]["boot_id"] = "f" * 32


def waits_for(fleet: AnsweringFleet, host: str, file: str) -> str:
    """An inventory by which this host answers once the file is there, as it is then."""
    script = fleet.answers / f"{host}-late"
    text = (fleet.answers / host).read_text()
    there = f"os.path.exists({str(fleet.folder / file)!r})"
    begin = f"import os, time\nwhile not {there}:\n    time.sleep(0.05)\n"
    script.write_text(text.replace("import hashlib", f"{begin}import hashlib", 1))
    script.chmod(0o755)
    inventory = json.loads((fleet.folder / "fleet.yaml").read_text())
    inventory["hosts"][host]["python"] = str(script)
    (fleet.folder / "late.yaml").write_text(json.dumps(inventory))
    return "late.yaml"


def left_in_the_middle(fleet: AnsweringFleet, *, without: int) -> None:
    """As if the last run had been killed before it came to its last hosts."""
    with sqlite3.connect(Path(fleet.state) / "nodevet/history.sqlite") as store:
        (run,) = store.execute("select max(id) from run").fetchone()
        last = "select id from visit where run = ? order by id desc limit ?"
        store.execute("update host set visit = null, vetted = null")
        store.execute(f"delete from visit where id in ({last})", (run, without))
        owner = f"{os.uname().nodename} 1 gone"
        changed = "state = 'running', exit_code = null, seconds = null, owner = ?"
        store.execute(f"update run set {changed} where id = ?", (owner, run))
