"""Params of a check of one's own that are not judged as they are meant, and what to write."""

from textwrap import dedent

import pytest

from nodevet.checking.catalog import Catalog, CatalogError
from nodevet.checking.unfit import unfit_params

HEAD = """\
\"\"\"It is so.\"\"\"
from typing import Annotated
from msgspec import Meta
import pydantic
from nodevet.model import Check, CheckParams, ok

Word = Annotated[str, Meta(pattern="x")]

class Zone(pydantic.BaseModel):
    id: int = 0

class Params(CheckParams):
"""
TAIL = "\nCHECK = Check(params=Params, reads=(), judge=lambda evidence, params: iter([ok()]))\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("count: Annotated[int, pydantic.Field(ge=0)]", "Params.count is for pydantic"),
        ("count: int = pydantic.Field(8, ge=0)", "Params.count is for pydantic"),
        ("count: pydantic.PositiveInt = 1", "Params.count is for pydantic"),
        ("zones: dict[str, Zone] = {}", "Params.zones is for pydantic"),
        (
            "model_config = pydantic.ConfigDict(extra='allow')",
            "Params.model_config is for pydantic",
        ),
        (
            "count: int = 0\n@pydantic.model_validator(mode='after')\ndef right(self): return self",
            "Params.right is for pydantic",
        ),
        ("words: Word | tuple[Word, ...] = ()", "a pattern cannot stand beside a list"),
        ("words: list[str] | tuple[int, ...] = ()", "more than one array-like"),
        ("number: complex = 0j", "values of complex cannot be written in YAML"),
        ("a: int = 0\nb: int", "Required field 'b' cannot follow optional fields"),
    ],
)
def test_a_check_with_unfit_params_is_refused_with_the_problem(tmp_path, lines, told):
    body = "\n".join(f"    {line}" for line in lines.splitlines())
    (tmp_path / "mine.py").write_text(dedent(HEAD) + body + TAIL)
    with pytest.raises(CatalogError) as caught:
        Catalog([tmp_path]).check("mine")
    assert "mine.py" in str(caught.value)
    assert told in str(caught.value)


def test_the_params_of_shipped_checks_are_fit(check_id, catalog):
    assert unfit_params(catalog.check(check_id).params) == ""
