"""The state of resources: enough to restore each.

A kind of resource is one file in state/, with two functions:
look(root, name)      its state: `present`, `absent` or `unknown`
patterns(root, name)  what another manager of it would have written: see nodevet.remote.managers
If the file has a `prepare(root, request)`, it runs once; its result is the third argument of
`look`. A state holds no value that changes by itself, so that two looks can be compared.
"""

import importlib

from nodevet.remote import state
from nodevet.remote.probe.files import is_this_machine, reason
from nodevet.remote.program import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def kind(name: str) -> "ModuleType | None":
    """The module of a kind; None if there is no such kind.

    Importing pkgutil, which lists them, takes longer than looking at most kinds."""
    path = "{}.{}".format(state.__name__, name)
    try:
        return importlib.import_module(path)
    except ImportError as error:
        if not path.startswith(error.name or "-"):
            raise
        return None


def look(request: "dict[str, Any]") -> "list[dict[str, object]]":
    """{exists, value, why} of each resource; `why` says why its state is unknown."""
    root, prepared, states = request["root"], {}, []
    for resource in request["resources"]:
        name, module = resource["kind"], kind(resource["kind"])
        if module is None:
            states.append(unknown("a {} cannot be looked at".format(name)))
            continue
        if hasattr(module, "prepare") and name not in prepared:
            prepared[name] = (module.prepare(root, request),)
        states.append(state_of(module, root, resource["name"], *prepared.get(name, ())))
    return states


def state_of(module: "ModuleType", root: str, name: str, *prepared: object) -> "dict[str, object]":
    try:
        state: "dict[str, object]" = module.look(root, name, *prepared)
        return state
    except ToolError as error:
        return unknown(str(error))
    except (OSError, ValueError, LookupError) as error:
        return unknown(reason(error))


def present(value: object) -> "dict[str, object]":
    return {"exists": True, "value": value, "why": ""}


def absent(value: object = None) -> "dict[str, object]":
    return {"exists": False, "value": value, "why": ""}


def unknown(why: str, exists: bool = False, value: object = None) -> "dict[str, object]":
    return {"exists": exists, "value": value, "why": why}


def absolute_path(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("not an absolute path")
    return path


def require_this_machine(root: str) -> None:
    if not is_this_machine(root):
        raise ValueError("this is read on a running machine only, not under {}".format(root))
