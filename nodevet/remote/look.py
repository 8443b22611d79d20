"""How resources are: enough to restore each.

`look(root, name)` of its kind's file in state/ returns `seen`, `absent` or `unseen`. If that file
has a `prepare(root, request)`, it is called once, and what it returns is the third argument.
Values have no part that changes by itself, so that two looks can be compared.
"""

from nodevet.remote.kinds import kind
from nodevet.remote.probe.files import is_this_machine, reason
from nodevet.remote.program import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def look(request: "dict[str, Any]") -> "list[dict[str, object]]":
    """For each resource {exists, value, why}; `why` is set if it could not be looked at."""
    root, prepared, found = request["root"], {}, []
    for resource in request["resources"]:
        name, module = resource["kind"], kind(resource["kind"])
        if module is None:
            found.append(unseen("a {} cannot be looked at".format(name)))
            continue
        if hasattr(module, "prepare") and name not in prepared:
            prepared[name] = (module.prepare(root, request),)
        found.append(look_at(module, root, resource["name"], *prepared.get(name, ())))
    return found


def look_at(module: "ModuleType", root: str, name: str, *prepared: object) -> "dict[str, object]":
    try:
        found: "dict[str, object]" = module.look(root, name, *prepared)
        return found
    except ToolError as error:
        return unseen(str(error))
    except (OSError, ValueError, LookupError) as error:
        return unseen(reason(error))


def seen(value: object) -> "dict[str, object]":
    return {"exists": True, "value": value, "why": ""}


def absent(value: object = None) -> "dict[str, object]":
    return {"exists": False, "value": value, "why": ""}


def unseen(why: str, exists: bool = False, value: object = None) -> "dict[str, object]":
    return {"exists": exists, "value": value, "why": why}


def absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("not an absolute path")
    return path


def of_this_machine(root: str) -> None:
    if not is_this_machine(root):
        raise ValueError(
            "systemd and packages are read on this machine only, not under {}".format(root)
        )
