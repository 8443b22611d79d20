"""Section health_validation: NVIDIA Health Validation's verdict, if a baseline asks for it."""

from nodevet.base.bounds import Text
from nodevet.evidence.core import SectionRecord


class HealthValidation(SectionRecord, frozen=True, kw_only=True):
    """How `health-validation run` ended."""

    exit_code: int | None = None  # 0, 1: a verdict; 2: none; below 0: minus a signal
    overall_severity: Text | None = None  # PASS, INFO, WARNING, CRITICAL, UNKNOWN
