"""A fix that a site writes as YAML: for a subject, a command and its inverse. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nodevet.base.uuids import GPU_UUID
from nodevet.evidence.document import Evidence
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import NODE, Finding, Subject
from nodevet.resource.output import BEFORE, RunUndoable, Words

OF_NODE, ANY, SUBJECT = "node", "*", "{subject}"
PROGRAM = re.compile(r"[A-Za-z0-9_./{]")
"""How the first word of a command begins: not as an option."""
PLAIN_ID = re.compile(r"[A-Za-z0-9_.:/@+][A-Za-z0-9_.:/@+-]{0,200}")
"""An id that may be a word of a command: no command takes it for an option."""


class SiteCommands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The commands for one subject."""

    read: Words
    """Prints the setting as it is, and nothing that changes by itself."""
    run: Words
    undo: Words
    """`{before}` in a word stands for what `read` printed before."""
    seconds: Annotated[int, Meta(ge=1, le=7200)] | None = None
    """The longest time that `run` and `undo` may take, if that is more than `--deadline`."""

    def __post_init__(self) -> None:
        for name, words in (("read", self.read), ("run", self.run), ("undo", self.undo)):
            if not PROGRAM.match(words[0]):
                raise ValueError(f"`{name}` does not begin with the name of a program")
            if name != "undo" and any(BEFORE in word for word in words):
                raise ValueError(f"`{name}` has {BEFORE}, which only `undo` may have")
            if any("\0" in word for word in words):
                raise ValueError(f"`{name}` has a zero byte")


class CommandFixFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file fixes/CHECK.yaml."""

    nodevet: Literal[1]
    title: Annotated[str, Meta(pattern=r"\S", title="text that is not empty")]
    risk: Risk
    commands: Annotated[
        Mapping[Annotated[str, Meta(min_length=1)], SiteCommands], Meta(min_length=1)
    ]
    """By the id of a finding's subject, or the UUID of a GPU; `node` for a finding about the node,
    `*` for any other one, whose id or UUID replaces `{subject}`."""
    effective: Literal["now", "restart", "reset", "reboot"] = "now"
    note: str = ""


def fix_of(file: CommandFixFile) -> Fix:
    """The fix. It makes one change for each subject that fails."""

    def plan(
        evidence: Evidence, findings: Sequence[Finding], params: Any
    ) -> Iterator[PlannedChange]:
        changes: list[PlannedChange] = []
        refused: list[str] = []
        for subject, finding in {finding.subject: finding for finding in findings}.items():
            try:
                changes.append(_change(file, finding, subject))
            except FixError as error:
                refused.append(str(error))
        yield from with_refusals(changes, refused)

    return Fix(plan=plan, risk=file.risk)


def _change(file: CommandFixFile, finding: Finding, subject: Subject) -> PlannedChange:
    name = _name(file, subject)
    action = _action(_commands(file, subject, name), name)
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        unit=finding.unit,
        subjects=(subject.label,),
        actions=(action,),
        resources=(action.resource,),
        risk=file.risk,
        effective=file.effective,
        note=file.note,
    )


def _name(file: CommandFixFile, subject: Subject) -> str:
    """What the file and its commands call a subject: its id, or the UUID of a GPU. Raises FixError
    if a GPU's UUID is unknown, or if the file names it by its number."""
    if subject.kind != "gpu":
        return subject.id
    if subject.id in file.commands:
        raise FixError(
            f"{subject.label}: the fix names it {subject.id!r}, and that number may be another "
            "GPU's at the time of the change: use its UUID"
        )
    if not GPU_UUID.fullmatch(subject.uuid or ""):
        raise FixError(f"{subject.label}: its UUID is unknown")
    return subject.uuid or ""


def _commands(file: CommandFixFile, subject: Subject, name: str) -> SiteCommands:
    """Raises FixError if the file has none for this subject."""
    names = (OF_NODE,) if subject == NODE else (name, ANY)
    commands = next((file.commands[name] for name in names if name in file.commands), None)
    if commands is None:
        raise FixError(f"{subject.label or 'the node'}: the fix has no commands for {names[0]!r}")
    return commands


def _action(commands: SiteCommands, id: str) -> RunUndoable:
    texts = (*commands.read, *commands.run, *commands.undo)
    if any(SUBJECT in text for text in texts) and not PLAIN_ID.fullmatch(id):
        raise FixError(f"{id[:60]!r} cannot be a word of a command")
    read, run, undo = (
        tuple(word.replace(SUBJECT, id) for word in words)
        for words in (commands.read, commands.run, commands.undo)
    )
    return RunUndoable(words=run, undo=undo, reads=read, seconds=commands.seconds)
