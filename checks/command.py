"""The site's own commands exit and print as the site's rules require.

**Why it matters.** A vendor's tool often knows facts that no kernel file shows: firmware levels,
the state of a fabric, a licence. A site's rules run such a tool, without any Python.

**Read from** the commands that the baseline names; the site gives each rule a name. The commands
run on the node without a shell, with an empty standard input, a fixed environment and a deadline.
If nodevet is root, they run as `user` (`nobody` by default), otherwise as the user that nodevet
logs in as. The node judges the output, and the output stays there. Only three parts of it leave the
node: the values that `json` names, an output that had to equal `text`, and the error message of a
failed command. A baseline runs commands only if it says `allow_commands: true` itself; a baseline
that it extends cannot say it in its place. The probe's answers decide which baseline a host gets,
so nodevet runs the commands of every baseline whose names and groups (`applies`) may fit the host:
name one baseline with `-b` to run no others.

**Verdicts.** Each rule gives one finding, and a second one if one part of it failed and another
part could not be read. `exit` is 0 unless the rule says otherwise. `text` is the whole output.
`contains` lists texts, and `pattern` regular expressions (Python's, `^` and `$` match at each
line); the output must contain all of them. `json` is a value in an output that is JSON. A command
is unknown if it does not exist, if this user may not run it, if it took too long or printed more
than 1 MiB, or if saved evidence does not have it.

**To fix it** run the command on the node, as the user that the report names.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unknown_aspect
from nodevet.checking.expected import is_within
from nodevet.checking.named import judge_each, reads_of
from nodevet.checking.rules import (
    RuleName,
    SiteRule,
    check_texts,
    each_rule,
    questions,
    severities,
    text_aspects,
)
from nodevet.evidence.commands import CommandAnswer, CommandAnswers
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.questions import by_question
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    Verdict,
    one_or_more,
    unknown,
)

LONGEST = 1000  # characters of a word
LONGEST_NAME = 4000  # characters of all words, as a shell has them
WORDS = 64
SHOWN = 200  # characters of an error message in a finding
KEPT = 1000  # characters of an output that the probe sends back

User = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", title="a user's name")]
Wanted = bool | int | float | str
INDEX = r"\[(?:0|[1-9][0-9]{0,5})\]"
PATH = re.compile(rf"(?:[^.\[\]]+|{INDEX})(?:\.[^.\[\]]+|{INDEX})*")
STEP = re.compile(r"\[([0-9]{1,6})\]|([^.\[\]]+)")
ADVICE = "run it on the node as the same user: its output says more"


class JsonRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a value in the output must be."""

    path: str
    """The path of the value, in keys and numbers: gpus[0].link.speed."""
    value: Wanted | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None

    def __post_init__(self) -> None:
        try:
            steps(self.path)
        except ValueError as error:
            raise FieldError(str(error), "path") from None
        ends = [end for end in (self.minimum, self.maximum) if end is not None]
        if bool(ends) == (self.value is not None):
            raise ValueError("give value, or minimum, maximum or both")
        if ends != sorted(ends):
            raise ValueError("the minimum is above the maximum")


class CommandRule(SiteRule, frozen=True, kw_only=True):
    """A command, and what it must print."""

    run: Annotated[
        tuple[Annotated[str, Meta(max_length=LONGEST)], ...], Meta(min_length=1, max_length=WORDS)
    ]
    """The program and its arguments: [ibstat, -p]."""
    exit: Annotated[int, Meta(ge=0, le=255)] = 0
    text: str | None = None
    """The whole output; trailing white space is ignored."""
    contains: str | tuple[str, ...] = ()
    pattern: str | tuple[str, ...] = ()
    json: JsonRule | tuple[JsonRule, ...] = ()
    user: User = ""
    """The user that runs the command if nodevet is root; `nobody` by default."""
    deadline_s: Annotated[float, Meta(gt=0, le=60)] = 10.0

    def __post_init__(self) -> None:
        one_or_more(self, "contains", "pattern", "json")
        if not self.run[0] or any("\0" in word for word in self.run):
            raise FieldError("must be a program and its arguments", "run")
        if "/" in self.run[0] and not self.run[0].startswith("/"):
            raise FieldError("must be a program's name or absolute path", "run", 0)
        if len(self.name) > LONGEST_NAME:
            raise FieldError(f"is longer than {LONGEST_NAME} characters; run a script", "run")
        check_texts(self)

    @property
    def name(self) -> str:
        """The command line as a person would type it, with its user."""
        words = shlex.join(self.run)
        return f"{words} (as {self.user})" if self.user else words


