"""Copies and kernels that take turns: the link is full whenever the GPU computes nothing."""

from typing import Any

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from tests.diagnosis.samples import LOOKS, evidence, gpu, sections, without

FULL, HALF = 54_000_000, 27_000_000  # kB/s on a link that carries 63 GB/s
TURNS = [0, 100] * (LOOKS // 2) + [0]  # busy, at each look


def gpu_diagnosis(found: dict[str, dict[str, Any]]) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str), answer
    return answer[0]


def copying(rates: list[int], busy: list[int], **rest: Any) -> dict[str, dict[str, Any]]:
    """A GPU whose samples around each look are this busy."""
    samples = [
        [round(look + part / 10, 1), value]
        for look, value in enumerate(busy)
        for part in (-2, -1, 0, 1, 2)
        if look + part >= 0
    ]
    return sections([gpu(50, pcie_rx_kb_s=rates, samples=samples, **rest)])


def test_a_pcie_link_that_is_full_whenever_the_gpu_is_idle_is_transfer_bound() -> None:
    rates = [0 if value else FULL for value in TURNS]
    found = gpu_diagnosis(copying(rates, TURNS))
    assert found.causes == (Cause.TRANSFER,), found.sentence
    assert (
        "the PCIe link carries 86 % of its capacity while the GPU computes nothing"
        in found.sentence
    )
    assert "overlap" in found.next_step


def test_mean_rates_show_serial_copies_of_steps_shorter_than_a_sample() -> None:
    """27 GB/s at 50 %: if they do not overlap, they leave no gap."""
    found = gpu_diagnosis(copying([HALF] * LOOKS, [50] * LOOKS))
    assert (found.causes, found.confidence) == ((Cause.TRANSFER,), Confidence.MEDIUM)
    assert "computed from mean values" in found.sentence


def test_counted_pcie_bytes_show_serial_copies_as_well() -> None:
    counted = [0, 27_000_000_000 * 10]
    rates = [None, *[HALF] * (LOOKS - 1)]
    found = gpu_diagnosis(copying(rates, [50] * LOOKS, pcie_rx_b=counted, pcie_tx_b=[0, 0]))
    assert found.causes == (Cause.TRANSFER,)


@pytest.mark.parametrize(
    ("rates", "busy"),
    [
        ([HALF] * LOOKS, TURNS),  # as fast while it computes as while it does not
        ([FULL if value else 0 for value in TURNS], TURNS),  # idle for another reason
        ([2_000_000] * LOOKS, [95, 90] * (LOOKS // 2) + [80]),
        ([HALF] * LOOKS, [20] * LOOKS),  # its gaps are longer than its copies
        ([0] * LOOKS, TURNS),
    ],
)
def test_a_link_that_is_not_full_in_the_gaps_does_not_bind(
    rates: list[int], busy: list[int]
) -> None:
    assert Cause.TRANSFER not in gpu_diagnosis(copying(rates, busy)).causes


@pytest.mark.parametrize("field", ["samples", "pcie_rx_kb_s", "pcie_generation"])
def test_without_samples_or_link_rates_transfer_bound_has_low_confidence(field: str) -> None:
    node = copying([0 if value else FULL for value in TURNS], TURNS)
    found = gpu_diagnosis(without(node, ("gpu_activity", "gpus", field)))
    assert found.confidence is Confidence.LOW or Cause.TRANSFER not in found.causes


@pytest.mark.parametrize(
    ("most", "text"),
    [
        ((5, 16), "the GPU and its slot allow gen 5 x16"),
        ((6, 16), "the GPU and its slot allow gen 6 x16, which its link does not reach"),
        ((None, 16), ""),
    ],
)
def test_a_full_link_is_compared_with_what_the_gpu_and_its_slot_allow(
    most: tuple[int | None, int], text: str
) -> None:
    node = sections([gpu(20, pcie_rx_kb_s=[FULL] * LOOKS)])
    own = {"index": 0, "pcie_generation_max": most[0], "pcie_width_max": most[1]}
    node["gpu"] = {"count": 1, "gpus": [own]}
    found = gpu_diagnosis(node)
    assert found.causes == (Cause.TRANSFER,)
    assert [line for line in found.also if "slot" in line] == [text] * bool(text)
