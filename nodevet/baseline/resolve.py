"""Names → resolved baselines: `extends` followed, wants validated, every error collected."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import Place, Problem
from nodevet.baseline.files import File, open_file
from nodevet.baseline.format import AppliesPart, listed
from nodevet.baseline.library import NotFoundError, find, has_shipped, identity, is_path, shipped
from nodevet.baseline.merge import Ask, Statement, merge, standing
from nodevet.baseline.nodesets import hosts
from nodevet.checking.catalog import Catalog
from nodevet.document.kinds import DocumentKind, mistaken
from nodevet.document.text import shown
from nodevet.document.tree import Entry, Mapping, dotted
from nodevet.document.typed import MisfitError, typed
from nodevet.model import Applies, Baseline, Expectation, GpuMatch, Severity, Waiver
from nodevet.remote.digest import sha256

MAX_CHAIN = 32


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline, and what its files said to make it so."""

    baseline: Baseline
    files: tuple[File, ...]  # the one that is extended most first, itself last
    statements: tuple[Statement, ...]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for. The baselines are usable if `problems` is empty."""

    resolved: tuple[Resolved, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def resolve(names: Sequence[str], *, folders: Sequence[Path], catalog: Catalog) -> Resolution:
    """Load every name and all that it extends; never raises for what a file says."""
    reader = _Reader(folders, catalog)
    resolved: dict[Path, Resolved] = {}
    for name in names:
        try:
            path = find(name, folders)
        except NotFoundError as error:
            reader.problems.append(Problem(Place(file=name), "", error.message, error.advice))
            continue
        if is_path(name):
            reader.accepted.add(identity(path))  # the user named this very file
        chain = reader.chain(path)
        if chain and identity(path) not in resolved:
            resolved[identity(path)] = reader.assemble(path, chain)
    reader.problems.extend(_same_names(tuple(resolved.values())))
    told = _in_order(reader.problems)
    return Resolution(
        resolved=tuple(resolved.values()),
        problems=tuple(problem for problem in told if not problem.warning),
        warnings=tuple(problem for problem in told if problem.warning),
    )


def _in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Each problem once; by file as they were read, and by position."""
    unique = dict.fromkeys(problems)
    files: dict[str, int] = {}
    for problem in unique:
        files.setdefault(problem.place.file, len(files))
    return tuple(sorted(unique, key=lambda one: (files[one.place.file], one.place)))


def _same_names(resolved: Sequence[Resolved]) -> Iterator[Problem]:
    """A report names a baseline by its stem, so two of one name would be one."""
    seen: dict[str, str] = {}
    for one in resolved:
        name, path = one.baseline.name, one.baseline.path
        if name in seen:
            message = f"has the same name as {seen[name]}"
            yield Problem(Place(file=path), "", message, "rename one of them, or leave one out")
        seen.setdefault(name, path)


