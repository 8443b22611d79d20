"""What a command prints about a setting, for fixes of a site that are a command and its inverse."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodevet.base.bounds import Text
from nodevet.base.printable import marked
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
)

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

BEFORE = "{before}"
VALUE = re.compile(r"[A-Za-z0-9_.,:/+=@%][A-Za-z0-9_.,:/+=@% -]{0,200}")
"""What `{before}` may stand for: one line that no command takes for an option."""

Words = Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], Meta(min_length=1)]


class RunUndoable(Action, frozen=True, kw_only=True, omit_defaults=True, tag="run_undoable"):
    """A command without a shell, with one that reads its setting and one that undoes it."""

    words: Words
    undo: Words  # `{before}`: what `reads` printed before
    reads: Words
    seconds: Annotated[int, Meta(ge=1, le=7200)] | None = None

    @property
    def resource(self) -> Resource:
        return Resource(kind="output", name=shlex.join(self.reads))

    @property
    def label(self) -> str:
        return " ".join(self.words)

    @property
    def longest(self) -> int | None:
        return self.seconds

    def command(self, *, seconds: float) -> "StringCommand":
        return self._run(self.words).command(seconds=seconds)

    def undoing(self, printed: str) -> RunCommand:
        """The command that undoes it. Raises RestoreError."""
        if any(BEFORE in word for word in self.undo) and not VALUE.fullmatch(printed):
            raise RestoreError(
                f"{self.resource.label}: it printed {printed[:60]!r}, which `undo` cannot use as "
                f"{BEFORE}: make it print one plain value"
            )
        return self._run(tuple(word.replace(BEFORE, printed) for word in self.undo))

    def _run(self, words: tuple[str, ...]) -> RunCommand:
        return RunCommand(words=words, seconds=self.seconds)


class PrintedState(Form, frozen=True, kw_only=True):
    printed: Text  # stdout, without the white space around it


class OutputKind(Kind):
    form = PrintedState
    actions = (RunUndoable,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        try:
            words = shlex.split(name)
        except ValueError as error:
            return f"is not a command: {error}"
        is_plain = words and words[0] and not words[0].startswith("-") and shlex.join(words) == name
        return "" if is_plain and name.isprintable() else "is not a command, word by word"

    def describe(self, state: State) -> str:
        return marked(str(state.mapping.get("printed")))

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, RunUndoable):
                yield f"$ {marked(shlex.join(action.reads))}  # reads it, before and after"
                yield f"$ {marked(shlex.join(action.words))}"
                earlier = before.get(action.resource)
                printed = str(earlier.mapping.get("printed", "")) if earlier else BEFORE
                undo = tuple(word.replace(BEFORE, printed) for word in action.undo)
                yield f"# undone by: {marked(shlex.join(undo))}"

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Run `undo`. Raises RestoreError if the step has no such action, and as `undoing` does."""
        own = [action for action in actions if isinstance(action, RunUndoable)]
        found = [action for action in own if action.resource == before.resource]
        if len(found) != 1:
            raise RestoreError(f"{before.resource.label}: no action says how to undo it")
        return [found[0].undoing(str(before.mapping.get("printed", "")))]


KIND = OutputKind()
