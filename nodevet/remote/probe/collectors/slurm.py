"""This node in Slurm's controller, only if a baseline asks for it.

It runs `scontrol show node -o NAME` once: the controller answers from memory, but a sweep over
thousands of nodes is thousands of requests. `self` is this machine's short host name.
"""

from nodevet.remote.probe.files import Absent, Reading, SectionError, line, quote, text_lines
from nodevet.remote.probe.patterns import Pattern
from nodevet.remote.program import find_program, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
SELF = "self"
NAME = Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,250}\Z")
KEY = Pattern(r"(?:^| )([A-Z][A-Za-z]{1,40})=")
GPUS = Pattern(r"(?:^|,)gres/gpu=([0-9]{1,4})(?:,|\Z)")
SECONDS = 12
OUTPUT = 1 << 18  # bytes
FIELDS = ("state", "reason", "gpus")


def parse_node(text: str) -> "dict[str, str]":
    """{key: value} of one row of `scontrol show node -o`; a value may hold spaces. What people
    write (Reason, Comment, Extra) comes last, and sets no other key.

    >>> parse_node("NodeName=a State=IDLE+DRAIN Reason=bad GPU 3 [root@now] Comment=State=x")
    {'NodeName': 'a', 'State': 'IDLE+DRAIN', 'Reason': 'bad GPU 3 [root@now]'}
    """
    parts = KEY.split(text.strip())
    values = {}
    for key, value in zip(parts[1::2], parts[2::2]):
        if key in ("Comment", "Extra"):
            break
        values[key] = value.strip()
        if key == "Reason":
            break
    return values


def node(name: str) -> "Reading":
    """The record of a node in scontrol. Raises SectionError."""
    argv = (find_program("scontrol"), "show", "node", "-o", name)
    code, text, stderr = run(argv, SECONDS, OUTPUT)
    if code:
        message = " ".join((stderr or text).split())
        raise SectionError("scontrol ended with {}: {}".format(code, quote(message)))
    rows = [parse_node(row) for row in text_lines(text) if row.startswith("NodeName=")]
    if len(rows) != 1 or rows[0].get("NodeName") != name:
        raise SectionError("scontrol answered for {} nodes, none or another one".format(len(rows)))
    record = Reading(reason=rows[0].get("Reason", "")[:1000])
    record.put("state", rows[0].get("State", "")[:200] or None, "scontrol does not say it")
    gpus = GPUS.search(rows[0].get("CfgTRES", ""))
    record["gpus"] = int(gpus.group(1)) if gpus else 0
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    requested = sorted(set(request.get("asks", {}).get("slurm", ())))
    if root != "/":
        raise Absent("scontrol is run on a running machine only")
    records = []
    for asked_name in requested:
        record = Reading(name=asked_name)
        try:
            name = asked_name
            if name == SELF:
                name = line(root, "/proc/sys/kernel/hostname").split(".", 1)[0]
            if not NAME.match(name):
                raise SectionError("not a valid node name")
            record["node"] = name
            record.update(node(name))
        except SectionError as error:
            record.setdefault("node", "")
            record.fail_all(FIELDS, str(error))
        records.append(record)
    return Reading(nodes=records)