class _Reader:
    """Reads each file once, and collects the problems of all."""

    def __init__(self, folders: Sequence[Path], catalog: Catalog) -> None:
        self.problems: list[Problem] = []
        self.accepted: set[Path] = set()
        self._folders = folders
        self._catalog = catalog
        self._files: dict[Path, File | None] = {}
        self._incomplete: set[Path] = set()  # something that they extend is unusable

    def file(self, path: Path) -> File | None:
        key = identity(path)
        if key not in self._files:
            if why := self._refused(path):
                self.problems.append(Problem(Place(file=shown(path)), "", why))
                self._files[key] = None
                return None
            file, problems = open_file(path, self._catalog)
            if problems and (wrong := mistaken(path, DocumentKind.BASELINE)):
                file, problems = None, (Problem(Place(file=shown(path)), "", wrong),)
            self._files[key] = file
            self.problems.extend(problems)
        return self._files[key]

    def _refused(self, path: Path) -> str:
        """Why a file is not used that neither the user named nor nodevet brings along."""
        if identity(path) in self.accepted or identity(path.parent) == identity(shipped()):
            return ""
        return self._catalog.project.refused_data(path)

    def chain(self, path: Path) -> tuple[File, ...]:
        """The file with all that it extends, each once, each after what it extends itself."""
        order: dict[Path, File] = {}
        whole = self._visit(path, (), order)
        if not whole:
            self._incomplete.add(identity(path))
        return tuple(order.values()) if identity(path) in order else ()

    def _visit(self, path: Path, above: tuple[Path, ...], order: dict[Path, File]) -> bool:
        """Add a file after what it extends; False if something of it is unusable."""
        key = identity(path)
        if key in order:
            return True
        file = self.file(path)
        if file is None:
            return False
        whole = True
        for name, place in file.extends():
            try:
                parent = find(name, self._folders, beside=path)
            except NotFoundError as error:
                whole = False
                self._tell(file, place, f'"{brief(name)}": {error.message}', error.advice)
                continue
            line = (*above, key)
            if identity(parent) in line:
                whole = False
                circle = (*line[line.index(identity(parent)) :], identity(parent))
                names = " → ".join(shown(step) for step in circle)
                self._tell(file, place, f"goes round in a circle: {names}", "break it at one place")
            elif len(line) > MAX_CHAIN:
                whole = False
                self._tell(file, place, f"a chain of more than {MAX_CHAIN} files", "shorten it")
            else:
                whole = self._visit(parent, line, order) and whole
        order[key] = file
        return whole

    def _tell(self, file: File, place: Place, message: str, advice: str) -> None:
        self.problems.append(file.problem(place, "extends", message, advice))

    def assemble(self, path: Path, chain: tuple[File, ...]) -> Resolved:
        """The baseline that a chain of files makes."""
        merged = merge(chain, self._catalog)
        self.problems.extend(merged.problems)
        severity, fix, statements = _overrides(chain)
        allowed = _allows_commands(chain[-1])
        expectations = []
        for check, ask in merged.asks.items():
            params = self._params(check, ask, whole=identity(path) not in self._incomplete)
            if params is not None:
                if not allowed:
                    self.problems.extend(_forbidden(check, ask, params, chain[-1]))
                expectations.append(
                    Expectation(
                        check=check,
                        params=params,
                        severity=severity.get(check, ask.check.severity),
                        origin=ask.file.origin(ask.place),
                        fix=fix.get(check, False),
                        origins={
                            name: field.file.origin(field.place)
                            for name, field in ask.fields.items()
                        },
                    )
                )
        return Resolved(
            baseline=Baseline(
                name=path.stem,
                path=chain[-1].source.shown,
                title=_title(chain),
                sha256=sha256("".join(file.source.sha256 for file in chain).encode()).hexdigest(),
                applies=_applies(chain),
                expectations=tuple(expectations),
                allow_commands=allowed,
                allow_file_text=_allows_file_text(chain[-1]),
                replaces=_replaces(path, self._catalog.project.folder),
                waivers=tuple(waiver for file in chain for waiver in _waivers(file)),
                lineage=tuple(file.source.shown for file in chain[:-1]),
            ),
            files=chain,
            statements=standing((*merged.statements, *statements)),
        )

    def _params(self, check: str, ask: Ask, *, whole: bool) -> object | None:
        """The check's own Params, or None after telling what is wrong with it."""
        if ask.broken:
            return None
        params = ask.check.params
        root, depth = ask.node(), 0
        if params.whole:
            entry = Entry(key=params.whole, place=root.place, value=root)
            root, depth = Mapping(place=root.place, entries=(entry,)), 1
        try:
            return typed(root, params)
        except MisfitError as error:
            for found in error.complaints:
                if found.missing and not whole:
                    continue
                path = found.path[depth:]
                field = ask.fields.get(str(path[0])) if path else None
                steps = path[1:] if field and field.bare else path
                self.problems.append(
                    (field.file if field else ask.file).problem(
                        found.place,
                        dotted(("expect", check, *steps)),
                        found.message,
                        found.advice or f"`nodevet explain {check}` shows what it takes",
                    )
                )
        except Exception as error:  # a fault in a check's own validator
            message = f"the check failed to read this: {type(error).__name__}: {error}"
            self.problems.append(
                ask.file.problem(
                    ask.place,
                    dotted(("expect", check)),
                    sentence(message),
                    "repair its Params",
                )
            )
        return None


def _replaces(path: Path, project: Path) -> str:
    """The file of a baseline that has the name of a shipped one and is not it; "" of any other."""
    own, folder = identity(path), identity(shipped())
    if own.parent == folder or not has_shipped(path.stem):
        return ""
    inside = own.is_relative_to(identity(project))
    return f"./{own.relative_to(identity(project))}" if inside else str(own)


def _allows_commands(file: File) -> bool:
    """Whether a baseline may have commands run: it says so itself, whatever it extends says."""
    return file.part is not None and file.part.allow_commands


def _allows_file_text(file: File) -> bool:
    """Whether rules may ask about the text of private files: not inherited, as for commands."""
    return file.part is not None and file.part.allow_file_text


def _forbidden(check: str, ask: Ask, params: object, top: File) -> Iterator[Problem]:
    """What the commands of a check are that its baseline does not allow."""
    commands = ask.check.runs(params) if ask.check.runs else ()
    if not commands:
        return
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    message = f"has commands run on every node, which is not allowed: {brief(commands[0])}{more}"
    if ask.file is top:
        advice = "add allow_commands: true at the top of this file"
        yield top.problem(ask.place, dotted(("expect", check)), message, advice)
        return
    told = f"{check} of {ask.file.origin(ask.place)} {message}"
    advice = f"add allow_commands: true to this file, too, or under expect {check}: ~"
    yield top.problem(top.place("extends"), "extends", told, advice)


def _title(chain: Sequence[File]) -> str:
    titles = (file.part.title for file in reversed(chain) if file.part)
    return next(filter(None, titles), "")


def _overrides(
    chain: Sequence[File],
) -> tuple[dict[str, Severity], dict[str, bool], tuple[Statement, ...]]:
    """`severity` and `fix` of all files together, and what each of them says."""
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
        groups=frozenset(listed(part.groups)) or None,
        gpu=None
        if part.gpu is None
        else GpuMatch(
            devices=_ids(part.gpu.device),
            subsystems=_ids(part.gpu.subsystem),
            count=part.gpu.count,
        ),
    )


def _ids(ids: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one.lower() for one in listed(ids))


def _hosts(texts: str | tuple[str, ...]) -> frozenset[str] | None:
    return frozenset().union(*map(hosts, listed(texts))) if texts else None


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
            subject=part.subject,
            origin=file.origin(file.place("waivers", number)),
        )
