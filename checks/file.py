"""Files are as the site's own rules say.

**Why it matters.** A site's own files (limits, mount helpers, banners, certificates) drift apart
like everything else, and no other check of nodevet knows them.

**Read from** the files that the baseline names, each under a name of the site's own: stat(2), links
followed, and what is asked of their text, which is judged on the node and stays there. The names of
users and groups are the node's.

**Verdicts.** One finding for each rule, and one more if something could not be read beside a
failure. A file that is not there fails every rule but `exists: false`. `text` is the whole text,
`contains` texts that are in it, `pattern` regular expressions (Python's), `^` and `$` at each line;
of several each must be found. Of a file that not everyone on the node may read, `text`, `contains`,
`pattern` and `sha256` are unknown unless the baseline says `allow_file_text: true`: each answer
gives away a part of the text. Of a file larger than 1 MiB they are unknown too, as is a pattern
that takes more than a second, whatever the probe may not read, and what saved evidence was not
asked.

**To fix it** use what puts the file there: nodevet does not know what it is for.
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
SAID = ("text", "contains", "pattern", "sha256", "mode", "owner", "group")
OTHERWISE = {"text": "another text", "contains": "not in it", "pattern": "not found"}
ADVICE = "put it right with what manages this file, and see `ls -l` for when it changed"


class FileRule(SiteRule, frozen=True, kw_only=True):
    """What a file is to be."""

    path: str
    """Absolute."""
    exists: bool = True
    text: str | None = None
    """The whole text; trailing white space is ignored."""
    contains: str | tuple[str, ...] = ()
    pattern: str | tuple[str, ...] = ()
    sha256: Hash | None = None
    mode: Mode | None = None
    """In quotes: "0644"."""
    owner: Owner | None = None
    """A user's name, or number."""
    group: Owner | None = None

    def __post_init__(self) -> None:
        one_or_more(self, "contains", "pattern")
        if not self.path.startswith("/") or "\0" in self.path or len(self.path) > 1024:
            raise FieldError("must be an absolute path", "path")
        if self.path.endswith("/") and self.path != "/":  # of a file it would not be there
            raise FieldError("must not end with a slash", "path")
        fields = [field for field in SAID if getattr(self, field) not in (None, ())]
        if fields and not self.exists:
            raise FieldError("a file that is not to be there has none", fields[0])
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
    """What stat(2) answers, and the hash."""
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


def asked(rule: FileRule) -> Mapping[str, Any]:
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
    asks=lambda params: {"files": tuple(asked(rule) for rule in params.rules.values())},
    severities=severities,
)
