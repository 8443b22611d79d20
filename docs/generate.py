"""Write docs/checks/ from the checks, docs/faults.md from the faults of simulated nodes.

.venv/bin/python docs/generate.py           # write it
.venv/bin/python docs/generate.py --check   # exit 1 where it is not current
"""

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from nodevet.baseline.field_notes import field_notes
from nodevet.catalog import Catalog
from nodevet.model import Area, CheckParams
from nodevet_sim.faults import FAULTS, describe

FOLDER = Path(__file__).parent

HEAD = """\
# Checks

One file in `checks/` is one check; its name is its id in baselines, reports and tests.
`nodevet explain CHECK` prints its page. These pages are written by `docs/generate.py`; to change
one, change the check's docstring.
"""

NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): ""}


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.stderr.write("usage: generate.py [--check]\n")
        return 2
    pages = check_pages(Catalog())
    stale = set((FOLDER / "checks").glob("*.md")) - set(pages)
    pages[FOLDER / "faults.md"] = faults_page()
    if sys.argv[1:]:
        changed = {path for path, text in pages.items() if not current(path, text)}
        for target in sorted(changed | stale):
            sys.stderr.write(f"{target} is not current: run python docs/generate.py\n")
        return 1 if changed or stale else 0
    for target, text in pages.items():
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for target in stale:
        target.unlink()
    return 0


def current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


FAULTS_HEAD = """\
# Faults of simulated nodes

A scenario gives faults to a node by name, `faults: [pcie-width, {power-capped: {watts: 500}}]`,
`nodevet sim set NODE fault=NAME` adds one while it runs; see [simulation.md](simulation.md).
Parameters are listed with their default. This file is written by `docs/generate.py`.
"""


def faults_page() -> str:
    """The whole of docs/faults.md."""
    return "\n".join([FAULTS_HEAD, *(f"## {name}\n\n{describe(name)}\n" for name in FAULTS)])


def check_pages(catalog: Catalog) -> dict[Path, str]:
    """The pages of docs/checks/: one for each check, and the index that groups them by area."""
    folder = FOLDER / "checks"
    pages = {folder / f"{name}.md": page(catalog, name) for name in catalog.ids}
    return {folder / "README.md": index(catalog), **pages}


def index(catalog: Catalog) -> str:
    """The checks by area, each with its title and severity."""
    blocks = [HEAD.rstrip()]
    for area in Area:
        names = [name for name in catalog.ids if catalog.check(name).area is area]
        told = [(name, catalog.title(name), catalog.check(name).severity.value) for name in names]
        rows = [f"| [`{name}`]({name}.md) | {title} | {word} |" for name, title, word in told]
        if rows:
            blocks.append(f"## {area.value[0].upper()}{area.value[1:]}")
            blocks.append("\n".join(["| check | ok if | severity |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def page(catalog: Catalog, name: str) -> str:
    """One check: its docstring, what a baseline may say, what verdicts depend on, and its fix."""
    check = catalog.check(name)
    fix = catalog.fix(name)
    remedy = f"fix `{name}`: {catalog.fix_title(name)}" if fix else "no fix; nothing is changed."
    blocks = [
        f"# {name}",
        catalog.page(name),
        "**In a baseline**",
        "\n\nor\n\n".join(f"```yaml\n{line}\n```" for line in examples(check.params)),
        "\n".join(fields(check.params)),
        f"**Area** {check.area.value}. "
        f"**Severity** {check.severity.value}, unless the baseline says otherwise.",
        f"**`nodevet apply`** {remedy}",
        "**Verdicts depend on** " + ", ".join(f"`{path}`" for path in check.reads) + ".",
    ]
    return "\n\n".join(blocks) + "\n"


def examples(params: type[CheckParams]) -> list[str]:
    """What a baseline may say, one line each, from the docstring of its Params."""
    return re.findall(r"`([^`]+)`", params.__doc__ or "")


def fields(params: type[CheckParams]) -> Iterator[str]:
    """A table of the fields of Params."""
    others = params.__annotations__.get("__pydantic_extra__")
    if not params.model_fields and others is None:
        yield "It takes no fields."
        return
    yield "| field | value | default |"
    yield "|---|---|---|"
    notes = field_notes(params)
    for name, field in params.model_fields.items():
        default = field.default
        shown = "" if default is PydanticUndefined or default is None else f"`{as_yaml(default)}`"
        plain = " (a plain value fills it)" if params.bare == name else ""
        note = f". {notes[name]}" if name in notes else ""
        required = "" if not field.is_required() else "required"
        yield f"| `{name}`{plain} | {kind(field.annotation)}{note} | {shown or required} |"
    if others is not None:
        yield f"| any name | {kind(get_args(others)[1])} |  |"


def as_yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    return str(value)


def kind(annotation: Any) -> str:
    """A type in words: `8, 16 or max`, `list of text`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(inner[0])
    if origin is Literal:
        return listed([as_yaml(value) for value in inner])
    if origin in (Union, types.UnionType):
        return listed([word for word in map(kind, inner) if word])
    if origin is tuple:
        return f"list of {kind(inner[0])}"
    if origin is dict:
        return f"map of {kind(inner[0])} to {kind(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a map of {', '.join(f'`{name}`' for name in annotation.model_fields)}"
    return NAMES[annotation]


def listed(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


if __name__ == "__main__":
    sys.exit(main())
