"""The ring sizes of an interface: read, compared, set and restored."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.look import look
from nodevet.remote.state import ring
from nodevet.resource import Resource, State, restore
from nodevet.resource.core import RestoreError
from nodevet.resource.ring import KIND, SetRings

ENS1 = Resource(kind="ring", name="ens1")
BOTH = SetRings(interface="ens1", rx=8192, tx=4096)
RECEIVE = SetRings(interface="ens1", rx=8192)
NAMES = ["", "-G", "../ens1", "a b", "ens1\n", "x" * 16, "ens1;reboot"]


def state(exists: bool = True, **sizes: int) -> State:
    return State(resource=ENS1, exists=exists, value=sizes or None)


def seen(name: str) -> dict[str, Any]:
    (found,) = look({"root": "/", "resources": [{"kind": "ring", "name": name}]})
    return dict(found)


def test_a_missing_interface_is_absent_and_an_interface_without_rings_unknown() -> None:
    assert not seen("nodevet-none")["exists"]
    assert "does not report ring sizes" in seen("lo")["why"]


@pytest.mark.parametrize("name", NAMES)
def test_only_a_plain_name_names_an_interface(name: str) -> None:
    assert KIND.name_problem(name) and not KIND.name_problem("ens1f0.7")
    assert seen(name)["why"]


def test_an_action_holds_if_the_rings_have_its_sizes() -> None:
    assert KIND.holds(BOTH, state(rx=8192, tx=4096)) and KIND.holds(RECEIVE, state(rx=8192, tx=1))
    assert not KIND.holds(BOTH, state(rx=8192, tx=1))
    assert not KIND.holds(RECEIVE, state(exists=False))


def test_a_restore_sets_the_sizes_of_the_rings_that_exist() -> None:
    assert restore(state(rx=1024, tx=512)) == (SetRings(interface="ens1", rx=1024, tx=512),)
    assert restore(state(rx=1024, tx=0)) == (SetRings(interface="ens1", rx=1024),)
    with pytest.raises(RestoreError, match="there is no such interface"):
        KIND.restore(state(exists=False), (), ())


def test_people_see_each_size_before_and_after() -> None:
    rows = list(KIND.diff([BOTH], {ENS1: state(rx=1024, tx=512)}))
    assert rows == ["-ens1 ring rx: 1024", "+ens1 ring rx: 8192", "-ens1 ring tx: 512",
                    "+ens1 ring tx: 4096"]  # fmt: skip


@pytest.mark.parametrize(("code", "ended"), [(0, 0), (80, 0), (81, 81)])
def test_setting_ring_sizes_that_are_already_set_is_not_an_error(
    tmp_path: Path, code: int, ended: int
) -> None:
    program = tmp_path / "ethtool"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/words\nexit {code}\n')
    program.chmod(0o755)
    command = BOTH.command(seconds=5).get_raw_value()
    done = subprocess.run(["sh", "-c", command], env={"PATH": f"{tmp_path}:/bin"}, check=False)
    assert done.returncode == ended
    assert (tmp_path / "words").read_text() == "-G ens1 rx 8192 tx 4096\n"


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("ExecStart=/usr/sbin/ethtool -G ens1 rx 8192", True),
        ('ethtool --set-ring "$IFACE" rx 8192', True),
        ("ethtool -G ens11 rx 8192", False),
        ("ethtool -g ens1", False),
    ],
)
def test_commands_that_set_ring_sizes_are_recognized(line: str, sets: bool) -> None:
    import re

    words = ring.patterns("/", "ens1").words
    assert words is not None and bool(re.search(words, line)) is sets
