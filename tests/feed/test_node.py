"""What a node's evidence fills in, and what it leaves unknown, with the reason."""

import pytest

from nodevet.checking.feeding.interval import UNKNOWN, Interval
from nodevet.checking.feeding.model import FeedStage
from nodevet.checking.feeding.node import feed_node
from nodevet.checking.feeding.setup import feed_of
from nodevet.checking.feeding.units import link_rate
from nodevet.feed.answer import answer

GEN4 = link_rate(4, 16)
THIRD = "0000:12:00.0"  # the last of three GPUs


def test_a_whole_node(machine, evidence) -> None:
    found = feed_node(evidence(machine()))
    assert (found.gpus, found.gpu_model) == (2, "NVIDIA A100")
    assert (found.cores, found.threads) == (32, 64)
    assert found.near_cores == 8  # two GPUs on a NUMA node of 16 cores
    assert found.link == Interval(GEN4 * 0.75 / 2, GEN4 / 2)  # one uplink for both
    assert found.link_words == "Gen4 x16 for 2 GPUs, at 0000:01:00.0"
    assert found.nvme == Interval(0.0, link_rate(4, 4))
    assert found.network == Interval(0.0, 12.5e9)
    assert found.network_words == "1 × 100 Gbit/s"
    assert found.memory_b == 512 << 30
    assert found.unknown == {}


def test_a_gpu_alone_has_its_whole_link(machine, evidence) -> None:
    found = feed_node(evidence(machine(gpus=1)))
    assert found.link == Interval(GEN4 * 0.75, GEN4)
    assert found.link_words == "Gen4 x16"
    assert found.near_cores == 16


@pytest.mark.parametrize(
    ("job", "low", "high"),
    [
        (1, 1.0, 1.0),  # nobody else of the job is below the uplink
        (2, 0.5, 1.0),  # the other one may be the third, or this one's neighbour
        (3, 0.5, 0.5),
        (4, 0.5, 0.5),  # more than there are: as if all
        (None, 0.5, 0.5),
    ],
)
def test_an_uplink_is_shared_by_the_gpus_of_the_job(machine, evidence, job, low, high) -> None:
    sections = machine(gpus=3)
    alone = next(each for each in sections["pci"]["functions"] if each["address"] == THIRD)
    alone["upstream"] = alone["upstream"][:1]
    found = feed_node(evidence(sections), job)
    assert found.link == Interval(GEN4 * 0.75 * low, GEN4 * high)


def test_an_idle_link_is_rated_between_its_current_and_maximum_speed(machine, evidence) -> None:
    sections = machine(gpus=1)
    sections["gpu"]["gpus"][0]["pcie_generation"] = 1
    found = feed_node(evidence(sections))
    assert found.link == Interval(link_rate(1, 16) * 0.75, GEN4)
    assert found.link_words == "Gen1 x16 while idle, up to Gen4"


def test_a_link_that_trained_down_is_rated_at_its_current_speed(machine, evidence) -> None:
    sections = machine(gpus=1)
    sections["gpu"]["gpus"][0] |= {"pcie_generation": 3, "pcie_width": 8}
    found = feed_node(evidence(sections))
    assert found.link.high == link_rate(3, 8)
    assert found.link_best.high == link_rate(4, 8)


def test_in_a_virtual_machine_the_ports_are_not_counted(machine, evidence) -> None:
    sections = machine()
    sections["host"]["virtualization"] = "kvm"
    assert feed_node(evidence(sections)).link == Interval(GEN4 * 0.75, GEN4)


@pytest.mark.parametrize(
    ("section", "field", "name", "why"),
    [
        ("cpu", None, "cores", "cpu: denied"),
        ("cpu", "threads", "cores", "cpu: threads: not in the evidence"),
        ("gpu", None, "gpus", "NVML: denied"),
        ("pci", None, "link", "PCI: denied"),
        ("host", None, "link", "virtualization: denied"),
        ("numa", None, "near_cores", "NUMA: denied"),
        ("nvme", None, "nvme", "nvme: denied"),
        ("network", None, "network", "network: denied"),
        ("infiniband", None, "network", "infiniband: denied"),
        ("memory", None, "memory", "memory: denied"),
        ("memory", "total_kb", "memory", "memory: not in the evidence"),
    ],
)
def test_values_that_were_not_read_are_unknown_with_the_reason(
    machine, evidence, section, field, name, why
) -> None:
    sections = machine()
    if field:
        del sections[section][field]
    else:
        sections[section] = {"status": "denied", "why": "denied"}
    assert feed_node(evidence(sections)).unknown[name] == why


