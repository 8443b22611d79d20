"""A reboot for a link that trained badly, and nothing where no reboot helps."""

from collections.abc import Callable
from typing import Any

import pytest

from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.resource.boot import Reboot

PARAMS = {"generation": 5, "width": 16}
BOOT = "3f6d3f0e-5d0c-4f0e-9a51-2f1d3d1b7a10"
Plan = Callable[..., list[PlannedChange]]


def node(*widths: int, virtualization: str = "none", most: int = 16, **host: Any) -> dict[str, Any]:
    """The sections of a node with these widths of links."""
    gpus = [
        {
            "index": index,
            "bus_id": f"0000:{index:02x}:00.0",
            "pcie_generation": 5,
            "pcie_width": width,
            "pcie_generation_max": 5,
            "pcie_width_max": most if width < 16 else 16,
        }
        for index, width in enumerate(widths, start=1)
    ]
    functions = [{"address": gpu["bus_id"], "upstream": []} for gpu in gpus]
    return {
        "host": {"virtualization": virtualization, "boot_id": BOOT, **host},
        "gpu": {"gpus": gpus},
        "pci": {"functions": functions},
    }


def test_one_reboot_is_planned_for_every_link_that_may_train_better(plan: Plan) -> None:
    (change,) = plan("pcie_link", PARAMS, node(8, 16, 4))
    assert change.actions == (Reboot(boot_id=BOOT),)
    assert change.subjects == ("GPU 1", "GPU 3")
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (node(8, 16, most=8), "reseating does not help"),
        (node(8, 8), "all GPUs here are too slow"),
        (node(8, 16, virtualization="kvm"), "in a virtual machine the slot belongs to the host"),
    ],
)
def test_nothing_is_planned_if_no_reboot_helps(
    plan: Plan, sections: dict[str, Any], why: str
) -> None:
    with pytest.raises(FixError, match=f"no reboot helps: .*{why}"):
        plan("pcie_link", PARAMS, sections)


def test_no_reboot_is_planned_if_the_boot_id_is_unknown(plan: Plan) -> None:
    with pytest.raises(FixError, match="cannot tell which boot"):
        plan("pcie_link", PARAMS, node(8, 16, boot_id=None))


def test_a_reboot_is_planned_for_a_slow_nic_link_too(plan: Plan) -> None:
    """Not one whose port supports no more."""
    nic = {"address": "0000:21:00.0", "class_code": "020000", "physfn": "", "upstream": []}
    rates = {"link_gts": 16.0, "link_gts_max": 32.0, "link_width": 16, "link_width_max": 16}
    host = {"virtualization": "none", "boot_id": BOOT}
    sections: dict[str, Any] = {"host": host, "pci": {"functions": [nic | rates]}}
    (change,) = plan("pci_links", {}, sections)
    assert change.actions == (Reboot(boot_id=BOOT),) and change.subjects == ()
    port = {"address": "0000:20:00.0", "class_code": "060400", "upstream": []} | rates
    port |= {"link_gts_max": 16.0}
    sections["pci"] = {"functions": [nic | rates | {"upstream": ["0000:20:00.0"]}, port]}
    with pytest.raises(FixError, match="no reboot helps: the port supports no more"):
        plan("pci_links", {"limited": False}, sections)
