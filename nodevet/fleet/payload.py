"""The program that is sent to a node, and the reading of its framed answer. Pure.

The payload is the source of `nodevet.probe` and pynvml, compressed. On the node
it is served to Python's import system from memory: nothing is installed there.
"""

import hashlib
import json
import re
import zlib
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import nodevet

BOOT = (
    "import sys,zlib;b=sys.stdin.buffer;n=int(b.readline());"
    "exec(compile(zlib.decompress(b.read(n)),'nodevet','exec'))"
)
"""What `python3 -I -c` runs on the node: reads and runs the rest from stdin."""

LOADER = '''
import importlib.abc, importlib.util, sys
class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def __init__(self, sources):
        self.sources = sources
    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            return importlib.util.spec_from_loader(name, self, is_package=self.is_package(name))
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in self.sources)
    def get_source(self, name):
        return self.sources[name]
sys.dont_write_bytecode = True
sys.meta_path.insert(0, Sources(SOURCES))
from nodevet.probe import main
main.serve(sys.stdin.buffer, sys.stdout.buffer)
'''


class AnswerError(Exception):
    """The node's output holds no whole answer; the message says what is wrong with it."""


@cache
def payload() -> bytes:
    """The compressed program, with its length in front, as `BOOT` reads it."""
    sources = {"nodevet": "", "pynvml": _pynvml()}
    for entry in files("nodevet.probe").iterdir():
        if entry.name.endswith(".py"):
            stem = entry.name[:-3]
            name = "nodevet.probe" if stem == "__init__" else f"nodevet.probe.{stem}"
            sources[name] = entry.read_text(encoding="utf-8")
    program = f"SOURCES = {sources!r}\n{LOADER}"
    packed = zlib.compress(program.encode(), 9)
    return b"%d\n%s" % (len(packed), packed)


def _pynvml() -> str:
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pynvml is not installed: pip install nvidia-ml-py")
    return Path(spec.origin).read_text(encoding="utf-8")


def request(*, nonce: str, root: str, deadline: float) -> bytes:
    """What the probe is asked for, as JSON."""
    wish = {"nonce": nonce, "root": root, "deadline": deadline, "probe": nodevet.__version__}
    return json.dumps(wish).encode()


def unframe(output: bytes, nonce: str) -> bytes:
    """The evidence document in a node's output, whatever noise is around it.

    Raises AnswerError where it is missing, cut short or altered.
    """
    head = re.search(rb"\x1eNODEVET %s (\d{1,9}) ([0-9a-f]{64})\n" % re.escape(nonce.encode()), output)
    if head is None:
        raise AnswerError("the answer holds no evidence")
    length = int(head[1])
    text = output[head.end() : head.end() + length]
    if len(text) < length:
        raise AnswerError(f"the answer is cut short: {len(text)} of {length} bytes")
    if hashlib.sha256(text).hexdigest().encode() != head[2]:
        raise AnswerError("the answer was altered on the way: its SHA-256 differs")
    return text
