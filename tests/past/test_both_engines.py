"""Every command of the history says the same of a store in SQLite and of one in PostgreSQL, and it
is as its schema says."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import five_nights
import jsonschema
import pytest
from click.testing import CliRunner
from postgres import Postgres
from pyarrow import parquet

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.cli import nodevet as command_line

Past = Callable[..., Any]
PART = five_nights.board(five_nights.BAD_GPU)["uuid"]


@pytest.fixture(scope="module")
def both(url: str, postgres: Postgres) -> tuple[str, str]:
    """The five nights in SQLite, which no test changes, and in PostgreSQL."""
    other = postgres.database()
    five_nights.record(other)
    return url, other


def told(store: str, *words: str) -> str:
    done = CliRunner().invoke(command_line, [*words, "--store", store], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@cache
def schema(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(kinds()[kind].schema(Project()))


def document(text: str, kind: str = "history") -> Any:
    """What was answered, held against its schema; without where the store is, and how large."""
    found = json.loads(text)
    if found.get("kind") not in ("prune", "export"):
        schema(kind).validate(found)
    return {key: each for key, each in found.items() if key not in ("store", "freed_b", "size_b")}


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("runs", "2026-11-18"),
        ("history", "gpu003"),
        ("history", "a100-04"),
        ("history", PART),
        ("diff", "2026-11-18", "2026-11-19"),
        ("diff", "--redact"),
        ("trend", "power_limit"),
        ("trend", "power_limit", "--host", "gpu005"),
        ("trend", "gpu.gpus[].temperature_gpu_c", "--host", "gpu001"),
        ("part", PART),
    ],
    ids=" ".join,
)
def test_both_engines_report_the_same(both: tuple[str, str], words: tuple[str, ...]) -> None:
    one, other = (document(told(store, *words, "--format", "json")) for store in both)
    assert one == other and one


@pytest.mark.parametrize(
    "words",
    [
        ("blame", "persistence_mode"),
        ("backtest", "-b", "site-h100", "gpu[001-004]"),
        ("check", "--from-run", "2026-11-18", "--max-age", "none"),
    ],
    ids=lambda words: words[0],
)
def test_judging_again_gives_the_same_findings(
    both: tuple[str, str], nodevet: Past, words: tuple[str, ...]
) -> None:
    said = []
    for store in both:
        done = nodevet(*words, "--store", store, "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        found = document(done.stdout, "run" if words[0] == "check" else "history")
        for name in ("id", "started", "seconds"):  # of this run of the command
            found.pop(name, None)
        said.append(found)
    assert said[0] == said[1] and said[0]


def test_exports_of_both_engines_are_equal(both: tuple[str, str], tmp_path: Path) -> None:
    tables = []
    for number, store in enumerate(both):
        folder = tmp_path / str(number)
        told(store, "export", "--parquet", str(folder))
        tables.append({p.stem: parquet.read_table(p).to_pylist() for p in folder.iterdir()})
    assert tables[0] == tables[1] and tables[0]["findings"]


def test_prune_deletes_the_same_evidence_in_both_engines(
    both: tuple[str, str], postgres: Postgres, tmp_path: Path
) -> None:
    stores = f"sqlite:///{tmp_path}/pruned.sqlite", postgres.database()
    policy = ("--daily", "1d", "--weekly", "0s", "--monthly", "0s", "--format", "json")
    said = []
    for store in stores:
        five_nights.record(store, (1, 2))
        said.append([document(told(store, "prune", *policy)) for _ in range(2)])
        said[-1].append(document(told(store, "diff", "--format", "json")))
    assert said[0] == said[1]
    assert said[0][0]["thinned"] > 10 and not said[0][1]["thinned"] and said[0][2]["thinned"] > 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "runs", "store": "x", "runs": []},
        {"kind": "trend", "check": "power_limit", "points": [{"run": "r"}]},
        {"kind": "story", "host": "gpu001"},
        {"host": "gpu001"},
    ],
    ids=["without more", "a point without what was counted", "of another kind", "of no kind"],
)
def test_documents_of_other_kinds_are_refused(wrong: dict[str, Any]) -> None:
    assert not schema("history").is_valid(wrong)
