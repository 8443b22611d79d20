"""The plan. An approver signs its JSON byte by byte."""

import re
from collections.abc import Mapping

import msgspec

from nodevet.checking.bmc_identity import MachineIds
from nodevet.fix.settings import Rollout
from nodevet.fixing.model import Risk
from nodevet.model import Value
from nodevet.resource import Actions, Resource, State, one_way

VERSION = 3

GPU_LABEL = re.compile(r"GPU [0-9]{1,7}")


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that a plan was made on; nodevet refuses another node of this name."""

    machine_id: str
    boot_id: str
    baseline: str  # its name
    groups: tuple[str, ...] = ()
    hostname: str = ""  # the node's own; with `gpus` it identifies clones of one machine id
    gpus: tuple[str, ...] = ()  # UUIDs, without virtual GPUs, whose UUIDs may change
    ids: MachineIds = MachineIds()  # its BMC must report the same
    bmc: str = ""  # of a plan with --power-cycle: how its BMC is proven, or why it is not


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fix on one node. `id` is unique in its plan: gpu001/power_limit/1."""

    id: str
    host: str
    fix: str  # also the check that it repairs
    subjects: tuple[str, ...]  # labels: GPU 4
    subject_uuids: tuple[str, ...] = ()  # of the GPUs among them; none if one may change
    expected: Value
    actual: Value
    unit: str = ""
    risk: Risk
    effective: str = "now"  # now, restart, reset, reboot
    services: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the fix, given when it was planned: now, restart
    gpus: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # services of monitoring clients, stopped and started around it
    actions: Actions
    keep: Actions = ()
    """Once the check passes after the plan's reboot; without that proof the step is reverted."""
    resources: tuple[Resource, ...]
    before: tuple[State, ...] = ()  # states of the resources when it was planned
    reason: str  # the finding in words, and file:line of the baseline
    note: str = ""

    @property
    def all_actions(self) -> Actions:
        """`actions`, then `keep`; the journal counts them so."""
        return (*self.actions, *self.keep)

    @property
    def uuid_by_label(self) -> Mapping[str, str]:
        """The UUID of each GPU among the subjects; empty if `subject_uuids` is."""
        labels = filter(GPU_LABEL.fullmatch, self.subjects)
        return dict(zip(labels, self.subject_uuids, strict=False))

    @property
    def is_one_way(self) -> bool:
        """Whether nothing can undo a part of it."""
        return bool(one_way(self.all_actions))


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why the plan leaves out a failed check that has a fix."""

    host: str
    fix: str
    why: str
    advice: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps, in the order in which each node runs them."""

    nodevet_plan: int = VERSION
    nodevet: str = ""  # the version that made it, and that applies it
    id: str  # 8 to 16 letters and digits
    author: str  # principal, as in allowed_signers
    created: str  # ISO 8601 with offset
    expires: str
    baselines: Mapping[str, str]  # name -> sha256 of the files that it came from
    nodes: Mapping[str, PlannedNode]
    steps: tuple[Step, ...]
    conflicts: tuple[Conflict, ...] = ()
    rollout: Rollout = Rollout()

    @property
    def risk(self) -> Risk | None:
        """The highest of its steps."""
        return max(map(self.risk_of, self.steps), key=lambda risk: risk.rank, default=None)

    def risk_of(self, step: Step) -> Risk:
        """The risk of a step, or reboot if the plan reboots its node."""
        return Risk.REBOOT if self.rollout.reboots else step.risk

    def host_steps(self, host: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.host == host)


class PlanError(Exception):
    """nodevet cannot read or use a plan; the message says why and what to do."""
