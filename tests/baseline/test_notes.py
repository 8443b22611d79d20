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


def test_it_is_the_docstring_below() -> None:
    assert field_notes(Template) == {"count": "How many there are,\nof each."}


def test_fields_of_a_template_have_theirs_and_a_later_class_may_say_more() -> None:
    assert field_notes(Derived) == {
        "count": "How many there are,\nof each.",
        "bare_field": "Told here.",
        "more": "One more.",
    }


def test_a_class_made_without_a_file_has_none() -> None:
    found: dict[str, type[CheckParams]] = {}
    text = 'class Made(CheckParams):\n    a: int = 0\n    "Told."\n'
    exec(text, {"CheckParams": CheckParams, "__name__": "made"}, found)
    assert field_notes(found["Made"]) == {}
