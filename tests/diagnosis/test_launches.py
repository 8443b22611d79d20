"""How many collectives each rank launched, as NCCL's RAS counts them: evidence for the late rank.

The answers are written here with the fields that NCCL documents, and read as the probe reads them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from ras_server import group, report

from nodevet.diagnose.incident import NEEDED, coder, redact_value
from nodevet.diagnose.model import Cause, Confidence, Diagnosis, JobTarget
from nodevet.diagnose.ras_port import RasPort
from nodevet.diagnose.use import watch_options
from nodevet.fleet import Options
from nodevet.remote.probe import ras_client
from tests.diagnosis.test_late_ranks import dumped, job, late, node, watched

JSON = dict[str, Any]
Counts = Mapping[int, int]
ALL_WAIT = "all 3 ranks wait, and nodevet saw no late one"


def answers(*looks: Sequence[JSON], seconds: float = 30.0) -> JSON:
    """The section of a node that asked so often; of each answer the communicators."""
    read = [ras_client.report(json.dumps(report(groups)).encode()) for groups in looks]
    for place, each in enumerate(read):
        each["at_s"] = place * seconds
    return {"nccl": "2.29.2", "answers": read}


def hung(section: JSON, kinds: str = "spins spins spins", size: int = 3) -> Diagnosis:
    return watched(with_section(node("a", kinds, size=size), section))


def with_section(one: JSON, section: JSON) -> JSON:
    one["sections"]["nccl_ras"] = section
    return one


def twice(*groups: JSON) -> JSON:
    """Nothing was launched between two answers."""
    return answers(groups, groups)


def notes(found: Diagnosis) -> str:
    return " | ".join(job(found).notes)


def test_the_rank_that_launched_fewer_collectives_is_late() -> None:
    found = hung(twice(group({0: 118, 1: 117, 2: 118})))
    assert late(found) == [1] and job(found).confidence is Confidence.MEDIUM
    assert job(found).sentence == (
        "ranks 0,2 on a wait for rank 1 on a: by NCCL's RAS it has launched 117 collectives of a "
        "communicator, and none during the watch; others 118 (RAS counts launches, not completions)"
    )
    assert "py-spy dump --nonblocking --pid 11" in job(found).next_step
    assert [gpu.cause for gpu in found.hosts[0].gpus].count(Cause.COLLECTIVE) == 2
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (twice(group({0: 9, 1: 9, 2: 9})), "the network or a GPU, and not for one rank"),
        (
            answers([group({0: 8, 1: 9, 2: 9})], [group({0: 19, 1: 19, 2: 20})]),
            "the ranks launched collectives during the watch (RAS counts launches",
        ),
        (twice(group({0: 0, 1: 0, 2: 0})), "it counts none of CUDA graphs"),
        (twice(group({0: 8, 1: 8, 2: 9})), "different collectives, but no few of them are behind"),
        (answers([group({0: 8, 1: 9, 2: 9})]), "answered only once: not in the evidence"),
        (answers(*[[group({0: 8, 1: 9, 2: 9})]] * 2, seconds=9.0), ""),
        (
            answers([group({0: 8, 1: 9, 2: 9}, name="a")], [group({0: 8, 1: 9, 2: 9})]),
            "no communicator was",
        ),
        (answers([], []), "no communicator was there at the start and at the end of the watch"),
        ({"not_asked": "NCCL 2.28.9 is older"}, "did not ask NCCL's RAS on a: NCCL 2.28.9 is old"),
        ({"answers": [], "errors": {"answers": "EPIPE"}}, "NCCL's RAS on a gave no answer: EPIPE"),
    ],
)
def test_answers_that_name_no_rank_change_nothing_but_the_notes(section: JSON, text: str) -> None:
    found, without = hung(section), watched(node("a", "spins spins spins", size=3))
    assert late(found) == [] and ALL_WAIT in job(found).sentence
    assert text in notes(found) and (text or not job(found).notes)
    same = ("ranks", "late", "confidence", "sentence", "doubts", "next_step")
    assert [getattr(job(found), key) for key in same] == [
        getattr(job(without), key) for key in same
    ]


def test_a_late_rank_that_waits_in_another_communicator_is_not_named() -> None:
    pairs = [group({0: 5, 1: 4}, name="tp"), group({0: 7, 1: 8}, name="dp")]
    pairs[1]["ranks"][1] |= {"rank": 1, "pid": 12}  # of ranks 0 and 2
    found = hung(twice(*pairs))
    assert late(found) == [1]  # rank 2 waits for rank 0, which waits for rank 1


def test_ranks_that_wait_for_one_another_are_not_named() -> None:
    found = hung(twice(group({0: 5, 1: 4}, name="x"), group({0: 4, 1: 5}, name="y")))
    assert late(found) == []
    assert "ranks wait for one another in different communicators" in notes(found)


def test_ranks_that_do_not_answer_are_named() -> None:
    found = hung(twice(group({0: 9, 1: 9}, [2])))
    assert late(found) == [2] and "by NCCL's RAS it did not answer twice" in job(found).sentence
    assert "NCCL's RAS got no answer from rank 2" in notes(found)


def test_a_rank_that_is_dead_is_named_even_if_it_runs_on_no_host() -> None:
    one = group({0: 9, 1: 9, 2: 9}, [3])
    one["missing_ranks"][0] |= {"status": {"unresponsive": True, "considered_dead": True}}
    one["missing_ranks"][0] |= {"host": "10.0.0.9", "pid": 999}
    found = hung(twice(one))
    assert "NCCL's RAS considers dead process 999 on 10.0.0.9" in notes(found)
    assert "process 999 on 10.0.0.9 did not answer twice" in notes(found)
    assert late(found) == []


@pytest.mark.parametrize(
    ("kinds", "named", "text"),
    [
        ("spins stopped spins", [1], "NCCL's RAS agrees: rank 1 has launched 117 collectives"),
        ("stopped spins spins", [0], "NCCL's RAS names other ranks: rank 1 has launched 117"),
        ("spins spins throttled", [2], "NCCL's RAS names other ranks: rank 1 has launched 117"),
        ("computes computes spins", [], "by NCCL's RAS: rank 1 has launched 117 collectives"),
    ],
)
def test_what_the_kernel_and_the_driver_show_is_never_overruled(
    kinds: str, named: list[int], text: str
) -> None:
    found = hung(twice(group({0: 118, 1: 117, 2: 118})), kinds)
    without = watched(node("a", kinds, size=3))
    assert late(found) == late(without) == named and text in notes(found)
    assert (job(found).confidence, job(found).sentence, job(found).doubts) == (
        job(without).confidence,
        job(without).sentence,
        job(without).doubts,
    )


def test_dumps_of_the_flight_recorder_come_first() -> None:
    one = dumped(node("a", "spins spins spins", size=3), 118, -117, 118)
    found = watched(with_section(one, twice(group({0: 117, 1: 118, 2: 118}))))
    assert late(found) == [1] and "NCCL's RAS names other ranks: rank 0" in notes(found)


def test_ranks_of_a_container_are_matched_by_the_communicator_of_all() -> None:
    one = group({0: 118, 1: 117, 2: 118})
    for rank in one["ranks"]:
        rank["pid"] = 70 + rank["rank"]  # of its own pid namespace
    assert late(hung(twice(one))) == [1]
    partial = group({0: 118, 1: 117})
    for rank in partial["ranks"]:
        rank["pid"] += 60
    found = hung(twice(partial))
    assert late(found) == [] and "by NCCL's RAS, process 71 on 10.0.0.1 has" in notes(found)


def test_numbers_that_contradict_each_other_match_no_rank() -> None:
    one = group({0: 118, 1: 117, 2: 118})
    one["ranks"][1]["pid"], one["ranks"][2]["pid"] = 12, 11
    assert late(hung(twice(one))) == []
    two_hosts = [node("a", "spins", size=2), node("b", "spins", first=1, size=2)]
    two_hosts[1]["sections"]["process_activity"]["processes"][0]["pid"] = 11
    with_section(two_hosts[0], twice(group({0: 5, 1: 4}, [2])))
    assert late(watched(*two_hosts)) == []  # the address of one host on two


def test_one_host_has_the_answer_for_all() -> None:
    one, two = node("a", "spins", size=2), node("b", "spins", first=1, size=2)
    two["sections"]["gpu_activity"]["gpus"][0]["processes"][0]["pid"] = 11
    two["sections"]["process_activity"]["processes"][0]["pid"] = 11
    both = group({0: 118, 1: 117})
    both["ranks"][1]["host"] = "10.0.0.2"
    with_section(one, twice(both))
    with_section(two, {"not_asked": "rank 0 of the job does not run on this host"})
    found = watched(one, two)
    assert late(found) == [1] and "rank 0 on a waits for rank 1 on b" in job(found).sentence
    assert "not ask" not in notes(found)
    del one["sections"]["nccl_ras"]
    assert "did not ask NCCL's RAS on b: rank 0 of the job" in notes(watched(one, two))


def test_hostile_texts_are_printed_plainly() -> None:
    one = group({0: 118, 1: 117})
    one["ranks"][1] |= {"host": "\x1b[31mx\n", "pid": 999}
    found = hung(twice(one))
    assert "\x1b" not in notes(found) and "\n" not in notes(found)


def test_a_node_is_asked_for_it_only_on_request() -> None:
    target = JobTarget(name="12", hosts=("a",), ids=("Slurm 12",), step="0", uid=1000)
    plain = watch_options(Options(second_try=True), 30.0, 1.0, together=False, now=0.0, job=target)
    assert "nccl_ras" not in plain.asks
    ras = RasPort(("127.0.0.1", "::1"), 28028)
    asked = watch_options(
        Options(second_try=True), 30.0, 1.0, together=False, now=0.0, job=target, ras=ras
    )
    (wish,) = asked.asks["nccl_ras"]
    assert {key: wish[key] for key in ("hosts", "port", "job_ids", "step", "uid", "seconds")} == {
        "hosts": ["127.0.0.1", "::1"],
        "port": 28028,
        "job_ids": ["Slurm 12"],
        "step": "0",
        "uid": 1000,
        "seconds": 30.0,
    }
    assert asked.deadline > plain.deadline
    assert plain.second_try and not asked.second_try  # another visit would ask again


def test_a_redacted_bundle_keeps_counts_and_no_addresses() -> None:
    assert "nccl_ras" in NEEDED
    text = json.dumps(redact_value(twice(group({0: 118, 1: 117})), coder(b"salt")))
    assert "117" in text and "10.0.0.1" not in text
