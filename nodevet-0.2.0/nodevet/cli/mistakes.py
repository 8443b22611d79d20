"""Errors of click about a command line, reworded, with a suggestion."""

import re
import sys
from collections.abc import Iterable, Sequence

import click

from nodevet.base.problems import did_you_mean, nearest


def reworded(error: click.ClickException) -> click.ClickException:
    """The error with a message that suggests what is near; others as they are."""
    context: click.Context | None = getattr(error, "ctx", None)
    if context is None:
        return error
    if isinstance(error, click.NoSuchOption):
        known = _options(context.command)
        word = _whole(error.option_name, sys.argv[1:])
        return click.UsageError(_unknown("option", word, known, context), context)
    match = re.match(r"No such command '(.*)'", error.message)
    if match and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        return click.UsageError(_unknown("command", match[1], known, context), context)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(error, error.param)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _choice(error, error.param)
    return error


def _options(command: click.Command) -> list[str]:
    """The names of all options of a command, such as --second-try and --no-second-try."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return [name for option in options for name in (*option.opts, *option.secondary_opts)]


def _whole(option: str, words: Iterable[str]) -> str:
    """The word that an unknown letter stands in: `-evidence` for `-e`, as if it were of letters."""
    long = (word for word in words if re.match(r"-[a-z][a-z-]{2,}", word))
    return next((word for word in long if word.startswith(option)), option)


DRY = "`nodevet check` changes nothing; `nodevet plan` shows what fixes would change"
MEANT = {  # words of other tools, and what nodevet has instead
    **dict.fromkeys(("--dry-run", "--dryrun", "--noop", "--check", "--diff", "--what-if"), DRY),
    **dict.fromkeys(("--json", "--yaml"), "--format json prints JSON"),
    **dict.fromkeys(
        ("--yes", "--assume-yes", "--auto-approve"),
        "no option skips the question: `nodevet approve` signs a plan, `nodevet apply` applies it",
    ),
    **dict.fromkeys(("--inventory-file", "--hostfile"), "-i FILE reads an inventory"),
    "--hosts": "--limit chooses hosts from an inventory; without one, name them as arguments",
    **dict.fromkeys(("--tags", "--skip-tags"), "--only and --skip of `nodevet check` name checks"),
    **dict.fromkeys(("--become", "--ask-become-pass"), "--sudo reads hosts as root"),
    **dict.fromkeys(("--forks", "--threads", "--jobs"), "--parallel sets how many hosts at once"),
    **dict.fromkeys(("doctor", "scan", "audit", "verify"), "`nodevet check` vets hosts"),
    "validate": "`nodevet lint` checks baselines, `nodevet check` vets hosts",
    **dict.fromkeys(("remediate", "repair", "converge"), "`nodevet plan` plans fixes"),
    **dict.fromkeys(("undo", "revert"), "`nodevet rollback` reverts a run"),
    "passport": "`nodevet history part` writes what an RMA needs",
    "fix": "`nodevet apply @local` fixes this machine; `nodevet plan` plans fixes for hosts",
    **dict.fromkeys(
        ("--launcher", "--site", "--engine"), "nodevet.toml says where hosts are visited from"
    ),
    "drain": "`nodevet slurm` drains nodes; for a plan, your --drain-hook does (docs/fixes.md)",
}


def _unknown(what: str, word: str, known: Sequence[str], context: click.Context) -> str:
    meant = MEANT.get(word.partition("=")[0], "")
    if meant and _applies(meant, known):
        return f"no such {what} {word!r}; {meant}"
    options = {name.lstrip("-"): name for name in known}
    best = nearest(word.lstrip("-"), options)
    near = f"did you mean {options[best]}?" if best else f"see: {context.command_path} --help"
    return f"no such {what} {word!r}; {near}"


def _applies(advice: str, known: Sequence[str]) -> bool:
    """Whether the command has the option that the advice begins with, if it begins with one."""
    return not advice.startswith("-") or advice.partition(" ")[0] in known


def _missing(error: click.MissingParameter, param: click.Parameter) -> click.ClickException:
    """A missing choice, on one line with the possible values."""
    if not isinstance(param.type, click.Choice):
        return error
    choices = ", ".join(str(choice) for choice in param.type.choices)
    return click.UsageError(f"one of these is missing: {choices}", error.ctx)


def _choice(error: click.BadParameter, param: click.Parameter) -> click.ClickException:
    """Not one of the choices: which there are, and which is near."""
    match = re.match(r"'(.*)' is not one of ", error.message)
    if not match or not isinstance(param.type, click.Choice):
        return error
    choices = [str(choice) for choice in param.type.choices]
    text = f"{match[1]!r} is not one of {', '.join(choices)}"
    near = did_you_mean(match[1], choices)
    return click.BadParameter(f"{text}; {near}" if near else text, error.ctx, param)
