"""GRUB's menu: what the plan's command is called, when it holds, and what is never run."""

from typing import Any

import msgspec
import pytest

from nodevet.base import typed
from nodevet.resource import (
    ActionError,
    Actions,
    Resource,
    RunCommand,
    State,
    describe,
    diff,
    holds,
    restore,
    undeclared_resources,
    unused_resources,
)
from nodevet.resource.boot_parameter import UpdateGrub, update


def state(name: str, *texts: str, **rest: Any) -> State:
    resource = Resource(kind="boot_parameter", name=name)
    fields = {"exists": True, "value": list(texts), **rest}
    return State(resource=resource, **fields)


BOTH = update(["pci=x", "nosmt"], ["iommu=pt"])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([state("pci", "pci=x"), state("nosmt", "nosmt"), state("iommu", "")], True),
        ([state("pci", "pci=a pci=x"), state("nosmt", "nosmt"), state("iommu", "iommu=off")], True),
        ([state("pci", "", "pci=x"), state("nosmt", "nosmt"), state("iommu", "")], False),
        ([state("pci", "pci=xy"), state("nosmt", "nosmt"), state("iommu", "")], False),
        ([state("pci", "pci=x"), state("nosmt", "nosmt"), state("iommu", "", "iommu=pt")], False),
        ([state("pci", "pci=x"), state("nosmt", "nosmt")], None),
        ([state("pci", why="EIO"), state("nosmt", "nosmt"), state("iommu", "")], None),
        ([state("pci", exists=False), state("nosmt", "nosmt"), state("iommu", "")], None),
        ([], None),
    ],
)
def test_update_grub_holds_if_every_menu_entry_has_the_expected_parameters(
    states: Any, expected: bool | None
) -> None:
    assert holds(BOTH, states) is expected


def test_update_grub_names_the_parameters_it_changes_and_no_others() -> None:
    names = [Resource(kind="boot_parameter", name=name) for name in ("pci", "nosmt", "iommu")]
    assert undeclared_resources([BOTH], names) == [] and unused_resources([BOTH], names) == []
    other = Resource(kind="boot_parameter", name="quiet")
    assert unused_resources([BOTH], [other]) == [other]
    assert BOTH.label == "update-grub with pci=x nosmt and without iommu=pt"
    assert (update().label, update([], ["x"]).label) == ("update-grub", "update-grub without x")
    assert holds(RunCommand(words=("true",)), [state("pci", "pci=x")]) is None


def test_all_parameters_are_restored_by_one_command_after_their_files() -> None:
    file = Resource(kind="file", name="/etc/default/grub.d/x.cfg")
    before = (State(resource=file, exists=False), state("pci", ""), state("iommu", "iommu=pt"))
    first, second = restore(*before, actions=(BOTH,))
    assert first.resource == file and second == update()
    assert describe(before[1]) == "absent" and describe(before[2]) == "iommu=pt"
    assert describe(state("pci", "", "pci=x")) == "absent or pci=x"


@pytest.mark.parametrize(
    "words",
    [
        ("rm", "-rf", "/", "--"),
        ("update-grub", "-o", "/etc/passwd", "--"),
        ("update-grub", "pci=x"),
        ("update-grub", "pci=$(reboot)", "--"),
        ("update-grub", "--", "--"),
    ],
)
def test_any_other_command_line_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ActionError):
        UpdateGrub(words=words).command(seconds=9)


def test_the_plan_shows_what_every_menu_entry_must_have() -> None:
    (line,) = diff([BOTH], [])
    assert line == (
        "$ update-grub  # refused unless every entry is with pci=x nosmt and without iommu=pt"
        "  # for up to 300 s"
    )
    assert list(diff([update()], [])) == ["$ update-grub  # for up to 300 s"]


def test_actions_survive_a_json_round_trip() -> None:
    actions = (BOTH, RunCommand(words=("true",)))
    assert typed.decode(msgspec.json.encode(actions), Actions) == actions
