"""Merge a chain of files: later files override earlier ones. Pure."""

from collections.abc import Sequence

import msgspec

from nodevet.base.problems import Place, Problem
from nodevet.baseline.files import File
from nodevet.baseline.param_fields import as_yaml, field_of, has_off
from nodevet.checking.catalog import Catalog, CatalogError, RefusedCodeError
from nodevet.document.tree import Broken, Entry, Mapping, Node, Scalar, join, plain
from nodevet.model import Check, Value


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file about a check, and whether a later one overrides it."""

    check: str
    key: str  # expect, severity, fix
    field: str = ""  # of the params; "": the check as a whole
    value: Value = None  # null under expect: removed, or switched off
    off: bool = False  # null, as a value of the field
    whole: bool = False  # overrides every earlier field
    origin: str
    stands: bool = True


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a check's params, with the file that set it."""

    file: File
    place: Place  # of its key
    value: Node
    bare: bool = False  # the params are a plain value


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The merged settings of a check; `file` is the last file with any of them."""

    check: Check
    fields: dict[str, Field]
    file: File
    place: Place
    broken: bool = False  # one of its values has a problem, which is reported already

    def node(self) -> Mapping:
        """The fields as one mapping, with their places."""
        return Mapping(
            place=self.place,
            entries=tuple(
                Entry(key=name, place=field.place, value=field.value)
                for name, field in self.fields.items()
            ),
        )


class MergedChecks(msgspec.Struct, frozen=True, kw_only=True):
    requests: dict[str, CheckRequest]
    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]


def merge(files: Sequence[File], catalog: Catalog) -> MergedChecks:
    """Merge `expect` of a chain of files, the one that is extended most first."""
    merger = _Merger(catalog)
    for file in files:
        for entry in file.entries("expect"):
            merger.take(file, entry)
    return MergedChecks(
        requests=merger.requests,
        statements=tuple(merger.statements),
        problems=tuple(merger.problems),
    )


class _Merger:
    def __init__(self, catalog: Catalog) -> None:
        self.requests: dict[str, CheckRequest] = {}
        self.statements: list[Statement] = []
        self.problems: list[Problem] = []
        self._catalog = catalog
        self._known = frozenset(catalog.ids)

    def take(self, file: File, entry: Entry) -> None:
        """One line under `expect`."""
        if entry.key not in self._known:
            return  # reported when the file was read
        value = entry.value
        if isinstance(value, Scalar) and value.value is None:
            self._remove(file, entry)
            return
        try:
            check = self._catalog.check(entry.key)
        except CatalogError as error:
            advice = "" if isinstance(error, RefusedCodeError) else "repair its file"
            self._tell(file, entry, f"the check cannot be used: {error}", advice)
            return
        if isinstance(value, Mapping):
            self._merge_fields(file, entry, check, value)
        else:
            self._replace(file, entry, check)

    def _remove(self, file: File, entry: Entry) -> None:
        if self.requests.pop(entry.key, None) is None:
            message = "removes nothing: no baseline that this one extends asks for it"
            self._tell(file, entry, message, "remove the line", warning=True)
        else:
            self._warn_if_empty(file, entry, join("expect", entry.key))
        self._state(file, entry.place, entry.key, "", None, whole=True)

    def _replace(self, file: File, entry: Entry, check: Check) -> None:
        """A plain value replaces all earlier settings."""
        bare = check.params.bare
        broken = isinstance(entry.value, Broken)
        if bare is None:
            broken = True
            fields = (
                "names to values"
                if check.params.whole
                else ", ".join(check.params.__struct_fields__)
            )
            self._tell(file, entry, "takes no plain value", f"write it as a mapping of: {fields}")
        field = Field(file=file, place=entry.place, value=entry.value, bare=True)
        self.requests[entry.key] = CheckRequest(
            check=check,
            fields={} if broken or bare is None else {bare: field},
            file=file,
            place=entry.place,
            broken=broken,
        )
        self._state(file, entry.place, entry.key, bare or "", plain(entry.value), whole=True)

    def _merge_fields(self, file: File, entry: Entry, check: Check, value: Mapping) -> None:
        """A mapping overrides earlier settings field by field; null switches a field off if it can
        be off, else removes it."""
        earlier = self.requests.get(entry.key)
        fields = dict(earlier.fields) if earlier else {}
        for inner in value.entries:
            null = isinstance(inner.value, Scalar) and inner.value.value is None
            if not null or has_off(check.params, inner.key):
                fields[inner.key] = Field(file=file, place=inner.place, value=inner.value)
            elif inner.key in fields:
                del fields[inner.key]
            else:
                self._nothing_removed(file, entry, inner, check)
            if null:
                self._warn_if_empty(file, inner, join(join("expect", entry.key), inner.key))
            off = null and has_off(check.params, inner.key)
            self._state(file, inner.place, entry.key, inner.key, plain(inner.value), off=off)
        if not value.entries and earlier is None:
            self._state(file, entry.place, entry.key, "", {})
        self.requests[entry.key] = CheckRequest(
            check=check,
            fields=fields,
            file=file,
            place=entry.place,
            broken=earlier is not None and earlier.broken,
        )

    def _warn_if_empty(self, file: File, entry: Entry, path: str) -> None:
        """Warn about a null that is an empty value, which may be forgotten."""
        if isinstance(entry.value, Scalar) and not entry.value.text:
            message = "has no value, which removes what is inherited, or switches it off"
            advice = "give a value, or write ~ if that is meant"
            self.problems.append(file.problem(entry.place, path, message, advice, warning=True))

    def _nothing_removed(self, file: File, entry: Entry, inner: Entry, check: Check) -> None:
        """Report a null for a field that no file sets and that cannot be off."""
        field = field_of(check.params, inner.key)
        if field is None:  # an unknown name, or a name from the node
            return
        path = join(join("expect", entry.key), inner.key)
        if field.default is None or field.required:
            return
        message = f"null would leave its default, {as_yaml(field.default)}: it cannot be off"
        advice = f"give a value, or leave the check out: `{entry.key}: null`"
        self.problems.append(file.problem(inner.place, path, message, advice))

    def _state(
        self,
        file: File,
        place: Place,
        check: str,
        field: str,
        value: Value,
        *,
        whole: bool = False,
        off: bool = False,
    ) -> None:
        self.statements.append(
            Statement(
                check=check,
                key="expect",
                field=field,
                value=value,
                whole=whole,
                off=off,
                origin=file.origin(place),
            )
        )

    def _tell(
        self, file: File, entry: Entry, message: str, advice: str, *, warning: bool = False
    ) -> None:
        path = join("expect", entry.key)
        self.problems.append(file.problem(entry.place, path, message, advice, warning=warning))


def mark_overridden(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements, with those marked that a later one overrides."""
    overridden: set[tuple[str, str]] = set()
    replaced: set[str] = set()
    marked = []
    for statement in reversed(statements):
        slot = (statement.check, f"{statement.key}.{statement.field}")
        stands = slot not in overridden
        if statement.key == "expect":
            stands = stands and statement.check not in replaced
            if statement.whole:
                replaced.add(statement.check)
        overridden.add(slot)
        marked.append(msgspec.structs.replace(statement, stands=stands))
    return tuple(reversed(marked))
