"""A request to nodevet on a node: one line of JSON, read and checked only here.

nonce; do, one of COMMANDS; root (/); deadline in seconds (30); packed (false): compress the
answer; whole_machine (false): if true, NVML, the clock and every process are the machine's, even in
a container or below another root.
probe: sections (all), asks ({section: names, or objects}), asked_s (the controller's clock), probe
(a version), sample (0): read counters again after this many seconds, which `deadline` includes.
look, managers: resources [{kind, name}]. agents: nothing. lock: who, token.
"""

import json
import math
import time

from nodevet.remote.probe.files import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

COMMANDS = ("probe", "look", "managers", "agents", "lock")
FLAGS = ("packed", "whole_machine")
LIMIT = 1 << 20  # bytes
DEADLINE = 30.0  # seconds
LONGEST = 3600.0
LONGEST_SAMPLE = 1800.0
MOST_ASKS = 500  # names and objects, of all sections together
NAME = 256  # characters of a name
MOST_RESOURCES = 4096
TEXT = 4096  # characters of a kind or a name


class RequestError(Exception):
    """The request is not valid; the message says why."""


class Refused(Exception):  # noqa: N818
    """The request cannot be answered on this node; the message says why."""


def receive(stdin: "BinaryIO") -> "dict[str, Any]":
    """The checked request, with arrived_s, this machine's time. Raises RequestError."""
    line = stdin.readline(LIMIT)
    if not line.endswith(b"\n"):
        raise RequestError("truncated, or longer than {} MiB".format(LIMIT >> 20))
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError("not JSON: " + reason(error))
    request = checked_request(request)
    request["arrived_s"] = time.time()
    return request


def checked_request(request: object) -> "dict[str, Any]":
    """The request with its defaults. Raises RequestError."""
    if not isinstance(request, dict):
        raise RequestError("not a JSON object")
    if request.get("do") not in COMMANDS:
        raise RequestError("`do` is not one of: " + ", ".join(COMMANDS))
    nonce = request.get("nonce", "")
    if not isinstance(nonce, str) or not all("!" <= letter <= "~" for letter in nonce):
        raise RequestError("nonce is not one word of ASCII")
    root = request.get("root", "/")
    if not isinstance(root, str) or not root.startswith("/") or "\0" in root:
        raise RequestError("root is not an absolute path")
    flags = {name: request.get(name, False) for name in FLAGS}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise RequestError(name + " is neither true nor false")
    return dict(
        request,
        nonce=nonce,
        root=root,
        deadline=checked_deadline(request.get("deadline", DEADLINE)),
        sample=checked_sample(request.get("sample", 0.0)),
        asks=checked_asks(request.get("asks", {})),
        resources=checked_resources(request.get("resources", [])),
        **flags,
    )


def checked_deadline(value: object) -> float:
    """The deadline in seconds. Raises RequestError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError("deadline is not a number of seconds")
    if not math.isfinite(value) or not 0 < value <= LONGEST:
        raise RequestError("deadline is not between 0 and {:g} s".format(LONGEST))
    return float(value)


def checked_sample(value: object) -> float:
    """Seconds between two readings of counters. Raises RequestError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError("sample is not a number of seconds")
    if not math.isfinite(value) or not 0 <= value <= LONGEST_SAMPLE:
        raise RequestError("sample is not between 0 and {:g} s".format(LONGEST_SAMPLE))
    return float(value)


def checked_asks(asks: object) -> "dict[str, list[Any]]":
    """{section: names and objects that a baseline asks for}. Raises RequestError."""
    if not isinstance(asks, dict) or not all(isinstance(part, list) for part in asks.values()):
        raise RequestError("asks is not an object of lists")
    items = [item for part in asks.values() for item in part]
    if not all(isinstance(item, dict) or is_name(item) for item in items):
        raise RequestError("asks holds something that is not a valid name")
    if len(items) > MOST_ASKS:
        raise RequestError("asks holds more than {} names".format(MOST_ASKS))
    return asks


def is_name(item: object) -> bool:
    return isinstance(item, str) and len(item) <= NAME


def checked_resources(resources: object) -> "list[dict[str, str]]":
    """[{kind, name}] of the resources. Raises RequestError."""
    if not isinstance(resources, list) or len(resources) > MOST_RESOURCES:
        raise RequestError("resources is not a list of at most {}".format(MOST_RESOURCES))
    for resource in resources:
        for key in ("kind", "name"):
            value = resource.get(key) if isinstance(resource, dict) else None
            if not isinstance(value, str) or not 0 < len(value) <= TEXT or "\0" in value:
                raise RequestError("a resource has no valid {}".format(key))
    return resources
