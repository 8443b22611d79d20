"""A file on a disk: its content, mode and owner, or that it does not exist."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, UnsetType, to_builtins
from msgspec.structs import replace

from nodevet.base.bounds import Text
from nodevet.base.printable import marked, plain
from nodevet.resource.core import (
    Action,
    ActionError,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    integer,
    mapping,
    path_problem,
    require_printable,
)

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

CONTENT = Meta(max_length=1_398_104)  # base64 of 1 MiB: nodevet.remote.state reads no larger file
LINES = 2000  # of one file in a diff; a longer one, or one that is not text, is its checksum
CONTEXT = 3  # unchanged lines around a change of a file
PROFILE = "/etc/tuned/(profiles/)?nodevet-[a-z-]+"
FOLDERS = re.compile(  # those that a file may bring along, mode 0755
    r"/etc/(tmpfiles|sysctl|modprobe|modules-load|udev/rules|default/grub)\.d|/etc/systemd/system"
    r"|/etc/systemd/system/[^/]+\.d|/etc/systemd/network/[^/]+\.(network|link)\.d"
    rf"|{PROFILE}"
)
DROP_INS = re.compile(rf"/etc/systemd/(system|network)/[^/]+\.d|{PROFILE}")  # empty: says nothing
ATTRIBUTES = "cp --attributes-only --preserve=all --no-preserve=ownership,timestamps"
LOAD = ("nmcli", "connection", "load")  # NetworkManager reads a profile's file when it is told to
NOT_ACTIVE = (  # TuneD sets nothing at all if one of its active profiles has no file
    'case " $(cat /etc/tuned/active_profile 2>/dev/null) " in *" ${d##*/} "*)'
    ' echo "TuneD still has the profile ${d##*/}" >&2; exit 1 ;; esac;'
)
NO_OTHER = (
    'if [ -L "$f" ] || { [ -e "$f" ] && [ ! -f "$f" ]; };',
    'then echo "$f is not a regular file" >&2; exit 1; fi;',
    'rm -f -- "$s"??????;',  # what a crash of the node left there
)

Id = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # uid_t, gid_t


class WriteFile(Action, frozen=True, kw_only=True, tag="file"):
    """A file has this content, mode and owner, or does not exist."""

    path: str
    content: str | None  # None: removed
    mode: int = 0o644
    owner: int = 0  # uid
    group: int = 0  # gid

    @property
    def resource(self) -> Resource:
        return Resource(kind="file", name=self.path)

    @property
    def label(self) -> str:
        return f"remove {self.path}" if self.content is None else f"write {self.path}"

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        parts = PurePosixPath(require_printable(self.path, "path"))
        if path_problem(self.path):
            raise ActionError(f"{self.path!r} is not an absolute path in its plain form")
        folder = str(parts.parent)
        start = str(parts.parent / f".{parts.name}.nodevet.")
        pairs = (("f", self.path), ("d", folder), ("s", start))
        opening = [
            StringCommand(f"{key}=", QuoteString(value), ";", _separator="") for key, value in pairs
        ]
        if self.content is None:
            return StringCommand(*opening, *_removal(folder))
        content = _bytes(self.content)
        encoded = base64.b64encode(content).decode("ascii")
        return StringCommand(
            "umask 077;", *opening, *self._writing(folder, content), _stdin=encoded
        )

    def _writing(self, folder: str, content: bytes) -> Iterator[str]:
        """Write a new file in the same folder, sync it, and replace the old file by rename(2).

        The content goes through stdin, and its SHA-256 is in the command: if the connection breaks
        in the middle, the old file stays. The new one keeps the old one's access control list,
        SELinux context and other attributes.
        """
        if not 0 <= self.mode <= 0o7777:
            raise ActionError(f"{self.mode!r} is not the mode of a file")
        if FOLDERS.fullmatch(folder):
            yield '[ -d "$d" ] || mkdir -m 755 -- "$d" || exit 1;'
        else:
            yield '[ -d "$d" ] || { echo "$d is not a directory" >&2; exit 1; };'
        yield from NO_OTHER
        yield 't=$(mktemp -- "$s"XXXXXX) || exit 1;'
        yield "trap 'rm -f -- \"$t\"' EXIT; trap 'exit 1' HUP INT TERM;"
        yield f'[ ! -e "$f" ] || {{ {ATTRIBUTES} -- "$f" "$t" && chmod 600 -- "$t"; }} || exit 1;'
        yield 'base64 -d >"$t" || exit 1;'
        yield f'[ "$(sha256sum <"$t")" = "{hashlib.sha256(content).hexdigest()}  -" ] ||'
        yield '{ echo "the content did not arrive whole" >&2; exit 1; };'
        yield f'chown {int(self.owner)}:{int(self.group)} -- "$t" &&'
        yield f'chmod {self.mode:04o} -- "$t" &&'
        yield 'sync -- "$t" && mv -fT -- "$t" "$f" && sync -- "$d"'


def _bytes(content: str) -> bytes:
    return content.encode("utf-8", "surrogateescape")


def _removal(folder: str) -> Iterator[str]:
    if re.fullmatch(PROFILE, folder):
        yield NOT_ACTIVE
    empty = ' && { rmdir -- "$d" 2>/dev/null; :; }' if DROP_INS.fullmatch(folder) else ""
    yield '[ -d "$d" ] || exit 0;'
    yield from NO_OTHER
    yield f'rm -f -- "$f" && sync -- "$d"{empty}'


class _Properties(Form, frozen=True, kw_only=True):
    mode: Annotated[int, Meta(ge=0, le=0o7777)] | UnsetType = UNSET
    owner: Id | UnsetType = UNSET
    group: Id | UnsetType = UNSET
    target: Text | UnsetType = UNSET  # of a symbolic link, and nothing else

    def __post_init__(self) -> None:
        if self.target is UNSET and UNSET in (self.mode, self.owner, self.group):
            raise ValueError("a file without mode, owner and group")


class FileAnswer(_Properties, frozen=True, kw_only=True):
    """A file as a node answers it, and as nodevet restores and shows it."""

    content: Annotated[str, CONTENT] | UnsetType = UNSET  # base64; none of one that is too large

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.content is not UNSET:
            base64.b64decode(self.content, validate=True)


class FileState(_Properties, frozen=True, kw_only=True):
    """A file as plans, journals and results store it."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Meta(ge=0)]  # bytes


