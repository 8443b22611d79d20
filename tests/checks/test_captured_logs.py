"""Kernel logs of real nodes, as the probe reads them and the checks judge them."""

from pathlib import Path

import pytest

from nodevet.model import Verdict
from nodevet.remote.probe.collectors import kernel_log

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES}")

# log -> what xid says of each address: its verdict and the numbers that count
SAID = {
    "gpud-xid119-a100.log": {"0000:9b:00.0": ("fail", [119])},
    "gpud-xid13.iso.log": {},
    "gpud-kmsg-nvswitch.log": {},
    "gpud-kmsg-peermem.log": {},
    "imbue-h100-cluster-lines.txt": {
        "0000:0f:00.0": ("fail", [64]),
        "0000:85:00.0": ("not_applicable", None),
    },
    "gpud-nvlink5-matrix.txt": {
        "0000:04:00.0": ("fail", [f"{code} link 0" for code in (144, 145, 146, 149, 150)])
    },
    "dcgm-kmsg-lines.txt": {
        "0000:00:16.0": ("fail", [119]),
        "0000:2a:00.0": ("fail", [79]),
    },
}
KINDS = {  # log -> kinds of events that are no hardware's, and how many lines
    "gpud-nccl.iso.log": {"segfault": 2},
    "gpud-xid13.iso.log": {"oom": 3},
    "gpud-pstore-erst-sysrq.txt": {"bug": 1, "oops": 1},
}


def read(tmp_path, name):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_bytes((CAPTURES / "dmesg" / name).read_bytes())
    return kernel_log.collect(str(tmp_path.resolve()), {})


@pytest.mark.parametrize("name", SAID)
def test_xids_in_the_log_of_a_real_node(tmp_path, ask, make_params, make_document, name):
    log = read(tmp_path, name)
    found = ask("xid", make_params("xid", {}), make_document({"gpu": {}, "kernel_log": log}))
    said = {each.subject.bus_id: (each.verdict.value, each.actual) for each in found
            if each.subject.bus_id}  # fmt: skip
    assert said == SAID[name]
    nameless = [each for each in found if not each.subject.bus_id]
    assert {each.verdict for each in nameless} == {Verdict.UNKNOWN}  # these have no GPUs


@pytest.mark.parametrize("name", KINDS)
def test_kernel_lines_in_the_log_of_a_real_node(tmp_path, name):
    events = read(tmp_path, name)["events"]
    told = {}
    for event in events:
        if event["kind"] != "xid":
            told[event["kind"]] = told.get(event["kind"], 0) + event["count"]
    assert told == KINDS[name]


def test_xids_of_blackwell_name_the_links_and_the_action_that_the_driver_recommends(
    tmp_path, ask, make_params, make_document
):
    log = read(tmp_path, "gpud-xid-lines.txt")
    gpus = [{"index": 0, "bus_id": "0009:01:00.0", "gpu_architecture": "BLACKWELL"}]
    document = make_document({"gpu": {"gpus": gpus}, "kernel_log": log})
    found = ask("xid", make_params("xid", {}), document)
    gpu, beside = (each for each in found if each.subject.label == "GPU 0")
    assert beside.verdict is Verdict.UNKNOWN
    assert beside.why.startswith("kmsg: it does not begin with the kernel's first lines")
    assert log["unmatched"] > 0
    assert (gpu.verdict, gpu.actual) == (
        Verdict.FAIL,
        ["149 link 0", "149 link 1", "149 link 15"],
    )
    assert "NETIR_LINK_EVT link 15" in gpu.why and "its other end" in gpu.why
    assert "then 154 GPU_RECOVERY_ACTION_CHANGED ×1" in gpu.why
    assert "(Drain and Reset)" in gpu.why