@pytest.mark.parametrize("field", ["pcie_generation", "pcie_width"])
def test_one_gpu_with_an_unknown_link_removes_the_lower_bound(machine, evidence, field) -> None:
    sections = machine()
    sections["gpu"]["gpus"][1][field] = None
    found = feed_node(evidence(sections))
    assert found.link.low == 0
    assert found.unknown["link"].startswith(f"GPU 1: {field}: ")


def test_the_node_fills_in_what_the_file_does_not_say(workload, machine, evidence) -> None:
    node = feed_node(evidence(machine()))
    feed = feed_of(workload(gpus=None, link=None), node)
    assert (feed.gpus, feed.link, feed.cpus) == (2, node.link, Interval(32, 64))
    stated = feed_of(workload(gpus=4), node)
    assert stated.gpus == 4
    assert stated.link == Interval(pytest.approx(GEN4 * 0.75), pytest.approx(GEN4))


def test_more_workers_than_cores_are_a_range_up_to_the_logical_cpus(
    workload, machine, evidence
) -> None:
    job = workload(gpus=2, workers=32, storage={"cached": "100 %"}, batch_sizes=[512])
    (node,) = answer(job, {"a": evidence(machine())}, {}).nodes
    (found,) = node.batches
    # 16 cores for each GPU, 32 logical CPUs: 4 to 8 GB/s
    assert found.transform_s == Interval(pytest.approx(0.032), pytest.approx(0.064))
    assert not found.certain
    assert found.binds is FeedStage.TRANSFORM
    assert [each.name for each in node.changes][:1] == ["gpu_preprocessing"]


def test_the_links_bound_storage_that_is_not_stated(workload, machine, evidence) -> None:
    node = feed_node(evidence(machine()))
    assert feed_of(workload(storage={"over": "nvme"}), node).storage_read == node.nvme
    assert feed_of(workload(storage={"over": "network"}), node).storage_read == node.network
    assert feed_of(workload(storage=None), node).storage_read == UNKNOWN
    stated = {"over": "network", "read": "10 GB/s"}
    assert feed_of(workload(storage=stated), node).storage_read == Interval(10e9, 10e9)
    more = {"over": "network", "read": "20 GB/s"}
    assert feed_of(workload(storage=more), node).storage_read == node.network


def test_an_unknown_number_of_gpus_does_not_count_as_one(workload, machine, evidence) -> None:
    sections = machine()
    sections["gpu"] = {"status": "absent", "why": "no NVML"}
    hosts = {"a": evidence(sections)}
    (node,) = answer(workload(gpus=None, workers=64), hosts, {}).nodes
    assert not any(each.utilization.low for each in node.batches)
    assert [(each.stage.value, each.why) for each in node.unknown] == [
        ("storage", "NVML: no NVML"),
        ("transform", "NVML: no NVML"),
    ]
    (node,) = answer(workload(gpus=2), hosts, {}).nodes
    assert node.unknown == () and all(each.certain for each in node.batches)


def test_storage_that_its_links_cannot_carry(workload, machine, evidence) -> None:
    job = workload(storage={"read": "40 GB/s", "over": "nvme"})
    (node,) = answer(job, {"a": evidence(machine())}, {}).nodes
    (found,) = node.unknown
    assert found.why == "storage.read is more than its links carry: one drive"


def test_hosts_with_the_same_values_share_one_answer(workload, machine, evidence) -> None:
    hosts = {"a": evidence(machine()), "b": evidence(machine(gpus=1)), "c": evidence(machine())}
    found = answer(workload(), hosts, {"d": "timed out"})
    assert [each.hosts for each in found.nodes] == [("a", "c"), ("b",)]
    assert found.lost == {"d": "timed out"}
    assert answer(workload(), {}, {"d": "timed out"}).nodes == ()


def test_hosts_that_differ_only_in_values_stated_in_the_file_share_one_answer(
    workload, machine, evidence
) -> None:
    narrow = machine()
    narrow["gpu"]["gpus"][0]["pcie_width"] = 8
    narrow["memory"]["total_kb"] //= 2
    hosts = {"a": evidence(machine()), "b": evidence(narrow)}
    assert len(answer(workload(link=None), hosts, {}).nodes) == 2
    (both,) = answer(workload(), hosts, {}).nodes
    assert both.hosts == ("a", "b")
    assert both.node is not None
    assert (both.node.link, both.node.memory_b, both.node.cores) == (UNKNOWN, None, 32)


def test_a_data_set_that_fits_in_memory_may_be_kept_there(workload, machine, evidence) -> None:
    hosts = {"a": evidence(machine())}
    slow = {"storage": {"read": "1 GB/s"}, "dataset_size": "150 GB"}
    (node,) = answer(workload(**slow), hosts, {}).nodes
    assert "cache" in [each.name for each in node.changes]
    (node,) = answer(workload(**{**slow, "dataset_size": "1 TB"}), hosts, {}).nodes
    assert "cache" not in [each.name for each in node.changes]
