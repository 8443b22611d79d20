"""Files match the site's own rules.

**Why it matters.** A site's own files (limits, mount helpers, banners, certificates) drift apart
like everything else, and no other check of nodevet knows them.

**Read from** the files that the baseline names; the site gives each rule a name. nodevet calls
stat(2), following links, and asks the rule's questions about the text. The node judges the text,
and the text stays there. The names of users and groups are the node's.

**Verdicts.** Each rule gives one finding, and a second one if one part of it failed and another
part could not be read. A file that does not exist fails every rule but `exists: false`. `text` is
the whole text. `contains` lists texts, and `pattern` regular expressions (Python's, `^` and `$`
match at each line); the file must contain all of them. If not every user of the node may read the
file, `text`, `contains`, `pattern` and `sha256` are unknown unless the baseline says
`allow_file_text: true`: each answer gives away a part of the text. They are also unknown for a file
larger than 1 MiB. A pattern that takes more than a second is unknown, and so is everything that the
probe may not read or that saved evidence does not have.

**To fix it** use the tool that manages the file: nodevet does not know what the file is for.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unknown_aspect
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
from nodevet.evidence.document import Evidence
from nodevet.evidence.files import AskedFile, Files
from nodevet.evidence.questions import by_question
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    fail,
    ok,
    one_or_more,
    unknown,
)

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", title="a SHA-256 of 64 hex digits")]
Mode = Annotated[str, Meta(pattern="^0?[0-7]{3,4}$", title='permissions in octal: "0644"')]
Owner = Annotated[str, Meta(min_length=1, max_length=256)] | Annotated[int, Meta(ge=0)]
JUDGED_FIELDS = ("text", "contains", "pattern", "sha256", "mode", "owner", "group")
OTHERWISE = {"text": "another text", "contains": "not in it", "pattern": "not found"}
ADVICE = "correct it with the tool that manages this file; `ls -l` shows when it changed"


class FileRule(SiteRule, frozen=True, kw_only=True):
    """A file, and what it must be."""

    path: str
    """The absolute path."""
    exists: bool = True
    text: str | None = None
    """The whole text; trailing white space is ignored."""
    contains: str | tuple[str, ...] = ()
    pattern: str | tuple[str, ...] = ()
    sha256: Hash | None = None
    mode: Mode | None = None
    """The permissions in quotes: "0644"."""
    owner: Owner | None = None
    """The name or number of a user."""
    group: Owner | None = None

    def __post_init__(self) -> None:
        one_or_more(self, "contains", "pattern")
        if not self.path.startswith("/") or "\0" in self.path or len(self.path) > 1024:
            raise FieldError("must be an absolute path", "path")
        if self.path.endswith("/") and self.path != "/":  # such a path of a file does not exist
            raise FieldError("must not end with a slash", "path")
        fields = [field for field in JUDGED_FIELDS if getattr(self, field) not in (None, ())]
        if fields and not self.exists:
            raise FieldError("a file that must not exist cannot have this", fields[0])
        check_texts(self)


class Params(CheckParams):
    """`file: {banner: {path: /etc/motd, contains: Authorised use only, mode: "0644"}}` or
    `file: {no_core_dumps: {path: /etc/security/limits.d/core.conf, exists: false}}`"""

    whole: ClassVar[str] = "rules"

    rules: Mapping[RuleName, FileRule] = {}


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    rules = each_rule(evidence[Files], params.rules, kind="file", by="path", shown="path")
    yield from judge_each(rules, lambda rule: judge_rule(*rule))


def judge_rule(
    subject: Subject, rule: FileRule, file: AskedFile, details: Mapping[str, str]
) -> Iterator[Finding]:
    if file.exists is None:
        yield unknown(subject, why=f"exists: {file.why('exists')}", details=details)
    elif not file.exists or not rule.exists:
        yield (ok if file.exists is rule.exists else fail)(
            subject,
            expected="there" if rule.exists else "not there",
            actual="there" if file.exists else "not there",
            advice="" if file.exists is rule.exists else ADVICE,
            details=details,
        )
    else:
        aspects = [
            *file_aspects(file, rule),
            *text_aspects(rule, by_question(file.matches), OTHERWISE),
        ]
        aspects = aspects or [aspect_if("exists", True, expected=True, actual=True)]
        yield from aspect_findings(subject, aspects, details, advice=lambda bad: ADVICE)


def file_aspects(file: AskedFile, rule: FileRule) -> Iterator[Aspect]:
    """The aspects of the file's attributes and hash."""
    if rule.mode is not None:
        yield value(file, "mode", "mode", f"{int(rule.mode, 8):04o}")
    for field, number in (("owner", "uid"), ("group", "gid")):
        expected = getattr(rule, field)
        if expected is not None:
            yield value(file, field, number if isinstance(expected, int) else field, expected)
    if rule.sha256 is not None:
        yield value(file, "sha256", "sha256", rule.sha256)


def value(file: AskedFile, name: str, field: str, expected: object) -> Aspect:
    actual = getattr(file, field)
    if actual is None:
        return unknown_aspect(name, f"{name}: {file.why(field)}")
    return aspect_if(name, actual == expected, expected=expected, actual=actual)


def file_question(rule: FileRule) -> Mapping[str, Any]:
    question: dict[str, Any] = {"path": rule.path, **questions(rule)}
    return question if rule.sha256 is None else {**question, "sha256": True}


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        *reads_of("files.files[]", "exists", "gid", "group"),
        *reads_of("files.files[].matches[]", "found", "kind", "text"),
        *reads_of("files.files[]", "mode", "owner", "path", "sha256", "uid"),
    ),
    judge=judge,
    unasked="a site's own rules",
    asks=lambda params: {"files": tuple(file_question(rule) for rule in params.rules.values())},
    severities=severities,
)
