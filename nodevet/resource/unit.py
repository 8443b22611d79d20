"""A systemd unit: whether it is enabled, running and masked."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nodevet.base.bounds import Text
from nodevet.base.printable import plain
from nodevet.evidence.services import UNIT_NAME
from nodevet.resource.core import (
    Action,
    ActionError,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    Traces,
    canonical,
    mapping,
    require_printable,
    switch,
)
from nodevet.resource.file import WriteFile

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

FOLDER = "/etc/systemd/system/"
LOG_LINES = 20  # of a unit that fails
NAME = re.compile(UNIT_NAME)
SETTABLE = re.compile(UNIT_NAME + r"\.(service|socket|timer|target|path|swap|mount)")
RELOAD = RunCommand(words=("systemctl", "daemon-reload"))
"""systemd reads its files again."""

ABSENT: Mapping[str, object] = {"enabled": "disabled", "active": "inactive", "masked": False}
"""The state of a unit whose file exists, if nothing else was done to it."""

_FIXED = ("linked", "linked-runtime", "enabled-runtime", "masked-runtime")
_OPPOSITE = {"mask": "unmask", "enable": "disable", "start": "stop"}


class SetUnit(Action, frozen=True, kw_only=True, tag="unit"):
    """The state of a systemd unit; None leaves that part as it is."""

    name: str
    enabled: bool | None = None
    running: bool | None = None
    restart: bool = False
    """If it runs; with `running`, in any case. systemd always reads its files again before."""
    masked: bool | None = None

    @property
    def resource(self) -> Resource:
        return Resource(kind="unit", name=self.name)

    @property
    def label(self) -> str:
        parts = {
            "mask": self.masked,
            "enable": self.enabled,
            "start": None if self.running and self.restart else self.running,
            "restart": self.restart or None,
        }
        verbs = [_OPPOSITE[k] if on is False else k for k, on in parts.items() if on is not None]
        return f"{' and '.join(verbs) or 'reload'} {self.name}"

    @property
    def restarts(self) -> str:
        return self.name if self.restart else ""

    @property
    def runs(self) -> bool:
        """Whether the action starts or stops programs."""
        return self.restart or self.running is not None

    def covers(self, other: Action) -> bool:
        if not isinstance(other, SetUnit) or other.restart:
            return self == other
        parts = [(getattr(other, part), getattr(self, part)) for part in ("enabled", "running")]
        parts.append((other.masked, self.masked))
        return self.name == other.name and all(
            expected in (None, value) for expected, value in parts
        )

    def command(self, *, seconds: float) -> "StringCommand":
        """Set mask and enablement, reload systemd, then set the state; show the unit's log if that
        fails.

        A unit that does not exist is neither enabled nor running, so nothing is done to disable or
        stop it; systemd knows that after a reload.
        """
        from pyinfra.api.command import QuoteString, StringCommand

        if not SETTABLE.fullmatch(require_printable(self.name, "unit")):
            raise ActionError(f"{self.name!r} is not the name of a unit")
        name = QuoteString(self.name)
        bits: list[str | StringCommand | QuoteString] = ["export LC_ALL=C;"]
        if self.enabled or self.running or self.masked is not None:
            for verb in self._file_verbs():
                bits += ["systemctl --quiet --no-reload", verb, "--", name, "&&"]
            bits += ["systemctl daemon-reload"]
        else:
            absent = StringCommand("systemctl show -p LoadState --", name)
            bits += ["systemctl daemon-reload && case $(", absent]
            bits += [") in LoadState=not-found) exit 0;; esac"]
            for verb in self._file_verbs():
                bits += ["&& systemctl --quiet", verb, "--", name]
        for verb in self._verbs(seconds):
            bits += ["&&", verb, "--", name]
        status = StringCommand("systemctl status --no-pager --full --lines=0 --", name)
        log = StringCommand(
            f"journalctl --no-pager --quiet --output=cat --lines={LOG_LINES} -u", name
        )
        bits += ["|| { c=$?;", status, ";", log, "; exit $c; } >&2"]
        return StringCommand(*bits)

    def _file_verbs(self) -> Iterator[str]:
        if self.masked is False:
            yield "unmask"
        if self.enabled is not None:
            yield "enable" if self.enabled else "disable"

    def _verbs(self, seconds: float) -> Iterator[str]:
        if self.running is False:
            state = "stop"
        elif self.running:
            state = "restart" if self.restart else "start"
        else:
            state = "try-restart" if self.restart else ""
        if state:
            yield f"timeout -k 5 {max(1, round(seconds))} systemctl {state}"
        if self.masked:
            yield "systemctl --quiet mask"


class UnitState(Form, frozen=True, kw_only=True):
    enabled: Text  # UnitFileState
    active: Text  # ActiveState
    masked: bool
    fragment: Text  # FragmentPath


class UnitKind(Kind):
    form = UnitState
    actions = (SetUnit,)

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not the name of a unit"

    def is_same(self, before: State, current: State) -> bool:
        """A failed unit is restored as a stopped one: nodevet cannot make it fail again."""
        return before.exists == current.exists and canonical(_stopped_value(before)) == canonical(
            _stopped_value(current)
        )

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, SetUnit):
                name = plain(action.name)
                yield f"-{name}: {_old_state_text(before.get(action.resource))}"
                yield f"+{name}: {_new_state_text(action)}"

    def holds(self, action: Action, state: State) -> bool | None:
        """The state does not show a restart."""
        if not isinstance(action, SetUnit):
            return None
        value = state.mapping
        enabled = value.get("enabled") in (True, "enabled", "enabled-runtime")
        active = value.get("active") in (True, "active", "reloading")
        parts = [
            (action.masked, bool(value.get("masked"))),
            (action.enabled, state.exists and enabled),
            (action.running, state.exists and active),
        ]
        if any(expected is not None and expected is not actual for expected, actual in parts):
            return False
        return None if action.restart else True

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:2] in (("systemctl", "daemon-reload"), ("systemctl", "reset-failed"))

    def restore_rank(self, before: State) -> int:
        """A new unit stops while its file exists. An older one starts after its file is restored,
        and after swap, which a swap unit would turn on too."""
        return 5 if before.exists else 0

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        name, label = before.resource.name, before.resource.label
        if not before.exists:
            return [SetUnit(name=name, enabled=False, running=False)]
        value = mapping(before)
        enabled, active, masked = value.get("enabled"), value.get("active"), value.get("masked")
        if enabled in _FIXED:
            raise RestoreError(f"{label}: it is {enabled}, which nodevet does not restore")
        if active in ("activating", "reloading", "deactivating"):
            raise RestoreError(f"{label}: it is {active}: plan again when it has settled")
        running = switch(before, active)
        return [
            SetUnit(
                name=name,
                enabled=None if masked else _is_enabled(enabled),
                running=running,
                restart=running and any(action.restarts == name for action in actions),
                masked=bool(masked),
            )
        ]

    def after_restore(
        self, restore_actions: Sequence[Action], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """systemd, and the units that the step restarted, must read the restored files."""
        places = [n for n, action in enumerate(restore_actions) if isinstance(action, WriteFile)]
        if not places:
            return ()
        set_again = {action.name for action in restore_actions if isinstance(action, SetUnit)}
        if names := {action.restarts for action in actions if action.restarts} - set_again:
            return [SetUnit(name=name, restart=True) for name in sorted(names)]
        after = restore_actions[places[0] :]
        reads = any(isinstance(action, SetUnit) for action in after)  # it reloads systemd
        return [RELOAD] if not reads and any(map(_is_of_systemd, after)) else ()

    def is_of_step(self, traces: Traces, current: State) -> bool | None:
        """The unit may be in any state between the earlier and the expected one, if the step ended
        in the middle or the node rebooted."""
        if traces.after is not None and current.resource.name in stopped_around(traces.actions):
            return False  # it ran again since; something else stopped it
        return traces.before is not None and _is_between(traces, current)

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """A unit belongs to whoever manages its file, or a drop-in of it."""
        paths = [PurePosixPath(other.name) for other in others if other.kind == "file"]
        return any(
            path.name == resource.name or path.parent.name == f"{resource.name}.d" for path in paths
        )


def stop(names: Sequence[str]) -> tuple[SetUnit, ...]:
    return tuple(SetUnit(name=name, running=False) for name in names)


def start(names: Sequence[str]) -> tuple[SetUnit, ...]:
    """Start units in the reverse order in which `stop` stops them."""
    return tuple(SetUnit(name=name, running=True) for name in reversed(names))


def resources(names: Sequence[str]) -> tuple[Resource, ...]:
    return tuple(Resource(kind="unit", name=name) for name in names)


def stopped_around(actions: Sequence[Action]) -> tuple[str, ...]:
    """The units that actions stop first and start last, in the order in which they stop."""
    names: list[str] = []
    for first, last in zip(actions, reversed(actions), strict=True):
        if not isinstance(first, SetUnit) or (first,) != stop([first.name]):
            break
        if (last,) != start([first.name]):
            break
        names.append(first.name)
    return tuple(names)


def drop_units(actions: Sequence[Action], names: Collection[str]) -> tuple[Action, ...]:
    """The actions that do not set one of these units."""
    return tuple(
        action for action in actions if not (isinstance(action, SetUnit) and action.name in names)
    )


def _stopped_value(state: State) -> Any:
    if state.mapping.get("active") == "failed":
        return {**state.mapping, "active": "inactive"}
    return state.value


def _is_enabled(value: Any) -> bool | None:
    """Whether a unit is enabled; None if it can be neither enabled nor disabled: static, ..."""
    if isinstance(value, bool):
        return value
    return {"enabled": True, "disabled": False}.get(str(value))


def _is_of_systemd(action: Action) -> bool:
    return isinstance(action, WriteFile) and (
        "/systemd/" in action.path or action.path == "/etc/fstab"
    )


def _is_between(traces: Traces, current: State) -> bool:
    """Whether each part of a unit's state is as before, or as the step sets it."""
    expected: dict[str, set[object]] = {"enabled": set(), "active": set(), "masked": set()}
    for state in (traces.before, traces.after):
        value = (state and state.mapping) or ABSENT
        for part, values in expected.items():
            values.add(value.get(part))
    for action in traces.actions:
        if isinstance(action, SetUnit) and action.name == current.resource.name:
            expected["enabled"] |= {"enabled"} if action.enabled else set()
            starts = action.running or action.restart or action.enabled
            expected["active"] |= {"active"} if starts else set()
            expected["masked"] |= {True} if action.masked else set()
            expected["enabled"] |= {"disabled"} if action.enabled is False else set()
            expected["active"] |= {"inactive", "failed"} if action.running is False else set()
    value = current.mapping or ABSENT
    return all(value.get(part) in values for part, values in expected.items())


def _old_state_text(before: State | None) -> str:
    if before is None or (before.exists and not isinstance(before.value, Mapping)):
        return "(not read)"
    if not before.exists:
        return "(absent)"
    value = before.mapping
    words = {"enabled": ("enabled", "disabled"), "active": ("running", "stopped")}
    parts = [
        words[key][not value[key]] if isinstance(value[key], bool) else str(value[key])
        for key in ("enabled", "active")
        if value.get(key) is not None
    ]
    return plain(", ".join([*parts, *(["masked"] if value.get("masked") is True else [])]))


def _new_state_text(action: SetUnit) -> str:
    parts = {
        "enabled": action.enabled,
        "disabled": _negate(action.enabled),
        "running": action.running,
        "restarted": action.restart and action.running,
        "stopped": _negate(action.running),
        "masked": action.masked,
        "not masked": _negate(action.masked),
        "restarted if it runs": action.restart and not action.running,
    }
    return ", ".join(part for part, on in parts.items() if on) or "as it is"


def _negate(value: bool | None) -> bool | None:
    return None if value is None else not value


KIND = UnitKind()
