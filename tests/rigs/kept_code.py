"""A layer below simulated nodes, whose python3 does not compile nodevet's programs each time.

A node's python3 spends more than half of a probe on compiling the same text again. With this layer
its `compile` takes the code of a text from a folder, which the same python3 made; any other text is
compiled as ever. The nodes of the demo, of the pages, and of `boot(..., plain=True)` have the
python3 of this machine as it is.
"""

import marshal
import subprocess
from pathlib import Path

from nodevet.fleet.protocol.payload import PROBE, REMOTE, sources

PYTHON = "/usr/bin/python3"
FOLDER = "/usr/lib/nodevet-sim-code"
KEPT = f"""

def _keep_code():
    import builtins

    compile_text = builtins.compile

    def compile(source, filename, mode, *rest, **named):
        if (filename, mode, type(source)) == ("<string>", "exec", str) and not rest and not named:
            import marshal
            import zlib

            text = source.encode()
            name = "%d-%08x-%08x" % (len(text), zlib.crc32(text), zlib.adler32(text))
            try:
                with open("{FOLDER}/" + name, "rb") as file:
                    return marshal.load(file)
            except FileNotFoundError:
                pass
        return compile_text(source, filename, mode, *rest, **named)

    builtins.compile = compile


_keep_code()
"""
WRITE = """
import marshal, py_compile, sys, zlib
from encodings import __file__ as path
folder, kept, texts = marshal.load(sys.stdin.buffer)
for source in texts:
    text = source.encode()
    name = "%d-%08x-%08x" % (len(text), zlib.crc32(text), zlib.adler32(text))
    with open(folder + "/" + name, "wb") as file:
        marshal.dump(compile(source, "<string>", "exec"), file)
with open(path) as file:
    print(path, file.read() + kept, sep="\\n", end="")
"""
COMPILE = "import py_compile, sys; py_compile.compile(sys.argv[1], dfile=sys.argv[2], doraise=True)"


def write_layer(layer: Path) -> None:
    """Fill the layer."""
    folder = inside(layer, FOLDER)
    folder.mkdir(parents=True)
    texts = [*sources(PROBE).values(), *sources(REMOTE).values()]
    done = subprocess.run(
        [PYTHON, "-I", "-S", "-c", WRITE],
        input=marshal.dumps((str(folder), KEPT, texts)),
        capture_output=True,
        check=True,
    )
    path, _, text = done.stdout.decode().partition("\n")
    module = inside(layer, path)
    module.parent.mkdir(parents=True)
    module.write_text(text, encoding="utf-8")
    subprocess.run([PYTHON, "-I", "-c", COMPILE, module, path], check=True)
    for place in (layer, *(place for place in layer.rglob("*") if place.is_dir())):
        place.chmod(0o755)  # the folders are seen in place of those below


def inside(layer: Path, path: str) -> Path:
    return layer / path.lstrip("/")
