"""NUMA nodes of memory alone: Grace Hopper's GPU memory, CXL."""

import pytest

from nodevet.model import Verdict

CPUS = {"cpulist": "0-71", "cpus_present": "0-71"}
ALONE = {"cpulist": "", "cpus_present": ""}


@pytest.fixture
def say(ask, make_params, make_document):
    """The findings on a GPU of node 1 and the process that computes on it."""

    def of(check, params, *nodes, mems="0-1"):
        gpu = {"index": 0, "bus_id": "0009:01:00.0", "processes": [{"pid": 7}]}
        process = {"pid": 7, "cpus_allowed": "0-71", "mems_allowed": mems}
        sections = {
            "gpu": {"count": 1, "gpus": [gpu]},
            "numa": {
                "online": f"0-{len(nodes) - 1}",
                "nodes": [{"id": at, **node} for at, node in enumerate(nodes)],
            },
            "pci": {
                "functions": [{"address": "0009:01:00.0", "numa_node": 1, "local_cpulist": ""}]
            },
            "processes": {"complete": True, "processes": [process]},
        }
        (found,) = ask(check, make_params(check, params), make_document(sections))
        return found

    return of


def test_d21_the_numa_node_of_gpu_memory_does_not_fail(say):
    memory = ALONE | {"distances": [80, 10]}
    found = say("numa_locality", "platform", CPUS, memory)
    assert (found.verdict, found.actual) == (Verdict.OK, 1)
    assert say("numa_locality", {"gpus": {0: 0}}, CPUS, memory).verdict is Verdict.OK
    assert say("numa_binding", True, CPUS, memory).verdict is Verdict.NOT_APPLICABLE


def test_d21_a_process_may_use_the_memory_of_its_gpu(say):
    second = {"cpulist": "72-143", "cpus_present": "72-143"}
    memory = ALONE | {"distances": [80, 10, 120]}
    assert say("numa_binding", True, CPUS, memory, second).verdict is Verdict.OK
    loose = say("numa_binding", True, CPUS, memory, second, mems="0-2")
    assert (loose.verdict, loose.expected) == (Verdict.FAIL, {"memory": "0,1"})


def test_d21_a_numa_node_with_offline_cpus_is_not_a_memory_only_node(say):
    offline = {"cpulist": "", "cpus_present": "72-143", "distances": [80, 10]}
    found = say("numa_locality", "platform", CPUS, offline)
    assert (found.verdict, found.why) == (
        Verdict.UNKNOWN,
        "no CPU of NUMA node 1 is online",
    )
