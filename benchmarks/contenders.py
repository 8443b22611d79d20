"""A loopback fleet, and the commands that are measured on it."""

import base64
import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodevet_sim.sshd import MOST_ADDRESSES, Sshd, make_key

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
FLOOR = "asyncssh, `true` (the floor)"
AT_A_TIME = 20  # hosts, for every contender
NODEVET = Path(sys.executable).with_name("nodevet")
ANSIBLE = "ansible-core>=2.17,<2.20"
TESTINFRA = ("pytest-testinfra>=10,<11", "pytest-xdist>=3")


class BenchmarkError(Exception):
    """A contender did not do its work, so its figures mean nothing."""


@dataclass(frozen=True)
class Contender:
    """A command, and a proof that it did its work on every host."""

    name: str
    hosts: int
    command: list[str]
    prove: Callable[[subprocess.CompletedProcess[str]], None]
    env: dict[str, str] | None = None
    slow: bool = False  # it takes a minute and more


@contextmanager
def fleet(folder: Path, size: int, command: str | None = None) -> Iterator[list[dict[str, Any]]]:
    """Loopback hosts, each an address of its own; `sshd` processes serve 16 of them each.

    `command`: what they run instead of what they are asked for.
    """
    key = make_key(folder / "id")
    host_key = make_key(folder / "host_key")
    known_hosts = folder / "known_hosts"
    hosts: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for first in range(0, size, MOST_ADDRESSES):
            numbers = range(first, min(first + MOST_ADDRESSES, size))
            server = stack.enter_context(
                Sshd(
                    folder / f"sshd{first}",
                    authorized_key=key.public,
                    host_key=host_key,
                    command=command,
                    addresses=[f"127.9.{number // 250}.{number % 250 + 1}" for number in numbers],
                )
            )
            with known_hosts.open("a", encoding="utf-8") as file:
                file.write(server.known_hosts)
            for number, address in zip(numbers, server.addresses, strict=True):
                host = {"name": f"node{number:03d}", "address": address, "port": server.port}
                hosts.append({**host, "key": str(key.path), "known_hosts": str(known_hosts)})
        yield hosts


def nodevet(folder: Path, hosts: list[dict[str, Any]], hashed: int = 0) -> Contender:
    """`hashed`: how many other hosts' names, hashed, known_hosts has besides."""
    known_hosts, name = Path(hosts[0]["known_hosts"]), "nodevet check"
    if hashed:
        name += f", {hashed:,} hashed host keys"
        known_hosts = _crowded(folder / "known_hosts-hashed", known_hosts, hashed)
    lines = [
        f"  {host['name']}: {{address: {host['address']}, port: {host['port']}}}" for host in hosts
    ]
    head = f"nodevet: 1\ndefaults: {{key_file: {hosts[0]['key']}}}\nhosts:\n"
    inventory = folder / "fleet.yaml"
    inventory.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    report = folder / f"run-{hashed}.json"

    def prove(done: subprocess.CompletedProcess[str]) -> None:
        prove_vetted(done, report, len(hosts))

    command = [str(NODEVET), "check", "-i", str(inventory), "-b", "generic"]
    command += ["--known-hosts", str(known_hosts), "--format", f"json:{report}", "--store", "none"]
    command += ["--parallel", str(AT_A_TIME), "--deadline", "600"]  # the hosts share two cores
    return Contender(name, len(hosts), command, prove)


def _crowded(path: Path, known_hosts: Path, others: int) -> Path:
    """The same known hosts, hashed, among those of others."""
    keys = (base64.b64encode(os.urandom(51)).decode() for _ in range(others))
    lines = "".join(f"other{number} ssh-ed25519 {key}\n" for number, key in enumerate(keys))
    path.write_text(lines + known_hosts.read_text(encoding="utf-8"), encoding="utf-8")
    hash_names = ["ssh-keygen", "-q", "-H", "-f", str(path)]
    subprocess.run(hash_names, check=True, capture_output=True)
    return path


