"""`nodevet export` and `nodevet prune`: what is written can be read, and what goes is told."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import five_nights
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from nodevet.base.errors import UserError
from nodevet.cli import nodevet

Say = Callable[..., str]


def test_every_table_can_be_read_back(say: Say, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    told = json.loads(say("export", "--parquet", str(folder), "--format", "json"))
    read = {path.stem: parquet.read_table(path).to_pylist() for path in folder.glob("*.parquet")}
    assert {name: len(rows) for name, rows in read.items()} == told["rows"]
    stored = ["counters", "findings", "parts", "places", "runs", "visits"]
    assert sorted(read) == sorted([*stored, "plans", "fix_runs", "actions", "proofs"])
    (plan,), (fix_run,), (action,) = read["plans"], read["fix_runs"], read["actions"]
    assert (plan["plan"], plan["host"], plan["fixes"]) == ("5f1c00aa", "a100-02", "cpu_governor")
    assert (fix_run["approved_by"], fix_run["outcome"]) == ("bob", "changed")
    assert (action["fix_run"], action["before"]) == (fix_run["fix_run"], "powersave")
    assert action["at"].isoformat()[:16] == "2026-11-18T14:10"
    assert [(each["ok"], each["fail"], each["unreachable"]) for each in read["runs"]] == [
        (15, 3, 0),
        (14, 3, 1),
        (12, 6, 0),
        (11, 7, 0),
        (11, 7, 0),
    ]
    assert len(read["visits"]) == 90
    (lost,) = (each for each in read["visits"] if each["status"] == "unreachable")
    assert (lost["host"], lost["why"]) == ("a100-04", "no answer on port 22 within 10 s")
    power = [each for each in read["findings"] if each["check"] == "power_limit"]
    assert len(power) == 16
    assert {(each["actual"], each["expected"]) for each in power} == {("500 W", "700 W")}
    assert power[0]["first"].isoformat()[:16] == "2026-11-18T02:00"
    moved = [each for each in read["places"] if not each["open"] and each["kind"] == "gpu"]
    assert sorted(each["host"] for each in moved) == ["gpu003", "gpu007", "gpu007"]
    counted = [each for each in read["counters"] if each["name"] == "gpu.pcie_replay_counter"]
    assert [each["value"] for each in counted] == [3, 11, 30, 62, 118]
    assert (folder / "runs.parquet").stat().st_mode & 0o777 == 0o600


def test_redacted_tables_contain_no_names_of_the_site(say: Say, tmp_path: Path) -> None:
    say("export", "--parquet", str(tmp_path), "--redact")
    read = {path.stem: parquet.read_table(path).to_pylist() for path in tmp_path.glob("*.parquet")}
    text = repr(read)
    for word in (*five_nights.HOSTS, "site-", "nightly", "port 22", "5f1c00aa", "ctl1", "bob"):
        assert word not in text, word
    hosts = {each["host"] for each in read["visits"]}
    assert hosts == {f"host {number}" for number in range(1, 19)}
    assert {each["host"] for each in read["findings"]} < hosts
    assert {each["machine_id"] for each in read["visits"]} == {None}
    assert any(each["part"].startswith("GPU-") for each in read["places"])


def test_without_pyarrow_export_says_how_to_install_it(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'nodevet\[parquet\]'"):
        say("export", "--parquet", str(tmp_path))


def test_prune_deletes_old_evidence_and_keeps_findings(
    remembered: str, nine_o_clock: None, tmp_path: Path
) -> None:
    copied = tmp_path / "history.sqlite"
    shutil.copy(remembered.removeprefix("sqlite:///"), copied)

    def ask(*words: str) -> str:
        done = CliRunner().invoke(nodevet, [*words, "--store", f"sqlite:///{copied}"])
        assert done.exit_code == 0, done.output
        return done.stdout

    before = json.loads(ask("history", "gpu007", "--format", "json"))
    policy = ("--daily", "1d", "--weekly", "0s", "--monthly", "0s", "--format", "json")
    would = json.loads(ask("prune", *policy, "--dry-run"))
    assert would["dry_run"] and would["thinned"] > 50
    done = json.loads(ask("prune", *policy))
    assert done["thinned"] == would["thinned"]
    assert json.loads(ask("prune", *policy))["thinned"] == 0
    assert json.loads(ask("history", "gpu007", "--format", "json"))["events"] == before["events"]
    told = ask("diff", "2026-11-16", "2026-11-17")
    assert "hosts was pruned: their facts are not compared" in " ".join(told.split())
