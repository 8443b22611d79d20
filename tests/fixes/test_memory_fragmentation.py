"""Memory is compacted once, at a step that nothing undoes."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.remote.look import look
from nodevet.resource import Resource, State, holds, lost, one_way, restore
from nodevet.resource.kernel import WriteKernel

COMPACT = "/proc/sys/vm/compact_memory"


def node(share):
    return {"kernel": {"free_huge_percent": share}}


def test_memory_is_compacted_and_nothing_is_set_at_boot(plan):
    (change,) = plan("memory_fragmentation", 20, node(4.5))
    assert change.actions == (WriteKernel(path=COMPACT, value="1"),)
    assert (change.risk, change.expected, change.actual) == (Risk.LIVE, "at least 20 %", "4.5 %")
    assert one_way(change.actions) == change.actions
    assert change.actions[0].longest == 900
    assert plan("memory_fragmentation", 20, node(20.5)) == []


def test_a_share_that_was_not_read_plans_nothing(plan, wrong, evidence):
    findings = wrong("memory_fragmentation", 20, evidence(node(4.5)))
    for sections in (node(None), {}):
        with pytest.raises(FixError, match="does not come from this evidence"):
            plan("memory_fragmentation", 20, sections, findings)


def test_a_file_without_a_state_is_not_restored(tmp_path):
    def seen():
        request = {"root": str(tmp_path), "resources": [{"kind": "kernel", "name": COMPACT}]}
        return State(resource=Resource(kind="kernel", name=COMPACT), **look(request)[0])

    assert not seen().exists
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/compact_memory").touch(0o200)
    action, state = WriteKernel(path=COMPACT, value="1"), seen()
    assert (state.exists, state.why) == (True, "")
    assert restore(state) == () and holds(action, [state]) is None
    assert lost([action], [state], [state]) == {}
    assert not one_way([WriteKernel(path="/proc/sys/vm/swappiness", value="1")])
