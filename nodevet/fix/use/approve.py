"""Approve: show a plan, sign it, and report who signed it."""

from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct

from nodevet.base.errors import UserError
from nodevet.base.files import read_input
from nodevet.base.outputs import file_errors, replace
from nodevet.base.project import Project
from nodevet.document import kinds
from nodevet.document.kinds import DocumentKind
from nodevet.fix.approval import signatures, verify
from nodevet.fix.approval.policy import Policy, load
from nodevet.fix.approval.verify import Approvable, Approved, Signature
from nodevet.fix.journal.contents import ContentStore, contents_beside
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.model import Plan, PlanError
from nodevet.fix.plan import summary
from nodevet.fix.plan.plan_file import read
from nodevet.fix.plan.render import View
from nodevet.fix.plan_sheet import approval_sheet
from nodevet.sheet import terminal

LARGEST = 64 * 1024 * 1024  # bytes of a plan
SIGNATURE = b"-----BEGIN SSH SIGNATURE-----"
KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A request to approve a plan, or the rollback of its run."""

    file: Path  # its signatures lie next to this one
    content: bytes
    plan: Plan
    policy: Policy
    rollback: bool

    @property
    def namespace(self) -> str:
        return signatures.ROLLBACK if self.rollback else signatures.NAMESPACE

    @property
    def contents(self) -> ContentStore:
        """Contents of files when the plan was made, or when its run read them."""
        return RunFolder(self.file.parent).contents if self.rollback else contents_beside(self.file)

    @property
    def judged_plan(self) -> Plan:
        """The plan that approvals are judged by."""
        return verify.as_rollback(self.plan) if self.rollback else self.plan

    @property
    def approvable(self) -> Approvable:
        """The current request. The groups are the plan's; `apply` uses the inventory's later."""
        return Approvable(
            plan_bytes=self.content,
            plan=self.plan,
            policy=self.policy,
            now=_utc_now(),
            hosts_groups={host: node.groups for host, node in self.plan.nodes.items()},
        )

    def check(self) -> Approved | list[str]:
        """The approvals, or every reason why they are not enough."""
        check = verify.check_rollback if self.rollback else verify.check_approvals
        return check(self.approvable, verify.signatures(self.file))

    def problems(self) -> list[str]:
        """Why nobody can approve it."""
        return verify.plan_problems(
            self.judged_plan, self.policy, _utc_now(), expires=not self.rollback
        )


class Signed(Struct, frozen=True, kw_only=True):
    """A signature that counts and was kept. `missing`: what is still missing; empty if nothing."""

    who: str
    file: Path
    missing: str


class NotCountedError(Exception):
    """A signature would not count, so nodevet does not keep it; `reasons` say why."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


def request(file: Path, project: Project, *, rollback: bool) -> ApprovalRequest:
    """The request for a plan's file, or for a rollback of the run in a folder.

    Raises UserError and PolicyError.
    """
    content, plan = _read(file, rollback=rollback)
    return ApprovalRequest(
        file=file / "rollback" if rollback else file,
        content=content,
        plan=plan,
        policy=load(project),
        rollback=rollback,
    )


def sign(request: ApprovalRequest, key: Path) -> Signed:
    """Sign, and keep the signature if it counts.

    Raises NotCountedError, ApproveError if ssh-keygen fails, and FileError.
    """
    data = verify.sign(request.content, key, request.namespace)
    signature = Signature(name=f"your key {key}", data=data)
    approval = verify.check_signature(request.approvable, signature, rollback=request.rollback)
    if isinstance(approval, list):
        raise NotCountedError(tuple(approval))
    target = verify.signature_file(request.file, approval.who)
    with file_errors(target):
        replace(target, data.decode("ascii"))
    files = verify.signatures(request.file)
    missing = verify.missing(
        request.approvable,
        files,
        rollback=request.rollback,
        file=str(request.file.parent if request.rollback else request.file),
    )
    return Signed(who=approval.who, file=target, missing=missing)


def only_key(folder: Path) -> Path:
    """The SSH key in a folder if there is exactly one. Raises UserError."""
    keys = [folder / name for name in KEYS if (folder / name).is_file()]
    if len(keys) == 1:
        return keys[0]
    several = ", ".join(map(str, keys))
    raise UserError(
        f"several keys could sign: {several}; say which with --key"
        if keys
        else f"no SSH key in {folder}; name one with --key"
    )


def request_text(
    request: ApprovalRequest,
    view: View = View.DIFF,
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """The request, its approvals so far, and the plan. Raises ApproveError."""
    plan, now, rollback = request.judged_plan, _utc_now(), request.rollback
    files = verify.signatures(request.file)
    standing = verify.how_far(request.approvable, files, rollback=rollback)
    sheet = approval_sheet(
        plan,
        view,
        request.contents.find,
        summary.heading(plan, now, rollback=rollback),
        summary.facts(plan, standing, now, rollback=rollback),
    )
    return terminal.render(sheet, colour=colour, width=width)


def _read(file: Path, *, rollback: bool) -> tuple[bytes, Plan]:
    """The plan, as bytes and decoded. Raises UserError, which says what the file is instead."""
    if rollback:
        path = _plan_of_run(file)
    elif file.is_dir():
        is_run = (file / "journal.jsonl").exists()
        raise UserError(
            f"{file}: this is the folder of a run; to approve its rollback: "
            f"nodevet approve --rollback {file}"
            if is_run
            else f"{file}: is a folder; name the file of a plan"
        )
    elif why := kinds.wrong_kind_text(file, DocumentKind.PLAN):
        raise UserError(f"{file}: {why}; nodevet plan -o plan.json writes a plan")
    else:
        path = file
    content = _content(path)
    if content.startswith(SIGNATURE):
        raise UserError(f"{file}: this is a signature; name its plan")
    try:
        return content, read(content)
    except PlanError as error:
        raise UserError(f"{path}: {error}") from error


def _plan_of_run(folder: Path) -> Path:
    """The file of a run's plan. Raises UserError if the folder is not that of a run."""
    path = folder / "plan.json"
    if path.is_file():
        return path
    runs = sorted(plan.parent for plan in folder.glob("*/plan.json"))
    command = f"nodevet approve --rollback {runs[-1] if runs else 'runs/7f3a91c2-1'}"
    if folder.is_dir():
        raise UserError(
            f"{folder}: is not the folder of a run, it has no plan.json; give: {command}"
        )
    problem = "is not the folder of a run" if folder.exists() else "does not exist"
    raise UserError(f"{folder}: {problem}; give: {command}")


def _content(file: Path) -> bytes:
    try:
        content = read_input(file, LARGEST + 1)
    except FileNotFoundError as error:
        raise UserError(f"{file}: does not exist; nodevet plan -o {file} writes a plan") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise UserError(f"{file}: larger than {LARGEST:,} bytes; is this a plan?")
    return content


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)
