"""`nodevet approve`: sign a plan that was looked at."""

import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from nodevet.cli import UserError
from nodevet.printable import brief

if TYPE_CHECKING:
    from nodevet.remedy.approval.policy import Policy
    from nodevet.remedy.approval.verify import Approved
    from nodevet.remedy.model import Plan

LARGEST = 64 * 1024 * 1024  # bytes of a plan
KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


@click.command("approve")
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Private SSH key, or a public one whose private half is in the agent.  "
    "[default: the only one in ~/.ssh]",
)
@click.option("--yes", is_flag=True, help="Sign without a question.")
@click.option("--folded", is_flag=True, help="Show one line per change, without its commands.")
@click.option(
    "--rollback",
    is_flag=True,
    help="PLAN is the folder of a run: approve that somebody rolls it back who did not apply it.",
)
@click.option("--verify", is_flag=True, help="Sign nothing: say who approved, and if it is enough.")
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder with allowed_signers and approval.yaml.  [default: .]",
)
def command(
    file: Path,
    key: Path | None,
    yes: bool,
    folded: bool,
    rollback: bool,
    verify: bool,
    project: Path,
) -> None:
    """Show PLAN once more and sign it with your SSH key.

    The signature is kept beside the plan, in PLAN.<principal>.sig. Whose key it is, who may
    approve what and how many must, the project's allowed_signers and approval.yaml say.

    \b
    Exit codes:
      0  signed; with --verify: the approvals are enough
      1  not signed: refused, or not confirmed; with --verify: not enough
      2  usage or configuration
    """
    from nodevet.remedy.approval.policy import load
    from nodevet.remedy.model import read

    content = _content(file / "plan.json" if rollback else file)
    asked = _Asked(
        file=file / "rollback" if rollback else file,
        content=content,
        plan=read(content),
        policy=load(project),
        rollback=rollback,
    )
    code = _verify(asked) if verify else _approve(asked, key, yes=yes, folded=folded)
    click.get_current_context().exit(code)


class _Asked(NamedTuple):
    """What is to be approved. `file`: beside which its signatures are."""

    file: Path
    content: bytes
    plan: "Plan"
    policy: "Policy"
    rollback: bool

    @property
    def namespace(self) -> str:
        from nodevet.remedy.approval import signatures

        return signatures.ROLLBACK if self.rollback else signatures.NAMESPACE

    def check(self) -> "Approved | list[str]":
        from nodevet.remedy.approval import verify

        check = verify.check_rollback if self.rollback else verify.check_approvals
        found = verify.signatures(self.file)
        return check(self.content, self.plan, found, self.policy, _now(), _groups(self.plan))

    def unfit(self) -> list[str]:
        from nodevet.remedy.approval import verify

        plan = verify.back(self.plan) if self.rollback else self.plan
        return verify.unfit(plan, self.policy, _now(), expires=not self.rollback)


def _verify(asked: _Asked) -> int:
    """Say who approved; 0 where that is enough."""
    from nodevet.remedy.approval.verify import Approved

    outcome = asked.check()
    if not isinstance(outcome, Approved):
        _say("not approved", outcome)
        return 1
    _say("not counted", outcome.ignored)
    for approval in outcome.approvals:
        click.echo(f"approved by {brief(approval.who)}, key {approval.key} ({approval.file})")
    return 0


def _approve(asked: _Asked, key: Path | None, *, yes: bool, folded: bool) -> int:
    """Show, ask, sign and keep the signature; 1 where it would not count."""
    from nodevet.remedy.approval import verify

    content, policy = asked.content, asked.policy
    plan = verify.back(asked.plan) if asked.rollback else asked.plan
    if unfit := asked.unfit():
        _say("cannot be approved", unfit)
        return 1
    if asked.rollback:
        click.echo("that all of this is taken back, on the nodes where it was done:")
    click.echo(_shown(asked.plan, folded=folded), nl=False)
    key = key or _only_key()
    if not yes and not _confirmed(plan):
        click.echo("not approved: nothing is signed", err=True)
        return 1
    data = verify.sign(content, key, asked.namespace)
    signature = verify.Signature(name=f"your key {key}", data=data)
    (verdict,) = verify.signers(content, [signature], policy, _now(), asked.namespace)
    people, refused = verify.judge(plan, [verdict], policy, _groups(plan))
    if not people or isinstance(verdict, str):
        _say("your signature would not count, and is not kept", refused)
        return 1
    target = verify.signature_file(asked.file, people[0].who)
    _keep(target, signature.data)
    click.echo(f"approved by {brief(people[0].who)}: {target}")
    verdicts = verify.signers(
        content, verify.signatures(asked.file), policy, _now(), asked.namespace
    )
    people, _ = verify.judge(plan, tuple(verdicts), policy, _groups(plan))
    needed = verify.needs(plan, policy)
    way = (
        f"nodevet rollback {asked.file.parent}" if asked.rollback else f"nodevet apply {asked.file}"
    )
    click.echo(
        f"that is enough; run it with: {way}"
        if len(people) >= needed
        else verify.too_few(plan, people, needed, rollback=asked.rollback)
    )
    return 0


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as plan:
            content = plan.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise UserError(f"{file}: larger than {LARGEST:,} bytes; is this a plan?")
    return content


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _groups(plan: "Plan") -> Mapping[str, tuple[str, ...]]:
    """The groups as the plan has them; `apply` judges by the inventory's once more."""
    return {host: node.groups for host, node in plan.nodes.items()}


def _confirmed(plan: "Plan") -> bool:
    """Whether the plan's id was typed. Raises UserError where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UserError("nobody to ask: standard input is no terminal; --yes signs without asking")
    id = brief(plan.id)
    typed = click.prompt(f"Type {id} to approve", default="", show_default=False, err=True)
    return str(typed).strip() == plan.id


def _only_key() -> Path:
    """The user's SSH key where there is exactly one. Raises UserError."""
    folder = Path.home() / ".ssh"
    found = [folder / name for name in KEYS if (folder / name).is_file()]
    if len(found) == 1:
        return found[0]
    several = ", ".join(map(str, found))
    raise UserError(
        f"several keys could sign: {several}; say which with --key"
        if found
        else f"no SSH key in {folder}; name one with --key"
    )


def _keep(path: Path, signature: bytes) -> None:
    from nodevet.cli.output import replace

    try:
        replace(path, signature.decode("ascii"))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _say(what: str, reasons: "tuple[str, ...] | list[str]") -> None:
    for reason in reasons:
        click.echo(f"{what}: {reason}", err=True)


def _shown(plan: "Plan", *, folded: bool) -> str:
    """The plan for people: every action that will run, or one line per change."""
    import msgspec

    from nodevet.remedy.plan import render

    hosts = list(dict.fromkeys(step.host for step in plan.steps))
    # a plan may come from anywhere: no step may hide behind one of another host
    steps = tuple(step for host in hosts for step in plan.of(host))
    plan = msgspec.structs.replace(plan, steps=steps)
    return render.fold(plan) if folded else render.diff(plan)
