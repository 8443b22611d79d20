"""What every kind of resource has in common: a name, a state, actions that change it, and `Kind`.

`Kind` is everything that the rest of nodevet asks about one kind; each module of this package has
one, and its own answers if they are not these.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from nodevet.base.printable import plain
from nodevet.evidence.document import Evidence
from nodevet.model import show

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

_ON = ("1", "true", "on", "yes", "enabled", "active", "loaded")
_OFF = ("0", "false", "off", "no", "disabled", "inactive", "failed", "unloaded")

Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Resource(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing whose earlier state is kept before it is changed."""

    kind: str
    """A module of this package: file, kernel (a path of /sys or /proc/sys), unit, gpu, ..."""
    name: str
    """/etc/tmpfiles.d/x.conf; /sys/...; x.service; GPU-<uuid>:power_limit_mw; nouveau; ..."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource was when it was read: enough to restore it."""

    resource: Resource
    exists: bool
    value: Any = None
    """JSON, in the `form` of the resource's kind; none of what could not be read."""
    why: str = ""  # it could not be read

    @property
    def mapping(self) -> Mapping[str, Any]:
        """The value, if it has parts; else nothing."""
        return self.value if isinstance(self.value, Mapping) else {}


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a state that has parts. It is kept, and restored later: none of its parts may
    be one that is not validated."""


class RestoreError(Exception):
    """An earlier state that cannot be restored; the message says of what and why."""


class ActionError(Exception):
    """An action that is never run; the message says why."""


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One thing that is done on a node, whole. `do` says in JSON which type it is."""

    @property
    def resource(self) -> Resource | None:
        """What it changes; None for a command, which may change anything."""
        return None

    @property
    def label(self) -> str:
        """It in one line: `write /etc/x.conf`."""
        raise NotImplementedError

    @property
    def restarts(self) -> str:
        """The unit that it restarts; empty if none."""
        return ""

    def covers(self, other: "Action") -> bool:
        """Whether it leaves its resource as another action would."""
        return self == other

    def command(self, *, seconds: float) -> "StringCommand":
        """It as one command of sh, every value quoted; its errors go to stderr.

        `seconds`: how long a unit may take to start or stop. Raises ActionError.
        """
        raise NotImplementedError


