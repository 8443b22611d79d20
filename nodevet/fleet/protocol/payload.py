"""The program that nodevet sends to a node, and the reader of its framed answer. Pure.

The payload is the compressed source of `nodevet.remote` and pynvml. On the node Python imports it
from memory: nothing is installed there.
"""

import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import nodevet
from nodevet.fleet.protocol.slim import slim, words
from nodevet.remote import digest

BOOT = (
    "import sys,zlib;b=sys.stdin.buffer;z=zlib.decompressobj();"
    "exec(z.decompress(b.read(int(b.readline()))))"
)
"""The program of `python3 -I -S -c` on the node: it reads the payload from stdin and runs it.

It has no quotes, so that it can stand inside any shell's quotes.
"""

PROBE = "nodevet.remote.probe"
REMOTE = "nodevet.remote"
FOLDER = Path(nodevet.__file__).parent / "remote"
FOR_FIXES = ("end_process", "fence", "lock", "look", "managers", "state")
NOT_IN_PROBE = tuple(f"{REMOTE}.{name}" for name in FOR_FIXES)
"""Modules that a probe does not need."""
PROBE_MAIN = f"{PROBE}.main"
"""The module from which on a probe needs its collectors; what answers everything else does not."""

_WORD = re.compile(r"\w+")
_IMPORT = re.compile(r"from (nodevet[\w.]*) import (\([\w\s,]*\)|[\w, ]*)")
_HEAD = re.compile(rb"\x1eNODEVET(Z?) ([!-~]{1,64}) (\d{1,9}) ([0-9a-f]{64})\n")
_HEAD_LENGTH = 128  # bytes; longer than any frame's head

TOO_OLD = 98
"""Exit code of a node whose Python is older than the probe's syntax."""

GUARD = f"""
import sys
if sys.version_info < (3, 6):
    sys.stderr.write("Python %d.%d on the node; the probe needs 3.6\\n" % sys.version_info[:2])
    sys.exit({TOO_OLD})
"""

UNPACK = """
words = zlib.decompress(z.unused_data).decode().split("\\0")
SOURCES = dict(zip(words[::2], words[1::2]))
"""
"""Reads the modules behind the program, names and sources in turn: Python would take longer to
parse them as a literal. `z` and `zlib` are BOOT's."""

LOADER = """
import sys
from importlib.machinery import ModuleSpec
MARK = "nodevet payload "
PACKAGES = {name.rpartition(".")[0] for name in SOURCES}
class Sources(object):
    def __init__(self, path):
        if not path.startswith(MARK):
            raise ImportError(path)
        self.package = path[len(MARK):]
    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        spec = ModuleSpec(name, self, is_package=self.is_package(name))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(MARK + name + ".")
        return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__], "<string>", "exec"), module.__dict__)
    def is_package(self, name):
        return name in PACKAGES
    def get_source(self, name):
        return SOURCES[name]
    def iter_modules(self, prefix=""):
        for name in SOURCES:
            last = name[len(self.package):]
            if name.startswith(self.package) and last and "." not in last:
                yield prefix + last, self.is_package(name)
sys.dont_write_bytecode = True
sys.path_hooks.insert(0, Sources)
sys.meta_path.insert(0, Sources(MARK))
"""
"""Serves the modules in SOURCES from memory, also to pkgutil. It avoids importlib.abc, which
imports more than the whole probe."""

SERVE = """
from nodevet.remote import main
main.serve(sys.stdin.buffer, sys.stdout.buffer)
"""


class AnswerError(Exception):
    """The node's output has no complete answer; the message says what is missing."""


@cache
def payload(program: str = PROBE) -> bytes:
    """The compressed program after its length, as `BOOT` reads it.

    `program`: PROBE answers only `probe`, REMOTE everything else; see nodevet.remote.request.
    """
    return pack(sources(program), SERVE)


def sources(program: str) -> dict[str, str]:
    """The modules of a program, by name."""
    if program == PROBE:
        remote = dict(modules(REMOTE, FOLDER, NOT_IN_PROBE))
    else:
        remote = imported(dict(modules(REMOTE, FOLDER, (PROBE_MAIN,))), NOT_IN_PROBE)
    return {"nodevet": "", "pynvml": slim(_pynvml(), words(remote.values())), **remote}


def pack(sources: Mapping[str, str], main: str) -> bytes:
    """These modules and the program `main`, compressed, as `BOOT` reads them."""
    modules = "\0".join(chain.from_iterable(sources.items()))
    parts = (f"{GUARD}{UNPACK}{LOADER}{main}", modules)
    packed = b"".join(zlib.compress(part.encode()) for part in parts)
    return b"%d\n%s" % (len(packed), packed)


def imported(sources: Mapping[str, str], roots: tuple[str, ...]) -> dict[str, str]:
    """The modules whose names begin with one of `roots`, nodevet.remote.main, and all that these
    import."""
    queue = [name for name in sources if name.startswith((*roots, f"{REMOTE}.main"))]
    names = set()
    while queue:
        name = queue.pop()
        if name in names or name not in sources:
            continue
        names.add(name)
        queue.append(name.rpartition(".")[0])
        for package, parts in _IMPORT.findall(sources[name]):
            queue += [package, *(f"{package}.{word}" for word in _WORD.findall(parts))]
    return {name: source for name, source in sources.items() if name in names}


