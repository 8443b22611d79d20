"""A tray of an NVL72 rack is in the rack's NVLink domain, and says so."""

from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.learn.compare import compare
from nodevet.model import Verdict

CATALOG = Catalog()
RACK = "b1f0d7a2-7a1c-4a4e-9d4b-3f6f0c0a9e11"
NONE = "00000000-0000-0000-0000-000000000000"
GB200, GB300, H100 = "10de:2941", "10de:31c2", "10de:2330"
NO = "NOT_SUPPORTED"
IDLE = 2 << 12  # no partition is assigned


def tray(uuid: str, clique: int, device: str = GB200, mask: int = 0, state: str = "COMPLETED"):
    """Four GPUs of a node, each healthy by itself."""
    fabric = {"state": state, "status": "SUCCESS", "health_summary": "HEALTHY"}
    fabric |= {"cluster_uuid": uuid, "clique_id": clique, "health_mask": mask}
    gpus = [{"index": index, "pci_device": device, "fabric": fabric} for index in range(4)]
    return {
        "gpu": {"count": 4, "gpus": gpus, "driver_version": "580.1"},
        "host": {"virtualization": "none", "uptime_s": 9000.0},
        "services": {"units": [{"name": "nvidia-imex.service", "active_state": "active"}]},
        "imex": {"nodes": [f"10.0.0.{number}" for number in range(18)], "channels": 1},
    }


@pytest.mark.parametrize(
    ("sections", "fabric", "imex"),
    [
        (tray(RACK, 4026), Verdict.OK, Verdict.OK),
        (tray(RACK, 32766, GB300), Verdict.OK, Verdict.OK),
        (tray(NONE, 0), Verdict.FAIL, Verdict.FAIL),
        (tray(NONE, 0, GB300), Verdict.FAIL, Verdict.FAIL),
        (tray(NONE, 0, GB300, IDLE), Verdict.OK, Verdict.NOT_APPLICABLE),
        (tray(NONE, 0, H100), Verdict.OK, Verdict.NOT_APPLICABLE),
        (tray(NONE, 0, GB300, state=NO), Verdict.NOT_APPLICABLE, Verdict.NOT_APPLICABLE),
    ],
    ids=["GB200", "GB300", "lost", "GB300 lost", "idle", "H100", "no fabric"],
)  # fmt: skip
def test_e09_a_tray_that_lost_its_domain_fails(
    sections: Any, fabric: Verdict, imex: Verdict, ask: Any, make_params: Any, make_document: Any
) -> None:
    for check_id, verdict in (("fabric", fabric), ("imex", imex)):
        found = ask(check_id, make_params(check_id, {}), make_document(sections))
        assert {each.verdict for each in found if each.subject.kind != "node" or
                check_id == "imex"} == {verdict}, check_id  # fmt: skip


def test_e09_a_missing_nvlink_domain_that_the_baseline_expects_fails(
    ask: Any, make_params: Any, make_document: Any
) -> None:
    for device in (GB200, H100):
        document = make_document(tray(NONE, 0, device))
        found = ask("imex", make_params("imex", {"nodes": 18}), document)
        assert {each.verdict for each in found} == {Verdict.FAIL}
        found = ask("fabric", make_params("fabric", {"cluster_uuid": "present"}), document)
        gpus = [each.verdict for each in found if each.subject.kind == "gpu"]
        assert gpus == [Verdict.FAIL] * 4


def test_e09_compare_names_the_tray_that_is_not_in_the_domain_of_its_rack(
    make_document: Any,
) -> None:
    def evidence(uuid: str, clique: int) -> Evidence:
        return decode(msgspec.json.encode(make_document(tray(uuid, clique))))

    nodes = {f"tray{number}": evidence(RACK, 4026) for number in range(3)}
    assert compare(nodes, CATALOG).outliers == ()
    nodes["tray3"] = evidence(f"{RACK[:-1]}2", 4026)
    nodes["tray4"] = evidence(RACK, 7)
    nodes["tray5"] = evidence(NONE, 0)
    assert compare(nodes, CATALOG).outliers == ("tray3", "tray4", "tray5")
