"""Section dcgm: DCGM's own view, if a baseline asks for it."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

RESULTS = at_most(4096)  # of DCGM's tests and watches; it has some twenty for each GPU


class Incident(Record, frozen=True, kw_only=True):
    """What a health watch reports about a part. `dcgmi health -c -j`."""

    part: Text | None = None  # GPU 0, as DCGM counts
    watch: Text | None = None  # PCIe system, Memory system, ...; "" of the part as a whole
    status: Text | None = None  # Warning, Failure
    text: Text | None = None


class TestResult(Record, frozen=True, kw_only=True):
    """A result of a diagnostic that is not Pass."""

    __test__ = False  # it is no test of pytest's

    test: Text | None = None
    part: Text | None = None  # GPU 0, as DCGM counts; "" of the node
    status: Text | None = None  # Fail, Warn, Skip
    ran: bool | None = None  # False if it was skipped
    text: Text | None = None


class Diagnostic(Record, frozen=True, kw_only=True):
    """The results of `dcgmi diag -j` that were kept in a file."""

    volatile = ("age_s",)

    path: Text
    age_s: int | None = None  # since the file was written; below 0: a clock was wrong
    results: int | None = None
    passed: int | None = None
    not_passed: Annotated[tuple[TestResult, ...], RESULTS] | None = None
    driver_version: Text | None = None  # that it ran with; "" if the file does not say
    dcgm_version: Text | None = None
    serials: Annotated[tuple[Text, ...], RESULTS] | None = None  # of GPUs that were tested


class Dcgm(SectionRecord, frozen=True, kw_only=True):
    """What DCGM's host engine answers, and diagnostics by the path of their file."""

    unique = ("diagnostics[].path",)

    overall: Text | None = None  # Healthy, Warning, Failure
    incidents: Annotated[tuple[Incident, ...], RESULTS] | None = None
    gpus: int | None = None  # `dcgmi discovery -l`
    diagnostics: Annotated[tuple[Diagnostic, ...], bounds.ASKED] | None = None
