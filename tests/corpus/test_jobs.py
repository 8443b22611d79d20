"""The corpus of jobs: the truth of each kind, and its tables in docs/diagnosis.md."""

import dataclasses
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from nodevet.diagnose.collectives import RankDump, dumped_ranks
from nodevet.diagnose.model import Cause, Confidence, RankState
from nodevet.evidence.process_activity import FlightDump
from nodevet.remote.probe.flight_record import dump_record
from nodevet.remote.probe.plain_pickle import plain_value
from tests.corpus.calibrate import PAGE, page
from tests.corpus.calibrate_jobs import BEGIN, END, JudgedJob, judge_all, tables
from tests.corpus.job import BUNDLES, RANKS, job, module, names
from tests.corpus.repeat import flips, job_answer

LARGEST = 1_000_000  # bytes of all bundles
WORDS = {each.value for each in (*Cause, *RankState)}


@pytest.mark.parametrize("name", names())
def test_every_kind_has_a_cause_if_and_only_if_it_has_late_ranks(name: str) -> None:
    known = job(name)
    assert known.late <= set(range(RANKS)) and known.action
    assert bool(known.late) == bool(known.cause)
    assert {known.cause, known.second} - {""} <= WORDS


def test_every_bundle_has_a_kind_and_at_least_a_third_of_the_kinds_is_kept_out() -> None:
    judged = judge_all()
    assert {case.kind for case in judged} <= set(names())
    held = {case.kind for case in judged if case.kept_out}
    assert len(held) * 3 >= len({case.kind for case in judged}) > 0
    assert sum(path.stat().st_size for path in BUNDLES.glob("*")) < LARGEST


def test_the_table_on_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = tables(judge_all())
    assert page(text, section, BEGIN, END) == text, "run `make calibrate`, then read the difference"


CASE = JudgedJob(
    kind="reads_slowly",
    background="quiet",
    kept_out=False,
    late=frozenset({1}),
    cause="storage-bound",
    second="memory-pressure",
    none_is_fine=False,
    action="look at the storage",
    answer=frozenset({1}),
    answer_cause="storage-bound",
    confidence=Confidence.MEDIUM,
    sentence="",
)


def test_an_answer_is_right_if_its_rank_and_cause_are_right() -> None:
    assert CASE.right and not CASE.is_confident_miss
    assert dataclasses.replace(CASE, answer_cause="memory-pressure").right
    why = dataclasses.replace(CASE, answer_cause="stuck")
    assert why.right_rank and not why.right and why.is_confident_miss
    both = dataclasses.replace(CASE, answer_cause="CPUs taken by others + storage-bound")
    assert not both.right and dataclasses.replace(both, background="loaded").right
    alone = dataclasses.replace(both, background="loaded", answer_cause="CPUs taken by others")
    assert alone.is_confident_miss
    unclear = dataclasses.replace(CASE, answer_cause="not enough evidence")
    assert not unclear.right and not unclear.is_confident_miss
    who = dataclasses.replace(CASE, answer=frozenset({1, 2}))
    assert not who.right and who.is_confident_miss
    assert not dataclasses.replace(who, confidence=Confidence.LOW).is_confident_miss
    silent = dataclasses.replace(CASE, answer=frozenset(), answer_cause="")
    assert silent.is_confident_miss
    assert not dataclasses.replace(silent, none_is_fine=True).is_confident_miss


def test_only_two_confident_answers_with_different_ranks_of_a_job_are_a_flip() -> None:
    slow = {"number": 3, "state": "held up", "cause": "throttled"}
    other = {"number": 1, "state": "stopped", "cause": None}
    ranks = [other, slow]
    one = job_answer({"ranks": ranks, "late": [1], "confidence": "high"})
    two = job_answer({"ranks": ranks, "late": [0], "confidence": "low"})
    none = job_answer({"ranks": ranks, "late": [], "confidence": "medium"})
    assert (one, two) == (("3: throttled", "high"), ("1: stopped", "low"))
    assert none == ("no rank", "medium")
    why = ("3: storage-bound", "medium")
    assert not flips(Counter([one, two, why])) and flips(Counter([one, none]))


def test_the_table_counts_and_lists_wrong_answers() -> None:
    held = dataclasses.replace(CASE, kind="pages", kept_out=True, answer=frozenset({0}))
    text = tables([CASE, held])
    assert "| **all medium** | 2 | 1 | 1 | 1 | 0 | 0 |" in text
    assert "Confident answers that are wrong: 1." in text
    line = "| `pages` | quiet | 0: storage-bound, medium | 1: storage-bound | look at the storage |"
    assert line in text


class IdleGpu:
    """A GPU for a rank that only writes its dump here."""

    free = 0.0

    def run(self, seconds: float) -> None:
        """Nothing."""


def test_flight_recorder_dumps_that_a_job_writes_name_its_late_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = module("hangs_with_dumps")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "dump_"))
    monkeypatch.setattr(kind, "AFTER_S", 0.0)
    began = time.time()
    for rank in range(RANKS):
        kind.prepare(rank, "", IdleGpu())
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(60)
    dumps = []
    for rank in range(RANKS):
        value = plain_value((tmp_path / f"dump_{rank}").read_bytes())
        record = dump_record(value, began + 60, began, str(RANKS))
        flight = msgspec.convert({**record, "age_s": 30.0}, FlightDump)
        dumps.append(RankDump(rank, flight))
    assert set(dumped_ranks(dumps, RANKS).behind) == kind.JOB.late