class Params(CheckParams):
    """`command: {fabric: {run: [ibstat, -p], contains: "0x"}}` or
    `command: {bios: {run: [nvsm, show], json: {path: bios.level, minimum: 3}, user: root}}`"""

    whole: ClassVar[str] = "rules"

    rules: Mapping[RuleName, CommandRule] = {}


def steps(path: str) -> list[str | int]:
    """Keys and numbers of a path. Raises ValueError.

    >>> steps("gpus[0].link.speed")
    ['gpus', 0, 'link', 'speed']
    """
    if not path or len(path) > LONGEST or not PATH.fullmatch(path):
        raise ValueError("must be keys and numbers, such as gpus[0].link.speed")
    return [int(number) if number else key for number, key in STEP.findall(path)]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[CommandAnswers]
    rules = each_rule(section, params.rules, kind="command", by="name", shown="command")
    yield from judge_each(rules, lambda rule: judge_rule(*rule))


def judge_rule(
    subject: Subject, rule: CommandRule, command: CommandAnswer, details: Mapping[str, str]
) -> Iterator[Finding]:
    if command.exit is None:
        yield unknown(subject, why=f"exit: {command.why('exit')}", details=details)
        return
    if command.user:
        details = {**details, "ran as": command.user}
    output = command.text or "another output"
    otherwise = {"text": output, "contains": "not in it", "pattern": "not found"}
    aspects = [
        exit_aspect(rule, command.exit, command.complaint or ""),
        *text_aspects(rule, by_question(command.matches), otherwise),
        *json_aspects(rule, command),
        *cut_aspects(rule, command),
    ]
    yield from aspect_findings(subject, aspects, details, advice=lambda bad: ADVICE)


def exit_aspect(rule: CommandRule, code: int, complaint: str) -> Aspect:
    aspect = aspect_if("exit", code == rule.exit, expected=rule.exit, actual=code)
    complaint_line = (
        "" if aspect.verdict is Verdict.OK else complaint.split("\n", maxsplit=1)[0][:SHOWN]
    )
    return aspect._replace(why=complaint_line)


def cut_aspects(rule: CommandRule, command: CommandAnswer) -> Iterator[Aspect]:
    """An unknown aspect if the output differs from `text` and was too long to be read whole."""
    answer = by_question(command.matches).get(("equals", rule.text or ""))
    if answer is not None and answer.found is False and len(command.text or "") >= KEPT:
        yield unknown_aspect(
            "text", f"text: only the first {KEPT} characters of the output were read"
        )


def json_aspects(command_rule: CommandRule, command: CommandAnswer) -> Iterator[Aspect]:
    """The aspects of the values that `json` names."""
    answers = {value.path: value for value in command.values or ()}
    for json_rule in (
        command_rule.json if isinstance(command_rule.json, tuple) else (command_rule.json,)
    ):
        name, expected = f"json {json_rule.path}", span(json_rule)
        answer = answers.get(json_rule.path)
        if answer is None:
            yield unknown_aspect(name, NOT_ASKED)
        elif answer.there is None:
            yield unknown_aspect(name, f"{name}: {answer.why('there')}")
        elif not answer.there:
            yield aspect_if(name, False, expected=expected, actual="not there")
        elif answer.value is None:
            yield unknown_aspect(name, f"{name}: {answer.why('value')}")
        else:
            right = fits(json_rule, answer.value)
            yield aspect_if(name, right, expected=expected, actual=answer.value)


def span(rule: JsonRule) -> object:
    if rule.value is not None:
        return rule.value
    if rule.minimum is None:
        return f"at most {rule.maximum}"
    if rule.maximum is None:
        return f"at least {rule.minimum}"
    return f"{rule.minimum} to {rule.maximum}"


def fits(rule: JsonRule, value: Wanted) -> bool:
    """Whether a value meets the rule; a boolean or a text is not a number."""
    if rule.value is not None:
        return isinstance(value, bool) is isinstance(rule.value, bool) and value == rule.value
    if isinstance(value, (bool, str)):
        return False
    return is_within(value, rule.minimum, rule.maximum)


def question(rule: CommandRule) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "name": rule.name,
        "run": list(rule.run),
        "user": rule.user,
        "deadline": rule.deadline_s,
        **questions(rule),
    }
    values = rule.json if isinstance(rule.json, tuple) else (rule.json,)
    return {**fields, "json": [steps(value.path) for value in values]} if values else fields


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "commands.commands[].exit",
        *reads_of("commands.commands[].matches[]", "found", "kind", "text"),
        "commands.commands[].name",
        *reads_of("commands.commands[].values[]", "path", "there", "value"),
    ),
    judge=judge,
    unasked="a site's own rules",
    asks=lambda params: {"commands": tuple(question(rule) for rule in params.rules.values())},
    severities=severities,
    runs=lambda params: tuple(rule.name for rule in params.rules.values()),
)
