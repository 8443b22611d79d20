"""Which failed checks a diagnosis names as suspects."""

import pytest
from msgspec.structs import replace

from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from nodevet.diagnose.suspects import rank_suspects, suspect
from nodevet.model import Finding, fail

IDLE = GpuDiagnosis(
    index=0, cause=Cause.IDLE, confidence=Confidence.HIGH, sentence="", next_step=""
)


def failed(check: str) -> Finding:
    return replace(fail(expected=8, actual=7), check=check)


@pytest.mark.parametrize("check", ["ecc_errors", "row_remapping", "gpu_repair"])
def test_a_gpu_fault_is_a_suspect_even_if_all_gpus_are_idle(check):
    suspected = suspect(failed(check), gpu=None, fixable=False)
    assert suspected is not None
    (line,) = rank_suspects([suspected], [IDLE])
    assert line.likely and line.text.startswith(f"{check} ")


def test_a_failing_packages_check_is_not_a_suspect():
    assert suspect(failed("packages"), gpu=None, fixable=False) is None
