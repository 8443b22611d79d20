"""Deep idle states of a node with the kernel's device for their limit: set, proven, still so after
lost power, and rolled back. By the unit of nodevet, and by the real TuneD. The device is that of
this machine, which every program that asks may limit."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_nodes import Node, faulty_nodes
from msgspec.structs import replace
from tuned_on_node import START, put_tuned

from nodevet.fixing.result import Outcome
from simulated_fleet import Boot

DEVICE = "/dev/cpu_dma_latency"
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.access(DEVICE, os.W_OK), reason=f"this machine gives no {DEVICE} to a node"
    ),
]
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1, faults: [idle-deep]}
"""
FIX = "cpu_idle_states"
BASELINE = f"nodevet: 1\nexpect: {{{FIX}: 10}}\nfix: [{FIX}]\n"
UNIT, OWN = "nodevet-cpu-idle-states", "nodevet-cpu-idle-states"
MAKES = """\
[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "/bin/mknod -m 600 /dev/cpu_dma_$0 c {} {}" latency
[Install]
WantedBy=sysinit.target
"""
"""Without the name of the device: nodevet would take the unit for a manager of it."""
LIMIT = f"head -c 4 {DEVICE} | od -An -td4"
STATE = f"""\
find /etc -printf '%p %y %m %U:%G %l\\n' | grep -v '/etc/tuned$' | sort
systemctl show -p Id,LoadState,UnitFileState,ActiveState {UNIT}
{LIMIT}
"""
SITE = "[main]\ninclude=latency-performance\n[cpu]\ngovernor=performance\nforce_latency=99\n"
ACTIVE = "cat /etc/tuned/active_profile"


@pytest.fixture(scope="module")
def node(boot: Boot) -> Iterator[Node]:
    fleet = boot("idle", SCENARIO, BASELINE)
    put_tuned(fleet, "n1")
    number = Path(DEVICE).stat().st_rdev
    unit = MAKES.format(os.major(number), os.minor(number))
    place = "/etc/systemd/system/kernel-device.service"
    fleet.run_on("n1", f"printf %s {shlex.quote(unit)} >{place}; systemctl enable --now -q {place}")
    with faulty_nodes(fleet, (FIX,), state=STATE, reset="true") as nodes:
        one = nodes["n1"]
        one.terms = replace(one.terms, boot_settle=1)
        yield one


def limit(node: Node) -> int:
    """In microseconds."""
    return int(node.shell(LIMIT))


def lives_through(node: Node, limits: tuple[int, int]) -> None:
    """Plan, apply, proof, lost power, still so, rollback. `limits`: before and after the fix."""
    before, after = limits
    was = node.state()
    assert limit(node) == before
    plan = node.plan()
    assert not any(step.is_one_way for step in plan.steps)
    assert node.apply(plan).outcome is Outcome.CHANGED
    assert limit(node) == after and node.proposal().plan.steps == ()
    node.cut_power()
    node.wait_until_up()
    node.shell(f"until [ $({LIMIT}) = {after} ]; do sleep 0.1; done")
    assert node.proposal().plan.steps == ()
    assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    node.shell(f"until [ $({LIMIT}) = {before} ]; do sleep 0.1; done")
    assert node.state() == was and node.plan().steps


def test_a_unit_keeps_the_idle_state_limit_until_a_rollback(node: Node) -> None:
    lives_through(node, (2_000_000_000, 10))


def test_a_tuned_profile_keeps_the_idle_state_limit_until_a_rollback(node: Node) -> None:
    """By a profile of nodevet beside that of the site, which allows more."""
    node.shell(f"{START.format(shlex.quote(SITE))}systemctl enable -q tuned")
    node.shell(f"until [ $({LIMIT}) = 99 ]; do sleep 0.1; done")
    plan = node.plan()
    assert [resource.kind for resource in plan.steps[0].resources] == ["file", "tuned_profile"]
    lives_through(node, (99, 10))
    assert node.shell(ACTIVE) == "site\n" and OWN not in node.shell("ls /etc/tuned")
