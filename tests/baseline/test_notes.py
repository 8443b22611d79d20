"""What stands below a field is read where it is shown, not where a check is loaded."""

from nodevet.baseline.notes import field_notes
from nodevet.model import CheckParams


class Template(CheckParams):
    count: int
    """How many there are,
    of each."""

    named: str = "x"

    bare_field: int = 0

    def method(self) -> None:
        """No field's."""


class Derived(Template):
    more: int = 1
    """One more."""

    bare_field: int = 2
    """Told here."""


def test_the_note_of_a_field_is_the_docstring_below_it() -> None:
    assert field_notes(Template) == {"count": "How many there are,\nof each."}


def test_a_subclass_inherits_the_notes_of_a_template_and_may_add_its_own() -> None:
    assert field_notes(Derived) == {
        "count": "How many there are,\nof each.",
        "bare_field": "Told here.",
        "more": "One more.",
    }


def test_a_class_without_a_source_file_has_no_field_notes() -> None:
    found: dict[str, type[CheckParams]] = {}
    text = 'class Made(CheckParams):\n    a: int = 0\n    "Told."\n'
    exec(text, {"CheckParams": CheckParams, "__name__": "made"}, found)
    assert field_notes(found["Made"]) == {}
