"""Section commands."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import Record, SectionRecord
from nodevet.evidence.questions import TextAnswers


class JsonValue(Record, frozen=True, kw_only=True):
    """A value in what a command printed, which is JSON."""

    volatile = ("value",)

    path: Text  # gpus[0].speed
    there: bool | None = None
    value: bool | int | Real | Text | None = None


class CommandAnswer(Record, frozen=True, kw_only=True):
    """A command that a baseline named and allowed: how it ended, and the answers to the baseline's
    questions.
    """

    name: Text  # its words as a shell has them, and whom the baseline named to run it
    user: Text | None = None  # who ran it
    exit: int | None = None  # of one that a signal ended 128 and the signal, as a shell has it
    text: Text | None = None  # the beginning of its output, if that was to equal a text
    complaint: Text | None = None  # the beginning of its standard error, if exit is not 0
    matches: TextAnswers | None = None
    values: Annotated[tuple[JsonValue, ...], bounds.QUESTIONS] | None = None


class CommandAnswers(SectionRecord, frozen=True, kw_only=True):
    """The commands that were asked for."""

    unique = ("commands[].name", "commands[].matches[].kind+text", "commands[].values[].path")

    commands: Annotated[tuple[CommandAnswer, ...], bounds.ASKED] | None = None
