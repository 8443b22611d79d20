"""The result file of a machine validation plug-in of NVIDIA's infra-controller (NICo), contract v1.

NICo refuses unknown fields, a file above 64 KiB, more than 100 findings, and a summary or a message
above 4096 bytes (crates/machine-validation/src/plugin_contract.rs). It reads the file only if the
plug-in exits with 0, so a command that prints this format exits with 0 for every verdict.
"""

import json
from collections.abc import Iterator
from itertools import islice

from nodevet.base.printable import plain
from nodevet.model import Run, Severity
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import Line, lines, summary

MOST_FINDINGS = 100
LARGEST = 64 * 1024  # bytes of the file
LONGEST = 4096  # bytes of a summary or a message
LONGEST_NAME = 128  # bytes; the contract sets no bound
ROOM = 1024  # bytes of the file that are neither summary nor findings
CUT = "..."
IN_TEXT = True  # exit code 0 says only that the text is complete


def pieces(run: Run) -> Iterator[str]:
    outcome = _outcome(run)
    failing = [] if outcome == "pass" else [line for line in lines(run) if line.fails]
    findings = _fitting(failing)
    more = len(failing) - len(findings)
    left_out = f"; {count(more, 'further finding')} left out" if more else ""
    result = {
        "contractVersion": "v1",
        "kind": "MachineValidationPluginResult",
        "outcome": outcome,
        "summary": _short(_summary(run), LONGEST - len(left_out)) + left_out,
        "severity": _severity(outcome, failing),
        "findings": findings,
    }
    yield f"{_text(result)}\n"


def _summary(run: Run) -> str:
    """The number of hosts for each outcome, and the baselines."""
    counts = summary(run) or "no hosts"
    return f"{counts}; baselines: {', '.join(run.baselines)}" if run.baselines else counts


def _outcome(run: Run) -> str:
    """pass, fail or error. Error: something is unknown, no host was judged, or the run was
    interrupted."""
    return {0: "pass", 1: "fail"}.get(run.state_code, "error")


def _severity(outcome: str, failing: list[Line]) -> str:
    if outcome != "fail":
        return "info" if outcome == "pass" else "unknown"
    ranks = [line.severity for line in failing if line.label == "FAIL"]
    return max(ranks, key=lambda severity: severity.rank, default=Severity.CRITICAL).value


def _fitting(failing: list[Line]) -> list[dict[str, str]]:
    """The first findings, as many as fit into the file."""
    room = LARGEST - LONGEST - ROOM
    findings = []
    for line in islice(failing, MOST_FINDINGS):
        finding = _finding(line)
        room -= len(_text(finding).encode()) + 1
        if room < 0:
            break
        findings.append(finding)
    return findings


def _finding(line: Line) -> dict[str, str]:
    label = "" if line.label == "FAIL" else line.label.lower()
    parts = (label, line.what, line.subjects, nodeset(line.hosts), line.note)
    name = _short(line.check, LONGEST_NAME) or "visit"
    return {"name": name, "message": _short(" ".join(filter(None, parts)), LONGEST)}


def _short(text: str, room: int) -> str:
    """One line, at most `room` bytes long."""
    encoded = plain(text).encode("utf-8", "replace")
    if len(encoded) <= room:
        return encoded.decode()
    return encoded[: room - len(CUT)].decode("utf-8", "ignore") + CUT


def _text(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
