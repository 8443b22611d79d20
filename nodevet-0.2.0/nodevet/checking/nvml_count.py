"""Compares the number of GPUs that another program counts with NVML's number."""

from typing import Any

from nodevet.evidence.core import unread
from nodevet.evidence.dcgm import Dcgm
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.slurm import SlurmNode
from nodevet.model import Finding, Subject, fail, ok, unknown


def as_nvml_counts(
    evidence: Evidence, subject: Subject, record: Dcgm | SlurmNode, **rest: Any
) -> Finding:
    """The finding: whether `gpus` equals NVML's count. `rest`: more fields of the failure."""
    nvml, actual = evidence[Gpus], record.gpus
    if actual is None:
        return unread(subject, record, "gpus")
    if nvml.data is None:
        return unknown(subject, why=f"NVML: {nvml.why}")
    if nvml.data.count is None:
        return unread(subject, nvml.data, "count")
    if actual == nvml.data.count:
        return ok(subject, expected=nvml.data.count, actual=actual)
    return fail(subject, expected=nvml.data.count, actual=actual, cause="gpu_count", **rest)
