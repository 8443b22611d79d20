"""Resolve names to baselines: follow `extends`, validate settings, collect every problem."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import Place, Problem
from nodevet.baseline.files import File, Parse, open_file, parse
from nodevet.baseline.format import AppliesPart, as_tuple
from nodevet.baseline.library import (
    NotFoundError,
    find,
    has_shipped,
    identity,
    is_file_name,
    other_kind_text,
    shipped_folder,
)
from nodevet.baseline.merge import CheckRequest, Statement, mark_overridden, merge
from nodevet.baseline.nodesets import hosts
from nodevet.checking.catalog import Catalog
from nodevet.document.text import digest, display_path
from nodevet.document.tree import Entry, Mapping, dotted
from nodevet.document.typed import MisfitError, typed
from nodevet.model import Severity
from nodevet.model.baseline import Applies, Baseline, Expectation, GpuMatch, Waiver

MAX_CHAIN = 32


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline, with its files and their statements."""

    baseline: Baseline
    files: tuple[File, ...]  # the most basic file first, the baseline itself last
    statements: tuple[Statement, ...]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The requested baselines, which are usable if `problems` is empty."""

    resolved: tuple[Resolved, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def resolve(
    names: Sequence[str], *, folders: Sequence[Path], catalog: Catalog, parse: Parse = parse
) -> Resolution:
    """Load every name and what it extends; never raises for a file's content."""
    reader = _Reader(folders, catalog, parse)
    resolved: dict[Path, Resolved] = {}
    for name in names:
        try:
            path = find(name, folders)
        except NotFoundError as error:
            reader.problems.append(Problem(Place(file=name), "", error.message, error.advice))
            continue
        if is_file_name(name):
            reader.accepted.add(reader.identity(path))  # the user named this very file
        chain = reader.chain(path)
        if chain and reader.identity(path) not in resolved:
            resolved[reader.identity(path)] = reader.make_baseline(path, chain)
    reader.problems.extend(_same_names(tuple(resolved.values())))
    problems = _in_order(reader.problems)
    return Resolution(
        resolved=tuple(resolved.values()),
        problems=tuple(problem for problem in problems if not problem.warning),
        warnings=tuple(problem for problem in problems if problem.warning),
    )


