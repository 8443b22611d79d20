"""Who may approve what: the project's `allowed_signers` and `approval.yaml`; docs/approval.md.

`allowed_signers` is OpenSSH's own file and says which key is whose. nodevet reads only its
principals, to find misspelt names; ssh-keygen reads keys and options.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nodevet.base.problems import Place, Problem, did_you_mean, quoted
from nodevet.base.project import Project
from nodevet.baseline.format import SomeNames, Text, YamlPart, as_tuple, blank_names
from nodevet.document.parse import parse
from nodevet.document.text import Source, UnreadableError, display_path, read
from nodevet.document.tree import Mapping as Keys
from nodevet.document.tree import Node, Scalar, Sequence, dotted, follow, join
from nodevet.document.typed import MisfitError, typed
from nodevet.fixing.model import Risk
from nodevet.model import refuse

SIGNERS = "allowed_signers"
RULES = "approval.yaml"
OWN_HIGHEST = Risk.IDLE  # of the plans that their author may approve, where any


class PolicyError(Exception):
    """All problems of the two files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(
            sorted(problems, key=lambda problem: (problem.place.file, problem.place))
        )
        super().__init__("\n".join(map(str, self.problems)))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What some people may approve."""

    who: frozenset[str]  # principals; teams are written out
    risk: Risk  # the highest
    groups: tuple[str, ...] = ()  # of hosts; empty: every host

    def covers(self, risk: Risk, groups: Collection[str]) -> bool:
        """Whether a step of this risk, on a host of these groups, may be approved."""
        inside = not self.groups or not set(self.groups).isdisjoint(groups)
        return inside and risk.rank <= self.risk.rank

    def __str__(self) -> str:
        return f"{self.risk.value} in {', '.join(self.groups) or 'every group'}"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Both files, as read at one moment."""

    signers: str  # the text of allowed_signers
    shown: str  # its name in messages
    rules: tuple[Rule, ...] | None = None  # None: every principal may approve everything
    needed: Mapping[Risk, int]  # people who must approve
    one_way: int = 1  # people who must approve a step that nothing can undo
    author_approves: bool = True  # their own live and idle plans
    local: bool = False  # whether root may confirm live fixes of this machine

    def names(self, principal: str) -> bool:
        """Whether allowed_signers has a line for this principal."""
        return any(matches(pattern, principal) for pattern in principals(self.signers))

    def rules_for(self, names: Collection[str]) -> tuple[Rule, ...]:
        """What a person of these names may approve."""
        if self.rules is None:
            return (Rule(who=frozenset(names), risk=Risk.REBOOT),)
        return tuple(rule for rule in self.rules if not rule.who.isdisjoint(names))

    def forbids_own(self, risk: Risk) -> bool:
        """Whether the author may not be among those who approve a plan of this risk."""
        return not self.author_approves or risk.rank > OWN_HIGHEST.rank


def principals(signers: str) -> tuple[str, ...]:
    """The first field of each line of allowed_signers, a comma-separated list of patterns."""
    fields = []
    for line in signers.splitlines():
        text = line.lstrip(" \t")
        if text and not text.startswith("#"):
            field = re.match(r'"([^"]*)"|([^ \t]+)', text)
            fields.append((field[1] or field[2] or "") if field else "")
    return tuple(fields)