class FileKind(Kind):
    form = FileAnswer
    actions = (WriteFile,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        return path_problem(name)

    def is_same(self, before: State, current: State) -> bool:
        return super().is_same(self.to_stored(before)[0], self.to_stored(current)[0])

    def to_stored(self, state: State) -> tuple[State, Mapping[str, bytes]]:
        encoded = state.mapping.get("content")
        if not isinstance(encoded, str):
            return state, {}
        parts = {key: part for key, part in state.mapping.items() if key != "content"}
        try:
            data = base64.b64decode(encoded)
            form = FileState(sha256=hashlib.sha256(data).hexdigest(), size=len(data), **parts)
        except (binascii.Error, TypeError, ValueError):  # no node answers that; leave it as it is
            return state, {}
        return replace(state, value=to_builtins(form)), {form.sha256: data}

    def stored_form(self, state: State) -> Any:
        return FileState if "sha256" in state.mapping else FileAnswer

    def content_sizes(self, state: State) -> Mapping[str, int]:
        name, size = state.mapping.get("sha256"), state.mapping.get("size")
        return {name: size} if isinstance(name, str) and isinstance(size, int) else {}

    def with_contents(self, state: State, contents: Mapping[str, bytes]) -> State:
        data = contents.get(str(state.mapping.get("sha256")))
        if data is None:
            return state
        parts = {key: part for key, part in state.mapping.items() if key not in ("sha256", "size")}
        return replace(state, value={**parts, "content": base64.b64encode(data).decode("ascii")})

    def describe(self, state: State) -> str:
        mode = state.mapping.get("mode")
        return f"a file of mode {mode:o}" if isinstance(mode, int) else "a file"

    def lines(self, state: State) -> Iterator[str]:
        value, label = state.mapping, plain(state.resource.label)
        if not value:
            yield from super().lines(state)
            return
        mode = value.get("mode")
        mode_text = f"mode {mode:o}" if isinstance(mode, int) else "mode unknown"
        yield f"{label}: {mode_text}, owner {value.get('owner')}, group {value.get('group')}"
        yield from (f"  {line}" for line in _content(value))

    def text(self, state: State) -> list[str] | None:
        content = state.mapping.get("content")
        if not isinstance(content, str):
            return None
        with suppress(ValueError):
            text = base64.b64decode(content).decode()
            if text.count("\n") <= LINES:
                return [plain(line) for line in _lines(text)]
        return None

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, WriteFile):
                yield from _diff(action, before.get(action.resource))

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, WriteFile):
            return None
        if action.content is None:
            return not state.exists
        expected = {
            "sha256": hashlib.sha256(_bytes(action.content)).hexdigest(),
            "mode": action.mode,
            "owner": action.owner,
            "group": action.group,
        }
        value = self.to_stored(state)[0].mapping
        return state.exists and all(value.get(key) == part for key, part in expected.items())

    def restore_rank(self, before: State) -> int:
        return 2

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        path = before.resource.name
        if not before.exists:
            return [WriteFile(path=path, content=None)]
        value, label = mapping(before), before.resource.label
        if "target" in value:
            raise RestoreError(f"{label}: it is a symbolic link to {value['target']!r}")
        content = text_of(before)
        if content is None:
            raise RestoreError(f"{label}: its content is not UTF-8 text")
        mode, owner, group = (integer(before, value.get(key)) for key in ("mode", "owner", "group"))
        return [WriteFile(path=path, content=content, mode=mode, owner=owner, group=group)]

    def after_restore(
        self, restore_actions: Sequence[Action], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """NetworkManager loads the profiles again that the step let it load."""
        paths = {action.path for action in restore_actions if isinstance(action, WriteFile)}
        return [
            action
            for action in actions
            if isinstance(action, RunCommand) and action.words in {(*LOAD, path) for path in paths}
        ]

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """TuneD sets nothing at boot if an active profile has no file."""
        names = (other.name for other in others if other.kind == "tuned_profile")
        return any(f"/{name}/" in resource.name for name in names)

    def remove_leftovers(self, before: State, current: State) -> Sequence[Action]:
        """The action that removes a file also removes what a write left next to it."""
        if before.exists or current.exists or current.why:
            return ()
        return [WriteFile(path=before.resource.name, content=None)]


def text_of(state: State) -> str | None:
    """The content of a file; None if it is not UTF-8 text. Raises RestoreError if it was not
    read."""
    content = mapping(state).get("content")
    if not isinstance(content, str):
        raise RestoreError(f"{state.resource.label}: its content was not read")
    try:
        return base64.b64decode(content, validate=True).decode("utf-8")
    except UnicodeDecodeError:
        return None
    except ValueError as error:  # binascii.Error is one, and of other than ASCII it is another
        raise RestoreError(f"{state.resource.label}: its content is not base64: {error}") from error


def _content(value: Mapping[str, Any]) -> list[str]:
    if "content" not in value and "sha256" in value:
        return [plain(f"{value.get('size'):,} bytes, sha256 {value['sha256']}")]
    try:
        content = base64.b64decode(str(value.get("content") or ""))
    except ValueError:
        return ["content that is not base64"]
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) > LINES or (content and not lines):
        return [f"{len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}"]
    return [plain(line) for line in lines]


