"""The real Ansible reads inventories, and nodevet's own readers read them likewise."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nodevet.inventory import InventoryError, ansible_program, programs, sources
from nodevet.inventory.entries import InventoryHosts
from nodevet.inventory.sources import ansible_json
from nodevet.model import Host

LISTS = Path(__file__).parent / "ansible_lists.py"
NAMES = ("gpu[001:003]", "gpu1", "gpu2:2222", "node-[a:c].example.com", "10.0.0.7", "n[1:9:3]")
GROUPS = ("all", "ungrouped", "a", "b", "c", "gpu-nodes")
VARIABLES = {
    "ansible_host": ("10.1.0.1", "gw.example.com"),
    "ansible_port": (22, 2200, "2201"),
    "ansible_user": ("root", "ann", "'bob'"),
    "ansible_become": ("yes", "True", True, "no"),
    "ansible_ssh_private_key_file": ("/keys/a", "~/.ssh/b"),
    "ansible_python_interpreter": ("/opt/python3", "auto"),
    "nodevet_expect_hostname": ("no", "other"),
}


def variables(chance: random.Random) -> dict[str, object]:
    names = chance.sample(list(VARIABLES), chance.choice((0, 0, 1, 2)))
    return {name: chance.choice(VARIABLES[name]) for name in names}


def ini(chance: random.Random) -> str:
    groups = chance.sample(GROUPS[2:], 3)
    lines = []
    for group in ["", *groups]:
        lines += [f"[{group}]"] if group else []
        for name in chance.sample(NAMES, 2):
            own = " ".join(f"{key}={value}" for key, value in variables(chance).items())
            lines.append(f"{name} {own}".strip() + chance.choice(("", "   # rack 1")))
    parent, *children = groups
    lines += [f"[{parent}:children]", *chance.sample(children, 1)]
    for group in ("all", *groups):
        lines += [f"[{group}:vars]", "ansible_group_priority=1"]
        lines += [f"{key} = {value}" for key, value in variables(chance).items()]
    return "\n".join(lines) + "\n"


def group(chance: random.Random, names: list[str], depth: int = 0) -> dict[str, object]:
    parts: dict[str, object] = {}
    for part in chance.sample(("hosts", "children", "vars"), 3):
        if part == "hosts":
            members = chance.sample(NAMES, 2)
            parts[part] = {name: variables(chance) or None for name in members}
        elif part == "vars":
            parts[part] = variables(chance) or None
        elif depth < 3 and names:
            name = names.pop()
            parts[part] = {name: chance.choice((None, group(chance, names, depth + 1)))}
    return parts


def yml(chance: random.Random) -> str:
    names = chance.sample(GROUPS[2:], 4)
    document = {"all": group(chance, names)}
    document |= {name: group(chance, []) for name in chance.sample(GROUPS[1:], 2)}
    return yaml.safe_dump(document, sort_keys=False)


def test_nodevets_readers_agree_with_ansible(tmp_path: Path) -> None:
    files = []
    for seed in range(8):
        for make in (ini, yml):
            path = tmp_path / f"{make.__name__}{seed}.{make.__name__}"
            path.write_text(make(random.Random(seed)))
            files.append(path)
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, LISTS, *map(str, files)],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = [
        (
            path.read_text(),
            entries(lambda path=path: sources.read(str(path))),
            entries(lambda listed=listed: ansible_json.parse(json.dumps(listed), "")),
        )
        for path, listed in zip(files, json.loads(done.stdout), strict=True)
    ]
    for text, ours, theirs in pairs:
        assert ours == theirs, text
    assert sum(bool(ours) for _, ours, _ in pairs) >= 8


def entries(read: Callable[[], InventoryHosts]) -> dict[str, Host] | None:
    """The hosts by name; None if they are refused."""
    try:
        return {entry.name: entry.host() for entry in read().entries}
    except InventoryError:
        return None


@pytest.mark.usefixtures("ansible")
def test_ansible_merges_vaults_and_variables_beside_a_file(hosts, problems, folder, monkeypatch):
    (folder / "hosts.yml").write_text("gpu: {hosts: {'gpu[1:2]': }}\n")
    for name, text in (("host_vars", "ansible_host: 10.0.0.1"), ("group_vars", "ansible_user: u")):
        (folder / name).mkdir()
        (folder / name / ("gpu1.yml" if name == "host_vars" else "gpu.yml")).write_text(text)
    (folder / "password").write_text("secret")
    vault = [str(Path(sys.executable).parent / "ansible-vault"), "encrypt"]
    vault += ["--vault-password-file", "password", "host_vars/gpu1.yml"]
    subprocess.run(vault, check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(folder / "password"))
    assert hosts(files=["hosts.yml"]) == ["gpu1 address=10.0.0.1 user=u gpu", "gpu2 user=u gpu"]
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    (problem,) = problems(files=["hosts.yml"])
    assert "ansible-inventory -i hosts.yml --list: ended with exit status" in problem
    assert "vault" in problem.lower()


@pytest.mark.usefixtures("ansible")
def test_ansible_reads_a_folder_and_runs_its_plugins(hosts, problems, folder):
    (folder / "site").mkdir()
    (folder / "site" / "1.ini").write_text("[gpu]\ngpu1 ansible_port=x\ngpu2\n")
    (folder / "site" / "2.yml").write_text(
        "plugin: constructed\ngroups: {second: inventory_hostname == 'gpu2'}\n"
    )
    assert problems(files=["site"]) == [
        "site: _meta.hostvars.gpu1.ansible_port: must be a whole number, not x"
    ]
    (folder / "site" / "1.ini").write_text("[gpu]\ngpu1\ngpu2\n")
    assert hosts("@second", files=["site"]) == ["gpu2 gpu,second"]


def test_a_program_that_prints_without_end_is_stopped(problems, folder, monkeypatch):
    monkeypatch.setattr(programs, "MAX_OUTPUT", 2**20)
    script = folder / "inventory"
    script.write_text("#!/bin/sh\nexec yes\n")
    script.chmod(0o755)
    assert problems(files=["inventory"]) == ["inventory --list: printed more than 1 MiB"]


def test_a_program_that_hangs_is_stopped(problems, folder, monkeypatch):
    monkeypatch.setattr(programs, "DEADLINE", 0.2)
    script = folder / "inventory"
    script.write_text("#!/bin/sh\nexec >&- 2>&-\nsleep 60\n")
    script.chmod(0o755)
    (problem,) = problems(files=["inventory"])
    assert problem.startswith("inventory --list: did not end within")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_lets_ansible_read_nothing_that_others_may_write(problems, folder, monkeypatch):
    (folder / "hosts.yml").write_text("all: {hosts: {x: }}\n")
    (folder / "ansible.cfg").write_text("[defaults]\n")
    (folder / "ansible.cfg").chmod(0o666)
    monkeypatch.setattr(ansible_program, "PROGRAM", sys.executable)  # it would be run
    (problem,) = problems(files=["hosts.yml"])
    assert "ansible.cfg" in problem and "so root does not let Ansible read it" in problem
