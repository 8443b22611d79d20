"""Regular expressions compiled at first use: compiling all of them takes longer than reading a
healthy kernel log, which needs few."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Match

NAME_BYTES = 15
"""Of a process's name: TASK_COMM_LEN. Users choose it, and the kernel begins many lines with it, so
a shorter text does not identify a line."""
# such a name, escaped as in /dev/kmsg
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
        """Compile at the first use of a method."""
        compiled = re.compile(self.text, self.flags)
        for method in ("match", "search", "fullmatch", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
