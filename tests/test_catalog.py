"""Finding checks: shipped and the user's own."""

import py_compile
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import nodevet.checks
from nodevet.checking.catalog import Catalog, CatalogError
from nodevet.evidence.sections import unknown_path
from nodevet.fixing.model import Risk

GOOD = '''"""A site check."""
from nodevet.model import Check, CheckParams
CHECK = Check(params=CheckParams, reads=("host.kernel", "gpu.gpus[].uuid"), judge=lambda *_: ())
'''
SHIPPED = Path(nodevet.checks.__path__[0])


def test_every_shipped_check_loads_and_has_a_page() -> None:
    catalog = Catalog()
    assert len(catalog.ids) >= 15
    for name in catalog.ids:
        assert catalog.check(name).sections
        assert not any(map(unknown_path, catalog.check(name).reads))
        assert catalog.title(name).endswith(".")
        assert "**Why it matters.**" in catalog.page(name)


def test_a_file_in_a_folder_of_the_user_is_a_check(tmp_path: Path) -> None:
    (tmp_path / "site_rule.py").write_text(GOOD)
    (tmp_path / "_helper.py").write_text("raise RuntimeError")
    catalog = Catalog([tmp_path])
    assert "site_rule" in catalog.ids
    assert "_helper" not in catalog.ids
    assert catalog.check("site_rule").sections == {"host", "gpu"}
    assert catalog.title("site_rule") == "A site check."


def test_a_file_is_not_run_before_a_baseline_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("'''A page.'''\nraise RuntimeError('ran')")
    catalog = Catalog([tmp_path])
    assert "bad" in catalog.ids
    assert catalog.title("bad") == "A page."
    with pytest.raises(CatalogError, match="ran"):
        catalog.check("bad")


