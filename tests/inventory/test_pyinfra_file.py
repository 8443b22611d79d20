import json
import os
import subprocess
import sys

import pytest

from nodevet.inventory import InventoryError, read

ORACLE = """
import json, sys
from pyinfra_cli.inventory import make_inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_state
ctx_state.set(State())
inventory = make_inventory("inventory.py", cwd=sys.argv[1])
print(json.dumps([
    [host.name, sorted(host.groups), {key: host.data.get(key) for key in sys.argv[2:]}]
    for host in inventory
]))
"""
KEYS = {
    "ssh_hostname": "address",
    "ssh_port": "port",
    "ssh_user": "user",
    "ssh_key": "key_file",
    "_sudo": "sudo",
}

RICH = """\
import os
from pathlib import Path

def named(number):
    return f"gpu{number:03d}"

_hidden = ["nothing"]
PORTS = [22, 2222]
TITLE = "not a group"
h100 = [named(number) for number in range(1, 4)]
_fifth = ("gpu005", {"ssh_port": 2222, "ssh_user": "five"})
a100 = (["gpu004", _fifth, "gpu001"], {"ssh_user": "ops", "_sudo": True})
tail = (("gpu001", "gpu006"), {"ssh_user": "tail", "ssh_key": "/k"})
more = [("gpu006", {"ssh_hostname": "10.0.0.6"}), "@local", "@ssh/gpu007"]
empty = []
print("to standard output", os.getcwd(), Path(__file__).name)
"""
GROUP_DATA = {
    "all": "ssh_user = 'everyone'\nssh_port = 22\n",
    "h100": "from os import path\nimport sys as system\nssh_user = 'h100'\nthreshold = 4\n",
    "a100": "_sudo = False\n",
    "inventory": "ssh_key = '/all'\n",
    "unused": "ssh_port = 1\n",
}
WITH_ALL = """\
all = (["b", ("a", {"ssh_port": 1})], {"ssh_user": "u", "ssh_port": 2})
some = (["a"], {"ssh_port": 3, "_sudo": True})
"""


@pytest.fixture
def inventory(folder):
    def write(text, **group_data):
        (folder / "inventory.py").write_text(text)
        for group, data in group_data.items():
            (folder / "group_data").mkdir(exist_ok=True)
            (folder / "group_data" / f"{group}.py").write_text(data)
        return ["inventory.py"]

    return write


@pytest.mark.parametrize(
    ("text", "group_data"),
    [(RICH, {}), (RICH, GROUP_DATA), (WITH_ALL, {}), (WITH_ALL, {"all": "ssh_user = 'v'\n"})],
    ids=["lists", "group data", "all", "all with group data"],
)
def test_hosts_are_read_as_by_pyinfra(folder, inventory, machine, text, group_data):
    from nodevet import inventory as ours

    files = inventory(text, **group_data)
    command = [sys.executable, "-c", ORACLE, str(folder), *KEYS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    theirs = []
    for name, groups, data in json.loads(done.stdout.splitlines()[-1]):
        local = name == "@local"
        told = {KEYS[key]: value for key, value in data.items()}
        told["sudo"] = bool(told["sudo"])
        if local:
            told.update(address=None, port=None, user=None, key_file=None)
        if name.startswith("@ssh/"):
            told["address"] = None
        shown = machine if local else name.removeprefix("@ssh/")
        theirs.append((shown, frozenset(groups) - {"@local"}, told))
    found = ours.read([], inventories=files)
    assert theirs == [
        (host.name, host.groups, {key: getattr(host, key) for key in KEYS.values()})
        for host in found
    ]


def test_group_data_of_the_current_folder_is_read_too(hosts, folder):
    (folder / "inventories" / "group_data").mkdir(parents=True)
    (folder / "group_data").mkdir()
    (folder / "inventories" / "prod.py").write_text("g = ['x']\n")
    (folder / "group_data" / "g.py").write_text("ssh_user = 'here'\nssh_port = 1\n")
    (folder / "inventories" / "group_data" / "g.py").write_text("ssh_port = 2\n")
    assert hosts(files=["inventories/prod.py"]) == ["x port=2 user=here g,prod"]


def test_nodevet_variables_are_read(hosts, inventory):
    data = "'nodevet_root': '/srv/x', 'nodevet_python': '/opt/python3'"
    text = f"g = [('x', {{{data}, 'nodevet_whole_machine': True}})]\n"
    expected = "x python=/opt/python3 root=/srv/x whole_machine g,inventory"
    assert hosts(files=inventory(text)) == [expected]


def test_an_inventory_may_import_pyinfra_and_neighbouring_modules(hosts, inventory, folder):
    (folder / "neighbour.py").write_text("NAMES = ['x']\n")
    text = "from pyinfra.api import Config\nfrom neighbour import NAMES\ng = NAMES\n"
    assert "x NAMES,g,inventory" in hosts(files=inventory(text))


def test_nodevets_modules_do_not_shadow_the_standard_library(hosts, inventory):
    text = "import select, socket\ng = ['x' if select.select and socket.socket else 'y']\n"
    assert hosts(files=inventory(text)) == ["x g,inventory"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\nb = c\n", "2:1: NameError: name 'c' is not defined"),
        ("def f():\n    return 1 / 0\n\na = f()\n", "2:1: ZeroDivisionError: division by zero"),
        ("a = [\n", "1:5: not Python: '[' was never closed"),
        ("import sys\nsys.exit(4)\n", "2:1: SystemExit: 4"),
        ("import nowhere\n", "1:1: ModuleNotFoundError: No module named 'nowhere'"),
        (
            "open('/nonexistent')\n",
            "1:1: FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent'",
        ),
        ("input()\n", "1:1: EOFError: EOF when reading a line"),
        (
            "a = ['x',\n  '@docker/y']\n",
            "2:3: the connector @docker is not supported; nodevet reaches hosts over @ssh and "
            "@nodevet, or @local",
        ),
        (
            "a = ['@ssh']\n",
            "1:6: the connector @ssh is not supported; nodevet reaches hosts over @ssh and "
            "@nodevet, or @local",
        ),
        (
            "a = ['x',\n  '-y']\n",
            "2:3: -y: a host name must not begin with a dash: ssh would take it for an option",
        ),
        (
            "\na = ['x', 4]\n",
            "2:1: a: a host is a name or (name, data); pyinfra would leave out the whole group",
        ),
        ("a = [('x', 1)]\n", "1:1: a: a host is a name or (name, data)"),
        ("a = ('x', 'y')\n", "1:1: a: a group is a list of hosts, or (hosts, data)"),
        (
            "a = ('x', {'ssh_port': 22})\n",
            "1:1: a: a group is a list of hosts, or (hosts, data)",
        ),
        ("a = (['x'], 4)\n", "1:1: a: the data of a group is a dict"),
        (
            "a = [\n  ('x', {'ssh_port': '22'})]\n",
            "2:4: x.ssh_port: must be a whole number, not '22'",
        ),
        (
            "a = [('x', {'ssh_user': print})]\n",
            "1:7: x.ssh_user: must be text, not a builtin_function_or_method",
        ),
        (
            "a = [('x', {'ssh_config_file': 'c'})]\n",
            "1:7: x has ssh_config_file, which nodevet does not support; leave it out, "
            "and give that file with --ssh-config",
        ),
        (
            "a = (['x'], {'_sudo_user': 'me'})\n",
            "1:1: x has _sudo_user, which nodevet does not support; nodevet uses sudo for root "
            "only",
        ),
        (
            "all = ['x']\nb = ['x', 'y']\n",
            "2:11: b: y is not in `all`, so pyinfra would leave it out; add it to `all`, or "
            "remove it here",
        ),
    ],
)
def test_an_error_in_the_inventory_is_reported_with_its_place(problems, inventory, text, problem):
    assert problems(files=inventory(text)) == [f"inventory.py:{problem}"]


