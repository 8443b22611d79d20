"""What one change would gain, by the arithmetic of `nodevet feed` with what was just seen."""

from typing import Any

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from tests.diagnosis.samples import BLOCKED, LOOKS, evidence, gpu, process, sections, thread

NO_LINK = {"pcie_rx_kb_s": [0] * LOOKS, "pcie_tx_kb_s": [0] * LOOKS}


def workers(number: int, percent: float, **rest: Any) -> list[dict[str, Any]]:
    """A process on the GPU with so many loader workers."""
    own = [process(20 + n, [thread(20 + n, percent, **rest)], parent=10) for n in range(number)]
    return [process(), *own]


def told(
    processes: list[dict[str, Any]],
    busy: int = 33,
    idle: int = 30,
    **of_gpu: Any,
) -> GpuDiagnosis:
    node = sections([gpu(busy, **{**NO_LINK, **of_gpu})], processes)
    node["host_activity"]["total"]["idle"] = [100 * idle * second for second in range(LOOKS)]
    node["cpu"].update(cores=32, threads=32)
    answer = diagnose(evidence(node))
    assert not isinstance(answer, str)
    return answer[0]


def gain(found: GpuDiagnosis) -> str:
    return found.sentence.partition("; nodevet feed computes: ")[2]


def test_more_workers_keep_the_gpu_busy_if_nothing_else_binds() -> None:
    found = told(workers(2, 95))
    assert found.causes == (Cause.PREPROCESSING,)
    assert gain(found) == "7 workers for each GPU instead of 2: GPU busy 33 → 100 %"


def test_a_link_that_is_two_fifths_full_is_the_next_to_bind() -> None:
    """It takes 0.40 to 0.53 s of the second that was watched."""
    found = told(workers(2, 95), pcie_rx_kb_s=[25_300_000] * LOOKS)
    assert gain(found) == "5 workers for each GPU instead of 2: GPU busy 33 → 62–82 %"


def test_more_workers_are_advised_only_for_idle_cores() -> None:
    found = told(workers(2, 95), idle=2)
    assert gain(found).startswith("3 workers for each GPU instead of 2 (each GPU needs 7;")
    assert gain(found).endswith("enough for 3): GPU busy 33 → 50 %"), found.sentence
    assert not gain(told(workers(2, 95), idle=0))


def test_storage_that_sometimes_blocks_a_worker_bounds_the_gain() -> None:
    slow = workers(2, 95)
    waits = thread(21, 70, waits={"folio_wait_bit_common": 3}, state="R")
    slow[2] = process(21, [waits], parent=10)
    assert gain(told(slow, busy=20)).endswith("GPU busy 20 → 73–100 %")


def test_the_gain_names_the_read_rate_that_keeps_the_gpu_busy() -> None:
    found = told([process(threads=BLOCKED, storage_read_b=[0, 10**9])], busy=25)
    assert found.causes == (Cause.STORAGE,)
    text = "storage that reads 400 MB/s instead of 100 MB/s: GPU busy 25 → "
    assert gain(found) == f"{text}50–100 %", "the process on the GPU reads, so perhaps in turn"
    loader = {**BLOCKED[0], "tid": 20, "user": [0, 200]}
    reads = process(20, [loader], parent=10, storage_read_b=[0, 10**9])
    assert gain(told([process(storage_read_b=[0, 0]), reads], busy=25)) == f"{text}100 %"
    writes = {**BLOCKED[0], "sleeps": [{"call": "fsync", "looks": LOOKS, "path": "/data/a"}]}
    assert not gain(told([process(threads=[writes], storage_read_b=[0, 10**9])]))


def test_half_the_bytes_over_a_full_link() -> None:
    found = told([process()], busy=50, pcie_rx_kb_s=[54_000_000] * LOOKS)
    assert found.causes == (Cause.TRANSFER,)
    assert gain(found) == "half as many bytes over the link: GPU busy 50 → at most 100 %"


def test_copies_that_overlap() -> None:
    found = told([process()], busy=50, pcie_rx_kb_s=[27_000_000] * LOOKS)
    assert found.causes == (Cause.TRANSFER,)
    assert gain(found) == "copies that overlap with kernels: GPU busy 50 → 88–100 %"


@pytest.mark.parametrize(
    "processes",
    [
        [process(threads=[thread(10, 98)])],  # in the main thread: it may launch small kernels
        [process(children_user=[0, 900])],  # helpers that ended: nobody knows how many
        [process()],
    ],
)
def test_no_gain_is_reported_if_feed_cannot_compute_it(processes: list[dict[str, Any]]) -> None:
    assert not gain(told(processes))


def test_workers_that_want_little_contradict_preprocessing() -> None:
    """The CPUs are full of threads of the training process, and not of its workers."""
    hot = [thread(10), *(thread(11 + n, 90) for n in range(6))]
    found = told([process(threads=hot), *workers(4, 20)[1:]])
    assert found.causes == (Cause.PREPROCESSING,), found.sentence
    assert found.confidence is Confidence.MEDIUM
    assert "want only 20 % of a core each" in found.sentence and not gain(found)


def test_workers_that_compute_for_longer_than_they_wait_contradict_storage() -> None:
    busy = workers(2, 70)
    busy[0] = process(threads=[thread(10, 1, waits={"folio_wait_bit_common": 5})])
    found = told(busy)
    assert found.causes == (Cause.STORAGE,), found.sentence
    assert "by feed's arithmetic the transform binds" in found.sentence
