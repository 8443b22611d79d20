"""What a site's own command prints about a setting."""

import shlex

from nodevet.remote.look import present, require_this_machine, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.program import find_program, run_alone

SECONDS = 20.0
LIMIT = 1 << 20  # bytes
LONGEST = 1000  # characters of a printed value


def look(root: str, name: str) -> "dict[str, object]":
    """{printed: stdout without the white space around it}. Raises ToolError."""
    require_this_machine(root)
    words = shlex.split(name)
    path = words[0] if words[0].startswith("/") else find_program(words[0])
    code, text, complaint = run_alone([path] + words[1:], SECONDS, LIMIT)
    printed = text.strip()
    if code:
        why = complaint.strip()[-200:]
        return unknown("it ends with {}{}".format(code, ": " + why if why else ""))
    if not printed:
        return unknown("it prints nothing")
    if len(printed) > LONGEST:
        return unknown("it prints more than {} characters".format(LONGEST))
    return present({"printed": printed})


def patterns(root: str, name: str) -> "Patterns":
    """nodevet does not know what the command sets, so it finds no other manager of it."""
    return Patterns()
