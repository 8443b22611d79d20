"""A port of an InfiniBand adapter: read from a tree, compared, enabled and disabled."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.base import typed
from nodevet.remote.look import look
from nodevet.remote.state import infiniband_port
from nodevet.resource import Resource, State, restore
from nodevet.resource.core import RestoreError
from nodevet.resource.infiniband_port import KIND, PROGRAM, SetInfinibandPort

PORT = Resource(kind="infiniband_port", name="mlx5_0/1")
ENABLE = SetInfinibandPort(device="mlx5_0", port=1, enabled=True)
DISABLE = SetInfinibandPort(device="mlx5_0", port=1, enabled=False)
NAMES = [
    "mlx5_0",
    "mlx5_0/0",
    "../1",
    "a/../1",
    "mlx5_0/1\n",
    "-C/1",
    "a" * 20 + "/1",
    "a/1/2",
    "a/٣",
]


def state(value: str | None, exists: bool = True) -> State:
    return State(resource=PORT, exists=exists, value=value)


def seen(root: Path, name: str) -> dict[str, Any]:
    (found,) = look({"root": str(root), "resources": [{"kind": PORT.kind, "name": name}]})
    return dict(found)


def test_the_physical_state_of_a_port_is_read(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0").symlink_to("../../devices/mlx5_0")
    file = tmp_path / "sys/devices/mlx5_0/ports/1/phys_state"
    file.write_text("3: Disabled\n")
    assert seen(tmp_path, "mlx5_0/1") == {"exists": True, "value": "Disabled", "why": ""}
    file.write_text("Disabled\n")
    unread = seen(tmp_path, "mlx5_0/1")
    assert unread["value"] is None and "not a state" in unread["why"]
    assert not seen(tmp_path, "mlx5_0/2")["exists"] and not seen(tmp_path, "mlx5_1/1")["exists"]


@pytest.mark.parametrize("name", NAMES)
def test_only_a_device_and_a_number_name_a_port(tmp_path: Path, name: str) -> None:
    assert KIND.name_problem(name) and not KIND.name_problem("ibp26s0/1")
    assert seen(tmp_path, name)["why"]


@pytest.mark.parametrize(
    "fields", [{"device": "a;b"}, {"device": "-C"}, {"port": 0}, {"port": 255}]
)
def test_a_plan_cannot_name_another_device(fields: dict[str, Any]) -> None:
    words = {"do": "set_infiniband_port", "device": "mlx5_0", "port": 1, "enabled": True}
    assert typed.decode(msgspec.json.encode(words), SetInfinibandPort) == ENABLE
    with pytest.raises(msgspec.ValidationError):
        typed.decode(msgspec.json.encode(words | fields), SetInfinibandPort)


def test_comparing_ports_distinguishes_only_disabled_from_enabled() -> None:
    assert KIND.is_same(state("LinkUp"), state("Polling"))
    assert not KIND.is_same(state("Disabled"), state("Polling"))
    assert not KIND.is_same(state("LinkUp"), state(None, exists=False))
    assert KIND.holds(ENABLE, state("Polling")) and not KIND.holds(ENABLE, state("Disabled"))
    assert KIND.holds(DISABLE, state("Disabled")) and not KIND.holds(DISABLE, state("LinkUp"))
    assert not KIND.holds(ENABLE, state(None, exists=False))


def test_a_restore_disables_a_port_only_if_it_was_disabled_before() -> None:
    assert list(restore(state("Disabled"), actions=[ENABLE])) == [DISABLE]
    assert list(restore(state("LinkUp"), actions=[DISABLE])) == [ENABLE]
    with pytest.raises(RestoreError, match="there is no such port"):
        restore(state(None, exists=False), actions=[ENABLE])


def test_a_plan_shows_the_port() -> None:
    assert list(KIND.diff([ENABLE], {PORT: state("Disabled")})) == [
        "-mlx5_0 port 1: Disabled",
        "+mlx5_0 port 1: enabled",
    ]
    assert list(KIND.diff([DISABLE], {})) == [
        "-mlx5_0 port 1: (not read)",
        "+mlx5_0 port 1: disabled",
    ]
    assert ENABLE.label == "ibportstate -C mlx5_0 -P 1 -D 0 1 enable"


@pytest.mark.parametrize(
    ("action", "before", "calls"),
    [
        (ENABLE, "3: Disabled", ["-C mlx5_0 -P 1 -D 0 1 enable"]),
        (ENABLE, "5: LinkUp", []),
        (DISABLE, "5: LinkUp", ["-C mlx5_0 -P 1 -D 0 1 disable"]),
        (DISABLE, "3: Disabled", []),
    ],
)
def test_a_port_that_is_already_in_the_expected_state_is_not_touched(
    tmp_path: Path, action: SetInfinibandPort, before: str, calls: list[str]
) -> None:
    """`enable` would train a link again that is up."""
    port = tmp_path / "sys/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "phys_state").write_text(f"{before}\n")
    (port / "state").write_text("4: ACTIVE\n")
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\necho \"$*\" >>{tmp_path}/calls\necho '3: Disabled' >phys_state\n")
    tool.chmod(0o755)
    command = action.command(seconds=9).get_raw_value()
    command = command.replace(PROGRAM, str(tool)).replace(
        "/sys/class/infiniband", f"{tmp_path}/sys"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    asked = tmp_path / "calls"
    assert (asked.read_text().splitlines() if asked.exists() else []) == calls


@pytest.mark.parametrize(
    ("line", "manages"),
    [
        ("ibportstate -C mlx5_0 -P 1 -D 0 1 disable", True),
        ("/usr/sbin/ibportstate -C mlx5_0 -P 1 3 1 off", True),
        ("mlxlink -d mlx5_0 -a DN", True),
        ("ibportstate -C mlx5_0 -P 1 -D 0 1", False),
        ("mlxlink -d mlx5_0 -m", False),
    ],
)
def test_commands_that_set_a_port_are_found(line: str, manages: bool) -> None:
    words = infiniband_port.patterns("/", "mlx5_0/1").words
    assert words is not None and bool(words.search(line)) is manages
