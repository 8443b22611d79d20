"""Regular expressions that are compiled when they are first used: a healthy node has few of the
lines that they are for, and to compile all of them takes longer than to read its kernel log."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Match

NAME_BYTES = 15
"""Of a process's own name: TASK_COMM_LEN with its end. Whoever runs a process chooses them, and the
kernel begins many lines with them, so that no shorter text says who wrote a line."""
# such a name, as /dev/kmsg escapes it
NAME = r"(?:\\x[0-9a-f]{2}|[^\\]|\\(?!x[0-9a-f]{2})){0,15}"


class Pattern(object):
    """A regular expression, with the methods of a compiled one."""

    match: "Callable[..., Match[str] | None]"
    search: "Callable[..., Match[str] | None]"
    fullmatch: "Callable[..., Match[str] | None]"
    finditer: "Callable[..., Iterator[Match[str]]]"

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text = text
        self.flags = flags

    def __getattr__(self, name: str) -> "Any":
        """What it has not yet: it is compiled, and has it from now on."""
        compiled = re.compile(self.text, self.flags)
        for method in ("match", "search", "fullmatch", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