def test_an_error_in_group_data_is_reported_with_its_place(problems, inventory, folder):
    files = inventory("g = ['x']\n", g="ssh_user = 'a b'\n")
    path = folder / "group_data" / "g.py"
    assert problems(files=files) == [f"{path}:1:1: x.ssh_user: must be a user name, not 'a b'"]
    files = inventory("g = ['x']\n", g="\nssh_user = nobody\n")
    assert problems(files=files) == [f"{path}:2:1: NameError: name 'nobody' is not defined"]


@pytest.mark.parametrize("text", ["", "a = 1\n", "a = []\n"])
def test_no_hosts_is_an_error(problems, inventory, text):
    assert problems(files=inventory(text)) == [
        "inventory.py: holds no hosts; add some, or leave it out"
    ]


def test_a_process_that_ends_early_is_an_error(problems, inventory):
    assert problems(files=inventory("import os\nos._exit(0)\n")) == [
        "inventory.py: ended before it was read; an inventory must not end the process"
    ]
    assert problems(files=inventory("import os\nos.kill(os.getpid(), 9)\n")) == [
        "inventory.py: ended with signal 9; it printed no error"
    ]


def test_a_file_that_hangs_is_ended(problems, inventory, monkeypatch):
    monkeypatch.setattr("nodevet.inventory.programs.DEADLINE", 1.0)
    text = "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)\n"
    assert problems(files=inventory(text)) == [
        "inventory.py: did not end within 1 s; run it alone to find out what it waits for"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["inventory.py", "group_data/g.py", "here/group_data/g.py"])
def test_e01_root_runs_no_inventory_that_others_may_write(tmp_path, monkeypatch, name):
    mark = tmp_path / "mark"
    (tmp_path / "here").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        (folder / "group_data").mkdir()
        (folder / "group_data" / "g.py").write_text("")
    (tmp_path / "inventory.py").write_text("g = ['n1']\n")
    monkeypatch.chdir(tmp_path / "here")
    inventory = str(tmp_path / "inventory.py")
    assert read((), inventories=[inventory])
    (tmp_path / name).write_text(f"open({str(mark)!r}, 'w')\n")
    (tmp_path / name).chmod(0o666)
    with pytest.raises(InventoryError, match=rf"{name} .*by everyone, so root does not run "):
        read((), inventories=[inventory])
    assert not mark.exists()


def test_e01_no_module_is_imported_from_a_folder_that_others_may_write(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "planted.py").write_text("")
    (tmp_path / "inventory.py").write_text("import planted\ng = ['n1']\n")
    monkeypatch.chdir(tmp_path / "here")
    inventory = str(tmp_path / "inventory.py")
    assert read((), inventories=[inventory])
    (tmp_path / "here").chmod(0o1777)
    with pytest.raises(InventoryError, match="No module named 'planted'"):
        read((), inventories=[inventory])
