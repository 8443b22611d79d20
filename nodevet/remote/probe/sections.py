"""The sections of the evidence: one for each file in collectors/, and what that file declares.

ASKED (False)     whether it is read only if the request asks for something of it; as a line
                  `ASKED = True`, which is read and not run
AFTER (none)      sections whose results it needs; they are in request["found"]
ALONE (False)     whether it may hang or is slow, so that a child of its own reads it; or a function
                  of the request that says so. The others are read one after the other, and what
                  waits for one that takes longer than a second costs further children
COUNTERS (False)  whether it holds counters: with a sample it is read twice
share(root)       the part of the deadline that it may take: half; all that is left AFTER others
unsettled(found)  whether the sections in AGAIN have to be read again, as a node is still booting

A section that raises TransientError is read again without that.
"""

import importlib
import os
import sys

from nodevet.remote.probe import collectors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Iterable

ORDINARY = 32.0  # seconds that a section has at least, if the request leaves so many
HALF = 0.5


def names() -> "list[str]":
    """Every section's name, sorted."""
    return sorted(name for folder in collectors.__path__ for name in modules_in(folder))


def modules_in(folder: str) -> "list[str]":
    """The names of the modules in a folder of a package, or in what the payload has in its place.

    As pkgutil has it, which takes longer to import than most sections to be read."""
    if os.path.isdir(folder):
        endings = [os.path.splitext(name) for name in os.listdir(folder)]
        return [name for name, ending in endings if ending == ".py" and name != "__init__"]
    payload: "Any" = sys.path_hooks[0](folder)
    return [name for name, _ in payload.iter_modules()]


def source(name: str) -> str:
    """The text of a section's module; none if it cannot be read."""
    for folder in collectors.__path__:
        path = os.path.join(folder, name + ".py")
        try:
            if not os.path.isdir(folder):
                payload: "Any" = __spec__.loader
                text: str = payload.get_source("{}.{}".format(collectors.__name__, name))
                return text
            with open(path, encoding="utf-8") as file:
                return file.read()
        except (OSError, ValueError, LookupError):
            continue
    return ""


def collector(name: str) -> "ModuleType":
    """A section's module. Raises whatever importing it raises."""
    return importlib.import_module("{}.{}".format(collectors.__name__, name))


def declared(name: str, what: str, default: object) -> "Any":
    """What a collector declares; one that cannot be imported declares nothing, and its own child
    says why it cannot."""
    try:
        return getattr(collector(name), what, default)
    except Exception:
        return default


def counting(wanted: "Iterable[str]") -> "list[str]":
    """Those of the sections that hold counters."""
    return [name for name in wanted if declared(name, "COUNTERS", False)]


def unasked(wanted: "Iterable[str]", asks: "dict[str, Any]") -> "list[str]":
    """Those of the sections that nothing is asked of, and that are not read without."""
    return [name for name in wanted if not asks.get(name) and is_asked(name)]


def is_asked(name: str) -> bool:
    """Whether a section is read only if something is asked of it, by its text: to compile what is
    not going to run takes longer than to read most sections."""
    return "\nASKED = True\n" in source(name)


def stages(wanted: "Iterable[str]") -> "list[list[str]]":
    """The sections in the order in which they are read: those of one stage at the same time."""
    left, ordered = list(wanted), []
    while left:
        stage = [name for name in left if not set(declared(name, "AFTER", ())) & set(left)]
        stage = stage or left  # in a circle no order is right
        ordered.append(stage)
        left = [name for name in left if name not in stage]
    return ordered


def lanes(wanted: "Iterable[str]", request: "dict[str, Any]") -> "list[list[str]]":
    """The sections as they are read by one child each: those of one lane one after the other."""
    alone = [name for name in wanted if is_alone(declared(name, "ALONE", False), request)]
    others = [name for name in wanted if name not in alone]
    return [[name] for name in alone] + ([others] if others else [])


def is_alone(alone: "bool | Callable[[dict[str, Any]], bool]", request: "dict[str, Any]") -> bool:
    return alone(request) if callable(alone) else alone


def limits(wanted: "Iterable[str]", root: str, seconds: float) -> "dict[str, float]":
    """{section: seconds} of the `seconds` that all of them have."""
    found = {}
    for name in wanted:
        share = declared(name, "share", None)
        part = share(root) if share else 1.0 if declared(name, "AFTER", ()) else HALF
        found[name] = min(seconds, max(ORDINARY, seconds * part))
    return found


def unsettled(results: "dict[str, Any]") -> "list[str]":
    """The sections that have to be read again, sorted."""
    again = {name for name, result in results.items() if result.get("transient")}
    for name in results:
        is_unsettled = declared(name, "unsettled", None)
        if is_unsettled and is_unsettled(results):
            again.update(declared(name, "AGAIN", (name,)))
    return sorted(again.intersection(results))
