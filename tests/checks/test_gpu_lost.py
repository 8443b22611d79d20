"""A GPU that is lost while it is being read: only the last calls say so."""

import copy

import pytest

from nodevet.model import Verdict

USABLE = {"index": 0, "bus_id": "0000:19:00.0", "minor_number": 0, "recovery_action": "NONE"}
SECTIONS = {
    "gpu": {"count": 1, "gpus": [{**USABLE, "pstate": 0, "memory_used_b": 0}]},
    "pci": {
        "functions": [
            {"address": "0000:19:00.0", "class_code": "030200", "vendor": "10de", "revision": "a1"}
        ]
    },
    "modules": {"device_nodes": [{"path": "/dev/nvidia0"}]},
}


@pytest.mark.parametrize("why", ["NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"])
@pytest.mark.parametrize("part", ["ecc", "remapping", "retired_pages", "fabric", "nvlinks"])
@pytest.mark.parametrize(("check", "params"), [("gpu_lost", {}), ("gpu_count", 1)])
def test_any_nvml_call_can_report_a_lost_gpu(
    check, params, part, why, ask, make_params, make_document
):
    def verdicts(sections):
        found = ask(check, make_params(check, params), make_document(sections))
        return [finding.verdict for finding in found]

    assert verdicts(SECTIONS) == [Verdict.OK]
    sections = copy.deepcopy(SECTIONS)
    record = {"link": 0, "errors": {"active": why}}
    sections["gpu"]["gpus"][0][part] = [record] if part == "nvlinks" else record
    assert verdicts(sections) == [Verdict.FAIL]