def test_a_page_of_a_file_that_cannot_be_read_says_where(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = (")
    with pytest.raises(CatalogError, match=r"bad\.py:2: SyntaxError"):
        Catalog([tmp_path]).page("bad")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "bad.py:1: SyntaxError: '(' was never closed"),
        ("\n\nraise RuntimeError('no')", "bad.py:3: RuntimeError: no"),
        ("x = 1", "bad.py: defines no CHECK"),
        ("CHECK = 1", "bad.py: defines no CHECK"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(CatalogError) as caught:
        Catalog([tmp_path]).check("bad")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_an_unknown_id_gets_a_suggestion() -> None:
    with pytest.raises(CatalogError, match="did you mean persistence_mode"):
        Catalog().check("persistance_mode")


def test_a_shipped_name_cannot_be_taken(tmp_path: Path) -> None:
    (tmp_path / "persistence_mode.py").write_text(GOOD)
    with pytest.raises(CatalogError, match="give yours another name"):
        Catalog([tmp_path])


def test_a_copy_of_the_shipped_checks_folder_is_not_a_conflict(tmp_path: Path) -> None:
    for path in SHIPPED.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert Catalog([tmp_path]).ids == Catalog().ids


def test_two_folders_cannot_hold_the_same_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "site_rule.py").write_text(GOOD)
    with pytest.raises(CatalogError, match="has the same name"):
        Catalog([tmp_path / "a", tmp_path / "b"])


FIX = '''"""Puts it right."""
from nodevet.fixing.model import Fix, Risk
FIX = Fix(plan=lambda e, f, w: iter(()), risk=Risk.IDLE)
'''


def test_a_fix_has_the_name_of_its_check(tmp_path: Path) -> None:
    (tmp_path / "gpu_count.py").write_text(FIX)
    (tmp_path / "_helper.py").write_text("raise RuntimeError")
    catalog = Catalog(fixes=[tmp_path])
    fix = catalog.fix("gpu_count")
    assert fix is not None and fix.risk is Risk.IDLE
    assert catalog.fix_page("gpu_count") == catalog.fix_title("gpu_count") == "Puts it right."
    assert catalog.fix_path("gpu_count") == tmp_path / "gpu_count.py"
    assert "gpu_count" in catalog.fixes and "_helper" not in catalog.fixes


def test_a_check_may_have_no_fix() -> None:
    assert Catalog().fix("secure_boot") is None
    with pytest.raises(CatalogError, match=r"no fix is named 'secure_boot'.*list fixes"):
        Catalog().fix_page("secure_boot")


def test_a_fix_without_a_check_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pcie_lnk.py").write_text(FIX)
    with pytest.raises(CatalogError, match=r"no check is named 'pcie_lnk'; did you mean pcie_link"):
        Catalog(fixes=[tmp_path])


def test_a_shipped_fix_cannot_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "power_limit.py").write_text(FIX)
    with pytest.raises(CatalogError, match="a fix named power_limit is shipped; remove yours"):
        Catalog(fixes=[tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = (", "gpu_count.py:1: SyntaxError"), ("FIX = 1", "gpu_count.py: defines no FIX")],
)
def test_a_broken_fix_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "gpu_count.py").write_text(text)
    with pytest.raises(CatalogError) as caught:
        Catalog(fixes=[tmp_path]).fix("gpu_count")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


ORDERED = FIX.replace("risk=", "after=AFTER, risk=")


@pytest.fixture
def ordered(tmp_path: Path) -> Callable[..., Catalog]:
    """A catalog with fixes of a user's own, by name: what their `after` says."""

    def write(**after: str) -> Catalog:
        (tmp_path / "checks").mkdir()
        (tmp_path / "fixes").mkdir()
        for name, text in after.items():
            (tmp_path / f"checks/{name}.py").write_text(GOOD)
            (tmp_path / f"fixes/{name}.py").write_text(ORDERED.replace("AFTER", text))
        return Catalog([tmp_path / "checks"], [tmp_path / "fixes"])

    return write


def test_fixes_are_ordered_by_their_after_lists_and_then_by_name(
    ordered: Callable[..., Catalog],
) -> None:
    catalog = ordered(a='("c",)', b="None", c='("services",)', d='("b",)', e='("*",)', f="()")
    every = catalog.order([*"fedcba", "driver_version", "sysctl", "services"])
    assert every == ("f", "services", "c", "a", "sysctl", "b", "d", "driver_version", "e")
    for left_out in every:
        some = [name for name in every if name != left_out]
        assert catalog.order(reversed(some)) == tuple(some)


def test_an_after_list_that_names_no_fix_is_an_error(ordered: Callable[..., Catalog]) -> None:
    catalog = ordered(a='("servises",)', b="()")
    with pytest.raises(
        CatalogError, match=r"a\.py: .*'servises', and no fix has that name; did you mean services"
    ):
        catalog.order(["a", "b"])
    assert catalog.order(["b"]) == ("b",)


@pytest.mark.parametrize("text", ["5", '"swap"', "(5,)"])
def test_an_after_list_that_is_not_a_tuple_of_names_is_an_error(
    ordered: Callable[..., Catalog], text: str
) -> None:
    with pytest.raises(CatalogError, match=r"a\.py: its `after` .* is not a tuple of names"):
        ordered(a=text).order(["a"])


def test_fixes_that_wait_for_one_another_are_named(ordered: Callable[..., Catalog]) -> None:
    catalog = ordered(a='("b",)', b='("c",)', c='("a",)', d="()")
    with pytest.raises(CatalogError) as caught:
        catalog.order(["d", "a"])
    told = str(caught.value)
    assert all(f"{name}.py comes after" in told for name in "abc") and "d.py" not in told


def test_e01_compiled_code_next_to_a_check_is_not_run(tmp_path: Path) -> None:
    """Other users may write `__pycache__` where they may not write the check."""
    source, planted = tmp_path / "mine.py", tmp_path / "planted.py"
    source.write_text('"""Mine."""\nVALUE = "own"\n')
    planted.write_text('VALUE = "planted"\n')
    cached = Path(cache_from_source(str(source)))
    cached.parent.mkdir()
    py_compile.compile(
        str(planted), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert Catalog([tmp_path]).module("mine").VALUE == "own"
