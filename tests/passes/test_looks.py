"""What a pass says of a node, by the evidence that passed; and whose pass is withdrawn."""

import hashlib
import json
from typing import Any

import pytest

from nodevet import __version__
from nodevet.base.errors import UserError
from nodevet.fleet import Visit
from nodevet.model import Finding, HostReport, Severity, Status, Verdict
from nodevet.passes.document import PassError, parse, text_of
from nodevet.passes.gating import take_options
from nodevet.passes.use.issue import is_withdrawn
from nodevet.passes.use.looks import facts_of

HOST = {"machine_id": "m" * 32, "boot_id": "b" * 36, "uptime_s": 3600.9}
MODULES = {"loaded": ["nvidia", "ext4"], "nvidia_version": "550.90.07"}
GPUS = {"gpus": [{"index": 0, "uuid": "GPU-b"}, {"index": 1, "uuid": "GPU-a"}]}


def test_pass_for_without_pass_key_is_refused() -> None:
    with pytest.raises(UserError, match="--pass-for needs --pass-key"):
        take_options({"pass_key": None, "pass_for": 60.0})
    assert take_options({"pass_key": None, "pass_for": None}) is None


def section(read: Any) -> dict[str, Any]:
    """With its data, or with the reason why it was not read."""
    return (
        {"status": "ok", "data": read}
        if isinstance(read, dict)
        else {"status": "error", "why": read}
    )


def visit(**sections: Any) -> Visit:
    whole = {"host": HOST, "modules": MODULES, "gpu": GPUS, **sections}
    data = {name: section(each) for name, each in whole.items()}
    document = json.dumps({"schema": 1, "probe": "0", "sections": data}).encode()
    return Visit("gpu001", Status.VETTED, evidence=document, at=1795886173.9)


def test_a_pass_contains_the_facts_of_the_evidence() -> None:
    one = visit()
    facts = facts_of(one)
    assert facts == {
        "machine": ["m" * 32],
        "boot": ["b" * 36],
        "uptime": ["3600"],
        "driver": ["550.90.07"],
        "gpu": ["GPU-a", "GPU-b"],
        "evidence": [hashlib.sha256(one.evidence or b"").hexdigest()],
        "vetted": ["1795886173"],
        "nodevet": [__version__],
    }
    more = {"host": ["gpu001"], "expires": ["1795886174"], "baseline": [f"{'0' * 64} my site"]}
    assert parse(text_of({**facts, **more})) == {**facts, **more}


def test_a_node_without_the_driver_has_no_gpus() -> None:
    facts = facts_of(visit(modules={"loaded": ["ext4"]}, gpu="NVML_ERROR_LIBRARY_NOT_FOUND"))
    assert (facts["driver"], facts["gpu"]) == (["none"], [])


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"host": {**HOST, "machine_id": None}}, "machine id, boot id or uptime"),
        ({"host": {**HOST, "boot_id": ""}}, "machine id, boot id or uptime"),
        ({"host": {**HOST, "uptime_s": None}}, "machine id, boot id or uptime"),
        ({"host": "timed out"}, "machine id, boot id or uptime"),
        ({"modules": "timed out"}, "kernel modules were not read"),
        ({"modules": {"loaded": ["nvidia"]}}, "version of its NVIDIA driver was not read"),
        ({"gpu": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}, "GPUs were not read: NVML_ERROR_LIB_RM"),
        ({"gpu": {"gpus": [{"index": 0}]}}, "the UUID of a GPU was not read"),
    ],
)
def test_unread_values_are_not_signed(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(PassError, match=why):
        facts_of(visit(**sections))


@pytest.mark.parametrize("name", ["host", "driver", "gpu", "baseline"])
@pytest.mark.parametrize("value", ["a\nexpires 99999999999", "a\x1b[2J", "", "a\u2028b"])
def test_a_value_cannot_add_a_line(name: str, value: str) -> None:
    values = {**facts_of(visit()), "host": ["n"], "expires": ["1"], "baseline": ["0 site"]}
    with pytest.raises(PassError):
        text_of({**values, name: [value]})


def report(
    *verdicts: Verdict, transient: bool = False, status: Status = Status.VETTED
) -> HostReport:
    findings = tuple(
        Finding(
            check=f"c{number}",
            verdict=verdict,
            severity=Severity.WARNING,
            transient=transient and verdict is Verdict.UNKNOWN,
        )
        for number, verdict in enumerate(verdicts)
    )
    return HostReport(host="n", status=status, findings=findings)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (report(Verdict.OK), False),
        (report(Verdict.FAIL), True),
        (report(Verdict.OK, Verdict.UNKNOWN), True),
        (report(Verdict.OK, Verdict.UNKNOWN, transient=True), False),
        (report(Verdict.FAIL, Verdict.UNKNOWN, transient=True), True),
        (report(status=Status.PROBE_FAILED), True),
        (report(status=Status.TIMEOUT), True),
        (report(status=Status.UNREACHABLE), False),
    ],
)
def test_a_node_that_was_reached_and_did_not_pass_loses_its_pass(
    one: HostReport, expected: bool
) -> None:
    assert is_withdrawn(one, Severity.WARNING) is expected
