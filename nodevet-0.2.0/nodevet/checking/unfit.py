"""Finds out why a class of Params is unusable, or does not do what its author means."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import inspect, structs

from nodevet.base.typed import decoder
from nodevet.model import CheckParams

ELSEWHERE = ("pydantic", "pydantic_core", "annotated_types")
INSTEAD = "Params are msgspec structs: write Annotated[int, msgspec.Meta(ge=0)], and __post_init__"
LISTED = (inspect.ListType, inspect.VarTupleType, inspect.TupleType, inspect.SetType)
SEVERAL = (*LISTED, inspect.FrozenSetType, inspect.DictType)


def unfit_params(params: object) -> str:
    """Why Params cannot be used, with what to write instead; empty if they can."""
    if not (isinstance(params, type) and issubclass(params, CheckParams)):
        return "params of CHECK is not a class of CheckParams"
    for name in _of_pydantic(params):
        return f"{params.__name__}.{name} is for pydantic, which nodevet does not use; {INSTEAD}"
    try:
        decoder(params)
        kinds = tuple(_kinds(inspect.type_info(params), set()))
    except (TypeError, ValueError) as error:
        return f"{params.__name__}: {error}"
    for kind in kinds:
        if isinstance(kind, inspect.CustomType):
            return f"{params.__name__}: values of {kind.cls.__name__} cannot be written in YAML"
        if isinstance(kind, inspect.UnionType) and _crashes(kind):
            text = "a pattern cannot stand beside a list or a mapping in a union"
            return f"{params.__name__}: {text}; match the text in __post_init__"
    return ""


def _of_pydantic(params: type) -> Iterator[str]:
    """The fields, settings and methods that only pydantic understands."""
    hints = get_type_hints(params, include_extras=True)
    for name, value in vars(params).items():
        if _is_foreign(type(value)) or name == "model_config":
            yield name
    for name, hint in hints.items():
        if any(map(_is_foreign, _parts(hint))):
            yield name
    for field in structs.fields(params):
        if _is_foreign(type(field.default)):
            yield field.name


def _is_foreign(kind: type) -> bool:
    return any(base.__module__.split(".")[0] in ELSEWHERE for base in kind.__mro__)


def _parts(hint: Any) -> Iterator[type]:
    """Every class in a type and in its annotations."""
    if isinstance(hint, type):
        yield hint
    if get_origin(hint) is Annotated:
        yield from (type(note) for note in hint.__metadata__)
    for argument in get_args(hint):
        yield from _parts(argument)


def _crashes(union: inspect.UnionType) -> bool:
    """Whether msgspec (0.22) counts the references of such a pattern wrongly, so that the process
    crashes."""
    bare = [_bare(kind) for kind in union.types]
    patterns = any(isinstance(kind, inspect.StrType) and kind.pattern for kind in bare)
    return patterns and any(isinstance(kind, SEVERAL) for kind in bare)


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _kinds(kind: Any, visited: set[type]) -> Iterator[inspect.Type]:
    """A type and all types inside it."""
    kind = _bare(kind)
    yield kind
    if isinstance(kind, inspect.StructType) and kind.cls not in visited:
        visited.add(kind.cls)
        for field in kind.fields:
            yield from _kinds(field.type, visited)
    for name in ("item_type", "key_type", "value_type"):
        if inner := getattr(kind, name, None):
            yield from _kinds(inner, visited)
    for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from _kinds(inner, visited)