def _in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Each problem once, in the order of reading the files, then by position."""
    unique = dict.fromkeys(problems)
    files: dict[str, int] = {}
    for problem in unique:
        files.setdefault(problem.place.file, len(files))
    return tuple(sorted(unique, key=lambda problem: (files[problem.place.file], problem.place)))


def _same_names(resolved: Sequence[Resolved]) -> Iterator[Problem]:
    """Problems of baselines with the same name: reports could not tell them apart."""
    paths: dict[str, str] = {}
    for item in resolved:
        name, path = item.baseline.name, item.baseline.path
        if name in paths:
            message = f"has the same name as {paths[name]}"
            yield Problem(Place(file=path), "", message, "rename one of them, or leave one out")
        paths.setdefault(name, path)


class _Reader:
    """Reads each file once, and collects all problems."""

    def __init__(self, folders: Sequence[Path], catalog: Catalog, parse: Parse) -> None:
        self.problems: list[Problem] = []
        self.accepted: set[Path] = set()
        self._folders = folders
        self._catalog = catalog
        self._parse = parse
        self.identity = cache(identity)  # of a file that is extended often
        self._files: dict[Path, File | None] = {}
        self._incomplete: set[Path] = set()  # files that extend an unusable one

    def file(self, path: Path) -> File | None:
        key = self.identity(path)
        if key not in self._files:
            if why := self._refused(path):
                self.problems.append(Problem(Place(file=display_path(path)), "", why))
                self._files[key] = None
                return None
            file, problems = open_file(path, self._catalog, self._parse)
            if problems and (wrong := other_kind_text(path)):
                file, problems = None, (Problem(Place(file=display_path(path)), "", wrong),)
            self._files[key] = file
            self.problems.extend(problems)
        return self._files[key]

    def _refused(self, path: Path) -> str:
        """Why a file is not used that the user did not name and nodevet does not ship, or ""."""
        is_shipped = self.identity(path.parent) == self.identity(shipped_folder())
        if is_shipped or self.identity(path) in self.accepted:
            return ""
        return self._catalog.project.data_refusal(path)

    def chain(self, path: Path) -> tuple[File, ...]:
        """The file and all that it extends, each once, each after the files that it extends."""
        order: dict[Path, File] = {}
        complete = self._visit(path, (), order)
        if not complete:
            self._incomplete.add(self.identity(path))
        return tuple(order.values()) if self.identity(path) in order else ()

    def _visit(self, path: Path, above: tuple[Path, ...], order: dict[Path, File]) -> bool:
        """Add a file after the files that it extends; False if one of them is unusable."""
        key = self.identity(path)
        if key in order:
            return True
        file = self.file(path)
        if file is None:
            return False
        complete = True
        for name, place in file.extends():
            try:
                parent = find(name, self._folders, extending=path)
            except NotFoundError as error:
                complete = False
                self._tell(file, place, f'"{brief(name)}": {error.message}', error.advice)
                continue
            line = (*above, key)
            if self.identity(parent) in line:
                complete = False
                circle = (*line[line.index(self.identity(parent)) :], self.identity(parent))
                names = " → ".join(display_path(step) for step in circle)
                self._tell(file, place, f"extends itself: {names}", "break it at one place")
            elif len(line) > MAX_CHAIN:
                complete = False
                self._tell(file, place, f"a chain of more than {MAX_CHAIN} files", "shorten it")
            else:
                complete = self._visit(parent, line, order) and complete
        order[key] = file
        return complete

    def _tell(self, file: File, place: Place, message: str, advice: str) -> None:
        self.problems.append(file.problem(place, "extends", message, advice))

    def make_baseline(self, path: Path, chain: tuple[File, ...]) -> Resolved:
        """The baseline of a chain of files."""
        merged = merge(chain, self._catalog)
        self.problems.extend(merged.problems)
        severity, fix, statements = _overrides(chain)
        part = chain[-1].part
        allowed = part is not None and part.allow_commands  # not inherited
        complete = self.identity(path) not in self._incomplete
        expectations = []
        for check, request in merged.requests.items():
            params = self._params(check, request, complete=complete)
            if params is not None:
                if not allowed:
                    self.problems.extend(_forbidden_commands(check, request, params, chain[-1]))
                expectations.append(
                    Expectation(
                        check=check,
                        params=params,
                        severity=severity.get(check, request.check.severity),
                        origin=request.file.origin(request.place),
                        fix=fix.get(check, False),
                        origins={
                            name: field.file.origin(field.place)
                            for name, field in request.fields.items()
                        },
                    )
                )
        return Resolved(
            baseline=Baseline(
                name=path.stem,
                path=chain[-1].source.shown,
                title=_title(chain),
                sha256=digest("".join(file.source.sha256 for file in chain).encode()),
                applies=_applies(chain),
                expectations=tuple(expectations),
                allow_commands=allowed,
                allow_file_text=part is not None and part.allow_file_text,  # not inherited
                replaces=_replaced_shipped(path, self._catalog.project.folder),
                waivers=tuple(waiver for file in chain for waiver in _waivers(file)),
                lineage=tuple(file.source.shown for file in chain[:-1]),
            ),
            files=chain,
            statements=mark_overridden((*merged.statements, *statements)),
        )

    def _params(self, check: str, request: CheckRequest, *, complete: bool) -> object | None:
        """The check's Params, or None after reporting their problems."""
        if request.broken:
            return None
        params = request.check.params
        root, depth = request.node(), 0
        if params.whole:
            entry = Entry(key=params.whole, place=root.place, value=root)
            root, depth = Mapping(place=root.place, entries=(entry,)), 1
        try:
            return typed(root, params)
        except MisfitError as error:
            for complaint in error.complaints:
                if complaint.missing and not complete:
                    continue
                path = complaint.path[depth:]
                field = request.fields.get(str(path[0])) if path else None
                steps = path[1:] if field and field.bare else path
                self.problems.append(
                    (field.file if field else request.file).problem(
                        complaint.place,
                        dotted(("expect", check, *steps)),
                        complaint.message,
                        complaint.advice or f"`nodevet explain {check}` shows its fields",
                    )
                )
        except Exception as error:  # a fault in a check's own validator
            message = f"the check failed to read this: {type(error).__name__}: {error}"
            self.problems.append(
                request.file.problem(
                    request.place,
                    dotted(("expect", check)),
                    sentence(message),
                    "repair its Params",
                )
            )
        return None


