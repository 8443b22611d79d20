"""What nodevet says of real machines: no false alarm; what is wrong with one is known."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from nodevet.model import Verdict

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO / "docs"))

import captures  # noqa: E402  the script that writes the page

pytestmark = pytest.mark.skipif(
    not captures.FOLDER.is_dir(), reason=f"no captures at {captures.FOLDER}"
)

WRONG = {
    # one GPU is in the file, and the board that it is of has more
    "nvidia-smi-xml/k8s-a100.xml": {"gpu_count"},
    "nvidia-smi-xml/telegraf-a100-sxm4-v12.xml": {"gpu_count"},
    # trees that were put together for tests of other programs, with broken arrays
    "sysfs/procfs-fixtures.ttar": {"raid", "file_handles", "storage_errors"},
    "sysfs/node_exporter-proc-ethtool.tar.gz": {"raid", "file_handles"},
    "sysfs/node_exporter-sys.ttar": {"memory_errors"},
}
NO_NVIDIA_GPU = {"gpu_count"}


@pytest.fixture(scope="module")
def nodes() -> list[captures.CapturedNode]:
    return list(captures.captured())


def test_there_are_machines_of_every_kind(nodes: list[captures.CapturedNode]) -> None:
    kinds = Counter(node.name.split("/")[0] for node in nodes)
    assert set(kinds) >= {"nvidia-smi-xml", "sysfs"}


def test_nothing_fails_that_is_not_wrong(nodes: list[captures.CapturedNode]) -> None:
    odd = {}
    for node in nodes:
        failed = {finding.check for finding in node.told(Verdict.FAIL)}
        trees = set() if node.name.startswith("nvidia-smi-xml") else NO_NVIDIA_GPU
        if left := failed - WRONG.get(node.name, set()) - trees:
            odd[node.name] = left
    assert odd == {}


def test_every_machine_is_judged_by_something(nodes: list[captures.CapturedNode]) -> None:
    assert [node.name for node in nodes if not node.told(Verdict.OK)] == []