def matches(patterns: str, name: str) -> bool:
    """OpenSSH's pattern list: `*`, `?`, and `!` for what is left out (PATTERNS, ssh_config(5))."""
    is_match = False
    for pattern in patterns.split(","):
        form = re.escape(pattern.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(form, name, re.DOTALL):
            if pattern.startswith("!"):
                return False
            is_match = True
    return is_match


class ApproverPart(YamlPart, frozen=True, kw_only=True):
    """One entry of `approvers`."""

    who: SomeNames
    risk: Risk
    groups: SomeNames = ()

    def __post_init__(self) -> None:
        refuse(blank_names(self, "who", "groups"))


Count = Annotated[int, Meta(ge=1, le=20)]


class ApprovalsPart(YamlPart, frozen=True, kw_only=True):
    """How many people must approve."""

    live: Count = 1
    idle: Count = 1
    drain: Count = 2
    reboot: Count = 2
    one_way: Count = 2
    """A step that nothing can undo, whatever its risk."""


class RulesPart(YamlPart, frozen=True, kw_only=True):
    """The whole of approval.yaml."""

    nodevet: Literal[1]
    teams: Mapping[Text, SomeNames] = {}
    approvers: Annotated[tuple[ApproverPart, ...], Meta(min_length=1)] | None = None
    approvals: ApprovalsPart = ApprovalsPart()
    author_approves: bool = True
    local: bool = False


def load(project: Project) -> Policy:
    """The policy of a project. Raises PolicyError with every problem of both files, and if other
    users may have written one of them and the user did not accept that."""
    problems: list[Problem] = []
    signers = _read(project, SIGNERS, problems)
    if signers is not None and not principals(signers.text):
        problems.append(_no_signers(signers.shown, "names no one"))
    patterns = principals(signers.text) if signers else ()
    source = _read(project, RULES, problems) if has_rules(project) else None
    part = _rules(source, patterns, problems) if source else RulesPart(nodevet=1)
    if problems or signers is None or part is None:
        raise PolicyError(problems)
    return Policy(
        signers=signers.text,
        shown=signers.shown,
        rules=None
        if part.approvers is None
        else tuple(_rule(entry, part.teams) for entry in part.approvers),
        needed={risk: getattr(part.approvals, risk.value) for risk in Risk},
        one_way=part.approvals.one_way,
        author_approves=part.author_approves,
        local=part.local,
    )


def has_rules(project: Project) -> bool:
    """Whether the project has an approval.yaml."""
    path = project.folder / RULES
    return path.exists() or path.is_symlink()


def _read(project: Project, name: str, problems: list[Problem]) -> Source | None:
    """A file of the project as it was judged: others may create it at any moment in a folder such
    as /tmp."""
    path = project.folder / name
    if name == SIGNERS and not (path.exists() or path.is_symlink()):
        problems.append(_no_signers(display_path(path), "does not exist"))
        return None
    if why := project.rules_refusal(path):
        problems.append(Problem(Place(file=display_path(path)), "", why))
        return None
    try:
        return read(path)
    except UnreadableError as error:
        problems.append(error.problem)
        return None


def _no_signers(file: str, problem: str) -> Problem:
    message = f"{problem}, so no one can approve a plan"
    advice = "give each approver a line: alice@example.com ssh-ed25519 AAAA... (the public key)"
    return Problem(Place(file=file), "", message, advice)


def _rule(entry: ApproverPart, teams: Mapping[str, str | tuple[str, ...]]) -> Rule:
    names = frozenset(
        name for word in as_tuple(entry.who) for name in as_tuple(teams.get(word, word))
    )
    return Rule(who=names, risk=entry.risk, groups=as_tuple(entry.groups))


def _rules(source: Source, patterns: tuple[str, ...], problems: list[Problem]) -> RulesPart | None:
    """The rules, or None if they cannot be used; adds to `problems`."""

    def tell(place: Place, path: str, message: str, advice: str) -> None:
        problems.append(Problem(place.within(source.shown), path, message, advice))

    tree = parse(source)
    problems += tree.problems
    if tree.root is None:
        return None
    part = None
    try:
        part = typed(tree.root, RulesPart)
    except MisfitError as error:
        for complaint in error.complaints:
            tell(complaint.place, dotted(complaint.path), complaint.message, complaint.advice)
    teams, mentions = _mentions(tree.root)
    literal = {name for field in patterns for name in field.split(",") if not is_pattern(name)}
    for name, place in teams.items():
        if any(matches(field, name) for field in patterns):
            text = f"{quoted(name)} is also a principal in {SIGNERS}"
            tell(place, join("teams", name), text, "give the team another name")
    for path, name, place, may_be_team in mentions:
        if (may_be_team and name in teams) or any(matches(field, name) for field in patterns):
            continue
        choices = {*literal, *(teams if may_be_team else ())}
        kinds = f"a team, nor a principal of {SIGNERS}" if may_be_team else "in " + SIGNERS
        text = f"{quoted(name)} is {'neither ' if may_be_team else 'not '}{kinds}"
        advice = did_you_mean(name, choices, f"add a line for them to {SIGNERS}")
        tell(place, path, text, advice)
    return part


Mention = tuple[str, str, Place, bool]


def _mentions(root: Keys) -> tuple[dict[str, Place], list[Mention]]:
    """The teams, and all names: path, name, position, and whether the name may be a team's."""
    teams = follow(root, ("teams",))
    entries = teams.node.entries if teams.path and isinstance(teams.node, Keys) else ()
    mentions = [
        (path, name, place, False)
        for entry in entries
        for path, name, place in _texts(entry.value, join("teams", entry.key))
    ]
    approvers = root.get("approvers")
    listed = approvers.value if approvers else None
    for index, item in enumerate(listed.items if isinstance(listed, Sequence) else ()):
        value = item.get("who") if isinstance(item, Keys) else None
        if value:
            path = f"approvers[{index}].who"
            mentions += [(*item_text, True) for item_text in _texts(value.value, path)]
    return {entry.key: entry.place for entry in entries}, mentions


def _texts(node: Node, path: str) -> Iterator[tuple[str, str, Place]]:
    """One text, or a list of them, each with its path and position."""
    if isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from _texts(item, f"{path}[{index}]")
    elif isinstance(node, Scalar) and isinstance(node.value, str):
        yield path, node.value, node.place


def is_pattern(name: str) -> bool:
    """Whether a principal is a pattern and not a name."""
    return any(char in name for char in "*?!")
