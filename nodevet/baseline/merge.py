"""What a chain of files says together: later files override earlier ones. Pure."""

from collections.abc import Sequence

import msgspec

from nodevet.base.problems import Place, Problem
from nodevet.baseline.files import File
from nodevet.baseline.param_fields import as_yaml, field_of, has_off
from nodevet.checking.catalog import Catalog, CatalogError, RefusedCodeError
from nodevet.document.tree import Broken, Entry, Mapping, Node, Scalar, join, plain
from nodevet.model import Check, Value


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a file says about a check, and whether a later one took its place."""

    check: str
    key: str  # expect, severity, fix
    field: str = ""  # of the params; empty if the check as a whole is meant
    value: Value = None  # null under expect: removed, or switched off
    off: bool = False  # null, of a field that has it as a value
    whole: bool = False  # takes the place of every field before it
    origin: str
    stands: bool = True


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a check's params, with the file that set it."""

    file: File
    place: Place  # of its key
    value: Node
    bare: bool = False  # the params were a plain value


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What all files together want of a check; `file` is the last that spoke of it."""

    check: Check
    fields: dict[str, Field]
    file: File
    place: Place
    broken: bool = False  # a value of it has a problem, told already

    def node(self) -> Mapping:
        """The fields as one mapping, each where it was written."""
        return Mapping(
            place=self.place,
            entries=tuple(
                Entry(key=name, place=field.place, value=field.value)
                for name, field in self.fields.items()
            ),
        )


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    asks: dict[str, Ask]
    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]


def merge(files: Sequence[File], catalog: Catalog) -> Merged:
    """Merge `expect` of a chain of files, the one that is extended most first."""
    merger = _Merger(catalog)
    for file in files:
        for entry in file.entries("expect"):
            merger.take(file, entry)
    return Merged(
        asks=merger.asks,
        statements=tuple(merger.statements),
        problems=tuple(merger.problems),
    )


class _Merger:
    def __init__(self, catalog: Catalog) -> None:
        self.asks: dict[str, Ask] = {}
        self.statements: list[Statement] = []
        self.problems: list[Problem] = []
        self._catalog = catalog
        self._known = frozenset(catalog.ids)

    def take(self, file: File, entry: Entry) -> None:
        """One line under `expect`."""
        if entry.key not in self._known:
            return  # told when the file was read
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
        if self.asks.pop(entry.key, None) is None:
            message = "removes nothing: no baseline that this one extends asks for it"
            self._tell(file, entry, message, "remove the line", warning=True)
        self._state(file, entry.place, entry.key, "", None, whole=True)

    def _replace(self, file: File, entry: Entry, check: Check) -> None:
        """A plain value replaces everything that was expected before."""
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
        self.asks[entry.key] = Ask(
            check=check,
            fields={} if broken or bare is None else {bare: field},
            file=file,
            place=entry.place,
            broken=broken,
        )
        self._state(file, entry.place, entry.key, bare or "", plain(entry.value), whole=True)

    def _merge_fields(self, file: File, entry: Entry, check: Check, value: Mapping) -> None:
        """A mapping is laid over what was expected before, field by field; null switches off a
        field that has an off, and removes another one."""
        before = self.asks.get(entry.key)
        fields = dict(before.fields) if before else {}
        for inner in value.entries:
            null = isinstance(inner.value, Scalar) and inner.value.value is None
            if not null or has_off(check.params, inner.key):
                fields[inner.key] = Field(file=file, place=inner.place, value=inner.value)
            elif inner.key in fields:
                del fields[inner.key]
            else:
                self._nothing_removed(file, entry, inner, check)
            off = null and has_off(check.params, inner.key)
            self._state(file, inner.place, entry.key, inner.key, plain(inner.value), off=off)
        if not value.entries and before is None:
            self._state(file, entry.place, entry.key, "", {})
        self.asks[entry.key] = Ask(
            check=check,
            fields=fields,
            file=file,
            place=entry.place,
            broken=before is not None and before.broken,
        )

    def _nothing_removed(self, file: File, entry: Entry, inner: Entry, check: Check) -> None:
        """A null for a field that no file gives, and that cannot be switched off by it."""
        field = field_of(check.params, inner.key)
        if field is None:  # a name that is not known, or one of the node's own
            return
        path = join(join("expect", entry.key), inner.key)
        if field.default is None or field.required:
            return
        message = f"null would leave its default, {as_yaml(field.default)}: it has no off"
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


def standing(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Mark the statements that a later one overrode."""
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