def modules(package: str, folder: Path, without: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every module of a package in `folder` and below, with its source; imports none.

    `without`: prefixes of names to leave out.
    """
    for entry in sorted(folder.iterdir()):
        name = package if entry.stem == "__init__" else f"{package}.{entry.stem}"
        if name.startswith(without):
            continue
        if entry.suffix == ".py":
            yield name, entry.read_text(encoding="utf-8")
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from modules(name, entry, without)


@cache
def fence() -> str:
    """The program of nodevet.remote.fence, for `python3 -c`, without its docstring."""
    text = (FOLDER / "fence.py").read_text(encoding="utf-8")
    return text.split('"""\n\n', 1)[1]


def _pynvml() -> str:
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pynvml is not installed: pip install nvidia-ml-py")
    return Path(spec.origin).read_text(encoding="utf-8")


def request(
    *,
    nonce: str,
    root: str,
    whole_machine: bool = False,
    deadline: float,
    asked_s: float | None,
    sample: float = 0.0,
    asks: Mapping[str, Sequence[Any]] | None = None,
    sections: Sequence[str] = (),
    packed: bool = False,
) -> bytes:
    """A request to the probe, as one line of JSON.

    `asked_s`: this machine's time, seconds since 1970 UTC; None if the node is this machine, whose
    clock has no other one to be compared with. `whole_machine`, `sample`: see
    nodevet.remote.request. `asks`: what else to read, by section: names, or objects. `sections`:
    those to read; none: all. `packed`: the node compresses its answer.
    """
    fields = {
        "nonce": nonce,
        "do": "probe",
        "root": root,
        "whole_machine": whole_machine,
        "packed": packed,
        "deadline": deadline,
        "asked_s": asked_s,
        "sample": sample,
        "asks": {section: list(names) for section, names in (asks or {}).items()},
        "sections": list(sections),
        "probe": nodevet.__version__,
    }
    return json.dumps(fields).encode() + b"\n"


def remote_request(*, nonce: str, do: str, deadline: float, **rest: object) -> bytes:
    """A request to nodevet.remote, as one line of JSON.

    `do`: look, managers or lock; see nodevet.remote.request.
    """
    return json.dumps({"nonce": nonce, "do": do, "deadline": deadline, **rest}).encode() + b"\n"


def unframe(output: bytes, nonce: str) -> bytes:
    """The evidence document, not packed, in a node's whole output. Raises AnswerError."""
    answer = Answer(nonce, len(output))
    document = answer.take(output)
    if document is None:
        raise AnswerError(answer.missing())
    return document


class Answer:
    """A node's output so far, noise included, at most `limit` bytes."""

    def __init__(self, nonce: str, limit: int) -> None:
        self._nonce = nonce.encode()
        self._limit = limit
        self._output = bytearray()
        self._head: re.Match[bytes] | None = None
        self._start = self._end = 0

    def take(self, chunk: bytes) -> bytes | None:
        """The evidence document, once it is complete.

        Raises AnswerError if there is too much output or the document was altered.
        """
        size = len(self._output)
        self._output += chunk
        if self._head is None:
            self._search(max(0, size - _HEAD_LENGTH))
        if self._head is not None and len(self._output) >= self._end:
            return self._document(self._head)
        if len(self._output) > self._limit:
            raise AnswerError(f"more than {self._limit >> 20} MiB of output")
        return None

    def missing(self) -> str:
        """Why there is no document, after the end of the output."""
        if self._head is None:
            return "no evidence in the response"
        received, expected = len(self._output) - self._start, self._end - self._start
        return f"truncated response: {received} of {expected} bytes"

    @property
    def output(self) -> bytes:
        """The whole stdout of the node so far."""
        return bytes(self._output)

    @property
    def has_begun(self) -> bool:
        return self._head is not None

    def _search(self, start: int) -> None:
        heads = _HEAD.finditer(bytes(memoryview(self._output)[start:]))
        match = next((head for head in heads if head[2] == self._nonce), None)
        if match is not None:
            self._head = match
            self._start = start + match.end()
            self._end = self._start + int(match[3])

    def _document(self, head: re.Match[bytes]) -> bytes:
        text = bytes(memoryview(self._output)[self._start : self._end])
        if _sha256(text).encode() != head[4]:
            raise AnswerError("corrupted response: its SHA-256 differs")
        return self._unpacked(text) if head[1] else text

    def _unpacked(self, packed: bytes) -> bytes:
        """Raises AnswerError, also for an answer that unpacks to more than the limit."""
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(packed, self._limit + 1)
        except zlib.error as error:
            raise AnswerError("corrupted response: zlib cannot unpack it") from error
        if len(text) > self._limit:
            raise AnswerError(f"more than {self._limit >> 20} MiB of output")
        if not unpacking.eof or unpacking.unused_data:
            raise AnswerError("corrupted response: zlib cannot unpack it")
        return text


def _sha256(data: bytes) -> str:
    """Uses OpenSSL, which is many times as fast, if it is already loaded, as with SSH."""
    module: Any = sys.modules.get("hashlib", digest)
    return str(module.sha256(data).hexdigest())
