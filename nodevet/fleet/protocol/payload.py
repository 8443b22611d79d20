"""The program that nodevet sends to a node. Pure.

The payload is what a request needs of `nodevet.remote` and pynvml, compressed, as source and as the
code that this Python made of it. On the node Python imports it from memory: nothing is installed
there. Python of the same version runs the code, any other compiles the source.
"""

import marshal
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER, find_spec
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any

import nodevet
from nodevet.fleet.protocol.slim import compiled, slim, words

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
COLLECTORS = f"{PROBE}.collectors."
ASKED = "\nASKED = True\n"
"""Declares a collector that runs only on request; all that a node gets of it without one."""

_WORD = re.compile(r"\w+")
_IMPORT = re.compile(r"from (nodevet[\w.]*) import (\([\w\s,]*\)|[\w, ]*)")

FAST = 4  # of zlib: half the time of 6, and 4 % more bytes
TOO_OLD = 98
"""Exit code of a node whose Python is older than the probe's syntax."""

GUARD = f"""
import sys
if sys.version_info < (3, 6):
    sys.stderr.write("Python %d.%d on the node; the probe needs 3.6\\n" % sys.version_info[:2])
    sys.exit({TOO_OLD})
"""

UNPACK = """
import importlib, marshal
kind = sys.implementation.cache_tag, importlib._bootstrap_external.MAGIC_NUMBER
if kind == (%r, %r):
    MODULES = marshal.loads(zlib.decompress(z.unused_data[:%d]))
else:
    words = zlib.decompress(z.unused_data[%d:]).decode().split("\\0")
    MODULES = dict(zip(words[::2], words[1::2]))
"""
"""Reads the modules behind the program: code, or names and sources in turn, which Python would take
longer to parse as a literal. `z` and `zlib` are BOOT's."""

LOADER = """
from importlib.machinery import ModuleSpec
MARK = "nodevet payload "
PACKAGES = {name.rpartition(".")[0] for name in MODULES}
class Sources(object):
    def __init__(self, path):
        if not path.startswith(MARK):
            raise ImportError(path)
        self.package = path[len(MARK):]
    def find_spec(self, name, path=None, target=None):
        if name not in MODULES:
            return None
        spec = ModuleSpec(name, self, is_package=self.is_package(name))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(MARK + name + ".")
        return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)
    def is_package(self, name):
        return name in PACKAGES
    def get_code(self, name):
        code = MODULES[name]
        if isinstance(code, str):
            code = MODULES[name] = compile(code, "<string>", "exec")
        return marshal.loads(code) if isinstance(code, bytes) else code
    def iter_modules(self, prefix=""):
        for name in MODULES:
            last = name[len(self.package):]
            if name.startswith(self.package) and last and "." not in last:
                yield prefix + last, self.is_package(name)
sys.dont_write_bytecode = True
sys.path_hooks.insert(0, Sources)
sys.meta_path.insert(0, Sources(MARK))
"""
"""Serves MODULES from memory, also to pkgutil. It avoids importlib.abc, which
imports more than the whole probe."""

SERVE = """
from nodevet.remote import main
main.serve(sys.stdin.buffer, sys.stdout.buffer)
"""


@cache
def payload(program: str = PROBE) -> bytes:
    """The compressed program after its length, as `BOOT` reads it.

    `program`: PROBE answers only `probe`, REMOTE everything else; see nodevet.remote.request.
    """
    return pack(sources(program), SERVE)


def probe_payload(sections: Sequence[str], asks: Iterable[Mapping[str, Sequence[Any]]]) -> bytes:
    """The payload for requests with these sections, and with any of these `asks`."""
    asked = (section for ask in asks for section, names in ask.items() if names)
    return _probe_payload(tuple(sections), frozenset(asked))


@cache
def _probe_payload(sections: tuple[str, ...], asked: frozenset[str]) -> bytes:
    return pack(sources(PROBE, sections, asked), SERVE)


def sources(
    program: str, sections: Collection[str] = (), asked: Collection[str] | None = None
) -> dict[str, str]:
    """The modules of a program, by name. `sections`: that it can read; none: all. `asked`: those of
    them that it reads only on request, which it gets; None: all."""
    if program == PROBE:
        every = dict(modules(REMOTE, FOLDER, NOT_IN_PROBE))
        collectors = {name.removeprefix(COLLECTORS) for name in every if COLLECTORS in name}
        for name in collectors:
            if asked is not None and name not in asked and ASKED in every[COLLECTORS + name]:
                every[COLLECTORS + name] = ASKED
        roots = [PROBE_MAIN, *(COLLECTORS + name for name in sections or collectors)]
    else:
        every = dict(modules(REMOTE, FOLDER, (PROBE_MAIN,)))
        roots = [name for name in every if name.startswith(NOT_IN_PROBE)]
    remote = imported(every, [f"{REMOTE}.main", *roots])
    return {"nodevet": "", "pynvml": slim(_pynvml(), words(remote.values())), **remote}


def pack(sources: Mapping[str, str], main: str) -> bytes:
    """These modules and the program `main`, compressed, as `BOOT` reads them."""
    code = {name: _code(name, source) or source for name, source in sources.items()}
    packed = zlib.compress(marshal.dumps(code), FAST)
    unpack = UNPACK % (sys.implementation.cache_tag, MAGIC_NUMBER, len(packed), len(packed))
    packed = zlib.compress(f"{GUARD}{unpack}{LOADER}{main}".encode()) + packed
    packed += zlib.compress("\0".join(chain.from_iterable(sources.items())).encode(), FAST)
    return b"%d\n%s" % (len(packed), packed)


def _code(name: str, source: str) -> bytes | None:
    """The marshalled code of a module; None if it has none: the node reports why."""
    spec = find_spec(name)
    loader: Any = spec.loader if spec else None
    is_installed = loader is not None and loader.get_source(name) == source
    code = loader.get_code(name) if is_installed else compiled(source)  # Python may have stored it
    return code and marshal.dumps(bare(code))


def bare(code: CodeType) -> CodeType:
    """Code without its lines, which only a traceback shows: two fifths of the payload."""
    consts = tuple(
        bare(const) if isinstance(const, CodeType) else const for const in code.co_consts
    )
    return code.replace(co_filename="", co_linetable=b"", co_consts=consts)


def imported(sources: Mapping[str, str], roots: Iterable[str]) -> dict[str, str]:
    """The modules `roots`, and all that these import."""
    queue, names = list(roots), set()
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
