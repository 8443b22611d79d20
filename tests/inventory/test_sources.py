"""Which source reads a file, and what holds for all of them."""

import os
import re
from pathlib import Path

import pytest

from nodevet.inventory import sources

ROOT = Path(__file__).parents[2]
KINDS = (
    "not an inventory that nodevet reads: a folder of Ansible inventories, the JSON of "
    "`ansible-inventory --list` (.json), Ansible's YAML (.yml), YAML (.yaml), Ansible's INI, or a "
    "list of names (.ini, .txt), nodes of Kubernetes (k8s:LABELSELECTOR), a pyinfra inventory "
    "(.py), an executable that prints Ansible's JSON or a group of Slurm (@slurmpart:gpu)"
)


def test_each_source_is_a_module_and_no_two_claim_one_file_ending():
    found = list(sources.sources())
    names = [source.__name__.rpartition(".")[2] for source in found]
    assert names == [
        *("ansible_folder", "ansible_json", "ansible_yaml", "fleet_yaml", "ini"),
        *("k8s", "pyinfra", "script", "slurm"),
    ]
    sure = [source for source in found if not hasattr(source, "recognizes")]
    endings = [ending for source in sure for ending in source.ENDINGS]
    assert endings and len(endings) == len(set(endings))
    assert all(source.ENDINGS for source in sure)


def test_every_example_can_be_read(hosts, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    examples = {path for path in (ROOT / "inventories").iterdir() if path.is_file()}
    assert {path.name for path in examples} == {"fleet.yaml", "pyinfra.py", "ansible.json"}
    counted = {path.name: len(hosts(files=[path])) for path in examples}
    assert counted == {"fleet.yaml": 132, "pyinfra.py": 68, "ansible.json": 4}


def test_the_example_inventories_contain_the_expected_hosts(hosts, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ops")
    fleet = hosts(files=[ROOT / "inventories" / "fleet.yaml"])
    assert fleet[0] == "gpu001 user=ops sudo h100,rack1"
    assert fleet[128] == (
        "gpu129 address=10.20.1.129 port=2222 user=ops key_file=/home/ops/.ssh/a100 "
        "python=/opt/python3.11/bin/python3 a100"
    )
    pyinfra = hosts(files=[ROOT / "inventories" / "pyinfra.py"])
    assert pyinfra[0] == "gpu001 user=ops sudo h100,pyinfra"
    assert pyinfra[64:] == [
        "gpu065 user=ops key_file=/etc/nodevet/keys/a100 a100,pyinfra",
        "gpu066 address=10.20.1.66 port=2222 user=ops key_file=/etc/nodevet/keys/a100 a100,pyinfra",
        "gpu067 user=ops key_file=/etc/nodevet/keys/a100 a100,pyinfra",
        "@local login,pyinfra",
    ]


DOCUMENT = (ROOT / "docs" / "inventories.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"```(yaml|python|json)\n(.*?)```\n\ncomes to\n\n```text\n(.*?)```", DOCUMENT, re.DOTALL
)
SUFFIXES = {"yaml": "yaml", "python": "py", "json": "json"}


def test_every_format_has_a_worked_example():
    assert [language for language, _, _ in EXAMPLES] == list(SUFFIXES)


@pytest.mark.parametrize(("language", "source", "shown"), EXAMPLES, ids=list(SUFFIXES))
def test_the_examples_of_the_document_give_the_hosts_shown(hosts, folder, language, source, shown):
    file = folder / f"inventory.{SUFFIXES[language]}"
    file.write_text(source)
    assert hosts(files=[file.name]) == shown.splitlines()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("hosts.conf", KINDS),
        ("hosts", "holds no hosts; add some, or leave it out"),
        ("absent.yaml", "there is no such file; check the path"),
        ("absent", "there is no such file; check the path"),
        ("gpu[1-3]", "there is no such file; give a nodeset as a target, without -i"),
        (".", "is a folder, which only Ansible reads; name a file, or install ansible-core"),
        ("pipe.json", "is not a regular file; name a file"),
        ("a\0b.json", "not a file name"),
        ("huge.yaml", "larger than 16 MiB, which no inventory needs"),
        ("huge.json", "larger than 16 MiB, which no inventory needs"),
        ("huge.py", "larger than 16 MiB, which no inventory needs"),
    ],
)
def test_an_inventory_that_cannot_be_read_is_reported(problems, folder, name, problem):
    (folder / "hosts.conf").write_text("[gpus]\ngpu1\n")
    (folder / "hosts").write_text("---\nall: {}\n")
    os.mkfifo(folder / "pipe.json")
    for huge in folder / "huge.yaml", folder / "huge.json", folder / "huge.py":
        with huge.open("wb") as file:
            file.truncate(16 * 2**20 + 1)
    assert problems(files=[name]) == [f"{name}: {problem}".replace("\0", "\\x00")]


def test_standard_input_is_not_an_inventory_file(problems):
    assert problems(files=["-"]) == [
        "-i -: standard input is a target; leave out -i, and give - as a target"
    ]


@pytest.mark.parametrize("suffix", ["yaml", "json", "py"])
def test_text_that_is_not_utf8_is_reported_with_its_place(problems, folder, suffix):
    (folder / f"f.{suffix}").write_bytes(b"a: 1\nb: \xff\n")
    assert problems(files=[f"f.{suffix}"]) == [f"f.{suffix}:2:4: not UTF-8 text; save it as UTF-8"]


def test_problems_of_every_file_are_reported(problems, folder):
    (folder / "a.json").write_text("{")
    assert [line.split(":")[0] for line in problems(files=["a.json", "b.yaml"])] == [
        "a.json",
        "b.yaml",
    ]


def test_hosts_of_several_inventories_are_merged(hosts, folder):
    (folder / "a.yaml").write_text("nodevet: 1\nhosts: x,y\ngroups: {a: {hosts: x, user: u}}\n")
    (folder / "b.json").write_text(
        '{"_meta": {"hostvars": {"x": {"ansible_port": 22, "ansible_user": "u"}}},'
        ' "b": {"hosts": ["z", "x"]}}'
    )
    assert hosts(files=["a.yaml", "b.json"]) == ["x port=22 user=u a,b", "y", "z b"]
    assert hosts("@b", files=["a.yaml", "b.json"]) == ["x port=22 user=u a,b", "z b"]


def test_sources_that_contradict_each_other_are_refused(problems, folder):
    (folder / "a.yaml").write_text("nodevet: 1\nhosts: {x: {port: 23}}\n")
    (folder / "b.json").write_text(
        '{"_meta": {"hostvars": {"x": {\n  "ansible_port": 22}}},\n"b": {"hosts": ["x"]}}'
    )
    (folder / "c.py").write_text('c = ["y",\n  ("x", {"ssh_port": 24})]\n')
    assert problems(files=["a.yaml", "b.json", "c.py"]) == [
        "b.json:2:3: x has port 22, but a.yaml:2:13 says 23; keep one of the two",
        "c.py:2:4: x has port 24, but b.json:2:3 says 22; keep one of the two",
    ]


def test_local_and_ssh_contradict_each_other(problems, folder):
    (folder / "a.yaml").write_text("nodevet: 1\nhosts: x\n")
    (folder / "b.json").write_text(
        '{"_meta": {"hostvars": {"x": {"ansible_connection": "local"}}}, "b": {"hosts": ["x"]}}'
    )
    assert problems(files=["a.yaml", "b.json"]) == [
        "b.json:1:81: x is this machine, but a.yaml:2:8 reaches it over SSH; keep one of the two"
    ]
