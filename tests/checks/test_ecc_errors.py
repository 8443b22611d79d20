"""Uncorrected errors count wherever NVML tells them."""

import pytest

from nodevet.model import Verdict

UNTOLD = "NVML_ERROR_NOT_SUPPORTED"
PARTS = {"volatile_dram_uncorrected": 0, "volatile_sram_uncorrected": 0}


@pytest.mark.parametrize("total", [None, 0])
@pytest.mark.parametrize("part", PARTS)
def test_t3_errors_in_one_part_are_never_ok(total, part, ask, make_params, make_document):
    def told(**counts):
        errors = {field: UNTOLD for field, count in counts.items() if count is None}
        gpu = {"index": 0, "ecc": {**counts, "sram_threshold_exceeded": False, "errors": errors}}
        document = make_document({"gpu": {"gpus": [gpu]}})
        return ask("ecc_errors", make_params("ecc_errors", {}), document)

    (first, *_) = told(**{**PARTS, "volatile_uncorrected": total, part: 5})
    assert (first.verdict, first.actual) == (Verdict.FAIL, {"volatile_uncorrected": 5})
    (first, *rest) = told(**PARTS, volatile_uncorrected=total)
    assert (first.verdict, first.actual["volatile_uncorrected"]) == (Verdict.OK, 0)
    assert [finding.verdict for finding in rest] == [Verdict.NOT_APPLICABLE] * (total is None)
    nothing = dict.fromkeys((*PARTS, "volatile_uncorrected", "volatile_cache_uncorrected"))
    assert Verdict.OK not in {
        finding.verdict
        for finding in told(**nothing)
        if finding.actual and "volatile_uncorrected" in finding.actual
    }
