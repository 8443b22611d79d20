"""Output and exit codes of a custom plug-in for Kubernetes' node-problem-detector.

The output is one line. node-problem-detector keeps 80 bytes of it (`max_output_length`). It reads
exit code 0 as no problem, 1 as a problem, and others as unknown, unlike Nagios.
"""

from collections.abc import Iterator

from nodevet.base.printable import plain
from nodevet.model import Run
from nodevet.sheet.text import nodeset
from nodevet.vet.findings.fold import Line, lines

ROOM = 80  # bytes
OK, PROBLEM, UNKNOWN = 0, 1, 2
CUT = "..."


def exit_code(run: Run) -> int:
    """0 no problem, 1 a problem, 2 unknown. A run without hosts is unknown, and so is an
    interrupted run without a failure."""
    return {0: OK, 1: PROBLEM}.get(run.state_code, UNKNOWN)


def pieces(run: Run) -> Iterator[str]:
    yield f"{_short(_sentence(run, exit_code(run)))}\n"


def _sentence(run: Run, code: int) -> str:
    """The text that becomes the message of the condition."""
    if code == OK:
        return f"as {', '.join(run.baselines) or 'the baseline'} expects"
    shown = [line for line in lines(run) if line.fails]
    if not shown:
        return "nothing was judged"
    more = f" +{len(shown) - 1}" if len(shown) > 1 else ""
    return (
        f"{_short(_difference(shown[0], several=len(run.summaries) > 1), ROOM - len(more))}{more}"
    )


def _difference(line: Line, *, several: bool) -> str:
    where = (nodeset(line.hosts) if several else "", line.subjects)
    label = "" if line.label == "FAIL" else line.label.lower()
    return " ".join(part for part in (label, line.check, line.what, *where) if part)


def _short(text: str, room: int = ROOM) -> str:
    """One line of ASCII, at most `room` bytes long."""
    ascii_text = plain(text).encode("ascii", "replace").decode()
    return ascii_text if len(ascii_text) <= room else ascii_text[: room - len(CUT)] + CUT
