"""Memory is compacted once, at a step that nothing undoes."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.remote.look import look
from nodevet.resource import (
    Resource,
    RunCommand,
    State,
    holds,
    irreversible_effects,
    one_way,
    restore,
)
from nodevet.resource.kernel import WriteKernel

COMPACT, DROP = "/proc/sys/vm/compact_memory", "/proc/sys/vm/drop_caches"
LIMITED = {"minimum_percent": 20, "maximum_cache_percent": 10}


def node(share, cached=None):
    caches = {"buffers_kb": 0, "shmem_kb": 0, "slab_reclaimable_kb": 0, "total_kb": 100}
    memory = {} if cached is None else {"memory": {**caches, "cached_kb": cached}}
    return {"kernel": {"free_huge_percent": share}, **memory}


def test_memory_is_compacted_and_nothing_is_set_at_boot(plan):
    (change,) = plan("memory_fragmentation", 20, node(4.5))
    assert change.actions == (WriteKernel(path=COMPACT, value="1"),)
    assert (change.risk, change.expected, change.actual) == (Risk.LIVE, "at least 20 %", "4.5 %")
    assert one_way(change.actions) == change.actions
    assert change.actions[0].longest == 900
    assert plan("memory_fragmentation", 20, node(20.5)) == []


def test_caches_are_dropped_first_and_only_if_the_baseline_limits_them(plan):
    drops, compacts = plan("memory_fragmentation", LIMITED, node(4.5, 60))
    assert drops.actions == (
        RunCommand(words=("sync",), seconds=900),
        WriteKernel(path=DROP, value="3"),
    )
    assert one_way(drops.actions) == drops.actions[1:] and drops.actions[1].longest == 900
    assert (drops.expected, drops.actual) == ("at most 10 %", "60.0 %")
    assert (drops.subjects, drops.risk) == (("memory caches",), Risk.LIVE)
    assert [action.path for action in compacts.actions] == [COMPACT]
    for params, sections in (
        (20, node(4.5, 60)),  # not limited
        (LIMITED, node(4.5, 10)),  # small
    ):
        (only,) = plan("memory_fragmentation", params, sections)
        assert [action.path for action in only.actions] == [COMPACT]
    assert plan("memory_fragmentation", LIMITED, node(20, 60)) == [], "full, and no obstacle"


def test_a_fragmentation_value_that_was_not_read_plans_nothing(plan, wrong, evidence):
    findings = wrong("memory_fragmentation", 20, evidence(node(4.5)))
    for sections in (node(None), {}):
        with pytest.raises(FixError, match="does not come from this evidence"):
            plan("memory_fragmentation", 20, sections, findings)


@pytest.mark.parametrize("path", [COMPACT, DROP])
def test_write_only_kernel_files_are_not_restored(tmp_path, path):
    def seen():
        request = {"root": str(tmp_path), "resources": [{"kind": "kernel", "name": path}]}
        return State(resource=Resource(kind="kernel", name=path), **look(request)[0])

    assert not seen().exists
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / path[1:]).touch(0o200)
    action, state = WriteKernel(path=path, value="1"), seen()
    assert (state.exists, state.why) == (True, "")
    assert restore(state) == () and holds(action, [state]) is None
    assert irreversible_effects([action], [state], [state]) == {}
    assert not one_way([WriteKernel(path="/proc/sys/vm/swappiness", value="1")])
