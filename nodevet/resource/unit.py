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
    clean,
    mapping,
    switch,
)
from nodevet.resource.file import WriteFile

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

FOLDER = "/etc/systemd/system/"
LOG_LINES = 20  # of a unit that fails
NAME = re.compile(UNIT_NAME)
SETTABLE = re.compile(UNIT_NAME + r"\.(service|socket|timer|target|path|swap)")
RELOAD = RunCommand(words=("systemctl", "daemon-reload"))
"""systemd reads its files again."""

ABSENT: Mapping[str, object] = {"enabled": "disabled", "active": "inactive", "masked": False}
"""A unit that does not exist: what it is once its file does, and nothing else was done."""

_FIXED = ("linked", "linked-runtime", "enabled-runtime", "masked-runtime")
_OPPOSITE = {"mask": "unmask", "enable": "disable", "start": "stop"}


class SetUnit(Action, frozen=True, kw_only=True, tag="unit"):
    """The state of a systemd unit; None leaves that part as it is."""

    name: str
    enabled: bool | None = None
    running: bool | None = None
    restart: bool = False  # if it runs; systemd reads its files again before, always
    masked: bool | None = None

    @property
    def resource(self) -> Resource:
        return Resource(kind="unit", name=self.name)

    @property
    def label(self) -> str:
        parts = {
            "mask": self.masked,
            "enable": self.enabled,
            "start": self.running,
            "restart": self.restart or None,
        }
        verbs = [_OPPOSITE[k] if on is False else k for k, on in parts.items() if on is not None]
        return f"{' and '.join(verbs) or 'reload'} {self.name}"

    @property
    def restarts(self) -> str:
        return self.name if self.restart else ""

    @property
    def runs(self) -> bool:
        """Whether its programs are begun or ended."""
        return self.restart or self.running is not None

    def covers(self, other: Action) -> bool:
        if not isinstance(other, SetUnit) or other.restart:
            return self == other
        parts = [(getattr(other, part), getattr(self, part)) for part in ("enabled", "running")]
        parts.append((other.masked, self.masked))
        return self.name == other.name and all(want in (None, mine) for want, mine in parts)

    def command(self, *, seconds: float) -> "StringCommand":
        """systemd reads its files again, then mask, enablement and state; its log if that fails.

        A unit that does not exist is neither enabled nor running, and need not be made so.
        """
        from pyinfra.api.command import QuoteString, StringCommand

        if not SETTABLE.fullmatch(clean(self.name, "unit")):
            raise ActionError(f"{self.name!r} is not the name of a unit")
        name = QuoteString(self.name)
        bits: list[str | StringCommand | QuoteString] = ["export LC_ALL=C; systemctl daemon-reload"]
        if not (self.enabled or self.running or self.masked is not None):
            absent = StringCommand("systemctl show -p LoadState --", name)
            bits += ["&& case $(", absent, ") in LoadState=not-found) exit 0;; esac"]
        for verb in self._verbs(seconds):
            bits += ["&&", verb, "--", name]
        status = StringCommand("systemctl status --no-pager --full --lines=0 --", name)
        log = StringCommand(
            f"journalctl --no-pager --quiet --output=cat --lines={LOG_LINES} -u", name
        )
        bits += ["|| { c=$?;", status, ";", log, "; exit $c; } >&2"]
        return StringCommand(*bits)

    def _verbs(self, seconds: float) -> Iterator[str]:
        if self.masked is False:
            yield "systemctl --quiet unmask"
        if self.enabled is not None:
            yield f"systemctl --quiet {'enable' if self.enabled else 'disable'}"
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

    def same(self, one: State, other: State) -> bool:
        """One that had failed is stopped when it is restored: nothing makes it fail again."""
        return one.exists == other.exists and canonical(_stopped(one)) == canonical(_stopped(other))

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, SetUnit):
                name = plain(action.name)
                yield f"-{name}: {_was(before.get(action.resource))}"
                yield f"+{name}: {_will_be(action)}"

    def holds(self, action: Action, state: State) -> bool | None:
        """Whether it was restarted does not show."""
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
        """One that did not exist ends while its file does; one that did starts after its file,
        and after swap, which a unit of it would turn on too."""
        return 5 if before.exists else 0

    def restore(
        self, before: State, among: Sequence[State], actions: Sequence[Action]
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
                enabled=None if masked else _enabled(enabled),
                running=running,
                restart=running and any(each.restarts == name for each in actions),
                masked=bool(masked),
            )
        ]

    def after_restore(self, done: Sequence[Action], actions: Sequence[Action]) -> Sequence[Action]:
        """systemd, and the units that the step restarted, read the files that were restored."""
        first = next((n for n, each in enumerate(done) if isinstance(each, WriteFile)), None)
        if first is None:
            return ()
        set_again = {each.name for each in done if isinstance(each, SetUnit)}
        if left := {each.restarts for each in actions if each.restarts} - set_again:
            return [SetUnit(name=name, restart=True) for name in sorted(left)]
        after = done[first:]
        reads = any(isinstance(each, SetUnit) for each in after)  # it makes systemd read its files
        return [RELOAD] if not reads and any(map(_is_of_systemd, after)) else ()

    def is_of_step(self, traces: Traces, now: State) -> bool | None:
        """It may be anywhere between what it was and what it was to be: the step was left in the
        middle, or the node was rebooted since."""
        if traces.after is not None and now.resource.name in stopped_around(traces.actions):
            return False  # it runs again since: not this step stopped it
        return traces.before is not None and _between(traces, now)

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """A unit whose file, or a drop-in of it, is another's, is so too."""
        paths = [PurePosixPath(each.name) for each in others if each.kind == "file"]
        return any(
            path.name == resource.name or path.parent.name == f"{resource.name}.d" for path in paths
        )