def _diff(action: WriteFile, before: State | None) -> Iterator[str]:
    import difflib

    path = plain(action.path)
    old, about = _old_text(before)
    new = action.content
    if new is None and before and not before.exists:
        return
    head = "/dev/null" if before and not before.exists else f"{path}{about}"
    yield f"--- {head}"
    yield f"+++ {'/dev/null' if new is None else path}"
    diff_lines = list(difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=CONTEXT))[2:]
    for line in diff_lines:
        yield line if line.startswith("@@") else f"{line[0]}{marked(line[1:])}"
    if before and before.exists and isinstance(before.value, Mapping):
        old_properties = _properties(*(before.value.get(key) for key in ("mode", "owner", "group")))
    else:
        old_properties = _properties(0o644, 0, 0)
    new_properties = _properties(action.mode, action.owner, action.group)
    if new is not None and new_properties != old_properties:
        if before and before.exists:
            yield f"-{path}: {old_properties}"
        yield f"+{path}: {new_properties}"


def _old_text(before: State | None) -> tuple[str | None, str]:
    """The text of a file, and a remark for its path in the diff."""
    if before is None:
        return None, "  (its content was not read)"
    if not before.exists:
        return None, ""
    if "content" not in before.mapping and (name := before.mapping.get("sha256")):
        summary = f"{before.mapping.get('size')} bytes, sha256 {name}"
        return None, plain(f"  (its earlier content is not available here, {summary})")
    try:
        text = text_of(before)
    except RestoreError:
        return None, "  (its content was not read)"
    return text, "  (its content is not text)" if text is None else ""


def _lines(text: str | None) -> list[str]:
    if not text:
        return []
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}  (no newline at its end)"]


def _properties(mode: Any, owner: Any, group: Any) -> str:
    mode_text = f"{mode:04o}" if isinstance(mode, int) else "not read"
    return plain(f"mode {mode_text}, owner {owner}, group {group}")


KIND = FileKind()
