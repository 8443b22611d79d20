"""Types are decoded by several threads, and nowhere but through nodevet.base.typed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]

RACE = """
import sys, threading
import msgspec
from nodevet.base import typed
sys.setswitchinterval(1e-6)
kind = int
for number in range(30):
    fields = [(f"f{place}", kind | None, None) for place in range(20)]
    kind = msgspec.defstruct(f"S{number}", fields)
text = b'{"f1": ' * 20 + b"{}" + b"}" * 20
start = threading.Barrier(4)
def work():
    start.wait()
    for _ in range(20):
        DECODE
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("whole")
"""


def crashes(decode: str, times: int) -> int:
    """How many of so many processes end by a signal."""
    words = [sys.executable, "-c", RACE.replace("DECODE", decode)]
    done = [subprocess.run(words, capture_output=True, text=True, cwd=TOP) for _ in range(times)]
    assert all(one.stdout == "whole\n" for one in done if one.returncode == 0), done
    assert all(one.returncode <= 0 for one in done), done
    return sum(one.returncode < 0 for one in done)


def test_two_threads_may_decode_a_type_for_the_first_time() -> None:
    assert crashes("typed.decode(text, kind)", 6) == 0
    assert crashes("typed.convert({'f1': {'f1': {}}}, kind)", 6) == 0


def test_no_module_makes_decoders_of_its_own() -> None:
    calls = [
        f"{path.relative_to(TOP)}:{line}"
        for folder in ("nodevet", "checks", "fixes", "sim/nodevet_sim")
        for path in (TOP / folder).rglob("*.py")
        if path != TOP / "nodevet" / "base" / "typed.py"
        for line in _typed_calls(ast.parse(path.read_text()))
    ]
    assert calls == [], "by nodevet.base.typed"


def _typed_calls(tree: ast.AST) -> Iterator[int]:
    """The lines where msgspec is called to decode, or to convert, as a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("msgspec.convert", "msgspec.json.Decoder") or (
                name == "msgspec.json.decode" and node.keywords
            ):
                yield node.lineno
