"""What is known of systemd: where its units lie and how they are named."""

import re

import pytest

from nodevet.evidence.services import UNIT_NAME
from nodevet.remote import systemd


def test_units_are_looked_up_as_systemd_unit_5_says() -> None:
    """The page of a Debian says /lib for /usr/lib; where both are, that of /usr comes first."""
    in_order = """
        /etc/systemd/system.control /run/systemd/system.control /run/systemd/transient
        /run/systemd/generator.early /etc/systemd/system /etc/systemd/system.attached
        /run/systemd/system /run/systemd/system.attached /run/systemd/generator
        /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system
        /run/systemd/generator.late
    """
    assert list(systemd.UNIT_PATH) == in_order.split()


@pytest.mark.parametrize(
    "name", ["a", "dev-disk-by\\x2duuid-1", "getty@tty1", ":", "-x", "a/b", ""]
)
def test_the_probe_accepts_the_same_unit_names_as_a_baseline(name: str) -> None:
    ours = systemd.unit_name_pattern("service").match(f"{name}.service")
    assert bool(ours) is bool(re.fullmatch(UNIT_NAME, name))


def test_unit_names_of_a_node_may_have_255_characters() -> None:
    assert systemd.unit_name_pattern("swap").match("d" * 250 + ".swap")
    assert not systemd.unit_name_pattern("swap").match("d" * 256 + ".swap")
    assert not systemd.unit_name_pattern("swap").match("d.swap\n")
