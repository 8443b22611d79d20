"""Whatever a file holds, loading it gives baselines or BaselineErrors, and lint never raises."""

from datetime import date
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodevet.baseline import BaselineErrors, Problem, lint, load
from nodevet.baseline.library import shipped_folder
from nodevet.checking.catalog import Catalog

CATALOG = Catalog()
QUIET = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
PIECES = [
    b"nodevet: 1\n", b"extends: generic\n", b"expect:\n", b"  gpu_count: 8\n",
    b"  pcie_link:\n", b"    width: 16\n", b"severity: {gpu_count: info}\n", b"waivers:\n",
    b"  - check: gpu_count\n", b"    until: 2026-12-31\n", b"fix: [gpu_count]\n",
    b"applies: {gpu: {device: 10de:2330}}\n", b"---\n", b"...\n", b"&a ", b"*a", b"? ", b": ",
    b"- ", b"{", b"}", b"[", b"]", b", ", b"|\n", b">-\n", b"!!", b"!", b"%YAML", b"<<: ", b"'",
    b'"', b"\\", b"\t", b"\n", b"  ", b"#", b"on", b"0777", b"550.10", b"~", b"null", b"\x00",
    b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"9" * 5000, b"x" * 300, b'"\\ud800"', b'"\\0"',
    b"1e999", b"-", b".", b"..",
]  # fmt: skip


@cache
def texts() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(shipped_folder().glob("*.yaml")))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A shipped baseline with pieces cut out, doubled or put in."""
    data = bytearray(draw(st.sampled_from(texts())))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 30)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=6)))
        data[start:end] = piece
    return bytes(data)


def loaded(path: Path) -> tuple[Problem, ...]:
    """The problems that `load` raises; none where it gives the baseline."""
    try:
        (baseline,) = load([str(path)], catalog=CATALOG)
    except BaselineErrors as raised:
        return raised.problems
    return () if baseline.name == "x" else (Problem("x", "", "not the one"),)


def judge(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_bytes(data)
        found = lint([str(path)], catalog=CATALOG, today=date(2026, 1, 1))
        errors = tuple(problem for problem in found if not problem.warning)
        assert loaded(path) == errors
        for problem in found:
            text = str(problem)
            assert text.isprintable()
            assert len(text) < 2000
            assert problem.place.line <= data.count(b"\n") + data.count(b"\r") + 1


@QUIET
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b'nodevet: 1\nextends: ["\\0", "a/\\0"]\n')
@example(b'nodevet: 1\nexpect: {gpu_count: "\\ud800"}\n')
@example(b'nodevet: 1\ntitle: "\\U0010ffff"\n')
def test_bytes(data: bytes) -> None:
    judge(data)


@QUIET
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join))
def test_pieces_of_baselines(data: bytes) -> None:
    judge(b"nodevet: 1\n" + data)


@QUIET
@given(mutated())
def test_mutated_baselines(data: bytes) -> None:
    judge(data)


@QUIET
@given(st.text(max_size=60))
def test_values(text: str) -> None:
    """Any text as a plain, a quoted and a key position."""
    judge(f"nodevet: 1\nexpect:\n  driver_version: {text}\n".encode("utf-8", "surrogatepass"))
    judge(f"nodevet: 1\nexpect:\n  {text}: 3\n".encode("utf-8", "surrogatepass"))