class RunCommand(Action, frozen=True, kw_only=True, omit_defaults=True, tag="run"):
    """A command, word by word, without a shell."""

    words: tuple[str, ...]
    seconds: int | None = None  # that it may take, if that is more than for any action

    @property
    def label(self) -> str:
        return " ".join(self.words)

    def command(self, *, seconds: float) -> "StringCommand":
        """`exec` takes what follows as a program and its arguments, whatever they look like."""
        from pyinfra.api.command import QuoteString, StringCommand

        if not self.words or not self.words[0] or self.words[0].startswith("-"):
            raise ActionError(f"{list(self.words)!r} does not name a program")
        if any("\0" in word for word in self.words):
            raise ActionError("a word of the command holds a zero byte")
        return StringCommand("exec", *(QuoteString(word) for word in self.words))


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did, as the journal tells it, of one resource."""

    before: State | None
    after: State | None  # as the step left it; None: it was not read after the last action
    actions: tuple[Action, ...]
    effective: str  # now, restart, reset, reboot


class Kind:
    """Everything that nodevet knows of one kind of resource."""

    form: Any = Any
    """The type of a state's value; what a node answers is validated by it."""
    actions: tuple[type[Action], ...] = ()
    is_setting = False
    """It stays as it was set, unless something else sets it."""
    services: frozenset[str] = frozenset()
    """Services that change only resources of this kind, and those that a step with them names."""
    hides_gpus = False
    """After a change NVML may answer nothing before the node is rebooted."""

    # --- names --------------------------------------------------------------------------

    def name_problem(self, name: str) -> str:
        """Why nothing of this kind can have such a name; empty if it can."""
        return ""

    def names(self, resource: Resource) -> tuple[str, ...]:
        """The words by which commands and files name it."""
        return (self.gpu_of(resource) or resource.name,)

    def gpu_of(self, resource: Resource) -> str:
        """The UUID of the GPU that it is a setting of; empty if of none."""
        return ""

    # --- states -------------------------------------------------------------------------

    def same(self, one: State, other: State) -> bool:
        """Whether it now is what it was. Both could be read."""
        return one.exists == other.exists and canonical(one.value) == canonical(other.value)

    def ended(self, then: State, now: State) -> bool:
        """Whether it does not exist any more, and need not be restored. Both could be read."""
        return False

    def describe(self, state: State) -> str:
        """What it was when it existed and could be read, in few words."""
        return show(state.value)

    def lines(self, state: State) -> Iterator[str]:
        """The same for a diff, part by part, printable."""
        label = plain(state.resource.label)
        if state.mapping:
            yield from (f"{label} {plain(f'{key}: {part}')}" for key, part in state.mapping.items())
        else:
            yield f"{label}: {plain(self.describe(state))}"

    # --- contents -----------------------------------------------------------------------

    def text(self, state: State) -> list[str] | None:
        """What it held, line by line and printable; None if that is not text, or not here."""
        return None

    def kept(self, state: State) -> tuple[State, Mapping[str, bytes]]:
        """A state that was read as it is written down, and the contents that it then names by
        their SHA-256."""
        return state, {}

    def named(self, state: State) -> Mapping[str, int]:
        """The contents that a state which was written down names: SHA-256 -> bytes."""
        return {}

    def filled(self, state: State, contents: Mapping[str, bytes]) -> State:
        """A state that was written down as it was read, with the contents that are here."""
        return state

    # --- actions ------------------------------------------------------------------------

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        """Actions of this kind that follow one another, as lines with - and +, printable."""
        yield from (f"+{plain(action.label)}" for action in actions)

    def holds(self, action: Action, state: State) -> bool | None:
        """Whether an action of this kind took place, by a state that could be read.

        None: the state does not tell.
        """
        return None

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether a command took place, by the states of what it changes of this kind.

        None: it is not about this kind, or they do not tell.
        """
        return None

    def couples(self, resource: Resource, other: Resource) -> bool:
        """Whether the kernel or a driver may change the other one with this one."""
        return False

    def names_all(self, words: Sequence[str]) -> bool:
        """Whether a command is about this kind alone, so that a step names all that it changes."""
        return False

    # --- restoring ----------------------------------------------------------------------

    def restore_rank(self, before: State) -> int:
        """When it is restored: lower ranks first. See `nodevet.resource.restore`."""
        return 6

    def restore(
        self, before: State, among: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """What restores it. `among`: all states of this kind that are restored at once, in the
        order in which they were changed; `actions`: those of the step. Raises RestoreError."""
        raise RestoreError(f"{before.resource.label}: a {before.resource.kind} cannot be restored")

    def after_restore(self, done: Sequence[Action], actions: Sequence[Action]) -> Sequence[Action]:
        """What must follow once all has been restored, of any kind."""
        return ()

    def restored_with(self, resource: Resource) -> tuple[Resource, ...]:
        """The others that one command sets together with it."""
        return ()

    def sweep(self, then: State, now: State) -> Sequence[Action]:
        """What removes that which a crash of the node may have left of an action on it."""
        return ()

    def is_of_step(self, traces: Traces, now: State) -> bool | None:
        """Whether what it is now comes from a step, though it is not exactly what the step left.

        None: whether the step's actions hold tells.
        """
        return None

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """Whether it is another's as soon as one of these is."""
        return False

    # --- when it is in force ------------------------------------------------------------

    def waits(self, resource: Resource, evidence: Evidence) -> bool | None:
        """Whether it is set, and not in force before a reset; None if it always is at once."""
        return None

    def after_reset(self, evidence: Evidence) -> Evidence:
        """The evidence as it would be after a reset."""
        return evidence


def canonical(value: Any) -> bytes:
    """A value's JSON form: what was read back from a file equals what was made here."""
    return msgspec.json.encode(value, order="sorted")


def mapping(state: State) -> Mapping[str, Any]:
    """A value with parts. Raises RestoreError."""
    if not isinstance(state.value, Mapping):
        raise RestoreError(f"{state.resource.label}: {state.value!r} is not a valid state of it")
    return state.value


def whole(state: State, value: Any) -> int:
    """A number of a state. Raises RestoreError."""
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise RestoreError(f"{state.resource.label}: {value!r} is not a number")
    return int(text)


def switch(state: State, value: Any) -> bool:
    """On or off, however it is spelt. Raises RestoreError."""
    text = str(value).lower()
    if text in _ON or text in _OFF:
        return text in _ON
    raise RestoreError(f"{state.resource.label}: {value!r} is neither on nor off")


def clean(text: str, what: str) -> str:
    """A word of an action. Raises ActionError."""
    if not text or any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ActionError(f"the {what} {text!r} is empty or holds control characters")
    return text


def path_problem(name: str) -> str:
    """Why a name is not a path from / on in its plain form; empty if it is."""
    is_plain = posixpath.normpath(name) == name and "\0" not in name
    if is_plain and name.startswith("/") and not name.startswith("//"):
        return ""
    return "is not a plain path from / on"
