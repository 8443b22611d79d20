"""The ```console blocks of a page: read, compared with what comes out, written again.

A block shows commands, each after `$ `, and may show below each what it prints, then a blank line
(a `$ ` right below other output is output, too). What its reader need not see stands in HTML
comments right above it:

<!-- exit: 1 0 -->            how its commands end, one number each; without it, 0
<!-- before: COMMAND -->      run first, and not shown
<!-- on: gpu004 -->           run on this node, as its root
<!-- not run: REASON -->      nothing is run
<!-- file: NAME -->           of a block of any other kind: its text is written to this file

Output is compared without what differs from run to run, see TOLERATED; `...` stands for any text.
A command below which nothing is shown may print anything.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.M | re.S)
MARK = re.compile(r"^<!-- (exit|before|on|not run|file): (.+?) -->$")
HERE = re.compile(r"<<-?'?(\w+)'?")
SHELL = {"bash", "sh", "shell", "zsh"}
TOLERATED = (
    (re.compile(r"\bSHA256:[\w+/=]{40,}"), "<key>"),  # first: a part of it may look like a time
    (re.compile(r"\b\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}\b"), "<run>"),
    (
        re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?UTC|Z|[+-]\d\d:?\d\d)?"),
        "<time>",
    ),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?( UTC)?\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|d)\b"), "<span>"),
    (re.compile(r"(<span>,? ?)+"), "<span> "),
    (re.compile(r"\broot@[\w.-]+"), "root@<host>"),
    (re.compile(r"\b(?=\w*\d)[0-9a-f]{8,64}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "<id>"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "<address>"),
    (re.compile(r"[─━]{2,}"), "──"),
)
EVERY_LINE = ((re.compile(r"(?m)^(system|machine) .*"), r"\1 <this machine's>"),)


@dataclass(frozen=True)
class Command:
    line: int  # of the page, from 1
    text: str  # with its continuation lines
    shown: str  # what the page says that it prints; empty for nothing


@dataclass(frozen=True)
class Block:
    """A fenced block of a page with the comments above it."""

    page: Path
    line: int  # of the page, from 1
    kind: str  # `console`, `yaml`, ...
    text: str
    marks: tuple[tuple[str, str], ...]

    def mark(self, name: str) -> str:
        return next((value for key, value in self.marks if key == name), "")

    @property
    def before_commands(self) -> list[str]:
        return [value for key, value in self.marks if key == "before"]

    @property
    def commands(self) -> tuple[Command, ...]:
        """Raises ValueError for a block that begins with something else."""
        lines = self.text.splitlines()
        found: list[tuple[int, int]] = []  # where a command begins, and where its output does
        number = 0
        while number < len(lines):
            start, number = number, number + 1
            quiet = start == 0 or not lines[start - 1] or (found and found[-1][1] == start)
            if lines[start].startswith("$ ") and quiet:
                while lines[number - 1].endswith("\\"):
                    number += 1
                if here := HERE.search(lines[number - 1]):
                    number = lines.index(here[1], number) + 1
                found.append((start, number))
            elif not found:
                raise ValueError(f"{self.page.name}:{self.line}: the block begins without `$ `")
        ends = [*(start for start, _ in found[1:]), len(lines)]
        return tuple(
            Command(
                self.line + 1 + start,
                "\n".join(lines[start:output])[2:],
                "\n".join(lines[output:end]).strip("\n"),
            )
            for (start, output), end in zip(found, ends, strict=True)
        )

    @property
    def exits(self) -> tuple[int, ...]:
        """How each command ends. Raises ValueError if a number is missing."""
        told = self.mark("exit").split()
        if told and len(told) != len(self.commands):
            raise ValueError(f"{self.page.name}:{self.line}: `exit` needs one number a command")
        return tuple(map(int, told)) or (0,) * len(self.commands)


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        marks = []
        for above in reversed(text[: found.start()].splitlines()):
            if not (mark := MARK.match(above)):
                break
            marks.append((mark[1], mark[2]))
        yield Block(page, line, found[1], found[2], tuple(reversed(marks)))


def is_alike(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows, but for what is tolerated."""
    wanted = ".*".join(re.escape(part.strip()) for part in plain_text(shown).split("..."))
    return re.fullmatch(wanted, plain_text(printed)) is not None


def plain_text(text: str) -> str:
    """A text without what differs from run to run, and without where its lines end: the length of
    a time moves both."""
    for pattern, word in EVERY_LINE:
        text = pattern.sub(word, text)
    text = " ".join(text.split())
    for pattern, word in TOLERATED:
        text = pattern.sub(word, text)
    return text.strip()


def rewritten_page(page: str, command: Command, printed: str) -> str:
    """The page with what a command printed in the place of what it shows."""
    lines = page.split("\n")
    start = command.line + command.text.count("\n")
    shown = command.shown.split("\n")
    assert lines[start : start + len(shown)] == shown
    return "\n".join(
        [*lines[:start], *printed.strip("\n").split("\n"), *lines[start + len(shown) :]]
    )
