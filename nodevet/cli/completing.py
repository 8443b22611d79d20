"""Shell completion: values of options and arguments, and the scripts.

The callbacks are for `shell_complete=`. They may fail: `answer` then offers nothing.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from nodevet.cli import words as completion
from nodevet.cli.words import Suggestion

VARIABLE = "_NODEVET_COMPLETE"
PROGRAM = "nodevet"
MOST = 500  # words that are offered

Items = list[Any]  # of CompletionItem, which click before 8.4 does not know as generic
Complete = Callable[[click.Context, click.Parameter, str], Items]


def names(find: Callable[[Path], Iterable[Suggestion]]) -> Complete:
    """Completes names that the project has."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        project = ctx.params.get("project")
        return offered(find(project.folder if project else Path()), incomplete)

    return complete


def baselines(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """A baseline's name, or a file."""
    return names(completion.baselines)(ctx, param, incomplete) or _file(incomplete)


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The last word of a nodeset: a host, or a group."""
    operators = re.match(r".*[,!&^]", incomplete)
    start = operators[0] if operators else ""
    suggestions = completion.hosts(ctx.params.get("inventories") or ())
    return [
        CompletionItem(f"{start}{one.word}", help=one.about or None)
        for one in suggestions
        if one.word.startswith(incomplete[len(start) :])
    ][:MOST]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return _file(incomplete)


def plans(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """A plan of this folder, else a file."""
    return offered(completion.plans(), incomplete) or _file(incomplete)


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """A run of fixes that the project keeps, else a folder."""
    suggestions = names(completion.runs)(ctx, param, incomplete)
    return suggestions or [CompletionItem(incomplete, type="dir")]


def saved(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """A run of fixes, or a saved run of checks, else a file."""
    suggestions = names(completion.runs)(ctx, param, incomplete)
    return [*offered(completion.saved_runs(), incomplete), *suggestions] or _file(incomplete)


def among(words: Iterable[str], incomplete: str) -> Items:
    return offered((Suggestion(word) for word in words), incomplete)


checks = names(completion.checks)
fixes = names(completion.fixes)
checks_and_baselines = names(
    lambda project: (*completion.checks(project), *completion.baselines(project))
)


def offered(suggestions: Iterable[Suggestion], incomplete: str) -> Items:
    return [
        CompletionItem(one.word, help=one.about or None)
        for one in suggestions
        if one.word.startswith(incomplete)
    ][:MOST]


def _file(incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="file")]


BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line type value
    COMPREPLY=()
    for line in $(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        type=${line%%%%,*} value=${line#*,}
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        else
            COMPREPLY+=("$value")
            [[ $value == */ ]] && compopt -o nospace
        fi
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Bash breaks words at `:`, `=` and `@` too: words are read from the line, and answered as
    the part that bash replaces."""

    source_template = BASH

    def source(self) -> str:
        return ShellComplete.source(self)  # BashComplete runs bash to ask for its version

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() else (words[:-1], words[-1] if words else "")

    def format_completion(self, item: "CompletionItem[Any]") -> str:
        _, word = self.get_completion_args()
        if word.startswith("--") and "=" in word:
            word = word.partition("=")[2]
        quoted = re.sub(r"\\.|'[^']*'|\"[^\"]*\"", "", os.environ["COMP_LINE"])
        breaks = set(os.environ.get("COMP_WORDBREAKS", "")) if not set(quoted) & set("'\"") else ()
        cut = max((at + 1 for at, char in enumerate(word) if char in breaks), default=0)
        value = str(item.value)
        return f"{item.type},{value[cut:] if value.startswith(word[:cut]) else value}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def script(shell: str, program: click.Command) -> str:
    """The script that makes a shell ask `nodevet` what to offer."""
    return SHELLS[shell](program, {}, PROGRAM, VARIABLE).source()


def answer(program: click.Command, instruction: str) -> None:
    """Print what a shell asks for. Never an error: a shell would show it within the typed line."""
    shell, _, request = instruction.partition("_")
    if shell not in SHELLS or request != "complete":
        return
    click.echo(SHELLS[shell](program, {}, PROGRAM, VARIABLE).complete())