def stop(names: Sequence[str]) -> tuple[SetUnit, ...]:
    return tuple(SetUnit(name=name, running=False) for name in names)


def start(names: Sequence[str]) -> tuple[SetUnit, ...]:
    """The other way round than they were stopped."""
    return tuple(SetUnit(name=name, running=True) for name in reversed(names))


def resources(names: Sequence[str]) -> tuple[Resource, ...]:
    return tuple(Resource(kind="unit", name=name) for name in names)


def stopped_around(actions: Sequence[Action]) -> tuple[str, ...]:
    """The units that actions stop first and start last, in the order in which they stop them."""
    found: list[str] = []
    for first, last in zip(actions, reversed(actions), strict=True):
        if not isinstance(first, SetUnit) or (first,) != stop([first.name]):
            break
        if (last,) != start([first.name]):
            break
        found.append(first.name)
    return tuple(found)


def without(actions: Sequence[Action], names: Collection[str]) -> tuple[Action, ...]:
    """Actions but for those that set these units."""
    return tuple(each for each in actions if not (isinstance(each, SetUnit) and each.name in names))


def _stopped(state: State) -> Any:
    if state.mapping.get("active") == "failed":
        return {**state.mapping, "active": "inactive"}
    return state.value


def _enabled(value: Any) -> bool | None:
    """Whether a unit was enabled; None if it can be neither: static, generated, ..."""
    if isinstance(value, bool):
        return value
    return {"enabled": True, "disabled": False}.get(str(value))


def _is_of_systemd(action: Action) -> bool:
    return isinstance(action, WriteFile) and (
        "/systemd/" in action.path or action.path == "/etc/fstab"
    )


def _between(traces: Traces, now: State) -> bool:
    """Whether each part of a unit's state is what it was, or what the step makes it."""
    expected: dict[str, set[object]] = {"enabled": set(), "active": set(), "masked": set()}
    for seen in (traces.before, traces.after):
        value = (seen and seen.mapping) or ABSENT
        for part, values in expected.items():
            values.add(value.get(part))
    for action in traces.actions:
        if isinstance(action, SetUnit) and action.name == now.resource.name:
            expected["enabled"] |= {"enabled"} if action.enabled else set()
            starts = action.running or action.restart or action.enabled
            expected["active"] |= {"active"} if starts else set()
            expected["masked"] |= {True} if action.masked else set()
            expected["enabled"] |= {"disabled"} if action.enabled is False else set()
            expected["active"] |= {"inactive", "failed"} if action.running is False else set()
    value = now.mapping or ABSENT
    return all(value.get(part) in values for part, values in expected.items())


def _was(before: State | None) -> str:
    if before is None or (before.exists and not isinstance(before.value, Mapping)):
        return "(not read)"
    if not before.exists:
        return "(absent)"
    value = before.mapping
    words = {"enabled": ("enabled", "disabled"), "active": ("running", "stopped")}
    told = [
        words[key][not value[key]] if isinstance(value[key], bool) else str(value[key])
        for key in ("enabled", "active")
        if value.get(key) is not None
    ]
    return plain(", ".join([*told, *(["masked"] if value.get("masked") is True else [])]))


def _will_be(action: SetUnit) -> str:
    parts = {
        "enabled": action.enabled,
        "disabled": _negated(action.enabled),
        "running": action.running,
        "stopped": _negated(action.running),
        "masked": action.masked,
        "not masked": _negated(action.masked),
        "restarted if it runs": action.restart,
    }
    return ", ".join(part for part, on in parts.items() if on) or "as it is"


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


KIND = UnitKind()
