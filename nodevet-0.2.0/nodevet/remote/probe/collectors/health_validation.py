"""The verdict of NVIDIA Health Validation on this node, only if a baseline asks for it.

Runs `health-validation run`, which prints one JSON document and changes nothing. Its schema is not
public: nodevet reads the exit code and `overall_severity`, and nothing else.
"""

import json
import re

from nodevet.remote.probe.files import Reading, SectionError, quote, reason
from nodevet.remote.program import find_program, run_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
SECONDS = 45
OUTPUT = 4 << 20  # bytes
SEVERITY = re.compile("[A-Za-z_]{1,40}")


def parse_severity(text: str) -> str:
    """
    >>> parse_severity('{"overall_severity": "CRITICAL", "verdicts": []}')
    'CRITICAL'
    """
    try:
        severity = json.loads(text)["overall_severity"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("no JSON document with overall_severity")
    if not isinstance(severity, str) or not SEVERITY.fullmatch(severity):
        raise ValueError("overall_severity is not a word")
    return severity


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    if root != "/":
        raise SectionError("health-validation is run on a running machine only")
    argv = (find_program("health-validation"), "run")
    code, text, stderr = run_alone(argv, SECONDS, OUTPUT)
    section = Reading(exit_code=code)
    try:
        section["overall_severity"] = parse_severity(text)
    except ValueError as error:
        said = ": {}".format(quote(" ".join(stderr.split()))) if stderr else ""
        section.fail_all(("overall_severity",), "health-validation: " + reason(error) + said)
    return section
