"""Write what is installed beside nodevet: its man page, from the help of its commands, and the
scripts of the shells.

.venv/bin/python docs/man.py share
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nodevet import __version__
from nodevet.cli import found, nodevet
from nodevet.cli.completing import script
from nodevet.cli.help import Command, group_commands, options_by_heading

PAGE = Path(__file__).parent / "command-line.md"
SCRIPTS = {  # where each shell looks
    "bash": "bash-completion/completions/nodevet",
    "zsh": "zsh/site-functions/_nodevet",
    "fish": "fish/vendor_completions.d/nodevet.fish",
}


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: man.py FOLDER\n")
        return 2
    for name, text in shared().items():
        target = Path(sys.argv[1], name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


def shared() -> dict[str, str]:
    """The text of each file, by its path below share/."""
    scripts = {path: script(shell, nodevet) for shell, path in SCRIPTS.items()}
    return {"man/man1/nodevet.1": man_page()} | scripts


def man_page() -> str:
    """The whole of nodevet(1), as man(7) has it, without commands of other distributions."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    root = nodevet.make_context("nodevet", [], resilient_parsing=True)
    commands = {name: _command(root, name) for name in sorted(found.modules())}
    title, *rest = _paragraphs(nodevet)
    yield f'.TH NODEVET 1 "" "nodevet {_roff(__version__)}" "User Commands"'
    yield from (".nh", ".ad l")  # options are neither hyphenated nor spread
    yield from (".SH NAME", rf"nodevet \- {_roff(title.partition(': ')[2].rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B nodevet", r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]")
    yield ".SH DESCRIPTION"
    yield from _text([title, *rest])
    groups = group_commands(commands)
    for group, names in groups.items():
        yield f".SS {_roff(group)}"
        for name in names:
            yield from _tagged(name, commands[name].get_short_help_str(200))
    for names in groups.values():
        for name in names:
            yield from _about(name, commands[name], click.Context(commands[name], root, name))
    yield ".SH ENVIRONMENT"
    for names, text in _variables():
        yield from _tagged(names, text)


def _command(root: click.Context, name: str) -> click.Command:
    command = nodevet.get_command(root, name)
    if command is None:
        raise SystemExit(f"{name} is listed and cannot be found")
    return command


def _about(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SH {_roff(f'nodevet {name}'.upper())}"
    yield from (rf"\fBnodevet {_roff(name)}\fR {_roff(usage)}", ".PP")
    yield from _text(_paragraphs(command))
    if isinstance(command, Command) and command.examples:
        yield from (".SS Examples", ".nf")
        for what, lines in command.examples:
            yield from (_line(text) for text in (f"# {what}", *lines.split("\n")))
        yield ".fi"
    if isinstance(command, click.Group):
        yield ".SS Commands"
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from _tagged(f"{name} {inner}", found.get_short_help_str(200))
    for heading, records in options_by_heading(command, context).items():
        yield f".SS {_roff(heading)}"
        for names, text in records:
            yield from _tagged(names, text)


def _paragraphs(command: click.Command) -> list[str]:
    return inspect.cleandoc(command.help or "").split("\n\n")


def _text(paragraphs: list[str]) -> Iterator[str]:
    """Paragraphs as click has them: after `\\b` a line is a line."""
    for paragraph in paragraphs:
        yield ".PP"
        if paragraph.startswith("\b\n"):
            yield from (".nf", *map(_line, paragraph.split("\n")[1:]), ".fi")
        else:
            yield _line(" ".join(paragraph.split()))


def _tagged(tag: str, text: str) -> Iterator[str]:
    yield from (".TP", rf"\fB{_roff(tag)}\fR", _line(" ".join(text.split())))


def _line(text: str) -> str:
    """A line of text, which no request of roff begins."""
    return rf"\&{_roff(text)}" if text.startswith((".", "'")) else _roff(text)


def _roff(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga").replace("'", r"\(aq")


def _variables() -> list[tuple[str, str]]:
    """The rows of the page's table of environment variables."""
    table = PAGE.read_text(encoding="utf-8").split("## Environment")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|$", table, re.MULTILINE)
    return [(names.replace("`", ""), text.replace("`", "")) for names, text in rows]


if __name__ == "__main__":
    sys.exit(main())
