"""`nodevet approve`: sign a plan that was looked at."""

import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet.cli import UserError
from nodevet.document.problems import plain_text

if TYPE_CHECKING:
    from nodevet.remedy.allowed import Policy
    from nodevet.remedy.nouns import Plan

LARGEST = 64 * 1024 * 1024  # bytes of a plan
KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


@click.command("approve")
@click.argument("file", metavar="PLAN", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Private SSH key, or a public one whose private half is in the agent.  "
    "[default: the only one in ~/.ssh]",
)
@click.option("--yes", is_flag=True, help="Sign without a question.")
@click.option("--folded", is_flag=True, help="Show one line per change, without its commands.")
@click.option("--verify", is_flag=True, help="Sign nothing: say who approved, and if it is enough.")
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder with allowed_signers and approval.yaml.  [default: .]",
)
def command(
    file: Path, key: Path | None, yes: bool, folded: bool, verify: bool, project: Path
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
    from nodevet.remedy.allowed import load
    from nodevet.remedy.nouns import read

    content = _content(file)
    plan = read(content)
    policy = load(project)
    if verify:
        code = _verify(file, content, plan, policy)
    else:
        code = _approve(file, content, plan, policy, key, yes=yes, folded=folded)
    click.get_current_context().exit(code)


def _verify(file: Path, content: bytes, plan: "Plan", policy: "Policy") -> int:
    """Say who approved; 0 where that is enough."""
    from nodevet.remedy.approve import Approved, check_approvals, signatures

    outcome = check_approvals(content, plan, signatures(file), policy, _now(), _groups(plan))
    if not isinstance(outcome, Approved):
        _say("not approved", outcome)
        return 1
    _say("not counted", outcome.ignored)
    for approval in outcome.approvals:
        click.echo(f"approved by {plain_text(approval.who)}, key {approval.key} ({approval.file})")
    return 0


def _approve(
    file: Path,
    content: bytes,
    plan: "Plan",
    policy: "Policy",
    key: Path | None,
    *,
    yes: bool,
    folded: bool,
) -> int:
    """Show, ask, sign and keep the signature; 1 where it would not count."""
    from nodevet.remedy import approve

    if unfit := approve.unfit(plan, policy, _now()):
        _say("cannot be approved", unfit)
        return 1
    click.echo(_shown(plan, folded=folded), nl=False)
    key = key or _only_key()
    if not yes and not _confirmed(plan):
        click.echo("not approved: nothing is signed", err=True)
        return 1
    signature = approve.Signature(name=f"your key {key}", data=approve.sign(content, key))
    (verdict,) = approve.signers(content, [signature], policy, _now())
    people, refused = approve.judge(plan, [verdict], policy, _groups(plan))
    if not people or isinstance(verdict, str):
        _say("your signature would not count, and is not kept", refused)
        return 1
    target = approve.signature_file(file, people[0].who)
    _keep(target, signature.data)
    click.echo(f"approved by {plain_text(people[0].who)}: {target}")
    known = approve.signatures(file)
    people, _ = approve.judge(
        plan, tuple(approve.signers(content, known, policy, _now())), policy, _groups(plan)
    )
    needed = approve.needs(plan, policy)
    enough = len(people) >= needed
    click.echo(
        f"that is enough; run it with: nodevet apply {file}"
        if enough
        else approve.too_few(plan, people, needed)
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
    id = plain_text(plan.id)
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

    from nodevet.remedy import show

    hosts = list(dict.fromkeys(step.host for step in plan.steps))
    # a plan may come from anywhere: no step may hide behind one of another host
    steps = tuple(step for host in hosts for step in plan.of(host))
    plan = msgspec.structs.replace(plan, steps=steps)
    return show.fold(plan) if folded else show.diff(plan)
