"""Ansible's INI inventories and plain lists of names."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodevet.inventory import InventoryError, read
from nodevet.model import Host

INI = """\
; all of it
login.example.com ansible_user=ann   # a comment
badwolf:5309

[gpu:children]
h100
a100

[h100]
gpu[001:003] ansible_port="22" nodevet_expect_hostname=no
[a100]
node-[a:e:2].example.com

[gpu:vars]
ansible_user = root
ansible_become=yes
[h100:vars]
ansible_python_interpreter=/opt/python3
"""


def hosts(tmp_path: Path, text: str, name: str = "hosts.ini") -> dict[str, Host]:
    (tmp_path / name).write_text(text)
    return {host.name: host for host in read([], inventories=[str(tmp_path / name)])}


def test_e21_groups_children_vars_ranges_and_ports_are_read(tmp_path: Path) -> None:
    found = hosts(tmp_path, INI)
    assert list(found) == [
        *("login.example.com", "badwolf", "gpu001", "gpu002", "gpu003"),
        *("node-a.example.com", "node-c.example.com", "node-e.example.com"),
    ]
    assert found["login.example.com"].user == "ann" and not found["login.example.com"].sudo
    assert found["badwolf"].port == 5309
    gpu = found["gpu002"]
    assert (gpu.user, gpu.sudo, gpu.python, gpu.expect_hostname) == (
        "root",
        True,
        "/opt/python3",
        False,
    )
    assert gpu.groups == {"h100", "gpu"}
    assert found["node-c.example.com"].groups == {"a100", "gpu"}


@pytest.mark.parametrize("name", ["names.txt", "hosts", "fleet.list"])
def test_e21_a_list_of_names_is_read(tmp_path: Path, name: str) -> None:
    found = hosts(tmp_path, "# rack 1\ngpu[1-2],gpu7\nann@gpu9:2222  n10\n\n", name)
    assert list(found) == ["gpu1", "gpu2", "gpu7", "gpu9", "n10"]
    assert (found["gpu9"].user, found["gpu9"].port) == ("ann", 2222)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[a:what]\nn1\n", "hosts.ini:1:1: [a:what] is not a section"),
        ("[a:vars]\nnothing\n", "hosts.ini:2:1: nothing is not NAME=VALUE"),
        ("[a]\nn1 n2\n", "hosts.ini:2:1: n2 is not NAME=VALUE; put each host on its own line"),
        ("[a]\nn[9:1]\n", "hosts.ini:2:1: [9:1] is a range of 0 hosts"),
        ("[a]\nn[1:999999999]\n", "is a range of 999,999,999 hosts"),
        ("[a]\nn1 ansible_port=x\n", "hosts.ini:2:1: "),
        ("[a]\nn1 'open\n", "hosts.ini:2:1: No closing quotation"),
    ],
)
def test_e21_a_mistake_names_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InventoryError) as caught:
        hosts(tmp_path, text)
    assert told in str(caught.value)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.text("[]:=,#;abn01 @!{}'\"\n\\", max_size=20), max_size=5))
def test_e21_any_text_is_read_as_hosts_or_refused(tmp_path: Path, rows: list[Any]) -> None:
    try:
        found = hosts(tmp_path, "\n".join(rows))
    except InventoryError:
        return
    assert all(name and name.isprintable() for name in found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h[1:99999]x[1:99999]", "more than 100,000 hosts"),
        ("h" + "[1:2]" * 3000, "more than 16 ranges in one name"),
        ("h[\u00b2:3]", "[\u00b2:3] is not a range"),
    ],
)
def test_e21_ranges_that_no_fleet_has_are_refused_at_once(
    tmp_path: Path, name: str, said: str
) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(f"[gpu]\n{name}\n", encoding="utf-8")
    with pytest.raises(InventoryError) as error:
        read([], inventories=[str(path)])
    assert said in str(error.value)
