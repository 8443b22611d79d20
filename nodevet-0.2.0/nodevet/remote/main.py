"""Answers one request on a node (nodevet.remote.request).

The answer is one frame: the evidence document for `probe`, else an object with `result`, or with
`error`, a sentence.
"""

import gc
import importlib
import json
import os
import signal
import zlib

from nodevet.remote.digest import sha256
from nodevet.remote.lifetime import NobodyReads
from nodevet.remote.probe.files import reason
from nodevet.remote.request import Refused, RequestError, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, BinaryIO, NoReturn

FAST = 1  # of zlib: evidence shrinks to a tenth, in a quarter of the time that 6 takes
GARBAGE = 1 << 16  # new objects between two searches for cycles, of which there are hardly any
REQUEST_SECONDS = 60  # until the request has arrived
MODULES = {
    "probe": "nodevet.remote.probe.main",
    "look": "nodevet.remote.look",
    "managers": "nodevet.remote.managers.search",
    "agents": "nodevet.remote.managers.agents",
    "lock": "nodevet.remote.lock",
}


def frame(text: bytes, nonce: str, packed: bool = False) -> bytes:
    """The answer with its length and SHA-256, which reveal noise and truncation.

    packed: compressed with zlib, which the head says by NODEVETZ.
    """
    if packed:
        text = zlib.compress(text, FAST)
    digest = sha256(text).hexdigest()
    word = "NODEVETZ" if packed else "NODEVET"
    head = "\n\x1e{} {} {} {}\n".format(word, nonce, len(text), digest)
    return head.encode("ascii") + text + b"\n"


def keep_standard_descriptors() -> None:
    """Open 0, 1 and 2 if they are closed, so that no pipe gets their numbers."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def complain(text: str) -> None:
    """Print a sentence on stderr."""
    os.write(2, "nodevet: {}\n".format(text).encode("ascii", "backslashreplace"))


def answer_document(request: "dict[str, Any]", module: "ModuleType") -> "Any":
    """The document that answers a request. Raises RequestError."""
    command = request["do"]
    try:
        result = getattr(module, command)(request)
    except Refused as error:
        return {"error": str(error)}
    return result if command == "probe" else {"result": result}


def answer(stdin: "BinaryIO", stdout: "BinaryIO") -> int:
    """Read a request and answer it; returns the exit code: see `serve`."""
    signal.alarm(REQUEST_SECONDS)
    try:
        request = receive(stdin)
        # should this process itself hang, it must not stay on the node
        signal.setitimer(signal.ITIMER_REAL, request["deadline"] + 10)
        request["answer_to"] = stdout.fileno()
        module = importlib.import_module(MODULES[request["do"]])
        document = answer_document(request, module)
    except RequestError as error:
        complain("the request is not valid: {}".format(error))
        return 2
    except NobodyReads:
        complain("the answer cannot be written: EPIPE")
        return 1
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    try:
        stdout.write(frame(text.encode("ascii"), request["nonce"], request["packed"]))
        stdout.flush()
    except OSError as error:
        complain("the answer cannot be written: " + reason(error))
        return 1
    if request["do"] == "lock" and "result" in document:
        signal.setitimer(signal.ITIMER_REAL, 0)
        module.keep(stdin.fileno(), stdout.fileno())
    return 0


def serve(stdin: "BinaryIO", stdout: "BinaryIO") -> "NoReturn":
    """Answer one request and end this process.

    Exit codes: 0 answered; 1 internal error, or the answer cannot be written; 2 the request
    is not valid.
    """
    code = 1
    gc.set_threshold(GARBAGE)
    try:
        keep_standard_descriptors()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        code = answer(stdin, stdout)
    except Exception as error:  # no traceback on the node
        complain("{}: {}".format(type(error).__name__, error))
    finally:
        os._exit(code)
