"""Answers one request about a node: how resources are, who else sets them, a lock.

The request is one line of JSON: nonce, do (look, managers, lock), deadline in seconds,
and what `do` takes: touches [{kind, name}], who. The answer is framed as the probe's: an
object with `result`, or with `error`, a sentence.
"""

import importlib
import json
import signal

from nodevet.remote.probe import main
from nodevet.remote.probe.files import reason
from nodevet.remote.probe.main import (
    REQUEST_LIMIT,
    REQUEST_SECONDS,
    RequestError,
    frame,
    number_of_seconds,
)

PROGRAM = "hand"

TOUCHES = 4096
TEXT = 4096  # characters of a kind, a name, or of who
MODULES = {
    "look": "nodevet.remote.state.look",
    "managers": "nodevet.remote.managers.search",
    "lock": "nodevet.remote.lock",
}
DOES = tuple(MODULES)


class Refused(Exception):  # noqa: N818
    """The request cannot be answered on this node; the message says why."""


def receive(stdin):
    """The request, as a dict. Raises RequestError."""
    line = stdin.readline(REQUEST_LIMIT)
    if not line.endswith(b"\n"):
        raise RequestError("cut short")
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError("not JSON: " + reason(error))
    if not isinstance(request, dict) or request.get("do") not in DOES:
        raise RequestError("`do` is not among: " + ", ".join(DOES))
    nonce = request.get("nonce", "")
    if not isinstance(nonce, str) or not all("!" <= letter <= "~" for letter in nonce):
        raise RequestError("nonce is not one word of ASCII")
    root = request.setdefault("root", "/")
    if not isinstance(root, str) or not root.startswith("/") or "\0" in root:
        raise RequestError("root is not an absolute path")
    check_touches(request.setdefault("resources", []))
    return request


def check_touches(resources):
    """Raises RequestError."""
    if not isinstance(resources, list) or len(resources) > TOUCHES:
        raise RequestError("touches is not a list of at most {}".format(TOUCHES))
    for resource in resources:
        for key in ("kind", "name"):
            value = resource.get(key) if isinstance(resource, dict) else None
            if not isinstance(value, str) or not 0 < len(value) <= TEXT or "\0" in value:
                raise RequestError("a touch has no usable {}".format(key))


def write(stdout, request, document):
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    stdout.write(frame(text.encode("ascii"), request["nonce"]))
    stdout.flush()


def answer(stdin, stdout):
    """Read a request and answer it; returns an exit code as `serve` has it."""
    signal.alarm(REQUEST_SECONDS)
    try:
        request = receive(stdin)
        seconds = number_of_seconds(request.get("deadline"))
    except RequestError as error:
        main.complain("the request is not valid: {}".format(error), PROGRAM)
        return 2
    # should this process itself hang, it must not stay on the node
    signal.setitimer(signal.ITIMER_REAL, seconds + 10)
    module = importlib.import_module(MODULES[request["do"]])
    try:
        result = getattr(module, request["do"])(request)
    except Refused as error:
        write(stdout, request, {"error": str(error)})
        return 0
    write(stdout, request, {"result": result})
    if request["do"] == "lock":
        signal.setitimer(signal.ITIMER_REAL, 0)
        module.keep(stdin.fileno(), stdout.fileno())
    return 0


def serve(stdin, stdout):
    """As the probe's: answer one request and end this process."""
    main.serve(stdin, stdout, answer, PROGRAM)
