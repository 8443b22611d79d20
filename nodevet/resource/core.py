"""What every kind of resource shares: a name, a state, actions that change it, and `Kind`.

`Kind` is everything that the rest of nodevet asks about a kind. Each module of this package has a
subclass, which overrides what is different.
"""

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from nodevet.base import typed
from nodevet.base.printable import brief, plain
from nodevet.evidence.document import Evidence
from nodevet.model import show

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

_ON = ("1", "true", "on", "yes", "enabled", "active", "loaded")
_OFF = ("0", "false", "off", "no", "disabled", "inactive", "failed", "unloaded")

SHORT = 80  # characters of a command in an error
Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Resource(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that a fix can change; nodevet keeps its state before it does."""

    kind: str
    """A module of this package: file, kernel (a path of /sys or /proc/sys), unit, gpu, ..."""
    name: str
    """/etc/tmpfiles.d/x.conf; /sys/...; x.service; GPU-<uuid>:power_limit_mw; nouveau; ..."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as nodevet read it: enough to restore it."""

    resource: Resource
    exists: bool
    value: Any = None
    """JSON, in the `form` of the resource's kind; None if it could not be read."""
    why: str = ""  # why it could not be read

    @property
    def mapping(self) -> Mapping[str, Any]:
        """The value, if it has parts; else nothing."""
        return self.value if isinstance(self.value, Mapping) else {}


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a state that has parts. Since nodevet restores it later, it allows no part that
    it does not validate."""


class RestoreError(Exception):
    """nodevet cannot restore a state; the message says which and why."""


class ActionError(Exception):
    """nodevet never runs this action; the message says why."""


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One change on a node, done as a whole or not at all. `do` is its type in JSON."""

    @property
    def resource(self) -> Resource | None:
        """The resource that it changes; None for a command, which may change anything."""
        return None

    @property
    def label(self) -> str:
        """One line for people: `write /etc/x.conf`."""
        raise NotImplementedError

    @property
    def short_label(self) -> str:
        """The label within an error, in which the reason follows it."""
        return self.label

    @property
    def restarts(self) -> str:
        """The unit that it restarts; empty if none."""
        return ""

    @property
    def is_one_way(self) -> bool:
        """Whether nothing can undo it."""
        return False

    @property
    def next_resort(self) -> str:
        """What a person does if it did not help, in words; empty if nothing is known."""
        return ""

    @property
    def longest(self) -> int | None:
        """Its time limit in seconds, if it is longer than that of other actions."""
        return None

    def covers(self, other: "Action") -> bool:
        """Whether it leaves its resource as `other` would."""
        return self == other

    def command(self, *, seconds: float) -> "StringCommand":
        """One command of sh, with every value quoted; its errors go to stderr.

        `seconds`: how long a unit may take to start or stop. Raises ActionError.
        """
        raise NotImplementedError


class RunCommand(Action, frozen=True, kw_only=True, omit_defaults=True, tag="run"):
    """A command, word by word, without a shell."""

    words: tuple[str, ...]
    seconds: int | None = None  # time limit, if it is longer than that of other actions

    @property
    def label(self) -> str:
        return " ".join(self.words)

    @property
    def short_label(self) -> str:
        """`dnf nvidia-driver.x86_64=3:570...`: a script only by its name and its arguments."""
        is_script = self.words[:2] == ("sh", "-c") and len(self.words) > 3
        return brief(" ".join(self.words[3:]) if is_script else self.label, SHORT)

    @property
    def longest(self) -> int | None:
        return self.seconds

    @property
    def command_text(self) -> str:
        """The command as a shell reads it."""
        return shlex.join(self.words)

    def command(self, *, seconds: float) -> "StringCommand":
        """`exec` runs the words as a program and its arguments, even if they look like options."""
        from pyinfra.api.command import QuoteString, StringCommand

        if not self.words or not self.words[0] or self.words[0].startswith("-"):
            raise ActionError(f"{list(self.words)!r} does not name a program")
        if any("\0" in word for word in self.words):
            raise ActionError("a word of the command holds a zero byte")
        return StringCommand("exec", *(QuoteString(word) for word in self.words))


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did to one resource, from the journal."""

    before: State | None
    after: State | None  # as the step left it; None: not read after the last action
    actions: tuple[Action, ...]
    effective: str  # now, restart, reset, reboot


def _form_problem(value: Any, form: Any) -> str:
    try:
        typed.convert(value, form)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


class Kind:
    """Everything that nodevet knows about one kind of resource."""

    form: Any = Any
    """The type of a state's value; nodevet validates a node's answer with it."""
    actions: tuple[type[Action], ...] = ()
    is_setting = False
    """Whether it stays as it was set until something else sets it."""
    services: frozenset[str] = frozenset()
    """Services that change only resources of this kind."""
    leaves_nothing = False
    """Whether nothing is missing after an action of it that nothing can undo."""
    hides_gpus = False
    """Whether NVML may fail after a change until the node reboots."""

    # --- names --------------------------------------------------------------------------

    def name_problem(self, name: str) -> str:
        """Why a resource of this kind cannot have this name; empty if it can."""
        return ""

    def names(self, resource: Resource) -> tuple[str, ...]:
        """The words that name the resource in commands and files."""
        return (self.gpu_of(resource) or resource.name,)

    def gpu_of(self, resource: Resource) -> str:
        """The UUID of the GPU whose setting this is; empty for anything else."""
        return ""

    # --- states -------------------------------------------------------------------------

    def is_same(self, before: State, current: State) -> bool:
        """Whether the resource is as before. Both states could be read."""
        return before.exists == current.exists and canonical(before.value) == canonical(
            current.value
        )

    def has_ended(self, before: State, current: State) -> bool:
        """Whether the resource no longer exists and needs no restoring. Both could be read."""
        return False

    def describe(self, state: State) -> str:
        """A state that exists and could be read, in a few words."""
        return show(state.value)

    def lines(self, state: State) -> Iterator[str]:
        """A state as printable lines of a diff, one for each part."""
        label = plain(state.resource.label)
        if state.mapping:
            yield from (f"{label} {plain(f'{key}: {part}')}" for key, part in state.mapping.items())
        else:
            yield f"{label}: {plain(self.describe(state))}"

    # --- contents -----------------------------------------------------------------------

    def text(self, state: State) -> list[str] | None:
        """The content as printable lines; None if it is not text, or not available here."""
        return None

    def to_stored(self, state: State) -> tuple[State, Mapping[str, bytes]]:
        """The state as plans and journals store it, and the contents that it names by SHA-256."""
        return state, {}

    def stored_problem(self, state: State) -> str:
        """Why a plan cannot hold this value of a state that exists; empty if it can."""
        return _form_problem(state.value, self.stored_form(state))

    def stored_form(self, state: State) -> Any:
        """The type of the value as plans and journals store it."""
        return self.form

    def content_sizes(self, state: State) -> Mapping[str, int]:
        """The contents that a stored state names: SHA-256 -> size in bytes."""
        return {}

    def with_contents(self, state: State, contents: Mapping[str, bytes]) -> State:
        """A stored state as it was read, with those contents that are available."""
        return state

    # --- actions ------------------------------------------------------------------------

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        """Consecutive actions of this kind as printable lines with - and +."""
        yield from (f"+{plain(action.label)}" for action in actions)

    def holds(self, action: Action, state: State) -> bool | None:
        """Whether an action of this kind took effect, by a state that could be read.

        None: the state does not show it.
        """
        return None

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether a command took effect, by the states of the resources that it changes.

        None: it does not change this kind, or the states do not show it.
        """
        return None

    def couples(self, resource: Resource, other: Resource) -> bool:
        """Whether the kernel or a driver may change `other` together with `resource`."""
        return False

    def names_all(self, words: Sequence[str]) -> bool:
        """Whether a command changes only this kind, so that its step names all its resources."""
        return False

    # --- restoring ----------------------------------------------------------------------

    def restore_rank(self, before: State) -> int:
        """The turn in which it is restored: lower ranks first. See `nodevet.resource.restore`."""
        return 6

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """The actions that restore it. `siblings`: all states of this kind that are restored at
        once, in the order of their changes; `actions`: the step's. Raises RestoreError."""
        raise RestoreError(f"{before.resource.label}: a {before.resource.kind} cannot be restored")

    def after_restore(
        self, restore_actions: Sequence[Action], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """The actions that must follow `restore_actions`, which restore all kinds."""
        return ()

    def restored_with(self, resource: Resource) -> tuple[Resource, ...]:
        """The other resources that one command sets together with this one."""
        return ()

    def remove_leftovers(self, before: State, current: State) -> Sequence[Action]:
        """The actions that remove what an action left behind when the node crashed."""
        return ()

    def is_of_step(self, traces: Traces, current: State) -> bool | None:
        """Whether a step led to the current state, though it is not exactly as the step left it.

        None: decide by `holds` of the step's actions.
        """
        return None

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """Whether the resource belongs to whoever manages one of the others."""
        return False

    # --- when it is in force ------------------------------------------------------------

    def is_pending(self, resource: Resource, evidence: Evidence) -> bool | None:
        """Whether the setting waits for a reset; None if it is always in force at once."""
        return None

    def after_reset(self, evidence: Evidence) -> Evidence:
        """The evidence as it would be after a reset."""
        return evidence


def canonical(value: Any) -> bytes:
    """A value's JSON, equal for values that were read back from a file and values made here."""
    return msgspec.json.encode(value, order="sorted")


def mapping(state: State) -> Mapping[str, Any]:
    """The value of a state that has parts. Raises RestoreError."""
    if not isinstance(state.value, Mapping):
        raise RestoreError(f"{state.resource.label}: {state.value!r} is not a valid state of it")
    return state.value


def integer(state: State, value: Any) -> int:
    """A value of a state as a whole number. Raises RestoreError."""
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise RestoreError(f"{state.resource.label}: {value!r} is not a number")
    return int(text)


def switch(state: State, value: Any) -> bool:
    """A value of a state as on or off, in any spelling. Raises RestoreError."""
    text = str(value).lower()
    if text in _ON or text in _OFF:
        return text in _ON
    raise RestoreError(f"{state.resource.label}: {value!r} is neither on nor off")


def require_printable(text: str, noun: str) -> str:
    """`text`, if it is not empty and has no control characters; else raises ActionError."""
    if not text or any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ActionError(f"the {noun} {text!r} is empty or holds control characters")
    return text


def path_problem(name: str) -> str:
    """Why a name is not an absolute path in its plain form; empty if it is."""
    is_plain = posixpath.normpath(name) == name and "\0" not in name
    if is_plain and name.startswith("/") and not name.startswith("//"):
        return ""
    return "is not a plain path from / on"
