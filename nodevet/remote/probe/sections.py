"""The sections of the evidence: one for each file in collectors/, and what that file declares.

ASKED (False)     read it only if the request asks for it; a line `ASKED = True`, which is searched
                  for, not run
AFTER (none)      sections whose results it needs, in request["found"]
ALONE (False)     it may hang or is slow, so its own child reads it; or a function of the request.
                  One child reads all others in turn; after a second, further children take over
COUNTERS (False)  it holds counters: with a sample it is read twice
share(root)       its part of the deadline: half; with AFTER all that is left
unsettled(found)  whether to read the sections in AGAIN again, as the node is still booting

A section that raises TransientError is read again in any case.
"""

import importlib
import os
import sys

from nodevet.remote.probe import collectors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Iterable

ORDINARY = 32.0  # the least seconds of a section, if the deadline allows it
HALF = 0.5


def names() -> "list[str]":
    """Every section's name, sorted."""
    return sorted(name for folder in collectors.__path__ for name in modules_in(folder))


def modules_in(folder: str) -> "list[str]":
    """The names of the modules in a package's folder, or in the payload.

    Importing pkgutil takes longer than reading most sections."""
    if os.path.isdir(folder):
        parts = [os.path.splitext(name) for name in os.listdir(folder)]
        return [name for name, suffix in parts if suffix == ".py" and name != "__init__"]
    payload: "Any" = sys.path_hooks[0](folder)
    return [name for name, _ in payload.iter_modules()]


def collector(name: str) -> "ModuleType":
    """A section's module. Raises what its import raises."""
    return importlib.import_module("{}.{}".format(collectors.__name__, name))


def declaration(name: str, attribute: str, default: object) -> "Any":
    """What a collector declares; the default if its import fails, which its child reports."""
    try:
        return getattr(collector(name), attribute, default)
    except Exception:
        return default


def with_counters(sections: "Iterable[str]") -> "list[str]":
    """The sections with counters."""
    return [name for name in sections if declaration(name, "COUNTERS", False)]


def not_requested(sections: "Iterable[str]", asks: "dict[str, Any]") -> "list[str]":
    """The sections that are read only on request, and were not requested."""
    return [name for name in sections if not asks.get(name) and is_asked(name)]


def is_asked(name: str) -> bool:
    """Whether a section is read only on request, by its text or code: importing an unused one takes
    longer than reading most sections."""
    for folder in collectors.__path__:
        try:
            if not os.path.isdir(folder):
                payload: "Any" = __spec__.loader
                code = payload.get_code("{}.{}".format(collectors.__name__, name))
                return "ASKED" in code.co_names
            with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
                return "\nASKED = True\n" in file.read()
        except (OSError, ValueError, LookupError, SyntaxError):  # or its child reports it
            continue
    return False


def stages(sections: "Iterable[str]") -> "list[list[str]]":
    """The sections in order of their dependencies; those of one stage are read together."""
    remaining, order = list(sections), []
    while remaining:
        stage = [
            name for name in remaining if not set(declaration(name, "AFTER", ())) & set(remaining)
        ]
        stage = stage or remaining  # in a circle no order is right
        order.append(stage)
        remaining = [name for name in remaining if name not in stage]
    return order


def lanes(sections: "Iterable[str]", request: "dict[str, Any]") -> "list[list[str]]":
    """The sections by lane; one child reads a lane."""
    declared = {name: declaration(name, "ALONE", False) for name in sections}
    alone = [name for name, flag in declared.items() if (flag(request) if callable(flag) else flag)]
    others = [name for name in sections if name not in alone]
    return [[name] for name in alone] + ([others] if others else [])


def limits(sections: "Iterable[str]", root: str, seconds: float) -> "dict[str, float]":
    """{section: seconds} of all `seconds`."""
    seconds_by_section = {}
    for name in sections:
        share = declaration(name, "share", None)
        part = share(root) if share else 1.0 if declaration(name, "AFTER", ()) else HALF
        seconds_by_section[name] = min(seconds, max(ORDINARY, seconds * part))
    return seconds_by_section


def unsettled(results: "dict[str, Any]") -> "list[str]":
    """The sorted sections to read again."""
    sections = {name for name, result in results.items() if result.get("transient")}
    for name in results:
        is_unsettled = declaration(name, "unsettled", None)
        if is_unsettled and is_unsettled(results):
            sections.update(declaration(name, "AGAIN", (name,)))
    return sorted(sections.intersection(results))
