"""The packages that zypper locks: /etc/zypp/locks, which `zypper addlock` writes."""

from nodevet.remote.probe.files import text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

LOCKS = "/etc/zypp/locks"
NAME = "solvable_name"
PLAIN = {"type", "match_type", "case_sensitive", NAME}


def locks(text: str) -> "Iterator[dict[str, str]]":
    """The locks, each as its keys and values; an empty line separates them.

    >>> list(locks("type: package\\nsolvable_name: a\\n\\n\\nsolvable_name: b*\\n"))
    [{'type': 'package', 'solvable_name': 'a'}, {'solvable_name': 'b*'}]
    """
    for block in text.split("\n\n"):
        rows = [row.partition(": ") for row in text_lines(block) if row[:1] != "#"]
        keys = {key.strip(): value.strip() for key, colon, value in rows if colon}
        if keys:
            yield keys


def locked_names(text: str) -> "set[str]":
    """The packages that some lock holds by name, whatever their version.

    >>> sorted(locked_names("solvable_name: a\\n\\nsolvable_name: b\\nversion: < 2\\n"))
    ['a']
    """
    return {lock[NAME] for lock in locks(text) if NAME in lock and set(lock) <= PLAIN}
