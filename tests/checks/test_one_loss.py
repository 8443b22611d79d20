"""One lost GPU is one loss: one count, and one name in every check."""

import pytest

from nodevet.model import Verdict
from nodevet.remote.probe.collectors import kernel_log

LOST = "NVML_ERROR_GPU_IS_LOST"
SOUND = {
    "recovery_action": "NONE",
    "pstate": 0,
    "memory_used_b": 0,
    "minor_number": 0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
}
ADDRESS = "0000:3b:00.0"
LINES = (  # as the driver prints them, src/nvidia/arch/nvalloc/unix/src/osinit.c and nv-pci.c
    "NVRM: GPU at PCI:0000:3b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "NVRM: GPU 0000:3b:00.0: GPU serial number is 1652922010101.",
)


@pytest.mark.parametrize("revision", ["a1", "ff"])
@pytest.mark.parametrize(
    ("check", "params"),
    [
        ("xid", {}),
        ("gpu_lost", {}),
        ("gpu_count", 2),
        ("pcie_link", {"generation": 5, "width": 16}),
        ("pcie_errors", {}),
        ("persistence_mode", True),
    ],
)
def test_t5_a_lost_gpu_has_one_name_and_one_count(
    check, params, revision, ask, make_params, make_document, tmp_path
):
    (tmp_path / "dev").mkdir()
    records = ("Linux version 6.8.0", *LINES)
    text = "".join(f"4,{n},{n * 10**6},-;{line}\n" for n, line in enumerate(records))
    (tmp_path / "dev/kmsg").write_text(text)
    ids = {"class_code": "030200", "vendor": "10de", "driver": "nvidia", "upstream": []}
    functions = [
        {"address": "0000:19:00.0", "revision": "a1", **ids, "aer": {"fatal": 0}},
        {"address": ADDRESS, "revision": revision, **ids, "aer": {"fatal": 3}},
    ]
    gpus = [{"index": 0, "bus_id": "0000:19:00.0", **SOUND}, {"index": 1}]
    gpus[1]["errors"] = {"handle": LOST, "bus_id": LOST}
    document = make_document(
        {
            "host": {"virtualization": "none"},
            "gpu": {"count": 2, "gpus": gpus},
            "pci": {"functions": functions, "aer_ports": []},
            "modules": {"device_nodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]},
            "kernel_log": kernel_log.collect(str(tmp_path.resolve()), {}),
        }
    )
    found = ask(check, make_params(check, params), document)
    about = [finding for finding in found if finding.verdict is not Verdict.OK]
    named = {(each.subject.label, each.subject.bus_id) for each in about if each.subject.id}
    assert named <= {("GPU 0", "0000:19:00.0"), ("GPU 1", ADDRESS)}
    assert ("GPU 1", ADDRESS) in named or (check == "gpu_count" and "GPU 1" in about[0].why)
    if check == "xid":
        (fault,) = (each for each in about if each.verdict is Verdict.FAIL)
        assert (fault.actual, fault.why.partition(",")[0]) == (
            [79],
            "79 GPU_HAS_FALLEN_OFF_THE_BUS ×1",
        )


def test_t6_an_xid_line_that_cannot_be_read_is_reported(ask, make_params, make_document):
    event = {"kind": "xid", "bus_id": ADDRESS, "count": 1, "text": "NVRM: Xid (PCI:...): abc"}
    document = make_document(
        {
            "gpu": {"count": 1, "gpus": [{"index": 0, "bus_id": ADDRESS}]},
            "kernel_log": {"complete": True, "events": [event, {**event, "code": 48}]},
        }
    )
    (finding, *_) = ask("xid", make_params("xid", {}), document)
    assert "0 is not known" not in finding.why
    assert "a line whose number cannot be read ×1: NVRM: Xid (PCI:...): abc" in finding.why
