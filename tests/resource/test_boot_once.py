"""One boot of GRUB: when it holds, how it is restored, and what is never run."""

import pytest

from nodevet.resource import (
    ActionError,
    Resource,
    State,
    holds,
    is_same,
    restore,
    undeclared_resources,
    unused_resources,
)
from nodevet.resource.boot_once import BootOnce, boot_once
from nodevet.resource.boot_parameter import update

ONCE = boot_once("smt", ["nosmt"], ["pci=x"])
RESOURCE = Resource(kind="boot_once", name="smt")
CHOSEN = State(resource=RESOURCE, exists=True, value="chosen")
MADE = State(resource=RESOURCE, exists=True, value="made")
NONE = State(resource=RESOURCE, exists=False)


def test_boot_once_holds_while_grub_boots_its_entry_next() -> None:
    assert [holds(ONCE, [state]) for state in (CHOSEN, MADE, NONE)] == [True, False, False]
    assert holds(ONCE, []) is None and holds(boot_once("iommu"), [CHOSEN]) is None
    assert is_same(CHOSEN, MADE), "GRUB forgets the choice as it boots"
    assert not is_same(NONE, MADE)


def test_boot_once_names_its_resources_and_a_restore_runs_update_grub() -> None:
    names = [RESOURCE, *(Resource(kind="boot_parameter", name=name) for name in ("nosmt", "pci"))]
    assert undeclared_resources([ONCE], names) == [] and unused_resources([ONCE], names) == []
    assert unused_resources([ONCE], [Resource(kind="boot_once", name="iommu")])
    file = State(resource=Resource(kind="file", name="/etc/x"), exists=False)
    assert restore(file, NONE)[-1] == update()
    assert ONCE.label == "update-grub and grub-reboot nodevet-once with nosmt and without pci=x"


@pytest.mark.parametrize(
    "words",
    [
        ("rm", "smt", "--"),
        ("grub-reboot", "../x", "--"),
        ("grub-reboot", "smt", "a=$(reboot)", "--"),
        ("grub-reboot", "smt", "nosmt"),
    ],
)
def test_any_other_command_line_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ActionError):
        BootOnce(words=words).command(seconds=9)