def _replaced_shipped(path: Path, project: Path) -> str:
    """The file of a baseline that has the name of a shipped one but is another; else ""."""
    file, folder = identity(path), identity(shipped_folder())
    if file.parent == folder or not has_shipped(path.stem):
        return ""
    inside = file.is_relative_to(identity(project))
    return f"./{file.relative_to(identity(project))}" if inside else str(file)


def _forbidden_commands(
    check: str, request: CheckRequest, params: object, top: File
) -> Iterator[Problem]:
    """The problem of a check with commands in a baseline that does not allow them."""
    commands = request.check.runs(params) if request.check.runs else ()
    if not commands:
        return
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    message = f"runs commands on every node, which is not allowed: {brief(commands[0])}{more}"
    if request.file is top:
        advice = "add allow_commands: true at the top of this file"
        yield top.problem(request.place, dotted(("expect", check)), message, advice)
        return
    text = f"{check} of {request.file.origin(request.place)} {message}"
    advice = f"add allow_commands: true to this file, too, or under expect {check}: ~"
    yield top.problem(top.place("extends"), "extends", text, advice)


def _title(chain: Sequence[File]) -> str:
    titles = (file.part.title for file in reversed(chain) if file.part)
    return next(filter(None, titles), "")


def _overrides(
    chain: Sequence[File],
) -> tuple[dict[str, Severity], dict[str, bool], tuple[Statement, ...]]:
    """The merged `severity` and `fix` of all files, and the statements of each."""
    severity: dict[str, Severity] = {}
    fix: dict[str, bool] = {}
    statements = []
    for file in chain:
        if file.part is None:
            continue
        for check, level in (file.part.severity or {}).items():
            severity[check] = level
            origin = file.origin(file.place("severity", check))
            statements.append(
                Statement(check=check, key="severity", value=level.value, origin=origin)
            )
        for number, (check, allowed) in enumerate(file.part.fixes.items()):
            fix[check] = allowed
            place = file.place("fix", check)
            if place == file.place("fix"):
                place = file.place("fix", number)
            statements.append(
                Statement(check=check, key="fix", value=allowed, origin=file.origin(place))
            )
    return severity, fix, tuple(statements)


def _applies(chain: Sequence[File]) -> Applies | None:
    """`applies` of the last file that has the key; its parts are not merged."""
    for file in reversed(chain):
        if file.root.get("applies"):
            return _applies_of(file.part.applies) if file.part else None
    return None


def _applies_of(part: AppliesPart | None) -> Applies | None:
    if part is None:
        return None
    return Applies(
        hosts=_hosts(part.hosts),
        groups=frozenset(as_tuple(part.groups)) or None,
        gpu=None
        if part.gpu is None
        else GpuMatch(
            devices=_ids(part.gpu.device),
            subsystems=_ids(part.gpu.subsystem),
            count=part.gpu.count,
        ),
    )


def _ids(ids: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(pci_id.lower() for pci_id in as_tuple(ids))


def _hosts(texts: str | tuple[str, ...]) -> frozenset[str] | None:
    return frozenset().union(*map(hosts, as_tuple(texts))) if texts else None


def _waivers(file: File) -> Iterator[Waiver]:
    for number, part in enumerate(file.part.waivers if file.part else ()):
        yield Waiver(
            check=part.check,
            owner=part.owner,
            reason=part.reason,
            until=part.until,
            accepts=part.accepts,
            any=part.any,
            hosts=_hosts(part.hosts),
            subject=part.subject or None,
            origin=file.origin(file.place("waivers", number)),
        )
