"""What actions change, and whether that shows in what a node was seen as. Pure."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodevet.remedy.rollout.undo import UndoError, chosen
from nodevet.resource import AnyAction, Resource, RunCommand, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

if TYPE_CHECKING:
    from nodevet.remedy.model import Step


def touch_of(action: AnyAction) -> Resource | None:
    """What an action changes; None for a command, which may change anything."""
    if isinstance(action, WriteFile):
        return Resource(kind="file", name=action.path)
    if isinstance(action, WriteKernel):
        return Resource(kind="kernel", name=action.path)
    return Resource(kind="unit", name=action.name) if isinstance(action, SetUnit) else None


def unnamed(step: "Step") -> str:
    """What a step would change without having named it; empty where there is nothing."""
    if not step.resources:
        return "it names nothing"
    changed = {resource for action in step.actions if (resource := touch_of(action))}
    return ", ".join(sorted(resource.label for resource in changed - set(step.resources)))


def shows(action: AnyAction, seen: Sequence[State]) -> bool | None:
    """Whether an action took place, by what was seen of its touches. None: that does not tell."""
    if isinstance(action, RunCommand):
        return (
            _pending(action, seen) if action.words[0] == "nvidia-smi" else _packages(action, seen)
        )
    resource = touch_of(action)
    found = next((each for each in seen if each.resource == resource), None)
    if found is None or found.why:
        return None
    if isinstance(action, WriteFile):
        return _file(action, found)
    if isinstance(action, WriteKernel):
        return _kernel(action, found)
    return _unit(action, found) if isinstance(action, SetUnit) else None


def _file(action: WriteFile, seen: State) -> bool:
    if action.content is None:
        return not seen.exists
    value = _mapping(seen)
    content = base64.b64encode(action.content.encode()).decode()
    wanted = {
        "content": content,
        "mode": action.mode,
        "owner": action.owner,
        "group": action.group,
    }
    return seen.exists and all(value.get(key) == item for key, item in wanted.items())


def _kernel(action: WriteKernel, seen: State) -> bool:
    try:
        return seen.exists and chosen(seen) == action.value.strip()
    except UndoError:
        return False


def _unit(action: SetUnit, seen: State) -> bool | None:
    """Whether it was restarted does not show."""
    value = _mapping(seen)
    masked = bool(value.get("masked"))
    enabled = value.get("enabled") in (True, "enabled", "enabled-runtime")
    active = value.get("active") in (True, "active", "reloading")
    told = [
        (action.masked, masked),
        (action.enabled, seen.exists and enabled),
        (action.running, seen.exists and active),
    ]
    if any(wanted is not None and wanted is not there for wanted, there in told):
        return False
    return None if action.restart else True


def _pending(action: RunCommand, seen: Sequence[State]) -> bool | None:
    """Whether a GPU has as pending what nvidia-smi was told: -i UUID -e 1, -i UUID -mig 0."""
    field = _PENDING.get(action.words[3]) if len(action.words) == 5 else None
    resource = Resource(kind="gpu", name=f"{action.words[2]}:{field}") if field else None
    found = next((each for each in seen if each.resource == resource), None)
    if found is None or found.why or not isinstance(found.value, bool):
        return None
    return found.value is (action.words[4] == "1")


_PENDING = {"-e": "ecc_pending", "-mig": "mig_pending"}


def _packages(action: RunCommand, seen: Sequence[State]) -> bool | None:
    """Whether packages are as apt-get and apt-mark were told: NAME=VERSION; hold, auto."""
    if "apt-get" in action.words and "install" in action.words:
        told = action.words[action.words.index("install") + 1 :]
        halves = (word.partition("=") for word in told)
        wanted: list[tuple[str, str, Any]] = [(name, "version", part) for name, _, part in halves]
    elif match := _MARK.fullmatch(" ".join(action.words[:2])):
        field = {"hold": "held", "auto": "automatic"}[match[1]]
        wanted = [(name, field, True) for name in action.words[2:]]
    else:
        return None
    known = {each.resource.name: each for each in seen if each.resource.kind == "package"}
    if any(name not in known or known[name].why for name, _, _ in wanted):
        return None
    return all(_mapping(known[name]).get(field) == value for name, field, value in wanted)


_MARK = re.compile(r"apt-mark (hold|auto)")


def _mapping(seen: State) -> Mapping[str, Any]:
    return seen.value if isinstance(seen.value, Mapping) else {}
