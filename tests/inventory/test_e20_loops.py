"""Groups that contain themselves are refused with the line that closes the loop, as by Ansible."""

import json
from pathlib import Path

import pytest

from nodevet.inventory import InventoryError, read

LOOPS = {
    "itself": ("[a]\ngpu1\n[a:children]\na\n", "hosts.ini:4:1", "a contains itself: a > a"),
    "each other": (
        "[a:children]\nb\n[b:children]\na\n[b]\ngpu1\n",
        "hosts.ini:4:1",
        "a contains itself: a > b > a",
    ),
    "each other, with no host in them": (
        "[a:children]\nb\n[b:children]\na\n[c]\ngpu1\n",
        "hosts.ini:4:1",
        "a contains itself: a > b > a",
    ),
    "far below": (
        "[top:children]\na\n[a:children]\nx\nb\n[b:children]\nc\n[c:children]\na\n[x]\ngpu1\n",
        "hosts.ini:9:1",
        "a contains itself: a > b > c > a",
    ),
    "all": ("[all:children]\na\n[a:children]\nall\n[a]\ngpu1\n", "hosts.ini:4:1", "all > a > all"),
}


@pytest.mark.parametrize(("text", "where", "why"), LOOPS.values(), ids=LOOPS)
def test_e20_a_group_that_contains_itself_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, where: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts.ini").write_text(text)
    with pytest.raises(InventoryError) as told:
        read((), inventories=["hosts.ini"])
    (problem,) = str(told.value).splitlines()
    assert problem.startswith(where) and why in problem, problem
    assert "ansible-inventory" not in problem


def test_e20_two_loops_are_reported_together(tmp_path: Path) -> None:
    groups = {"a": {"children": ["a"]}, "b": {"children": ["c"]}, "c": {"children": ["b"]}}
    document = {"_meta": {"hostvars": {"gpu1": {}}}, **groups}
    (tmp_path / "hosts.json").write_text(json.dumps(document))
    with pytest.raises(InventoryError) as told:
        read((), inventories=[str(tmp_path / "hosts.json")])
    assert [str(one).partition("contains itself: ")[2][:9] for one in told.value.problems] == [
        "a > a; re",
        "b > c > b",
    ]


def test_e20_groups_that_share_a_child_are_not_a_loop(tmp_path: Path) -> None:
    chain = "".join(f"[g{number}:children]\ng{number + 1}\n" for number in range(5000))
    sides = "[top:children]\nleft\nright\n[left:children]\nlow\n[right:children]\nlow\n"
    (tmp_path / "hosts.ini").write_text(f"{sides}[low]\nn1\n{chain}[g5000]\nn2\n")
    one, other = read((), inventories=[str(tmp_path / "hosts.ini")])
    assert one.groups == {"top", "left", "right", "low"}
    assert len(other.groups) == 5001


def test_e20_an_infinite_priority_and_a_range_with_step_0_are_reported(tmp_path: Path) -> None:
    rank = '{"ansible_group_priority": 1e999}'
    (tmp_path / "hosts.json").write_text(
        '{"_meta": {"hostvars": {}}, "b": {"hosts": ["x"], "vars": {"ansible_user": "u"}},'
        f'"a": {{"hosts": ["x"], "vars": {rank}}}}}'
    )
    with pytest.raises(InventoryError, match="ansible_group_priority: must be a whole number"):
        read((), inventories=[str(tmp_path / "hosts.json")])
    (tmp_path / "hosts.ini").write_text("[a]\nn[0:5:0]\n")
    with pytest.raises(InventoryError, match=r"hosts\.ini:2:1: \[0:5:0\] has no step"):
        read((), inventories=[str(tmp_path / "hosts.ini")])