def prove_vetted(done: subprocess.CompletedProcess[str], report: Path, hosts: int) -> None:
    """Every host vetted; wrong or unknown is what a machine without GPUs should get."""
    if done.returncode not in (0, 1, 3):
        raise BenchmarkError(f"nodevet ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(report.read_text(encoding="utf-8"))["hosts"]
    missed = [f"{host['host']}: {host['status']}" for host in found if host["status"] != "vetted"]
    if missed or len(found) != hosts:
        raise BenchmarkError(f"{len(found)} of {hosts} hosts; not vetted: {missed[:5]}")


def floor(folder: Path, hosts: list[dict[str, Any]]) -> Contender:
    listed = folder / "hosts.json"
    listed.write_text(json.dumps(hosts), encoding="utf-8")
    command = [sys.executable, str(HERE / "floor.py"), str(listed)]
    return Contender(FLOOR, len(hosts), command, prove_success)


def prove_success(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise BenchmarkError(f"{done.args[:2]} failed: {(done.stdout + done.stderr)[-2000:]}")


def ansible(folder: Path, hosts: list[dict[str, Any]], forks: int) -> Contender:
    lines = [
        f"{host['name']} ansible_host={host['address']} ansible_port={host['port']}"
        for host in hosts
    ]
    inventory = folder / "hosts.ini"
    inventory.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = folder / "ansible.cfg"
    config.write_text("[defaults]\n", encoding="utf-8")
    env = {
        **os.environ,
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_FORKS": str(forks),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_PRIVATE_KEY_FILE": hosts[0]["key"],
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp"),
        "ANSIBLE_SSH_ARGS": "-F none -o ControlMaster=auto -o ControlPersist=5s "
        f"-o IdentitiesOnly=yes -o UserKnownHostsFile={hosts[0]['known_hosts']}",
    }
    command = [str(install_peers() / "bin" / "ansible-playbook")]
    command += ["-i", str(inventory), str(HERE / "playbook.yaml")]
    name = f"ansible-core, pipelining, {forks} forks"
    return Contender(name, len(hosts), command, prove_success, env, slow=True)


def testinfra(folder: Path, hosts: list[dict[str, Any]]) -> Contender:
    """One test for each host, which reads what the playbook reads."""
    folder = folder / "testinfra"
    folder.mkdir(exist_ok=True)
    (folder / "test_node.py").write_text((HERE / "testinfra_node.py").read_text("utf-8"), "utf-8")
    config = folder / "ssh_config"
    config.write_text(
        "".join(
            f"Host {host['name']}\n  HostName {host['address']}\n  Port {host['port']}\n"
            f"  IdentityFile {host['key']}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {host['known_hosts']}\n"
            for host in hosts
        ),
        encoding="utf-8",
    )
    names = ",".join(f"ssh://{host['name']}" for host in hosts)
    command = [
        str(install_peers() / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--rootdir", str(folder), f"--hosts={names}", f"--ssh-config={config}"]
    command += ["-n", str(AT_A_TIME), str(folder / "test_node.py")]
    name = f"pytest-testinfra, {AT_A_TIME} workers"
    return Contender(name, len(hosts), command, prove_success, slow=True)


def install_peers() -> Path:
    """An environment of its own beside .venv, made on the first run."""
    folder = REPOSITORY / ".venv-bench"
    programs = [folder / "bin" / name for name in ("ansible-playbook", "pytest")]
    if all(program.exists() for program in programs):
        return folder
    if not (folder / "bin" / "pip").exists():
        venv.create(folder, with_pip=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, ANSIBLE, *TESTINFRA], check=True, timeout=300)
    return folder


def on_the_node(folder: Path) -> list[Contender]:
    """An empty Python, a check of this machine by one baseline and by all shipped ones, one that is
    recorded, and one that is answered by the last verdict.

    All of them in an environment as users have it: nodevet is a wheel, compiled. An editable
    install makes an empty Python twice as slow, and so every ratio half as large.
    """
    env = _installed(folder)
    venv.create(folder / "venv")
    python = [str(folder / "venv" / "bin" / "python")]
    entry = folder / "entry.py"
    entry.write_text("from nodevet.__main__ import main\nmain()\n", encoding="utf-8")
    asked = [*python, str(entry), "check", "@local"]
    report = folder / "local.json"
    chosen = [*asked, "--format", f"json:{report}"]
    full = [*chosen, "-b", "generic"]
    recorded = [*full, "--store", f"sqlite:///{folder / 'store' / 'history.sqlite'}"]
    project = folder / "project"
    project.mkdir()
    (project / "pass.yaml").write_text("nodevet: 1\nexpect: {disk_space: 1%}\n", encoding="utf-8")
    kept = [*asked, "-b", str(project / "pass.yaml"), "--max-age", "1h", "--project", str(project)]

    def prove_checked(done: subprocess.CompletedProcess[str]) -> None:
        prove_vetted(done, report, 1)

    def prove_kept(done: subprocess.CompletedProcess[str]) -> None:
        prove_success(done)
        if "verdict of" not in done.stdout:
            raise BenchmarkError(f"no verdict was kept: {done.stdout[-500:]}{done.stderr[-500:]}")

    time.sleep(3)  # what has just been written is not relied on
    own = {**env, "XDG_STATE_HOME": str(folder / "state")}
    prove_success(subprocess.run(kept, env=own, capture_output=True, text=True))
    return [
        Contender("python3 -c pass", 1, [*python, "-c", "pass"], prove_success, env),
        Contender("nodevet check @local -b generic", 1, full, prove_checked, env),
        Contender("nodevet check @local", 1, chosen, prove_checked, env),
        Contender("nodevet check @local -b generic, recorded", 1, recorded, prove_checked, env),
        Contender("nodevet check @local --max-age 1h", 1, kept, prove_kept, own),
    ]


def _installed(folder: Path) -> dict[str, str]:
    """The environment in which a wheel of this tree is found, and what it depends on."""
    build = [sys.executable, "-m", "build", "--quiet", "--no-isolation", "--wheel"]
    subprocess.run([*build, "--outdir", str(folder), str(REPOSITORY)], check=True)
    (wheel,) = folder.glob("*.whl")
    place = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", str(place), str(wheel)], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = f"{place}{os.pathsep}{sysconfig.get_path('purelib')}"
    # a check that fails, as on a machine without GPUs, forgets what its state has
    return {**kept, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "other")}
