"""What the checks of GPUs say of real machines: captures as nodes, read by the real probe.

MANIFEST.md beside the captures says what is known of each machine. Nothing is wrong with most of
them, and nothing that a check cannot see of them may be called right.
"""

import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.model import Verdict
from nodevet_sim.nvidia_smi_xml import read

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures" / "nvidia-smi-xml"
FILES = sorted(CAPTURES.glob("*.xml"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"no captures in {CAPTURES}")
CATALOG = Catalog()
SAID = {  # check -> params
    "bar1": 256,
    "fabric": {},
    "gpu_repair": {},
    "gpus_alike": {},
    "gsp_firmware": {},
    "inforom": {},
    "nvlink": {},
    "p2p": {},
    "retired_pages": {},
    "thermal": {},
    "vbios": {},
}
HOST = {"virtualization": "none", "uptime_s": 86400.0}


@pytest.fixture
def say(gpus_of):
    """What a check says of a capture: (subject, verdict) of every finding."""

    def of(name, check, params, host=HOST):
        gpus = gpus_of(read(CAPTURES / f"{name}.xml").state())
        sections = {
            "gpu": {"status": "ok", "data": msgspec.to_builtins(gpus)},
            "host": {"status": "ok", "data": host},
            "pci": {"status": "ok", "data": {"functions": []}},
        }
        document = {"schema": 1, "probe": "0", "sections": sections}
        evidence = decode(json.dumps(document).encode())
        found = CATALOG.check(check)
        return list(found.judge(evidence, params_of(found.params, params)))

    return of


def verdicts(findings):
    return {finding.verdict for finding in findings}


FINE = {Verdict.OK, Verdict.NOT_APPLICABLE}
WRONG = {("k8s-mock-qx-gb200-fabric-degraded", "fabric")}
SHORT = {"telegraf-a100-sxm4-v12"}  # the file has eight attached GPUs and lists one


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("check", SAID)
def test_no_false_alarm(path, check, say):
    told = verdicts(say(path.stem, check, SAID[check]))
    if (path.stem, check) in WRONG:
        assert Verdict.FAIL in told
    elif path.stem in SHORT:
        assert told <= FINE | {Verdict.UNKNOWN}
    else:
        assert told <= FINE


def margins(findings):
    return [each.actual for each in findings if each.verdict is Verdict.OK]


def test_temperature_margins_use_the_limits_that_the_board_reports(say):
    assert margins(say("datakit-gtx-1card", "thermal", {})) == [{"GPU": 17, "memory": 20}]
    assert margins(say("k8s-t4", "thermal", {})) == [{"GPU": 52}]
    assert margins(say("telegraf-quadro-p2000-v12", "thermal", {})) == [{"GPU": 67}]
    rows = ElementTree.parse(CAPTURES / "k8s-h100.xml").iter("gpu_temp_tlimit")
    written = [{"GPU": int(row.text.split()[0])} for row in rows]
    assert margins(say("k8s-h100", "thermal", {})) == written and len(written) == 8
    hot = say("k8s-b200", "thermal", 40)
    assert [each.verdict.value for each in hot if each.actual].count("fail") == 4


def test_versions_of_a_node(say):
    (one, *others) = say("k8s-b200", "vbios", "97.00.FA.00.09")
    assert len(others) == 7 and verdicts([one, *others]) == {Verdict.OK}
    assert verdicts(say("k8s-b200", "vbios", "97.00.B9.00.69")) == {Verdict.FAIL}
    of_h100 = say("k8s-h100", "vbios", {})
    alone = [each for each in of_h100 if each.verdict is Verdict.NOT_APPLICABLE]
    assert [each.subject.id for each in alone] == ["3"]  # another part number
    assert verdicts(say("k8s-h100", "inforom", ["G520.0200.00.04"])) == {Verdict.FAIL}


def test_a_degraded_fabric(say):
    fine, degraded = say("k8s-mock-qx-gb200-fabric-degraded", "fabric", {})
    assert (fine.verdict, degraded.verdict) == (Verdict.OK, Verdict.FAIL)
    assert (degraded.subject.id, degraded.actual) == ("1", ["route unhealthy"])


def test_the_fabric_of_real_nodes(say):
    for name, count in (("k8s-b200", 8), ("k8s-gb200", 4), ("k8s-h100", 8)):
        assert [each.verdict for each in say(name, "fabric", {})] == [Verdict.OK] * count
    for name in ("k8s-a100", "k8s-t4", "telegraf-rtx-3060-v12"):
        assert verdicts(say(name, "fabric", {})) == {Verdict.NOT_APPLICABLE}


def test_bar1_is_ok_only_on_gpus_with_resizable_bar(say):
    for name in ("k8s-h100", "k8s-b200", "k8s-gb200", "k8s-a100", "telegraf-a10g"):
        assert verdicts(say(name, "bar1", {})) == {Verdict.OK}
    for name in ("k8s-t4", "telegraf-rtx-3060-v12"):
        assert verdicts(say(name, "bar1", {})) == {Verdict.FAIL}


def test_cuda_versions(say):
    assert verdicts(say("datakit-gtx-1card", "cuda_version", {"minimum": "11.2"})) == {Verdict.OK}
    assert verdicts(say("datakit-gtx-1card", "cuda_version", {"minimum": "12.0"})) == {Verdict.FAIL}


def test_gpu_repair_is_not_applicable_if_the_driver_does_not_report_it(say):
    assert {each.verdict for each in say("k8s-gb200", "gpu_repair", {})} == {Verdict.OK}
    assert verdicts(say("datakit-gtx-8card", "gpu_repair", {})) == {Verdict.NOT_APPLICABLE}


def test_how_long_gpus_were_throttled(say):
    limits = {"sw_thermal_s": 60, "hw_thermal_s": 0, "power_brake_s": 0}
    for name in ("k8s-h100", "k8s-b200", "k8s-gb200", "k8s-t4"):
        assert verdicts(say(name, "throttle_time", limits)) == {Verdict.OK}
    once = say("k8s-gb200", "throttle_time", {"sw_thermal_s": 1})
    assert [each.verdict.value for each in once].count("fail") == 3
    assert verdicts(say("datakit-gtx-8card", "throttle_time", limits)) == {Verdict.NOT_APPLICABLE}


def test_replays_of_links_at_full_speed(say):
    assert verdicts(say("k8s-h100", "pcie_replays", 1000)) == {Verdict.OK}
    assert [each.actual for each in say("k8s-h100", "pcie_replays", 170)
            if each.verdict is Verdict.FAIL] == [174, 172]  # fmt: skip
