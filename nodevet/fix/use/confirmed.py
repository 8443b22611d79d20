"""Fixes of this machine that its root confirmed at the terminal, without a signature.

Only `nodevet apply @local` confirms, for the plan that it has just made and shown. The journal of
the run records it. A later `apply --resume` or `rollback` then does no more than root on the same
machine could do anyway: a resumed run begins nothing new.
"""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.fix.approval import policy
from nodevet.fix.journal import folder, journal
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.journal.records import JournalRecord, RunBegin
from nodevet.fix.model import Plan
from nodevet.fixing.model import Risk
from nodevet.fixing.result import CONFIRMED, Approval
from nodevet.model import Host

LOCAL = CONFIRMED
"""The key in a journal's options under which a confirmation is kept."""
MACHINE_ID = Path("/etc/machine-id")
OTHERWISE = "use nodevet plan, approve and apply"
ONCE = (
    "it was confirmed once, for the steps that were started then: for the rest run nodevet "
    "apply @local again"
)


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The user who confirmed, or who became root by sudo, with their uid."""

    user: str
    uid: int

    @property
    def approval(self) -> Approval:
        """The confirmation as reports show it."""
        return Approval(
            who=self.user, key=f"uid {self.uid}, at the terminal of this machine", file=""
        )


def by_this_user() -> Confirmation:
    """The user at the terminal."""
    sudo = os.environ.get("SUDO_UID", "")
    uid = int(sudo) if os.getuid() == 0 and sudo.isascii() and sudo.isdecimal() else os.getuid()
    return Confirmation(user=folder.operator(), uid=uid)


def is_confirmed_run(records: Sequence[JournalRecord]) -> bool:
    """Whether a confirmation began the run, according to its journal."""
    return any(isinstance(record, RunBegin) and LOCAL in record.options for record in records)


def not_root() -> str:
    """Why this process may not change the machine; empty if it may."""
    return "" if os.geteuid() == 0 else "only root may fix this machine: sudo nodevet apply @local"


def project_refusal(project: Project) -> str:
    """Why the project asks for signatures; empty if it does not. Raises PolicyError."""
    if not policy.has_rules(project) or policy.load(project).local:
        return ""
    return (
        f"{project.folder / policy.RULES}: this project says who approves what: {OTHERWISE}; with "
        "`local: true` there, root may confirm live fixes of this machine"
    )


def refusal(plan: Plan, hosts: Sequence[Host]) -> str:
    """Why root cannot confirm the plan on this machine; empty if it can."""
    if why := not_root():
        return why
    if (
        len(plan.nodes) != 1
        or len(hosts) != 1
        or {step.host for step in plan.steps} - {*plan.nodes}
    ):
        return f"not a plan for this machine alone: {OTHERWISE}"
    (name, planned), (host,) = next(iter(plan.nodes.items())), hosts
    if host.name != name or not host.local or host.root != "/":
        return f"{name} is not this machine (@local): {OTHERWISE}"
    if plan.risk is not Risk.LIVE or plan.rollout.drain_hook or plan.rollout.reboots:
        return f"not everything in the plan is of risk live: {OTHERWISE}"
    try:
        machine_id = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        return f"{MACHINE_ID}: cannot tell which machine this is: {error}"
    if not machine_id or machine_id != planned.machine_id:
        return (
            f"{name} is another machine: the plan has machine id {planned.machine_id}, this "
            f"machine has {machine_id}"
        )
    return ""


def resume_refusal(run: RunFolder, plan: Plan, hosts: Sequence[Host]) -> str:
    """Why a confirmed run may not be resumed or rolled back here; empty if it may.

    Its files say what nodevet does, so only root may have been able to write them.
    """
    return refusal(plan, hosts) or next(filter(None, map(_foreign_writer, _files(run))), "")


def closing_while_live(
    plan: Plan, hosts: Sequence[Host], project: Project
) -> Callable[[bool], str]:
    """As `closing` of nodevet.fix.use.approved, for a confirmed plan."""

    def closed(reboot: bool) -> str:
        if reboot:
            return "no reboot was confirmed"
        try:
            return project_refusal(project) or refusal(plan, hosts)
        except policy.PolicyError as error:
            return f"cannot tell whether it may be confirmed: {'; '.join(str(error).splitlines())}"

    return closed


def no_more_steps(reboot: bool) -> str:
    """Why a resumed run begins nothing more."""
    return ONCE


def check(why: str) -> None:
    """Raises UserError with a reason, if there is one."""
    if why:
        raise UserError(why)


def _files(run: RunFolder) -> tuple[Path, ...]:
    names = (folder.PLAN, folder.REACH, journal.NAME)
    return (run.path.resolve(), *(run.path / name for name in names))


def _foreign_writer(path: Path) -> str:
    try:
        status = path.lstat()
    except OSError as error:
        return f"{path}: cannot be looked at: {error.strerror}"
    if status.st_uid != 0 or status.st_mode & 0o022 or stat.S_ISLNK(status.st_mode):
        return f"{path}: users other than root may have written it, so nodevet does not apply it"
    return ""
